//! Ends to test with: two of ours over loopback, and a peer that makes its FPDUs by hand.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use rddp_ddp::{Header, Msn, Stag};
use rddp_mpa::{
    Deframer, Framer, Initiator, InitiatorStep, Negotiated, Responder, ResponderStep, StartupConfig, Step,
};
use rddp_rdmap::{Opcode, TerminateCode, TerminateRepr, tagged_header, untagged_header};
use rddp_stream::{Calls, Errno, Options, Role, SharedState, Stream};
use socket2::{Domain, Socket, Type};

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
        Stream::new(self.tcp.as_raw_fd(), &self.state, &CALLS)
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

    /// One read with room for `room` octets.
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

    /// `poll` as the switch does it, with the wake-ups that came to nothing counted.
    pub(crate) fn poll(&self, want: i16, timeout: Duration) -> (i16, usize) {
        let until = Instant::now() + timeout;
        let mut swallowed = 0;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut span = left;
            if let Some(startup) = self.stream().deadline() {
                span = span.min(startup);
            }
            if self.stream().holds_octets() {
                span = Duration::ZERO;
            }
            let ready = kernel_poll(&self.tcp, self.stream().interest(want), span);
            let told = self.stream().revents(ready, want);
            if told != 0 || left.is_zero() {
                return (told, swallowed);
            }
            swallowed += usize::from(ready != 0);
        }
    }

    pub(crate) fn readable(&self) -> bool {
        self.poll(libc::POLLIN, Duration::ZERO).0 & libc::POLLIN != 0
    }
}

pub(crate) fn kernel_poll(tcp: &TcpStream, events: i16, timeout: Duration) -> i16 {
    let mut entry = libc::pollfd { fd: tcp.as_raw_fd(), events, revents: 0 };
    let millis = timeout.as_micros().div_ceil(1000) as i32;
    // SAFETY: one entry, which lives.
    unsafe { libc::poll(&raw mut entry, 1, millis) };
    entry.revents
}

pub(crate) fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let active = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (active, listener.accept().unwrap().0)
}

/// A connection whose segments keep their size; over loopback it would grow with the window. TCP
/// takes some 100 KB at once, also in many short pieces: what it takes of its own accord depends on
/// what it has seen of a peer earlier.
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

/// Two ends that have not exchanged an octet.
pub(crate) fn fresh_pair(active: &Options, passive: &Options) -> (End, End) {
    let (a, b) = tcp_pair();
    (End::new(a, active), End::new(b, passive))
}

/// Two ends that may send.
pub(crate) fn pair(active: &Options, passive: &Options) -> (End, End) {
    let (a, b) = fresh_pair(active, passive);
    assert_eq!(a.stream().greet(), Ok(false));
    assert_eq!(b.stream().greet(), Ok(true));
    a.stream().start(None).unwrap();
    let (told, _) = b.poll(libc::POLLOUT, Duration::from_secs(5));
    assert_eq!(told & libc::POLLOUT, libc::POLLOUT, "the RTR has come");
    (a, b)
}

/// A peer that speaks iWARP by hand.
pub(crate) struct Hand {
    pub(crate) tcp: TcpStream,
    pub(crate) framer: Framer,
    pub(crate) deframer: Deframer,
    pub(crate) negotiated: Negotiated,
    pub(crate) msn: Msn,
    /// Octets that are here and not yet used.
    stream: Vec<u8>,
}

impl Hand {
    /// The initiator, with a stream of ours as responder. Its RTR is not sent.
    pub(crate) fn initiator(config: &StartupConfig, options: &Options) -> (Self, End) {
        Self::initiator_on(tcp_pair(), config, options)
    }

    pub(crate) fn initiator_on(
        (mut tcp, other): (TcpStream, TcpStream),
        config: &StartupConfig,
        options: &Options,
    ) -> (Self, End) {
        let end = End::new(other, options);
        let initiator = Initiator::new(config, b"").unwrap();
        tcp.write_all(initiator.request()).unwrap();
        assert_eq!(end.stream().greet(), Ok(true));
        (Self::after_request(tcp, initiator), end)
    }

    /// The initiator whose Request our end has read and answered.
    pub(crate) fn after_request(mut tcp: TcpStream, mut initiator: Initiator) -> Self {
        let mut stream = Vec::new();
        loop {
            match initiator.handle(&stream).unwrap() {
                InitiatorStep::Need { .. } => read_some(&mut tcp, &mut stream),
                InitiatorStep::Accepted { negotiated, used, .. } => {
                    stream.drain(..used);
                    return Self::new(tcp, negotiated, stream);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// The initiator with the defaults, its RTR sent.
    pub(crate) fn ready(config: &StartupConfig) -> (Self, End) {
        let (mut hand, end) = Self::initiator(config, &responder());
        hand.fpdu(&tagged_header(Opcode::Write, Stag(0), 0, true), b"");
        (hand, end)
    }

    /// The responder, with a stream of ours as initiator.
    pub(crate) fn responder(config: &StartupConfig, options: &Options) -> (Self, End) {
        Self::responder_on(tcp_pair(), config, options)
    }

    pub(crate) fn responder_on(
        (active, tcp): (TcpStream, TcpStream),
        config: &StartupConfig,
        options: &Options,
    ) -> (Self, End) {
        let end = End::new(active, options);
        assert_eq!(end.stream().greet(), Ok(false));
        let hand = Self::answering(tcp, config, &end);
        (hand, end)
    }

    /// The responder to a stream of ours that has sent its Request, or is about to.
    pub(crate) fn answering(mut tcp: TcpStream, config: &StartupConfig, end: &End) -> Self {
        let mut stream = Vec::new();
        loop {
            match Responder::new().handle(&stream).unwrap() {
                ResponderStep::Need { .. } => read_some(&mut tcp, &mut stream),
                ResponderStep::Request { request, used } => {
                    stream.drain(..used);
                    let (reply, negotiated) = request.accept(config, b"").unwrap();
                    tcp.write_all(&reply).unwrap();
                    end.stream().start(None).unwrap();
                    return Self::new(tcp, negotiated, stream);
                }
            }
        }
    }

    fn new(tcp: TcpStream, negotiated: Negotiated, stream: Vec<u8>) -> Self {
        tcp.set_nodelay(true).unwrap();
        tcp.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let (framer, deframer) = (Framer::new(negotiated.tx()), Deframer::new(negotiated.rx()));
        Self { tcp, framer, deframer, negotiated, msn: Msn::FIRST, stream }
    }

    pub(crate) fn encode(&mut self, header: &Header, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let fill = |offset: usize, dst: &mut [u8]| dst.copy_from_slice(&payload[offset..offset + dst.len()]);
        self.framer.emit(&header.octets(), payload.len(), fill, &mut out);
        out
    }

    /// A Send in one segment, encoded.
    pub(crate) fn encode_send(&mut self, payload: &[u8]) -> Vec<u8> {
        let header = untagged_header(Opcode::Send, Stag(0), self.msn, 0, true);
        self.msn = self.msn.next();
        self.encode(&header, payload)
    }

    pub(crate) fn fpdu(&mut self, header: &Header, payload: &[u8]) {
        let octets = self.encode(header, payload);
        self.write(&octets);
    }

    pub(crate) fn send(&mut self, payload: &[u8]) {
        let octets = self.encode_send(payload);
        self.write(&octets);
    }

    pub(crate) fn write(&mut self, octets: &[u8]) {
        self.tcp.write_all(octets).unwrap();
    }

    /// The next segment: header and payload. `None` at the end.
    pub(crate) fn segment(&mut self) -> Option<(Header, Vec<u8>)> {
        loop {
            match self.deframer.step(&mut self.stream).unwrap() {
                Step::Fpdu { ulpdu, used } => {
                    let segment = self.stream[ulpdu].to_vec();
                    self.stream.drain(..used);
                    let header = Header::parse(&segment).unwrap();
                    return Some((header, segment[header.len()..].to_vec()));
                }
                Step::Need { .. } => {
                    let have = self.stream.len();
                    read_some(&mut self.tcp, &mut self.stream);
                    if self.stream.len() == have {
                        assert_eq!(have, 0, "an FPDU is cut off");
                        return None;
                    }
                }
            }
        }
    }

    /// Reads up to the Terminate and to the end behind it.
    pub(crate) fn terminate(&mut self) -> Option<TerminateCode> {
        let mut code = None;
        while let Some((header, payload)) = self.segment() {
            assert_eq!(code, None, "nothing follows a Terminate");
            if Opcode::from_number(header.control() & 0xf) == Some(Opcode::Terminate) {
                code = TerminateRepr::parse(&payload).map(|terminate| terminate.code);
            }
        }
        code
    }
}

fn read_some(tcp: &mut TcpStream, stream: &mut Vec<u8>) {
    let mut octets = [0; 65536];
    let count = tcp.read(&mut octets).unwrap();
    stream.extend(&octets[..count]);
}

/// Octets that are the same for the same seed.
pub(crate) fn octets(seed: u64, count: usize) -> Vec<u8> {
    let mut rng = Rng(seed);
    (0..count).map(|_| (rng.next() >> 32) as u8).collect()
}

/// `SplitMix64`.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> usize {
        (self.next() % limit) as usize
    }
}
