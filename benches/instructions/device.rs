//! A device of the host: what posting and polling cost above the device's own functions. The
//! library of fake devices is both ends; the same requests by the table of its context alone are
//! the scenarios `device_bare_*`.

use std::ffi::c_void;
use std::net::SocketAddr;

use rddp_benches::stop_background_by;
use rddp_rnic::{
    Access, CompletionQueue, ConnectOptions, MemoryRegion, QpConfig, QueuePair, RecvWr, Rnic, RnicConfig,
    SendWr, Status,
};
use rddp_verbs_device::{Device, Endpoint, Event, Listener, Offer, Queues, Registration};

use crate::Scenario;
use crate::count::measured;
use crate::fake::{Kind, fake};

/// Number of operations in a round.
const SOME: u32 = 16;
const SMALL: usize = 64;
const PORT: u16 = 7;

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "device_send_64", ops: SOME, prepare: send },
    Scenario { name: "device_bare_send_64", ops: SOME, prepare: bare_send },
    Scenario { name: "device_receive_64", ops: SOME, prepare: receive },
    Scenario { name: "device_bare_receive_64", ops: SOME, prepare: bare_receive },
];

/// A connection by the device, whose peer is an endpoint in the same thread.
struct Pair {
    cq: CompletionQueue,
    qp: QueuePair,
    region: MemoryRegion,
    peer: Endpoint,
    memory: Registration,
    /// Both ends of a connection, for who calls the table.
    bare: *const c_void,
    _rnic: Rnic,
}

impl Pair {
    fn new() -> Self {
        let number = fake().make("fake", Kind::Rxe, 0);
        let device = Device::named_in(fake().library, "fake").expect("the fake device");
        let address = |port| SocketAddr::from(([127, 100 + number as u8, 0, 1], port));
        let rnic = Rnic::with_device(&RnicConfig::default(), Some(device.clone())).expect("an RNIC");
        let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(256).expect("a completion queue"));
        let region = pd.allocate(SMALL, Access::LOCAL_WRITE).expect("a region");
        let qp = pd.create_qp(&QpConfig::new(&cq)).expect("a QP");
        let queues = Queues { sends: 64, receives: 64, inline: 0 };
        let listener = Listener::open(&device, address(PORT), 1).expect("a listener");
        qp.begin_to(address(PORT), &ConnectOptions::default()).expect("an idle QP");
        let mut asked = std::iter::repeat_with(|| listener.take().expect("the device is there"));
        let request = asked.find_map(|asked| asked).expect("a request");
        let mut peer = request.endpoint(&device, queues).expect("a queue pair");
        peer.accept(Offer::default()).expect("a peer that waits");
        while !matches!(peer.event(), Ok(Some(Event::Connected(_)))) {
            std::thread::yield_now();
        }
        while !matches!(qp.begun(), Some(Ok(_))) {
            std::thread::yield_now();
        }
        // Nobody listens at another port, which the background thread logs.
        let bait = pd.create_qp(&QpConfig::new(&cq)).expect("a QP");
        stop_background_by(|| {
            bait.begin_to(address(PORT + 1), &ConnectOptions::default()).expect("an idle QP");
        });
        std::mem::forget(bait);
        let memory = Registration::allocate(device.domain(), SMALL, Access::LOCAL_WRITE).expect("memory");
        let bare = (fake().bare)(number, SMALL as u32);
        Pair { cq, qp, region, peer, memory, bare, _rnic: rnic }
    }

    /// Has the peer take as many messages as there are in a round.
    fn peer_receives(&mut self) {
        for _ in 0..SOME {
            let receive = RecvWr::one(0, self.memory.piece(0, SMALL));
            self.peer.post_receive(&receive).expect("room for a receive");
        }
    }

    /// Has the peer send a message, which has come when this returns.
    fn peer_sends(&mut self) {
        self.peer.post_send(&SendWr::send(0, self.memory.piece(0, SMALL))).expect("a connection");
        self.peer_polls();
    }

    /// Has the peer take its completions.
    fn peer_polls(&mut self) {
        let mut told = Vec::new();
        self.peer.poll(&mut told).expect("a queue that works");
        assert!(told.iter().all(|told| told.status == Status::Success), "{told:?}");
    }
}

/// Posts Sends, each of which has completed when it is polled for.
fn send() -> Box<dyn FnMut()> {
    let mut pair = Pair::new();
    let wr = SendWr::send(1, pair.region.whole());
    Box::new(move || {
        pair.peer_receives();
        measured(&mut || {
            for _ in 0..SOME {
                pair.qp.post_send(&wr).expect("room in the send queue");
                assert!(pair.cq.poll_one().is_some());
            }
        });
        pair.peer_polls();
    })
}

fn bare_send() -> Box<dyn FnMut()> {
    let mut pair = Pair::new();
    Box::new(move || {
        pair.peer_receives();
        measured(&mut || {
            for _ in 0..SOME {
                assert_eq!((fake().bare_send)(pair.bare), 0);
                assert_eq!((fake().bare_poll)(pair.bare), 1);
            }
        });
        pair.peer_polls();
    })
}

/// Posts receives, and polls for each when a message has come.
fn receive() -> Box<dyn FnMut()> {
    let mut pair = Pair::new();
    let wr = RecvWr::one(1, pair.region.whole());
    Box::new(move || {
        for _ in 0..SOME {
            measured(&mut || pair.qp.post_recv(wr.clone()).expect("room for a receive"));
            pair.peer_sends();
            measured(&mut || assert!(pair.cq.poll_one().is_some()));
        }
    })
}

fn bare_receive() -> Box<dyn FnMut()> {
    let mut pair = Pair::new();
    Box::new(move || {
        for _ in 0..SOME {
            measured(&mut || assert_eq!((fake().bare_receive)(pair.bare), 0));
            pair.peer_sends();
            measured(&mut || assert_eq!((fake().bare_poll)(pair.bare), 1));
        }
    })
}
