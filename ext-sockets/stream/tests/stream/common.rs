//! Ends to test with: two of ours over loopback, and a peer whose FPDUs are made by hand.

use std::io::{IoSlice, IoSliceMut};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use rddp_mpa::StartupConfig;
use rddp_stream::{Calls, EdgeSet, Errno, Options, Role, SharedState};
use rddp_test_support::Peer;
use socket2::{Domain, Socket, Type};

use crate::Stream;

pub(crate) static CALLS: Calls = Calls::libc();

/// An end of ours.
pub(crate) struct End {
    pub(crate) tcp: TcpStream,
    pub(crate) state: SharedState,
}

impl End {
    pub(crate) fn new(tcp: TcpStream, options: &Options) -> Self {
        Self { tcp, state: SharedState::anonymous(options).unwrap() }
    }

    pub(crate) fn stream(&self) -> Stream<'_> {
        Stream::new(self.tcp.as_raw_fd(), &self.state, &CALLS).unwrap()
    }

    pub(crate) fn send(&self, octets: &[u8]) -> Result<usize, Errno> {
        self.stream().send(&[IoSlice::new(octets)], libc::MSG_NOSIGNAL)
    }

    pub(crate) fn send_all(&self, octets: &[u8]) {
        assert_eq!(self.send(octets), Ok(octets.len()));
    }

    pub(crate) fn recv(&self, octets: &mut [u8], flags: i32) -> Result<usize, Errno> {
        self.stream().recv(&mut [IoSliceMut::new(octets)], flags)
    }

    /// Reads once, with room for `room` octets.
    pub(crate) fn read(&self, room: usize) -> Result<Vec<u8>, Errno> {
        let mut octets = vec![0; room];
        let count = self.recv(&mut octets, 0)?;
        octets.truncate(count);
        Ok(octets)
    }

    pub(crate) fn read_to_end(&self, room: usize) -> Result<Vec<u8>, Errno> {
        let mut all = Vec::new();
        loop {
            let octets = self.read(room)?;
            if octets.is_empty() {
                return Ok(all);
            }
            all.extend(octets);
        }
    }

    pub(crate) fn nonblocking(&self) {
        self.tcp.set_nonblocking(true).unwrap();
    }

    /// Polls as the switch does; also counts wake-ups without an event for the program.
    pub(crate) fn poll(&self, want: i16, timeout: Duration) -> (i16, usize) {
        let until = Instant::now() + timeout;
        let mut swallowed = 0;
        let mut set: Option<EdgeSet> = None;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut span = left;
            if let Some(startup) = self.stream().deadline() {
                span = span.min(startup);
            }
            if self.stream().holds_octets() {
                span = Duration::ZERO;
            }
            let ready = match &mut set {
                _ if !self.stream().waits_by_edges(want) => {
                    kernel_poll(&self.tcp, self.stream().interest(want), span)
                }
                Some(set) => {
                    poll_number(set.number(), libc::POLLIN, span);
                    let mut edges = 0;
                    set.collect(|_, events| edges |= events);
                    edges
                }
                // A look comes between the registration and the sleep.
                none => {
                    *none = Some(self.edges());
                    0
                }
            };
            let told = self.stream().revents(ready, want);
            if told != 0 || left.is_zero() {
                return (told, swallowed);
            }
            swallowed += usize::from(ready != 0);
        }
    }

    /// Returns a set in which the socket is registered.
    pub(crate) fn edges(&self) -> EdgeSet {
        let (fd, cookie) = (self.tcp.as_raw_fd(), CALLS.cookie(self.tcp.as_raw_fd()).unwrap());
        let mut set = EdgeSet::take(&CALLS, fd, cookie).unwrap();
        set.register(fd, cookie, 0).unwrap();
        set
    }

    pub(crate) fn readable(&self) -> bool {
        self.poll(libc::POLLIN, Duration::ZERO).0 & libc::POLLIN != 0
    }
}

pub(crate) fn kernel_poll(tcp: &TcpStream, events: i16, timeout: Duration) -> i16 {
    poll_number(tcp.as_raw_fd(), events, timeout)
}

fn poll_number(fd: RawFd, events: i16, timeout: Duration) -> i16 {
    let mut entry = libc::pollfd { fd, events, revents: 0 };
    let millis = timeout.as_micros().div_ceil(1000) as i32;
    // SAFETY: one entry, which lives until the call returns.
    unsafe { libc::poll(&raw mut entry, 1, millis) };
    entry.revents
}

pub(crate) fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let active = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (active, listener.accept().unwrap().0)
}

/// Returns a connection whose segments keep their size; over loopback it would grow with the
/// window. TCP takes some 100 KB at once, also in many short pieces: how much depends on what it
/// has seen of a peer earlier.
pub(crate) fn tcp_pair_with_mss(mss: u32) -> (TcpStream, TcpStream) {
    let make = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_tcp_mss(mss).unwrap();
        socket.set_send_buffer_size(1 << 20).unwrap();
        socket
    };
    let (listener, active) = (make(), make());
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(1).unwrap();
    active.connect(&listener.local_addr().unwrap()).unwrap();
    (active.into(), listener.accept().unwrap().0.into())
}

pub(crate) fn initiator() -> Options {
    Options::new(Role::Initiator)
}

pub(crate) fn responder() -> Options {
    Options::new(Role::Responder)
}

/// Returns two ends that have not exchanged an octet.
pub(crate) fn fresh_pair(active: &Options, passive: &Options) -> (End, End) {
    let (a, b) = tcp_pair();
    (End::new(a, active), End::new(b, passive))
}

/// Returns two ends that may send.
pub(crate) fn pair(active: &Options, passive: &Options) -> (End, End) {
    let (a, b) = fresh_pair(active, passive);
    assert_eq!(a.stream().greet(), Ok(false));
    assert_eq!(b.stream().greet(), Ok(true));
    a.stream().start(None).unwrap();
    let (told, _) = b.poll(libc::POLLOUT, Duration::from_secs(5));
    assert_eq!(told & libc::POLLOUT, libc::POLLOUT, "the RTR has come");
    (a, b)
}

/// Returns a hand-made peer as initiator, with a stream of ours as responder. The peer's RTR is not
/// sent.
pub(crate) fn by_initiator(config: &StartupConfig, options: &Options) -> (Peer, End) {
    by_initiator_on(tcp_pair(), config, options)
}

pub(crate) fn by_initiator_on(
    (mut tcp, other): (TcpStream, TcpStream),
    config: &StartupConfig,
    options: &Options,
) -> (Peer, End) {
    let end = End::new(other, options);
    let initiator = Peer::request(&mut tcp, config);
    assert_eq!(end.stream().greet(), Ok(true));
    (Peer::after_request(tcp, initiator), end)
}

/// Returns a hand-made peer as initiator, its RTR sent, with a stream of ours that has the
/// defaults.
pub(crate) fn by_ready_initiator() -> (Peer, End) {
    let (mut peer, end) = by_initiator(&StartupConfig::default(), &responder());
    peer.open();
    (peer, end)
}

/// Returns a hand-made peer as responder, with a stream of ours as initiator.
pub(crate) fn by_responder(config: &StartupConfig, options: &Options) -> (Peer, End) {
    by_responder_on(tcp_pair(), config, options)
}

pub(crate) fn by_responder_on(
    (active, tcp): (TcpStream, TcpStream),
    config: &StartupConfig,
    options: &Options,
) -> (Peer, End) {
    let end = End::new(active, options);
    assert_eq!(end.stream().greet(), Ok(false));
    let peer = answered(tcp, config, &end);
    (peer, end)
}

/// Returns the responder to a stream of ours that has sent its Request, or is about to.
pub(crate) fn answered(tcp: TcpStream, config: &StartupConfig, end: &End) -> Peer {
    let peer = Peer::responder(tcp, config);
    end.stream().start(None).unwrap();
    peer
}
