//! Registered files whose octets are on a slow disk, or on none: who waits, and for what.

use std::sync::mpsc;

use parking_lot::Condvar;
use rddp_rdma::RecvWr;
use rddp_test_support::pattern_from;

use super::*;
use crate::mem::{MemError, ReadAt};
use crate::{MemoryRegion, Remote, Status};

const LEN: usize = 1 << 20;

/// A disk, which reads nothing before it is opened.
#[derive(Default)]
struct Disk {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    open: bool,
    /// Reads that wait for the disk, or have waited.
    reads: usize,
    /// Offset from which on nothing can be read.
    broken: Option<u64>,
    /// Offset up to which octets are in memory.
    warm: u64,
}

impl Disk {
    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changed.notify_all();
    }

    fn open(&self) {
        self.set(|state| state.open = true);
    }

    /// Waits until so many reads have begun.
    fn await_reads(&self, count: usize) {
        let mut state = self.state.lock();
        while state.reads < count {
            assert!(!self.changed.wait_for(&mut state, PATIENCE).timed_out(), "nobody reads");
        }
    }
}

impl ReadAt for Arc<Disk> {
    fn read_at(&self, at: u64, out: &mut [u8], waits: bool) -> io::Result<usize> {
        let mut state = self.state.lock();
        let mut end = (at + out.len() as u64).min(LEN as u64);
        if !waits {
            end = end.min(state.warm);
            if at >= end && at < LEN as u64 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        } else {
            state.reads += 1;
            self.changed.notify_all();
            self.changed.wait_while(&mut state, |state| !state.open);
        }
        if state.broken.is_some_and(|from| at >= from) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let end = end.min(state.broken.unwrap_or(end));
        let count = end.saturating_sub(at) as usize;
        out[..count].copy_from_slice(&pattern_from(at as usize, count));
        Ok(count)
    }
}

struct End {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair,
}

impl End {
    fn of(rnic: &Rnic, pd: &ProtectionDomain) -> Self {
        let cq = rnic.create_cq(256).unwrap();
        let qp = pd.create_qp(&QpConfig::new(&cq)).unwrap();
        End { pd: pd.clone(), cq, qp }
    }

    fn next(&self) -> crate::Completion {
        assert!(self.cq.wait(Some(PATIENCE)).unwrap(), "no completion came");
        self.cq.poll_one().unwrap()
    }

    fn success(&self) {
        let completion = self.next();
        assert_eq!(completion.status, Status::Success, "{completion:?}");
    }
}

/// A server with a file on a disk, its client, and another client of the same device.
struct Scene {
    /// Dropped first: whoever waits for the disk goes on.
    _opens: Opens,
    server: End,
    client: End,
    inbox: MemoryRegion,
    /// The end of the server's device, and its client.
    others: (End, End),
    region: MemoryRegion,
    disk: Arc<Disk>,
}

struct Opens(Arc<Disk>);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.open();
    }
}

impl Scene {
    fn new(mss: Option<u32>, crc: bool) -> Self {
        let [here, there] = [(); 2].map(|()| Rnic::open().unwrap());
        let [here_pd, there_pd] = [&here, &there].map(Rnic::alloc_pd);
        let pairs = [(); 2].map(|()| {
            let (server, client) = (End::of(&here, &here_pd), End::of(&there, &there_pd));
            let (passive, active) = sockets(mss);
            let (terms, options) = (Negotiated { crc, ..negotiated() }, ConnectOptions::default());
            server.qp.attach(passive, terms.clone(), &options, false).unwrap();
            client.qp.attach(active, terms, &options, true).unwrap();
            // The passive end may send once it has received.
            server.qp.post_recv(RecvWr::new(1, [])).unwrap();
            client.qp.post_send(&SendWr::send_inline(2, b"")).unwrap();
            server.success();
            client.success();
            (server, client)
        });
        let [(server, client), others] = pairs;
        let disk = Arc::<Disk>::default();
        let device = here_pd.device.anywhere().adapter.clone();
        let (access, file) = (Access::REMOTE_READ | Access::BIND, Box::new(disk.clone()));
        let region =
            device.mem.register_octets(server.qp.inner.anywhere().attrs.pd, file, 0..LEN as u64, access);
        let region = MemoryRegion::new(device, region.unwrap());
        let inbox = client.pd.allocate(LEN, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
        Scene { server, client, inbox, others, region, _opens: Opens(disk.clone()), disk }
    }

    fn all() -> impl Iterator<Item = Self> {
        [(None, true), (None, false), (Some(1460), true), (Some(1460), false)]
            .into_iter()
            .map(|(mss, crc)| Self::new(mss, crc))
    }

    /// Has the client ask for octets of the file.
    fn ask(&self, offset: usize, len: usize) {
        let read = SendWr::read(7, self.inbox.sge(0..len), self.region.remote(offset));
        self.client.qp.post_send(&read).unwrap();
    }

    fn has_read(&self, offset: usize, len: usize) {
        self.client.success();
        assert!(self.inbox.read(0, len).unwrap() == pattern_from(offset, len), "{len} at {offset}");
    }

    /// Checks that the other connection goes on, both ways and by Reads.
    fn others_go_on(&self) {
        let (server, client) = &self.others;
        let memory = server.pd.allocate(100_000, Access::LOCAL_WRITE | Access::REMOTE_READ).unwrap();
        memory.write(0, &[3; 100_000]).unwrap();
        let sink = client.pd.allocate(100_000, Access::LOCAL_WRITE).unwrap();
        client.qp.post_send(&SendWr::read(1, sink.whole(), memory.remote(0))).unwrap();
        client.success();
        assert!(sink.read(0, 100_000).unwrap() == [3; 100_000]);
        client.qp.post_recv(RecvWr::one(2, sink.whole())).unwrap();
        server.qp.post_send(&SendWr::send(3, memory.whole())).unwrap();
        server.success();
        client.success();
    }

    fn terminate_sent(&self) -> Option<u16> {
        self.server.qp.terminate_sent().map(|terminate| terminate.code.0)
    }
}

#[test]
fn a_read_of_a_slow_disk_keeps_nobody_else_waiting() {
    for scene in Scene::all() {
        scene.ask(5, 700_000);
        scene.disk.await_reads(1);
        scene.others_go_on();
        // Untagged messages of this connection go between the segments of a Response.
        scene.client.qp.post_recv(RecvWr::one(8, scene.inbox.sge(LEN - 10..LEN))).unwrap();
        scene.server.qp.post_send(&SendWr::send_inline(9, b"meanwhile")).unwrap();
        scene.server.success();
        assert_eq!(scene.client.next().wr_id, 8);
        assert!(scene.client.cq.poll_one().is_none());
        scene.disk.open();
        scene.has_read(5, 700_000);
    }
}

/// Reads of any length, with the disk's octets in memory up to some place.
#[test]
fn what_is_in_memory_is_sent_and_the_rest_is_read() {
    for scene in Scene::all() {
        scene.disk.open();
        for warm in [0, 1, 50_000, 65_536, 300_000, LEN] {
            scene.disk.set(|state| state.warm = warm as u64);
            for (offset, len) in [(0, 1), (0, 1448), (40_000, 20_000), (100, 400_000), (0, LEN)] {
                scene.ask(offset, len);
                scene.has_read(offset, len);
            }
        }
    }
}

/// RFC 5040 §4.8: octets that the disk does not have are out of bounds.
#[test]
fn a_read_of_a_broken_disk_is_refused() {
    for (broken, warm) in [(0, 0), (100_000, 0), (300_000, 200_000)] {
        for scene in Scene::all() {
            scene.disk.set(|state| (state.broken, state.warm, state.open) = (Some(broken), warm, true));
            scene.ask(0, broken as usize);
            scene.has_read(0, broken as usize);
            scene.ask(0, LEN);
            assert_eq!(scene.client.next().status, Status::RemoteAccess);
            assert_eq!(scene.terminate_sent(), Some(0x0101));
            scene.others_go_on();
        }
    }
}

#[test]
fn a_message_of_a_slow_disk_keeps_nobody_else_waiting() {
    for scene in Scene::all() {
        for len in [10, 3000, LEN] {
            scene.disk.set(|state| (state.open, state.reads) = (false, 0));
            let write = SendWr::write(1, scene.region.sge(0..len), scene.inbox.remote(0));
            scene.server.qp.post_send(&write).unwrap();
            scene.disk.await_reads(1);
            scene.others_go_on();
            assert!(scene.server.cq.poll_one().is_none());
            // Responses need not wait for it: nothing of the Write has gone.
            let memory = scene.server.pd.allocate(8, Access::LOCAL_WRITE | Access::REMOTE_READ).unwrap();
            let sink = scene.client.pd.allocate(8, Access::LOCAL_WRITE).unwrap();
            let read = SendWr::read(2, sink.whole(), memory.remote(0));
            scene.client.qp.post_send(&read).unwrap();
            scene.client.success();
            scene.disk.open();
            scene.server.success();
            // What the Write has placed is there when a Send has come behind it.
            scene.client.qp.post_recv(RecvWr::new(3, [])).unwrap();
            scene.server.qp.post_send(&SendWr::send_inline(4, b"")).unwrap();
            scene.client.success();
            scene.server.success();
            assert!(scene.inbox.read(0, len).unwrap() == pattern_from(0, len), "{len}");
        }
    }
}

/// Requests before it are carried out, and the peer is told of a failure of this end (0x0000).
#[test]
fn a_message_of_a_broken_disk_fails() {
    for scene in Scene::all() {
        scene.disk.set(|state| (state.broken, state.open) = (Some(100_000), true));
        let write = |id, len| SendWr::write(id, scene.region.sge(0..len), scene.inbox.remote(0));
        scene.server.qp.post_sends(&[write(1, 100_000), write(2, 100_001), write(3, 1)]).unwrap();
        let statuses = [(); 3].map(|()| scene.server.next().status);
        assert_eq!(statuses, [Status::Success, Status::LocalProtection, Status::Flushed]);
        assert_eq!(scene.terminate_sent(), Some(0x0000));
        scene.others_go_on();
    }
}

/// No grant is held while a disk is waited for: only deregistration waits for it, since the file is
/// the program's again then.
#[test]
fn an_invalidation_does_not_wait_for_a_disk_and_deregistration_does() {
    let scene = Scene::new(None, true);
    scene.ask(0, LEN);
    scene.disk.await_reads(1);
    scene.server.qp.post_send(&SendWr::invalidate(1, scene.region.stag())).unwrap();
    scene.server.success();
    let (done, is_done) = mpsc::channel();
    std::thread::scope(|threads| {
        let region = &scene.region;
        threads.spawn(move || {
            region.deregister().unwrap();
            done.send(()).unwrap();
        });
        assert!(is_done.recv_timeout(Duration::from_millis(20)).is_err());
        scene.disk.open();
        is_done.recv_timeout(PATIENCE).unwrap();
    });
    assert!(matches!(scene.region.read(0, 1), Err(MemError::Deregistered)));
    assert_eq!(scene.client.next().status, Status::RemoteAccess);
    assert_eq!(scene.terminate_sent(), Some(0x0100));
}

/// A connection that ends leaves the disk to itself.
#[test]
fn a_queue_pair_is_dropped_while_a_disk_is_waited_for() {
    let scene = Scene::new(None, true);
    scene.ask(0, LEN);
    scene.disk.await_reads(1);
    let device = scene.server.qp.inner.anywhere().attrs.device.clone();
    let Scene { server, client, others, .. } = scene;
    assert!(device.promised.held() > 0);
    drop(server);
    assert_eq!(device.promised.held(), 0);
    assert_ne!(client.next().status, Status::Success);
    drop(others);
}

/// RFC 5042 §6.4: peers that Read and take nothing make us keep so much each, and hold no thread.
#[test]
fn peers_that_take_nothing_keep_no_reader_of_disks() {
    const PEERS: usize = 10;
    let scene = Scene::new(None, true);
    scene.disk.open();
    let device = &scene.server.qp.inner.anywhere().attrs.device;
    let Remote { stag: src_stag, to: src_to } = scene.region.remote(0);
    let silent: Vec<_> = (0..PEERS)
        .map(|_| {
            let qp = scene.server.pd.create_qp(&QpConfig::new(&scene.server.cq)).unwrap();
            let mut peer = attached(&qp);
            let mut framer = Framer::new(Framing { crc: true, markers: false });
            for msn in 1..=8 {
                let (sink_stag, sink_to, size) = (Stag(7), 0, LEN as u32);
                let read =
                    rddp_rdmap::ReadRequestRepr { sink_stag, sink_to, size, src_stag, src_to }.octets();
                let header = rddp_rdmap::untagged_header(Opcode::ReadRequest, Stag(0), Msn(msn), 0, true);
                let mut octets = Vec::new();
                let fill = |at: usize, out: &mut [u8]| out.copy_from_slice(&read[at..at + out.len()]);
                framer.emit(header.octets().as_ref(), read.len(), fill, &mut octets);
                peer.write_all(&octets).unwrap();
            }
            (qp, peer)
        })
        .collect();
    let is_full = |qp: &QueuePair| {
        qp.inner.anywhere().with_core(|_, core| core.connection.as_ref().unwrap().watch.is_blocked())
    };
    let deadline = Instant::now() + PATIENCE;
    while !silent.iter().all(|(qp, _)| is_full(qp)) {
        assert!(Instant::now() < deadline, "TCP takes all of it");
        std::thread::sleep(Duration::from_millis(1));
    }
    for _ in 0..3 {
        scene.ask(0, LEN);
        scene.has_read(0, LEN);
        scene.others_go_on();
    }
    let each = crate::wire::RESPONSES_AHEAD + 70_000 + 256 * 1024;
    let held = device.promised.held();
    assert!(held <= (PEERS + 2) * 2 * each, "{held}");
}
