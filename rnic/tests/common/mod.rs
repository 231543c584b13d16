//! Helpers: two queue pairs, connected over loopback.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

pub mod device;
pub mod guarded;
pub mod raw;

use std::time::{Duration, Instant};

use rddp_rnic::{
    Access, AsyncEventKind, Completion, CompletionQueue, ConnectOptions, MemoryRegion, ProtectionDomain,
    QpConfig, QpState, QueuePair, RecvWr, Rnic, SendWr, Status,
};

pub const PATIENCE: Duration = Duration::from_secs(20);

/// One end: a device, a PD, a CQ and a QP of its own.
pub struct End {
    pub rnic: Rnic,
    pub pd: ProtectionDomain,
    pub cq: CompletionQueue,
    pub qp: QueuePair,
}

impl End {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut QpConfig)) -> Self {
        let rnic = device::open();
        let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(4096).unwrap());
        let mut config = QpConfig::new(&cq);
        change(&mut config);
        let qp = pd.create_qp(&config).unwrap();
        End { rnic, pd, cq, qp }
    }

    pub fn region(&self, len: usize, access: Access) -> MemoryRegion {
        self.pd.allocate(len, device::rights(access)).unwrap()
    }

    /// Returns the next completion.
    pub fn next(&self) -> Completion {
        assert!(self.cq.wait(Some(PATIENCE)).unwrap(), "no completion came");
        self.cq.poll_one().unwrap()
    }

    /// Returns the next completion, which must be a success.
    pub fn success(&self) -> Completion {
        let completion = self.next();
        assert_eq!(completion.status, Status::Success, "{completion:?}");
        completion
    }

    /// Returns the completions of these requests, each of which completes exactly once, and at most
    /// one of which is neither a success nor flushed (draft-hilland-rddp-verbs §8.3.2).
    pub fn completions_of(&self, ids: impl IntoIterator<Item = u64>) -> Vec<Completion> {
        let mut wanted: Vec<u64> = ids.into_iter().collect();
        let mut completions: Vec<Completion> = wanted.iter().map(|_| self.next()).collect();
        assert!(self.cq.poll_one().is_none(), "more completions than requests: {completions:?}");
        wanted.sort_unstable();
        let mut got: Vec<u64> = completions.iter().map(|completion| completion.wr_id).collect();
        got.sort_unstable();
        assert_eq!(got, wanted);
        let bad = |completion: &&Completion| !matches!(completion.status, Status::Success | Status::Flushed);
        assert!(completions.iter().filter(bad).count() <= 1, "{completions:?}");
        completions.sort_by_key(|completion| completion.wr_id);
        completions
    }

    /// Waits for a state, while the background thread makes progress.
    pub fn await_state(&self, state: QpState) {
        let deadline = Instant::now() + PATIENCE;
        while self.qp.state() != state {
            assert!(Instant::now() < deadline, "still {}", self.qp.state());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Makes another QP of the same device, PD and CQ.
    pub fn sibling(&self) -> End {
        self.sibling_with(|_| {})
    }

    /// Makes another QP, changed, as [`sibling`](Self::sibling) does.
    pub fn sibling_with(&self, change: impl FnOnce(&mut QpConfig)) -> End {
        let mut config = QpConfig::new(&self.cq);
        change(&mut config);
        let qp = self.pd.create_qp(&config).unwrap();
        End { rnic: self.rnic.clone(), pd: self.pd.clone(), cq: self.cq.clone(), qp }
    }

    /// Returns the next asynchronous event, making progress meanwhile.
    pub fn event(&self) -> AsyncEventKind {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(event) = self.rnic.wait_async_event(Some(Duration::from_millis(20))).unwrap() {
                return event.kind;
            }
            assert!(Instant::now() < deadline, "no asynchronous event came");
        }
    }

    /// Waits for an event of this kind; skips others.
    pub fn event_like(&self, wanted: impl Fn(&AsyncEventKind) -> bool) -> AsyncEventKind {
        loop {
            let event = self.event();
            if wanted(&event) {
                return event;
            }
        }
    }
}

/// Connects `active` to `passive` on `addr` (port 0: any).
pub fn connect_on(
    addr: &str,
    active: &End,
    passive: &End,
    active_options: &ConnectOptions,
    passive_options: &ConnectOptions,
) {
    let listener = passive.rnic.listen(device::local(addr), passive_options).unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| active.qp.connect(addr, active_options).unwrap());
        let request = listener.accept(Some(PATIENCE)).unwrap().expect("nobody came");
        request.accept(&passive.qp, &passive_options.private_data).unwrap();
        connecting.join().unwrap();
    });
}

/// Returns two ends, connected with the same options.
pub fn connected(options: &ConnectOptions) -> (End, End) {
    let (active, passive) = (End::new(), End::new());
    connect_on("127.0.0.1:0", &active, &passive, options, options);
    (active, passive)
}

/// Sends five octets from `active` to `passive`; both see their completions.
pub fn exchange(active: &End, passive: &End) {
    let inbox = passive.region(64, Access::LOCAL_WRITE);
    passive.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
    active.qp.post_send(&SendWr::send_inline(2, b"hello")).unwrap();
    assert_eq!(passive.success().byte_len, 5);
    active.success();
}

/// Calls something that may not sleep.
pub fn at_once<T>(what: &str, call: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let result = call();
    // Generous: the point is that the call waits for no peer.
    assert!(begin.elapsed() < Duration::from_secs(2), "{what} took {:?}", begin.elapsed());
    result
}

/// Runs a test again in a process of its own, where nothing else uses descriptors, threads or the
/// processor. Returns whether this is that process.
pub fn alone(test: &str) -> bool {
    const ALONE: &str = "RDDP_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let output = [child.stdout, child.stderr].concat();
    let output = String::from_utf8_lossy(&output);
    assert!(child.status.success() && output.contains("1 passed"), "{output}");
    false
}

pub const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::REMOTE_INVALIDATE)
    .union(Access::BIND);
