//! `rnic_startup`: any octets sent to a listener, and any octets in answer to an end that connects,
//! over TCP on the loopback (RFC 5044 §7.1, RFC 6581).
//!
//! The pure halves of the startup give the expected outcome; sockets, threads and timers must not
//! change it. No end waits longer than necessary.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use arbitrary::{Arbitrary, Unstructured};
use rddp_mpa::{Deframer, Initiator, InitiatorStep, Responder, ResponderStep, StartupConfig, Step};
use rddp_rdmap::TerminateRepr;
use rddp_rnic::{
    CompletionQueue, ConnectError, ConnectOptions, Listener, PortMapper, ProtectionDomain, QpConfig, QpState,
    QueuePair, Rnic,
};
use rddp_test_support::{Random, read_request};
use socket2::SockRef;

use crate::input::{Octets, inputs};
use crate::mpa_startup::Wish;

inputs! {
    /// The roles, and the octets that are sent.
    pub struct Input {
        /// The crates' end connects; else it listens.
        active: bool,
        /// The configuration of the crates' end.
        own: Wish,
        /// The frame that a correct peer would send. At most its beginning is sent, in front of the
        /// octets below.
        peer: Wish,
        /// Number of octets of that frame that are kept, and the answer of the listener's program.
        proper: u16,
        /// The answer of the listener's program; see [`answer`].
        answer: u8,
        /// The seed of the cuts of the peer's octets.
        cuts: u8,
        /// The rest of what the peer sends.
        octets: Octets,
    }
}

/// Flags of the listener's program and of the peer at the end.
mod answer {
    /// Two bits.
    pub(super) const REJECT: u8 = 1;
    pub(super) const DROP: u8 = 2;
    /// The peer closes and resets before it is answered.
    pub(super) const PEER_GONE: u8 = 4;
    /// The end that connects begins again with revision 1 when it is refused.
    pub(super) const FALL_BACK: u8 = 8;
    /// A peer that answers closes right behind its answer.
    pub(super) const CLOSE: u8 = 16;
}

/// Far longer than anything takes, and shorter than every timeout that is set.
const IN_TIME: Duration = Duration::from_secs(8);
const TIMEOUT: Duration = Duration::from_secs(20);

struct World {
    /// Kept because the objects below are made of it.
    rnic: Rnic,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    /// Tells the peer of an active end what to answer.
    scripts: Sender<Script>,
    heard: Receiver<Vec<u8>>,
    fake: SocketAddr,
}

/// The behaviour of a peer that listens.
struct Script {
    reply: Vec<u8>,
    cuts: u8,
    close: bool,
    /// Number of connections that it serves.
    times: usize,
}

static WORLD: LazyLock<Mutex<World>> = LazyLock::new(|| {
    let rnic = Rnic::open().unwrap();
    let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(64).unwrap());
    let fake = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = fake.local_addr().unwrap();
    let (scripts, to_serve) = channel();
    let (tell, heard) = channel();
    thread::spawn(move || serve(&fake, &to_serve, &tell));
    Mutex::new(World { rnic, pd, cq, scripts, heard, fake: addr })
});

/// Runs one input; the module says what has to hold.
pub fn run(octets: &[u8]) {
    let Ok(input) = Input::arbitrary(&mut Unstructured::new(octets)) else { return };
    let world = WORLD.lock().unwrap();
    let options = options(&input);
    if input.active {
        world.active(&input, &options);
    } else {
        world.passive(&input, &options);
    }
    while world.rnic.async_event().is_some() {}
}

fn options(input: &Input) -> ConnectOptions {
    let wish = input.own.config();
    ConnectOptions {
        revision: wish.revision,
        fall_back: input.answer & answer::FALL_BACK != 0,
        crc: wish.crc,
        markers: wish.markers,
        ird: wish.ird,
        ord: wish.ord,
        peer_to_peer: wish.peer_to_peer,
        rtr: wish.rtr,
        private_data: input.own.private_data(520),
        timeout: TIMEOUT,
        port_mapper: PortMapper::Off,
        ..ConnectOptions::default()
    }
}

/// Returns the configuration that the device makes of the options: no depth exceeds its own.
fn startup(options: &ConnectOptions) -> StartupConfig {
    let max = rddp_rnic::Rnic::CAPABILITIES.max_ird;
    StartupConfig {
        revision: options.revision,
        crc: options.crc,
        markers: options.markers,
        ird: options.ird.min(max),
        ord: options.ord.min(max),
        max_ird: max,
        assumed_ird: options.assumed_ird,
        peer_to_peer: options.peer_to_peer,
        rtr: options.rtr,
        large_fpdus: options.large_fpdus,
    }
}

/// Returns a correct frame up to the place from which the input decides.
fn stream(input: &Input, proper: &[u8]) -> Vec<u8> {
    let kept = usize::from(input.proper).min(proper.len());
    [&proper[..kept], &input.octets.0].concat()
}

fn write_in_pieces(socket: &mut TcpStream, octets: &[u8], cuts: u8) {
    let mut random = Random::new(cuts.into());
    let mut rest = octets;
    let mut pieces = 0;
    while !rest.is_empty() {
        // Few enough pieces to stay fast; 0 for all octets at once.
        let chunk = if cuts == 0 || pieces == 8 { rest.len() } else { random.chunk(rest.len()) };
        let (now, later) = rest.split_at(chunk);
        // The other end may close at any time.
        if socket.write_all(now).is_err() {
            return;
        }
        (rest, pieces) = (later, pieces + 1);
    }
}

/// Reads everything that arrives until the other end closes, in time.
fn read_to_end(socket: &mut TcpStream) -> Vec<u8> {
    socket.set_read_timeout(Some(IN_TIME)).unwrap();
    let mut octets = Vec::new();
    let mut room = [0; 2048];
    loop {
        match socket.read(&mut room) {
            Ok(0) => return octets,
            Ok(count) => octets.extend(&room[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("the end never closes"),
            Err(_) => return octets,
        }
    }
}

/// Closes without leaving the port in TIME-WAIT: thousands of connections are made in a second.
fn reset(socket: TcpStream) {
    let _ = SockRef::from(&socket).set_linger(Some(Duration::ZERO));
    drop(socket);
}

impl World {
    fn qp(&self) -> QueuePair {
        self.pd.create_qp(&QpConfig::new(&self.cq)).unwrap()
    }

    /// Checks a listener of the crates; the input is the Request.
    fn passive(&self, input: &Input, options: &ConnectOptions) {
        let listener = self.rnic.listen("127.0.0.1:0".parse().unwrap(), options).unwrap();
        let mut proper = Vec::new();
        if let Ok(initiator) = Initiator::new(&input.peer.config(), &input.peer.private_data(512)) {
            proper = initiator.request().to_vec();
        }
        let stream = stream(input, &proper);
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        socket.set_nodelay(true).unwrap();
        write_in_pieces(&mut socket, &stream, input.cuts);
        match Responder::new().handle(&stream) {
            Ok(ResponderStep::Request { request, used }) => {
                let more = used < stream.len();
                self.answer(input, options, &listener, socket, &request, more);
            }
            // RFC 5044 §7.1.2: closed without sending anything.
            Err(_) => {
                assert_eq!(read_to_end(&mut socket), [0u8; 0]);
                assert!(listener.try_accept().is_none());
                reset(socket);
            }
            Ok(ResponderStep::Need { .. }) => {
                assert!(listener.try_accept().is_none());
                socket.shutdown(Shutdown::Write).unwrap();
                assert_eq!(read_to_end(&mut socket), [0u8; 0]);
                assert!(listener.try_accept().is_none());
                reset(socket);
            }
        }
    }

    fn answer(
        &self,
        input: &Input,
        options: &ConnectOptions,
        listener: &Listener,
        mut socket: TcpStream,
        request: &rddp_mpa::Request,
        more: bool,
    ) {
        let Some(accepted) = self.take(listener, &mut socket, more) else { return reset(socket) };
        assert_eq!(accepted.request(), Some(request));
        assert_eq!(accepted.private_data(), request.private_data);
        assert_eq!(accepted.peer_addr(), Some(socket.local_addr().unwrap()));
        let qp = self.qp();
        let gone = input.answer & answer::PEER_GONE != 0;
        let mut socket = Some(socket);
        if gone && let Some(socket) = socket.take() {
            let _ = socket.shutdown(Shutdown::Write);
            reset(socket);
        }
        let config = startup(options);
        let data = &options.private_data;
        match input.answer & 3 {
            answer::REJECT => match (accepted.reject(data), request.reject(&config, data)) {
                (Ok(()), Ok(reply)) => {
                    if let Some(mut socket) = socket {
                        assert_eq!(read_exactly(&mut socket, reply.len()), *reply);
                        socket.shutdown(Shutdown::Write).unwrap();
                        assert_eq!(read_to_end(&mut socket), [0u8; 0]);
                        reset(socket);
                    }
                }
                (result, Ok(_)) => assert!(gone || more, "{result:?}"),
                (result, Err(_)) => assert!(matches!(result, Err(ConnectError::Misuse(_))), "{result:?}"),
            },
            answer::DROP => {
                drop(accepted);
                if let Some(mut socket) = socket {
                    assert_eq!(read_to_end(&mut socket), [0u8; 0]);
                    reset(socket);
                }
            }
            _ => match (accepted.accept(&qp, data), request.accept(&config, data)) {
                (Ok(negotiated), Ok((reply, expected))) => {
                    assert_eq!(negotiated, Some(expected));
                    if let Some(mut socket) = socket {
                        if !more {
                            assert_eq!(read_exactly(&mut socket, reply.len()), *reply);
                        }
                        reset(socket);
                    }
                    ended(&qp);
                }
                (result, Ok(_)) => assert!(gone || more, "{result:?}"),
                (result, Err(_)) => assert!(matches!(result, Err(ConnectError::Misuse(_))), "{result:?}"),
            },
        }
    }

    /// Returns the request, or none because of the octets behind it.
    fn take(
        &self,
        listener: &Listener,
        socket: &mut TcpStream,
        more: bool,
    ) -> Option<rddp_rnic::ConnectRequest> {
        if !more {
            return Some(listener.accept(Some(IN_TIME)).unwrap().expect("a request that is whole"));
        }
        // The cuts decide whether these octets are seen in time.
        socket.set_nonblocking(true).unwrap();
        let started = Instant::now();
        loop {
            if let Some(request) = listener.try_accept() {
                socket.set_nonblocking(false).unwrap();
                return Some(request);
            }
            match socket.peek(&mut [0]) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => thread::yield_now(),
                Ok(1..) => panic!("an answer without a request"),
                _ => return None,
            }
            assert!(started.elapsed() < IN_TIME, "neither a request nor an end");
        }
    }

    /// Checks an end of the crates that connects; the input is the Reply.
    fn active(&self, input: &Input, options: &ConnectOptions) {
        let config = startup(options);
        let initiator = Initiator::new(&config, &options.private_data);
        let reply = stream(input, &proper_reply(&initiator, input));
        let close = input.answer & answer::CLOSE != 0;
        let qp = self.qp();
        let Ok(mut initiator) = initiator else {
            let result = qp.connect(self.fake, options);
            assert!(matches!(result, Err(ConnectError::Misuse(_))), "{result:?}");
            return;
        };
        let expected = initiator.handle(&reply);
        // A peer that waits for more than is sent would make both ends wait.
        let close = close || matches!(expected, Ok(InitiatorStep::Need { .. }));
        let again = input.answer & answer::FALL_BACK != 0 && options.revision == rddp_rnic::Revision::Two;
        let error = match &expected {
            Ok(InitiatorStep::Need { .. }) => Some(initiator.closed(&reply)),
            Err(error) => Some(*error),
            Ok(_) => None,
        };
        let times = if again && error.is_some_and(|error| error.retry_with_revision_one()) { 2 } else { 1 };
        self.scripts.send(Script { reply, cuts: input.cuts, close, times }).unwrap();
        let result = qp.connect(self.fake, options);
        let state = qp.state();
        drop(qp);
        let heard: Vec<Vec<u8>> = (0..times).map(|_| self.heard.recv_timeout(IN_TIME).unwrap()).collect();
        assert!(heard[0].starts_with(initiator.request()));
        let behind = &heard[0][initiator.request().len()..];
        match (result, expected) {
            (Ok(connected), Ok(InitiatorStep::Accepted { negotiated, private_data, .. })) => {
                assert_eq!((connected.negotiated, connected.private_data), (Some(negotiated), private_data));
            }
            (
                Err(ConnectError::Rejected { private_data: got }),
                Ok(InitiatorStep::Rejected { private_data, .. }),
            ) => {
                assert_eq!(got, private_data);
                assert_eq!((behind, state), (&[][..], QpState::Idle));
            }
            (Err(ConnectError::Startup(got)), _) if times == 1 => {
                assert_eq!(Some(got), error);
                said(behind, &initiator, got.terminate().map(|code| code.code()));
                assert_eq!(state, QpState::Idle);
            }
            // The second try, with revision 1, gets the same answer.
            (_, _) if times == 2 => {}
            // The peer resets when it closes with unread octets of this end.
            (Err(ConnectError::Closed | ConnectError::Tcp(_)), _) if close => {}
            (result, expected) => panic!("{result:?} where {expected:?} was due"),
        }
    }
}

/// Checks that an end that fails sends, behind its Request, only the Terminate that is due.
fn said(octets: &[u8], initiator: &Initiator, code: Option<u8>) {
    let Some(code) = code else { return assert_eq!(octets, [0u8; 0]) };
    let mut octets = octets.to_vec();
    let framing = initiator.tx().expect("a Terminate needs a framing");
    // Nothing of it may have arrived if the peer had reset before.
    if octets.is_empty() {
        return;
    }
    let Step::Fpdu { ulpdu, used } = Deframer::new(framing).step(&mut octets).unwrap() else {
        panic!("half an FPDU")
    };
    assert_eq!(used, octets.len());
    let terminate = TerminateRepr::parse(&octets[ulpdu.start + 18..ulpdu.end]).unwrap();
    assert_eq!(terminate.code.0, 0x2000 | u16::from(code));
}

/// Returns the Reply of a correct peer.
fn proper_reply(initiator: &Result<Initiator, rddp_mpa::StartupMisuse>, input: &Input) -> Vec<u8> {
    let Ok(initiator) = initiator else { return Vec::new() };
    let Ok(ResponderStep::Request { request, .. }) = Responder::new().handle(initiator.request()) else {
        panic!("a Request of our own is none");
    };
    let (config, data) = (input.peer.config(), input.peer.private_data(509));
    if input.answer & answer::REJECT != 0 {
        return request.reject(&config, &data).map(|reply| reply.to_vec()).unwrap_or_default();
    }
    request.accept(&config, &data).map(|(reply, _)| reply.to_vec()).unwrap_or_default()
}

fn read_exactly(socket: &mut TcpStream, len: usize) -> Vec<u8> {
    socket.set_read_timeout(Some(IN_TIME)).unwrap();
    let mut octets = vec![0; len];
    socket.read_exact(&mut octets).unwrap();
    octets
}

/// Checks that the QP notices in time that the peer has closed.
fn ended(qp: &QueuePair) {
    let started = Instant::now();
    while !matches!(qp.state(), QpState::Idle | QpState::Error) {
        assert!(started.elapsed() < IN_TIME, "the connection does not end: {qp:?}");
        thread::yield_now();
    }
}

/// The peer of an active end: answers as it is told, and reports what it has received.
fn serve(listener: &TcpListener, scripts: &Receiver<Script>, tell: &Sender<Vec<u8>>) {
    while let Ok(script) = scripts.recv() {
        for _ in 0..script.times {
            let (mut socket, _) = listener.accept().unwrap();
            socket.set_nodelay(true).unwrap();
            socket.set_read_timeout(Some(IN_TIME)).unwrap();
            let mut heard = read_request(&mut socket);
            write_in_pieces(&mut socket, &script.reply, script.cuts);
            if script.close {
                let _ = socket.shutdown(Shutdown::Write);
            }
            heard.extend(read_to_end(&mut socket));
            reset(socket);
            tell.send(heard).unwrap();
        }
    }
}
