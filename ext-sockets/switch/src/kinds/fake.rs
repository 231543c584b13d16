//! A kind of sockets for tests: octets in the kernel are somebody else's, and a flag says whether
//! what the program waits for is there.

use std::collections::HashMap;
use std::ffi::{c_int, c_short};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libc::{POLLERR, POLLHUP, POLLIN, POLLOUT};
use rddp_stream::Errno;

use super::kind::{Begin, Close, Farewell, Obligation, Readiness, SocketKind};
use crate::socket::{self, Held, KindId, Mode, Settings};
use crate::sys::test_calls;

/// The script of a fake socket, and notes of what was done to it.
#[derive(Debug, Default)]
pub(crate) struct Acts {
    /// Set if what the program waits for is there.
    pub(crate) holds: AtomicBool,
    pub(crate) looks: AtomicUsize,
    /// Set while it waits for room, as an initiator does until its startup has begun: the deadline
    /// notes the beginning.
    pub(crate) greets: AtomicBool,
    /// Set while an obligation is open, which is met when octets have come.
    pub(crate) obliged: AtomicBool,
    pub(crate) met: AtomicUsize,
    /// The close is not the kernel's: the octets that are still to be sent.
    pub(crate) to_send: Mutex<Option<Vec<u8>>>,
    pub(crate) peer_ended: AtomicBool,
    pub(crate) ended_by_reset: Mutex<Option<bool>>,
}

static ALL: Mutex<Option<HashMap<u64, Arc<Acts>>>> = Mutex::new(None);

fn acts_of(cookie: u64) -> Arc<Acts> {
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(all.get_or_insert_default().entry(cookie).or_default())
}

/// Makes a fake socket and its plain peer.
pub(crate) fn fake() -> (TcpStream, TcpStream, Arc<Acts>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let tcp = listener.accept().unwrap().0;
    let settings = Settings { mode: Mode::On, kind: KindId::Fake, ..Settings::default() };
    let held = socket::adopt(tcp.as_raw_fd(), settings).unwrap();
    (tcp, peer, acts_of(held.cookie()))
}

impl Acts {
    /// Lets what the program waits for be there, and kicks the sleepers.
    pub(crate) fn let_it_hold(&self, fd: c_int) {
        self.holds.store(true, Ordering::Release);
        test_calls::kick(fd);
    }

    pub(crate) fn looks(&self) -> usize {
        self.looks.load(Ordering::Acquire)
    }
}

#[derive(Debug)]
pub struct Fake {
    held: Held,
    fd: c_int,
}

impl Fake {
    pub(super) fn new(held: Held, fd: c_int) -> Self {
        Self { held, fd }
    }

    fn acts(&self) -> Arc<Acts> {
        acts_of(self.held.cookie())
    }

    fn read_and_drop(&self) -> usize {
        test_calls::read_and_drop(self.fd)
    }
}

impl SocketKind for Fake {
    fn admit(held: Held, fd: c_int) -> Result<Self, Errno> {
        Ok(Self { held, fd })
    }

    fn held(&self) -> &Held {
        &self.held
    }

    fn fd(&self) -> c_int {
        self.fd
    }
}

impl Begin for Fake {}

impl Readiness for Fake {
    fn interest(&self, want: c_short) -> c_short {
        if self.acts().greets.load(Ordering::Acquire) { POLLOUT } else { want }
    }

    fn deadline(&self, _want: c_short) -> Option<Duration> {
        self.acts().greets.store(false, Ordering::Release);
        None
    }

    fn revents(&self, ready: c_short, want: c_short) -> c_short {
        let acts = self.acts();
        acts.looks.fetch_add(1, Ordering::AcqRel);
        let holds = acts.holds.load(Ordering::Acquire);
        ready & (POLLHUP | POLLERR) | if holds { want & (POLLIN | POLLOUT) } else { 0 }
    }

    fn waits_by_edges(&self, _want: c_short) -> bool {
        let acts = self.acts();
        acts.looks() > 0 && !acts.holds.load(Ordering::Acquire)
    }
}

impl Close for Fake {
    fn close(&self) -> bool {
        self.acts().to_send.lock().unwrap().is_some()
    }

    fn linger(&self) -> bool {
        false
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(30)
    }

    fn farewell(&self) -> Option<Farewell> {
        let acts = self.acts();
        while self.read_and_drop() > 0 {}
        let mut to_send = acts.to_send.lock().unwrap();
        let left = to_send.as_mut()?;
        let sent = test_calls::send(self.fd, left);
        left.drain(..sent);
        Some(match (left.is_empty(), acts.peer_ended.load(Ordering::Acquire)) {
            (false, _) => Farewell::Sending,
            (true, false) => Farewell::Sent,
            (true, true) => Farewell::Over,
        })
    }

    fn end(&self, by_reset: bool) {
        *self.acts().ended_by_reset.lock().unwrap() = Some(by_reset);
    }

    fn obligation(&self) -> Option<Obligation> {
        let obliged = self.acts().obliged.load(Ordering::Acquire);
        obliged.then_some(Obligation::default())
    }

    fn meet_obligation(&self) {
        let acts = self.acts();
        if self.read_and_drop() > 0 {
            acts.obliged.store(false, Ordering::Release);
            acts.met.fetch_add(1, Ordering::AcqRel);
        }
    }
}
