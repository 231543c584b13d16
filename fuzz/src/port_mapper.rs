//! `port_mapper`: any answers to the port mapper's query of an end that connects.
//!
//! The query goes to UDP port 3935 of the host to which the end connects, so this target needs that
//! port on the loopback: it cannot run beside a real port mapper, or twice at a time. It connects
//! to the unspecified address, which means the loopback: for loopback addresses themselves no query
//! is made.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use arbitrary::{Arbitrary, Unstructured};
use rddp_rnic::{ConnectError, ConnectOptions, PortMapper, ProtectionDomain, QpConfig, Rnic};
use socket2::SockRef;

use crate::input::{Octets, inputs};

inputs! {
    /// The answers to the two tries.
    pub struct Input {
        /// The answer to the first try.
        first: Answer,
        /// The answer to the second try, if there is one.
        second: Answer,
    }

    /// An answer.
    pub struct Answer {
        /// The first octet: version, kind and family.
        head: u8,
        /// The fault of the answer: see [`wrong`].
        wrong: u8,
        /// The port that it names: the listener's other one, or none.
        no_port: bool,
        /// Octets in place of the answer's, or behind them.
        octets: Octets,
    }
}

mod wrong {
    pub(super) const HANDLE: u8 = 1;
    pub(super) const SHORT: u8 = 2;
    pub(super) const LONG: u8 = 4;
    pub(super) const ADDRESSES: u8 = 8;
}

const PORT: u16 = 3935;
const LEN: usize = 48;

struct World {
    pd: ProtectionDomain,
    rnic: Rnic,
    answers: Sender<[Answer; 2]>,
    /// Reports which listener was connected to: that of the port as given, or as mapped.
    reached: Receiver<bool>,
    given: u16,
}

static WORLD: LazyLock<Mutex<World>> = LazyLock::new(|| {
    let mapper = UdpSocket::bind((Ipv4Addr::LOCALHOST, PORT)).expect(
        "UDP port 3935 of the loopback is taken: is a port mapper or another run of this target there?",
    );
    let rnic = Rnic::open().unwrap();
    let (answers, to_give) = channel();
    let (tell, reached) = channel();
    let given = listen(&tell, false);
    let mapped = listen(&tell, true);
    thread::spawn(move || answer_queries(&mapper, &to_give, mapped));
    Mutex::new(World { pd: rnic.alloc_pd(), rnic, answers, reached, given })
});

/// Runs one input; every answer that is wrong has to be ignored.
pub fn run(octets: &[u8]) {
    let Ok(input) = Input::arbitrary(&mut Unstructured::new(octets)) else { return };
    let world = WORLD.lock().unwrap();
    let want = expected(&input);
    world.answers.send([input.first, input.second]).unwrap();
    let cq = world.rnic.create_cq(1).unwrap();
    let qp = world.pd.create_qp(&QpConfig::new(&cq)).unwrap();
    let options = ConnectOptions {
        timeout: Duration::from_secs(5),
        fall_back: false,
        port_mapper: PortMapper::Auto,
        ..ConnectOptions::default()
    };
    let addr = SocketAddr::from((Ipv4Addr::UNSPECIFIED, world.given));
    let started = Instant::now();
    let result = qp.connect(addr, &options);
    assert!(started.elapsed() < Duration::from_secs(4), "the query takes too long");
    assert!(!matches!(result, Ok(_) | Err(ConnectError::TimedOut(_))), "{result:?}");
    assert_eq!(world.reached.recv_timeout(Duration::from_secs(4)), Ok(want), "{result:?}");
}

/// Returns whether the connection goes to the mapped port.
fn expected(input: &Input) -> bool {
    for answer in [&input.first, &input.second] {
        // A valid answer has version 0, an existing family and the query's handle; anything else is
        // ignored.
        let length = if answer.wrong & wrong::SHORT != 0 { answer.octets.0.len().min(LEN - 1) } else { LEN };
        let family = answer.head & 0x0f;
        if length < LEN
            || answer.head & 0xc0 != 0
            || ![4, 6].contains(&family)
            || answer.wrong & wrong::HANDLE != 0
        {
            continue;
        }
        return answer.head >> 4 == 1 && !answer.no_port;
    }
    false
}

/// Answers each query at once. The query of the next connection gets the first answer again.
fn answer_queries(socket: &UdpSocket, answers: &Receiver<[Answer; 2]>, mapped: u16) {
    let mut now: Option<([Answer; 2], Vec<u8>)> = None;
    let mut query = [0; 256];
    loop {
        let (len, from) = socket.recv_from(&mut query).unwrap();
        let query = &query[..len];
        assert_eq!(len, LEN);
        if query[0] >> 4 == 2 {
            // An acknowledgement repeats the answer, and is not answered.
            continue;
        }
        assert_eq!(query[0] & 0xcf, 4, "version 0, IPv4");
        assert_eq!(query[0] >> 4, 0, "a request");
        let again = now.as_ref().is_some_and(|(_, first)| first[8..16] == query[8..16]);
        if !again {
            now = Some((answers.recv().unwrap(), query.to_vec()));
        }
        let (both, _) = now.as_ref().unwrap();
        let octets = both[usize::from(again)].octets(query, mapped);
        let _ = socket.send_to(&octets, from);
    }
}

impl Answer {
    fn octets(&self, query: &[u8], mapped: u16) -> Vec<u8> {
        let mut octets = query.to_vec();
        octets[0] = self.head;
        octets[4..6].copy_from_slice(&if self.no_port { 0 } else { mapped }.to_be_bytes());
        if self.wrong & wrong::HANDLE != 0 {
            octets[8] ^= 1;
        }
        if self.wrong & wrong::ADDRESSES != 0 {
            let other = self.octets.0.iter().copied().chain(std::iter::repeat(0xff));
            octets[16..].iter_mut().zip(other).for_each(|(octet, other)| *octet = other);
        }
        if self.wrong & wrong::SHORT != 0 {
            octets.truncate(self.octets.0.len());
            octets.truncate(LEN - 1);
        } else if self.wrong & wrong::LONG != 0 {
            octets.extend(&self.octets.0);
        }
        octets
    }
}

/// Closes every connection at once, and reports it.
fn listen(tell: &Sender<bool>, mapped: bool) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let tell = tell.clone();
    thread::spawn(move || {
        for socket in listener.incoming() {
            // A reset, so that no port stays in TIME-WAIT.
            let _ = SockRef::from(&socket.unwrap()).set_linger(Some(Duration::ZERO));
            tell.send(mapped).unwrap();
        }
    });
    port
}
