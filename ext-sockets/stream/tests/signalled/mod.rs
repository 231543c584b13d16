//! Ends of a stream in a program whose handlers of signals are part of the test.

use std::io::IoSliceMut;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use rddp_stream::{Calls, Errno, Options, SharedState};

use crate::Stream;

static CALLS: Calls = Calls::libc();

/// Installs a handler, with flags as `SA_RESTART`.
pub(crate) fn handle(signal: i32, flags: i32, handler: extern "C" fn(libc::c_int)) {
    // SAFETY: the handlers of these tests only count, and write to a buffer of the test.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
    }
}

/// A connection of the tests, at one end: its socket and its state.
pub(crate) struct End {
    pub(crate) tcp: TcpStream,
    pub(crate) state: SharedState,
}

impl End {
    pub(crate) fn stream(&self) -> Stream<'_> {
        Stream::new(self.tcp.as_raw_fd(), &self.state, &CALLS).unwrap()
    }

    /// Receives up to `count` octets in one call.
    pub(crate) fn read(&self, count: usize, flags: i32) -> Result<Vec<u8>, Errno> {
        let mut octets = vec![0; count];
        let got = self.stream().recv(&mut [IoSliceMut::new(&mut octets)], flags)?;
        octets.truncate(got);
        Ok(octets)
    }
}

/// Returns the ends of a TCP connection, the active one first, each of which has sent its part of
/// the startup.
pub(crate) fn greeted(active: &Options, passive: &Options) -> (End, End) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let end = |tcp, options| End { tcp, state: SharedState::anonymous(options).unwrap() };
    let a = end(TcpStream::connect(listener.local_addr().unwrap()).unwrap(), active);
    let b = end(listener.accept().unwrap().0, passive);
    a.stream().greet().unwrap();
    b.stream().greet().unwrap();
    (a, b)
}
