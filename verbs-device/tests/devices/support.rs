//! Devices, connections, and waits that end.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rddp_rdma::{Access, Completion, SendWr};
use rddp_verbs_device::{
    Asked, Device, Endpoint, Event, Listener, Offer, PostError, Queues, Registration, Transport,
};

#[allow(dead_code, reason = "other crates use the rest")]
#[path = "fake.rs"]
mod fake;

pub(crate) use fake::{Kind, fake, quirk};

/// Variable that names a device of this host, for the tests that [`hosts`] serves.
const REAL: &str = "RDDP_TEST_DEVICE";

/// Time after which a wait is over, and the test has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A device that a test has.
pub(crate) struct Host {
    pub(crate) device: Device,
    pub(crate) kind: Kind,
    /// The number of a fake one.
    number: Option<c_int>,
}

/// Returns the device of this host that a variable names, or fake ones: one of each kind, with
/// these quirks.
pub(crate) fn hosts(name: &str, quirks: u32) -> Vec<Host> {
    match std::env::var(REAL) {
        Ok(real) => vec![Host::real(&real)],
        Err(_) => {
            let kinds = [Kind::Siw, Kind::Rxe, Kind::Adapter];
            kinds.into_iter().map(|kind| host(&format!("{name}{}", kind as u8), kind, quirks)).collect()
        }
    }
}

/// Returns those of [`hosts`] that speak iWARP.
pub(crate) fn rnics(name: &str, quirks: u32) -> impl Iterator<Item = Host> {
    hosts(name, quirks).into_iter().filter(|host| host.kind.is_iwarp())
}

/// Returns those of [`hosts`] that speak InfiniBand's protocol.
pub(crate) fn adapters(name: &str, quirks: u32) -> impl Iterator<Item = Host> {
    hosts(name, quirks).into_iter().filter(|host| !host.kind.is_iwarp())
}

/// Returns a fake device of a test's own.
pub(crate) fn host(name: &str, kind: Kind, quirks: u32) -> Host {
    let number = fake().make(name, kind, quirks);
    Host { device: Device::named_in(fake().library, name).unwrap(), kind, number: Some(number) }
}

impl Host {
    fn real(name: &str) -> Self {
        let device = Device::named(name).unwrap_or_else(|error| panic!("{REAL}: {error}"));
        let kind = if device.transport() == Transport::Iwarp { Kind::Siw } else { Kind::Rxe };
        Host { device, kind, number: None }
    }

    pub(crate) fn is_real(&self) -> bool {
        self.number.is_none()
    }

    /// Returns an address of the device.
    pub(crate) fn own(&self, port: u16) -> SocketAddr {
        match self.number {
            Some(_) => self.address(1, port),
            None => SocketAddr::new(self.device.addresses()[0], port),
        }
    }

    fn number(&self) -> c_int {
        self.number.expect("a fake device")
    }

    /// Returns an address of a fake device's network.
    pub(crate) fn address(&self, last: u8, port: u16) -> SocketAddr {
        let number = self.number();
        let number = if number < 156 { number + 100 } else { number - 155 };
        SocketAddr::from(([127, number as u8, 0, last], port))
    }

    pub(crate) fn cut(&self) {
        (fake().cut)(self.number());
    }

    pub(crate) fn tell(&self, event: u32) {
        (fake().event)(self.number(), event);
    }

    pub(crate) fn remove(&self) {
        (fake().remove)(self.number());
    }

    pub(crate) fn end_silence() {
        (fake().end_silence)();
    }

    /// Waits until the library has no objects for the device.
    pub(crate) fn until_nothing_is_left(&self) {
        self.until_left(0);
    }

    /// Waits until the library has no more objects for the device: a thread that has connected may
    /// hold its id for a moment.
    pub(crate) fn until_left(&self, count: c_int) {
        let since = Instant::now();
        while self.objects() > count {
            assert!(since.elapsed() < PATIENCE, "{} objects are left", self.objects());
            std::thread::yield_now();
        }
    }

    /// Returns how many objects a fake library has for the device.
    pub(crate) fn objects(&self) -> c_int {
        self.number.map_or(0, |number| (fake().objects)(number))
    }

    #[allow(dead_code, reason = "the tests of the gateway use it")]
    /// Returns how many receives the queue pairs of a fake device have.
    pub(crate) fn receives(&self) -> c_int {
        (fake().receives)(self.number())
    }

    #[allow(dead_code, reason = "the tests of the gateway use it")]
    /// Returns how many requests of a fake device have not been acknowledged.
    pub(crate) fn sends(&self) -> c_int {
        (fake().sends)(self.number())
    }

    pub(crate) fn listen(&self) -> Listener {
        Listener::open(&self.device, self.own(0), 8).unwrap()
    }

    /// Begins to look for a listener.
    pub(crate) fn look_for(&self, to: SocketAddr) -> Endpoint {
        Endpoint::open(&self.device, None, to, QUEUES, PATIENCE).unwrap()
    }

    /// Returns an active end that has asked a listener for a connection.
    pub(crate) fn ask(&self, to: SocketAddr, offer: Offer) -> Endpoint {
        let mut active = self.look_for(to);
        assert!(matches!(event(&mut active), Event::Resolved));
        active.connect(offer).unwrap();
        active
    }

    /// Returns both ends of a connection: the active and the passive one.
    pub(crate) fn connect(&self, active: Offer, passive: Offer) -> (Endpoint, Endpoint) {
        let listener = self.listen();
        let mut active = self.ask(listener.address(), active);
        let (mut other, _) = asked(&listener);
        other.accept(passive).unwrap();
        assert!(matches!(event(&mut active), Event::Connected(_)));
        assert!(matches!(event(&mut other), Event::Connected(_)));
        (active, other)
    }

    pub(crate) fn connect_plainly(&self) -> (Endpoint, Endpoint) {
        self.connect(Offer::default(), Offer::default())
    }

    pub(crate) fn memory(&self, len: usize, access: Access) -> Registration {
        Registration::allocate(self.device.domain(), len, access).unwrap()
    }

    /// Returns memory that peers may read and write.
    pub(crate) fn open_memory(&self, len: usize) -> Registration {
        self.memory(len, Access::LOCAL_WRITE | Access::REMOTE)
    }
}

pub(crate) const QUEUES: Queues = Queues { sends: 8, receives: 8, inline: 512 };

/// Waits for a descriptor. A test that nothing wakes has failed, though there may be something.
pub(crate) fn wait(fd: &impl AsFd, since: Instant) {
    assert!(since.elapsed() < PATIENCE, "nothing came");
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    let time = PollTimeout::try_from(PATIENCE).unwrap();
    assert_eq!(poll(&mut fds, time), Ok(1), "nothing woke the program");
}

/// Waits for a request of a peer.
pub(crate) fn asked(listener: &Listener) -> (Endpoint, Asked) {
    let since = Instant::now();
    loop {
        if let Some(request) = listener.take().unwrap() {
            let asked = request.asked().clone();
            return (request.endpoint(listener.device(), QUEUES).unwrap(), asked);
        }
        wait(listener, since);
    }
}

/// Waits for a change of a connection, whatever completes meanwhile.
pub(crate) fn event(endpoint: &mut Endpoint) -> Event {
    event_beside(endpoint, &mut Vec::new())
}

/// Waits for a change of a connection, and appends what completes meanwhile.
pub(crate) fn event_beside(endpoint: &mut Endpoint, told: &mut Vec<Completion>) -> Event {
    let since = Instant::now();
    loop {
        if let Some(event) = endpoint.event().unwrap() {
            return event;
        }
        endpoint.poll(told).unwrap();
        endpoint.arm().unwrap();
        wait(endpoint, since);
    }
}

/// Waits for completions, as a program does that sleeps between them.
pub(crate) fn completions(endpoint: &mut Endpoint, count: usize) -> Vec<Completion> {
    let (since, mut got) = (Instant::now(), Vec::new());
    loop {
        endpoint.poll(&mut got).unwrap();
        if got.len() >= count {
            return got;
        }
        endpoint.arm().unwrap();
        wait(endpoint, since);
    }
}

/// Posts a request, when there is room for it.
pub(crate) fn post(endpoint: &mut Endpoint, request: &SendWr, told: &mut Vec<Completion>) {
    let is_posted = |endpoint: &mut Endpoint| match endpoint.post_send(request) {
        Err(PostError::QueueFull { .. }) => false,
        posted => posted.map(|()| true).unwrap(),
    };
    let since = Instant::now();
    while !is_posted(endpoint) {
        endpoint.poll(told).unwrap();
        if is_posted(endpoint) {
            return;
        }
        endpoint.arm().unwrap();
        wait(endpoint, since);
    }
}

pub(crate) fn completion(endpoint: &mut Endpoint) -> Completion {
    completions(endpoint, 1)[0]
}
