//! Devices of a fake library, an end by the RNIC, and its peer by `rddp-verbs-device`.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rddp_verbs_device::{Device, Endpoint, Event, Listener, Offer, Queues, Registration};

use rddp_rnic::{
    Access, AsyncEvent, AsyncEventKind, Completion, CompletionQueue, ConnectError, ConnectOptions, Connected,
    ProtectionDomain, QpConfig, QueuePair, RecvWr, Rnic, RnicConfig, SendWr, Status,
};

#[allow(dead_code, reason = "the tests of verbs-device use the rest")]
#[path = "../../../verbs-device/tests/devices/fake.rs"]
mod fake;

use fake::fake;
pub(super) use fake::{Kind, quirk};

/// Time after which a wait is over, and the test has failed.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

const QUEUES: Queues = Queues { sends: 64, receives: 64, inline: 0 };

/// A device of a test's own, and an RNIC on it.
pub(super) struct Host {
    pub(super) rnic: Rnic,
    pub(super) device: Device,
    number: c_int,
}

/// An end by the RNIC.
pub(super) struct End {
    pub(super) qp: QueuePair,
    pub(super) cq: CompletionQueue,
    pub(super) pd: ProtectionDomain,
}

pub(super) fn host(name: &str, kind: Kind, quirks: u32) -> Host {
    let number = fake().make(name, kind, quirks);
    let device = Device::named_in(fake().library, name).unwrap();
    let rnic = Rnic::with_device(&RnicConfig::default(), Some(device.clone())).unwrap();
    Host { rnic, device, number }
}

impl Host {
    pub(super) fn address(&self, last: u8, port: u16) -> SocketAddr {
        let number = if self.number < 156 { self.number + 100 } else { self.number - 155 };
        SocketAddr::from(([127, number as u8, 0, last], port))
    }

    pub(super) fn cut(&self) {
        (fake().cut)(self.number);
    }

    /// Has messages that take a shared receive stop half-way, or go on.
    pub(super) fn stall(&self, stalls: bool) {
        (fake().stall)(self.number, stalls.into());
    }

    pub(super) fn remove(&self) {
        (fake().remove)(self.number);
    }

    pub(super) fn end_silence() {
        (fake().end_silence)();
    }

    /// Returns how many objects the library has for the device.
    pub(super) fn objects(&self) -> c_int {
        (fake().objects)(self.number)
    }

    /// Returns how many receives the device has.
    pub(super) fn receives(&self) -> c_int {
        (fake().receives)(self.number)
    }

    /// Returns how often anyone has looked for completions of the device.
    pub(super) fn looks(&self) -> c_int {
        (fake().looks)(self.number)
    }

    /// Waits until something is so.
    pub(super) fn until(&self, is_so: impl Fn() -> bool) {
        let since = Instant::now();
        while !is_so() {
            assert!(since.elapsed() < PATIENCE, "{} objects are left", self.objects());
            std::thread::yield_now();
        }
    }

    /// Waits for an event of the RNIC.
    pub(super) fn event(&self) -> AsyncEvent {
        loop {
            let event = self.rnic.wait_async_event(Some(PATIENCE)).unwrap().expect("no event");
            if event.kind != AsyncEventKind::Connected {
                return event;
            }
        }
    }

    /// Waits until the library has no objects for the device.
    pub(super) fn until_nothing_is_left(&self) {
        self.until(|| self.objects() == 0);
    }

    pub(super) fn end(&self) -> End {
        let (pd, cq) = (self.rnic.alloc_pd(), self.rnic.create_cq(256).unwrap());
        let config = QpConfig { max_send: 8, max_recv: 8, ..QpConfig::new(&cq) };
        let qp = pd.create_qp(&config).unwrap();
        End { qp, cq, pd }
    }

    pub(super) fn listen(&self) -> Listener {
        Listener::open(&self.device, self.address(1, 0), 8).unwrap()
    }

    /// Waits for the request of a peer.
    pub(super) fn asked(&self, listener: &Listener) -> Endpoint {
        let since = Instant::now();
        loop {
            if let Some(request) = listener.take().unwrap() {
                let most = self.device.capabilities().max_requests.unwrap() - 4;
                let queues =
                    Queues { sends: QUEUES.sends.min(most), receives: QUEUES.receives.min(most), ..QUEUES };
                return request.endpoint(listener.device(), queues).unwrap();
            }
            wait(listener, since);
        }
    }

    /// Connects an end to a peer that accepts with these terms.
    pub(super) fn connect_with(
        &self,
        end: &End,
        options: &ConnectOptions,
        offer: Offer,
    ) -> (Connected, Endpoint) {
        let listener = self.listen();
        end.qp.begin_to(listener.address(), options).unwrap();
        let mut peer = self.asked(&listener);
        peer.accept(offer).unwrap();
        let connected = end.begun().unwrap();
        assert!(matches!(event(&mut peer), Event::Connected(_)));
        (connected, peer)
    }

    pub(super) fn connect(&self, end: &End) -> Endpoint {
        self.connect_with(end, &ConnectOptions::default(), Offer::default()).1
    }

    /// Connects an end that has had a connection before, and uses it.
    pub(super) fn pair_of(&self, end: &End) {
        let mut peer = self.connect(end);
        peer.post_receive(&RecvWr::new(1, Vec::new())).unwrap();
        end.qp.post_send(&SendWr::send_inline(1, b"").unsignaled()).unwrap();
        assert_eq!(completion(&mut peer).status, Status::Success);
    }

    pub(super) fn pair(&self) -> (End, Endpoint) {
        let end = self.end();
        let peer = self.connect(&end);
        (end, peer)
    }

    /// Returns memory of the peer's, open to this end.
    pub(super) fn memory(&self, len: usize) -> Registration {
        let all = Access::LOCAL_WRITE | Access::REMOTE;
        Registration::allocate(self.device.domain(), len, all).unwrap()
    }
}

impl End {
    pub(super) fn begun(&self) -> Result<Connected, ConnectError> {
        assert!(self.qp.await_begun(PATIENCE), "no end of the startup");
        self.qp.begun().unwrap()
    }

    pub(super) fn next(&self) -> Completion {
        let since = Instant::now();
        assert!(self.cq.wait(Some(PATIENCE)).unwrap(), "no completion");
        // At its end, a wait looks once more.
        assert!(since.elapsed() < PATIENCE, "nothing woke the program");
        self.cq.poll_one().unwrap()
    }
}

/// Waits for a descriptor. A test that nothing wakes has failed, though there may be something.
fn wait(fd: &impl AsFd, since: Instant) {
    assert!(since.elapsed() < PATIENCE, "nothing came");
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    let time = PollTimeout::try_from(PATIENCE).unwrap();
    assert_eq!(poll(&mut fds, time), Ok(1), "nothing woke the peer");
}

/// Waits for a change of the peer's connection.
pub(super) fn event(peer: &mut Endpoint) -> Event {
    let since = Instant::now();
    loop {
        if let Some(event) = peer.event().unwrap() {
            return event;
        }
        peer.poll(&mut Vec::new()).unwrap();
        peer.arm().unwrap();
        wait(peer, since);
    }
}

/// Waits for a completion of the peer's.
pub(super) fn completion(peer: &mut Endpoint) -> Completion {
    let (since, mut got) = (Instant::now(), Vec::new());
    loop {
        peer.poll(&mut got).unwrap();
        if let Some(first) = got.first() {
            return *first;
        }
        peer.arm().unwrap();
        wait(peer, since);
    }
}
