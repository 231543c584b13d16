//! A gateway, a plain host that connects to it, and the program behind the device.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rddp_gateway::{Counts, Ends, Event, Options, Reason, Route, RunError};
use rddp_rnic::{
    Access, Completion, CompletionQueue, ConnectError, ConnectOptions, MemoryRegion, ProtectionDomain,
    QpConfig, QueuePair, Remote, Rnic, SendWr,
};
use rddp_verbs_device::{Asked, Endpoint, Listener, Offer, Registration};

use crate::devices::{self, Host, Kind, host, quirk};

/// Time after which a test has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until something is so.
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !so() {
        assert!(since.elapsed() < PATIENCE, "waiting until {what}");
        std::thread::yield_now();
    }
}

/// An event that the gateway has told.
#[derive(Debug)]
pub(crate) enum Told {
    Opened,
    Moved(Counts, Ends),
    Refused(Reason),
    Ended(Counts, Reason),
}

/// A running gateway.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    pub(crate) told: Receiver<Told>,
    /// Places that are taken.
    pub(crate) places: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), RunError>>>,
}

/// Most connections of a gateway in these tests.
pub(crate) const MOST: usize = 100;

impl Gateway {
    pub(crate) fn start(route: Route, options: Options) -> Self {
        let address = match &route {
            Route::FromPlain { listener, .. } => listener.local_addr().unwrap(),
            Route::FromDevice { listener, .. } => listener.address(),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, told) = channel();
        let (tell, is_stopped) = (std::sync::Mutex::new(tell), stop.clone());
        let places = Arc::new(AtomicUsize::new(0));
        let taken = places.clone();
        let thread = std::thread::spawn(move || {
            let admit = |_| Place::take(&taken).ok_or("no place".to_owned());
            let tell = |event: Event<'_>| {
                let event = match event {
                    Event::Opened { .. } => Told::Opened,
                    Event::Moved { counts, ends, .. } => Told::Moved(counts, ends.clone()),
                    Event::Refused { reason, .. } => Told::Refused(reason),
                    Event::Ended { counts, reason, .. } => Told::Ended(counts, reason),
                    Event::CannotAccept { reason } => panic!("{reason}"),
                };
                let _ = tell.lock().unwrap().send(event);
            };
            rddp_gateway::run(&[route], &options, admit, tell, || is_stopped.load(Ordering::Relaxed))
        });
        Gateway { address, told, places, stop, thread: Some(thread) }
    }

    /// Waits for the end of a connection.
    pub(crate) fn ended(&self) -> (Counts, Reason) {
        loop {
            match self.told.recv_timeout(PATIENCE).expect("a connection ends") {
                Told::Opened | Told::Moved(..) => {}
                Told::Refused(reason) => panic!("{reason}"),
                Told::Ended(counts, reason) => return (counts, reason),
            }
        }
    }

    /// Waits for a refusal.
    pub(crate) fn refused(&self) -> Reason {
        match self.told.recv_timeout(PATIENCE).expect("a connection is refused") {
            Told::Refused(reason) => reason,
            told => panic!("{told:?}"),
        }
    }

    pub(crate) fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.end().unwrap();
    }

    /// Waits for the end of a gateway.
    pub(crate) fn end(&mut self) -> Result<(), RunError> {
        self.thread.take().expect("the gateway has not ended before").join().unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(matches!(ended, Ok(Ok(()))) || std::thread::panicking());
        }
    }
}

/// A place among [`MOST`].
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(places: &Arc<AtomicUsize>) -> Option<Self> {
        let has = places.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < MOST).then_some(n + 1));
        has.ok().map(|_| Place(places.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A gateway to a program that listens by a device.
pub(crate) struct World {
    pub(crate) gateway: Gateway,
    pub(crate) listener: Listener,
    pub(crate) host: Host,
    pub(crate) rnic: Rnic,
}

/// Makes a gateway for plain hosts.
pub(crate) fn world(name: &str, kind: Kind) -> World {
    world_with(name, kind, 0)
}

/// Makes one whose device takes its time.
pub(crate) fn slow_world(name: &str, kind: Kind) -> World {
    world_with(name, kind, quirk::SLOW)
}

pub(crate) fn world_with(name: &str, kind: Kind, quirks: u32) -> World {
    let host = host(name, kind, quirks);
    let listener = host.listen();
    let gateway = gateway_to(&host, &listener.address(), Options::default());
    World { gateway, listener, host, rnic: Rnic::open().unwrap() }
}

/// Makes a gateway for plain hosts, to a place behind a device.
pub(crate) fn gateway_to(host: &Host, to: &impl ToString, options: Options) -> Gateway {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let (device, to) = (host.device.clone(), to.to_string());
    Gateway::start(Route::FromPlain { listener, device, to }, options)
}

/// A plain host's end.
pub(crate) struct Plain {
    pub(crate) pd: ProtectionDomain,
    pub(crate) cq: CompletionQueue,
    pub(crate) qp: QueuePair,
}

impl Plain {
    pub(crate) fn new(rnic: &Rnic) -> Self {
        let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(64).unwrap());
        let qp = pd.create_qp(&QpConfig::new(&cq)).unwrap();
        Plain { pd, cq, qp }
    }

    pub(crate) fn memory(&self, octets: &[u8]) -> MemoryRegion {
        let region = self.pd.allocate(octets.len().max(8), Access::LOCAL_WRITE).unwrap();
        region.write(0, octets).unwrap();
        region
    }

    /// Waits for the next completion.
    pub(crate) fn completion(&self) -> Completion {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(completion) = self.cq.poll_one() {
                return completion;
            }
            assert!(Instant::now() < until, "no completion");
            self.cq.wait(Some(Duration::from_secs(1))).unwrap();
        }
    }

    /// Posts a request, and waits for its end.
    pub(crate) fn does(&self, request: &SendWr) -> Completion {
        self.qp.post_send(request).unwrap();
        self.completion()
    }

    /// Waits for the Terminate that the gateway sends.
    pub(crate) fn terminated(&self) -> u16 {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(terminate) = self.qp.terminate_received() {
                return terminate.code.0;
            }
            assert!(Instant::now() < until, "no Terminate");
            let _ = self.cq.poll_one();
            std::thread::yield_now();
        }
    }
}

/// The program behind the device.
pub(crate) struct Program {
    pub(crate) end: Endpoint,
    pub(crate) memory: Registration,
    pub(crate) asked: Asked,
}

impl Program {
    pub(crate) fn remote(&self) -> Remote {
        self.memory.remote().unwrap()
    }

    pub(crate) fn octets(&self, at: usize, len: usize) -> Vec<u8> {
        let mut octets = vec![0; len];
        self.memory.read(at, &mut octets);
        octets
    }
}

/// Octets of the memory that a program behind a device shows to its peers.
pub(crate) const MEMORY: usize = 1 << 21;

impl World {
    /// Takes the gateway's request as the program behind the device.
    pub(crate) fn answer(&self, offer: Offer) -> Program {
        let (mut end, asked) = devices::asked(&self.listener);
        end.accept(offer).unwrap();
        devices::event(&mut end);
        Program { end, memory: self.host.open_memory(MEMORY), asked }
    }

    /// Connects a plain host by the gateway.
    pub(crate) fn connect_with(
        &self,
        options: &ConnectOptions,
        offer: Offer,
    ) -> (Plain, Program, Result<Vec<u8>, ConnectError>) {
        let plain = Plain::new(&self.rnic);
        let address = self.gateway.address;
        let (program, connected) = std::thread::scope(|scope| {
            let connecting = scope.spawn(|| plain.qp.connect(address, options));
            let program = self.answer(offer);
            (program, connecting.join().unwrap())
        });
        (plain, program, connected.map(|connected| connected.private_data))
    }

    pub(crate) fn connect(&self) -> (Plain, Program) {
        let (plain, program, connected) = self.connect_with(&ConnectOptions::default(), Offer::default());
        connected.unwrap();
        (plain, program)
    }
}

/// A gateway for programs behind a device, to a plain host that listens.
pub(crate) fn reverse(name: &str, kind: Kind, to: &impl ToString, options: Options) -> (Gateway, Host) {
    let host = host(name, kind, 0);
    let listener = Listener::open(&host.device, host.address(1, 0), 8).unwrap();
    let route = Route::FromDevice { listener, to: to.to_string() };
    (Gateway::start(route, options), host)
}
