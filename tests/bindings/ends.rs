//! A connection with one end of each binding.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use rddp_sdp::socket::Config;
use rddp_sdp_rnic::{Scheme, SdpDevice, SdpStream};
use rddp_stream::sdp::Stream;
use rddp_stream::{Calls, Errno, Format, Options, Role, SdpOptions, SharedState};

static CALLS: Calls = Calls::libc();

/// The settings of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// The device's end connects; else the in-call one does.
    pub(crate) device_connects: bool,
    pub(crate) crc: bool,
    /// Thresholds of the device's end.
    pub(crate) device: Option<usize>,
    /// The threshold of the in-call end.
    pub(crate) in_call: u64,
    /// The device's end changes to Pipelined and advertises its receives.
    pub(crate) pipelined: bool,
}

impl Case {
    /// A connection that only copies.
    pub(crate) const COPIES: Self =
        Case { device_connects: true, crc: true, device: None, in_call: u64::MAX, pipelined: false };

    /// Returns this case with each role and with and without CRC.
    pub(crate) fn each(self) -> impl Iterator<Item = Self> {
        let ways = [(false, false), (false, true), (true, false), (true, true)];
        ways.into_iter().map(move |(device_connects, crc)| Case { device_connects, crc, ..self })
    }

    fn config(self) -> Config {
        Config {
            source_threshold: self.device,
            sink_threshold: self.device,
            sink_adverts: self.pipelined,
            pipelined: self.pipelined,
            ..Config::default()
        }
    }

    fn options(self, role: Role) -> Options {
        let sdp = SdpOptions { threshold: self.in_call, ..SdpOptions::DEFAULT };
        Options { crc: self.crc, format: Format::Sdp(sdp), ..Options::new(role) }
    }

    /// Makes the connection.
    pub(crate) fn connect(self) -> (SdpStream, InCall) {
        let mut device = SdpDevice::open(self.config(), Scheme::PerCall).unwrap();
        device.options.crc = self.crc;
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        if self.device_connects {
            let listener = TcpListener::bind(any).unwrap();
            let addr = listener.local_addr().unwrap();
            return std::thread::scope(|scope| {
                let connecting = scope.spawn(|| device.connect(addr).unwrap());
                let end = InCall::new(listener.accept().unwrap().0, &self.options(Role::Responder));
                end.stream().start(None).unwrap();
                (connecting.join().unwrap(), end)
            });
        }
        let listener = device.listen(any).unwrap();
        let addr = listener.local_addr().unwrap();
        std::thread::scope(|scope| {
            let accepting = scope.spawn(|| listener.accept().unwrap());
            let end = InCall::new(TcpStream::connect(addr).unwrap(), &self.options(Role::Initiator));
            end.stream().start(None).unwrap();
            (accepting.join().unwrap(), end)
        })
    }
}

/// The end over a plain TCP socket.
pub(crate) struct InCall {
    pub(crate) tcp: TcpStream,
    pub(crate) state: SharedState,
}

impl InCall {
    fn new(tcp: TcpStream, options: &Options) -> Self {
        let end = InCall { tcp, state: SharedState::anonymous(options).unwrap() };
        end.stream().greet().unwrap();
        end
    }

    pub(crate) fn stream(&self) -> Stream<'_> {
        Stream::new(self.tcp.as_raw_fd(), &self.state, &CALLS).unwrap()
    }
}

/// Calls that both ends have.
pub(crate) trait End: Sync {
    fn put(&self, octets: &[u8]) -> Result<usize, String>;
    fn take(&self, octets: &mut [u8]) -> Result<usize, String>;
    fn shut_down(&self);

    fn send_all(&self, mut octets: &[u8]) {
        while !octets.is_empty() {
            let count = self.put(octets).unwrap();
            octets = &octets[count..];
        }
    }

    fn receive_all(&self, len: usize) -> Vec<u8> {
        let (mut octets, mut at) = (vec![0; len], 0);
        while at < len {
            let count = self.take(&mut octets[at..]).unwrap();
            assert!(count > 0, "the stream ended at {at} of {len}");
            at += count;
        }
        octets
    }
}

impl End for SdpStream {
    fn put(&self, octets: &[u8]) -> Result<usize, String> {
        (&mut &*self).write(octets).map_err(|error| format!("device: {error}"))
    }

    fn take(&self, octets: &mut [u8]) -> Result<usize, String> {
        (&mut &*self).read(octets).map_err(|error| format!("device: {error}"))
    }

    fn shut_down(&self) {
        self.shutdown_send();
    }
}

impl End for InCall {
    fn put(&self, octets: &[u8]) -> Result<usize, String> {
        self.stream().send(&[IoSlice::new(octets)], libc::MSG_NOSIGNAL).map_err(|error| self.told(error))
    }

    fn take(&self, octets: &mut [u8]) -> Result<usize, String> {
        self.stream().recv(&mut [IoSliceMut::new(octets)], 0).map_err(|error| self.told(error))
    }

    fn shut_down(&self) {
        self.stream().shutdown(libc::SHUT_WR).unwrap();
    }
}

impl InCall {
    fn told(&self, error: Errno) -> String {
        format!("in-call: {error:?}, {:?}", self.state.ended())
    }

    /// Resets the connection.
    pub(crate) fn reset(self) {
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        let size = size_of::<libc::linger>() as libc::socklen_t;
        // SAFETY: the descriptor is open, and the option is read from a value of its size.
        let done = unsafe {
            let value = (&raw const linger).cast();
            libc::setsockopt(self.tcp.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, value, size)
        };
        assert_eq!(done, 0);
        drop(self.tcp);
    }

    /// Ends the TCP connection without a word of SDP.
    pub(crate) fn cut(&self) {
        self.tcp.shutdown(Shutdown::Both).unwrap();
    }
}
