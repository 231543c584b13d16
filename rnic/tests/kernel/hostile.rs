//! A peer that sends what it should not, to receives and sinks that the kernel places into: what
//! has completed does not change any more (RFC 5041 §5.4, RFC 5042 §6.2.2).
//!
//! Over the loopback of the test's own namespace, where nobody sums segments: it is trusted.

use std::net::TcpListener;
use std::time::Duration;

use rddp_ddp::Stag;
use rddp_rnic::{
    Access, KernelPlacement, MemoryRegion, Placement, QpConfig, RecvWr, RegionOptions, Remote, Rnic,
    RnicConfig, SendWr, Status,
};
use rddp_test_support::{Peer, plain, segment};

use super::common::End;
use super::common::raw::{client_server, listen_on, open_for};
use super::path_test::net::in_namespace;

/// Octets of the region, and of each receive and sink in it.
pub(crate) const LEN: usize = 4096;
const ROOM: usize = 100;

/// The end under test, with a region for the kernel, and its peer.
pub(crate) struct Scene {
    pub(crate) end: End,
    pub(crate) region: MemoryRegion,
    pub(crate) peer: Peer,
}

impl Scene {
    /// Connects them, with receives 1 and 2 posted.
    pub(crate) fn new() -> Self {
        let kernel = KernelPlacement { interfaces: vec!["lo".into()], trusted: true };
        Self::with(kernel, Placement::Kernel, |_| {})
    }

    /// Connects them, at this level and with a QP that was changed.
    pub(crate) fn with(
        kernel: KernelPlacement,
        placement: Placement,
        change: impl FnOnce(&mut QpConfig),
    ) -> Self {
        Self::at("127.0.0.1", kernel, placement, change)
    }

    /// Connects them between sockets of this address.
    pub(crate) fn at(
        addr: &str,
        kernel: KernelPlacement,
        placement: Placement,
        change: impl FnOnce(&mut QpConfig),
    ) -> Self {
        let rnic = Rnic::with_config(&RnicConfig { kernel: Some(kernel), ..Default::default() }).unwrap();
        let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(64).unwrap());
        let mut config = QpConfig { placement, ..QpConfig::new(&cq) };
        change(&mut config);
        let qp = pd.create_qp(&config).unwrap();
        let options = RegionOptions { kernel: true, ..Default::default() };
        let region = pd.allocate_with(LEN, Access::LOCAL_WRITE, &options).unwrap();
        let end = End { rnic, pd, cq, qp };
        for id in [1, 2] {
            end.qp.post_recv(RecvWr::one(id, region.sge(part(id)))).unwrap();
        }
        let listener = TcpListener::bind((addr, 0)).unwrap();
        let (mut peer, _) = listen_on(&listener, &end, &client_server(), &plain());
        open_for(&mut peer, &end);
        Self { end, region, peer }
    }

    pub(crate) fn octets(&self, id: u64, len: usize) -> Vec<u8> {
        self.region.read(part(id).start, len).unwrap()
    }

    pub(crate) fn placed(&self) -> u64 {
        self.end.qp.kernel_counts().expect("the kernel places").placed
    }

    /// Sends this, and waits long enough for it to be placed if it is at all.
    pub(crate) fn send_in_vain(&mut self, ulpdu: &[u8]) {
        let octets = self.peer.frame(ulpdu);
        self.peer.try_octets(&octets);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The part of the region for a request.
pub(crate) fn part(id: u64) -> std::ops::Range<usize> {
    let at = id as usize * ROOM;
    at..at + ROOM
}

#[test]
fn a_message_that_comes_again_changes_nothing() {
    in_namespace(|| {
        let mut scene = Scene::new();
        scene.peer.send(&segment::send(1, 0, true, b"first"));
        assert_eq!(scene.end.success().wr_id, 1);
        assert_eq!((scene.octets(1, 5), scene.placed()), (b"first".to_vec(), 1));
        scene.send_in_vain(&segment::send(1, 0, true, b"again"));
        assert_eq!(scene.octets(1, 5), b"first");
        assert_eq!(scene.end.next().status, Status::Flushed);
        assert_eq!(scene.octets(1, 5), b"first");
    });
}

#[test]
fn a_response_that_comes_again_changes_nothing() {
    in_namespace(|| {
        let mut scene = Scene::new();
        let from = Remote { stag: Stag(5), to: 0 };
        scene.end.qp.post_send(&SendWr::read(3, scene.region.sge(part(3)), from)).unwrap();
        let request = scene.peer.read_request();
        let response = |octets: &[u8]| segment::response(request.sink_stag, request.sink_to, true, octets);
        scene.peer.send(&response(&[1; ROOM]));
        assert_eq!(scene.end.success().wr_id, 3);
        assert_eq!((scene.octets(3, ROOM), scene.placed()), (vec![1; ROOM], 1));
        scene.send_in_vain(&response(&[2; ROOM]));
        assert_eq!(scene.octets(3, ROOM), [1; ROOM]);
        assert_eq!(scene.end.next().status, Status::Flushed);
        assert_eq!(scene.octets(3, ROOM), [1; ROOM]);
    });
}

/// RFC 5040 §5.4: the stream is over with the first fault, and what was posted is flushed.
#[test]
fn a_receive_that_was_flushed_does_not_change() {
    in_namespace(|| {
        let mut scene = Scene::new();
        scene.peer.send(&segment::send(7, 0, true, b"out of turn"));
        for _ in 0..2 {
            assert_eq!(scene.end.next().status, Status::Flushed);
        }
        scene.send_in_vain(&segment::send(1, 0, true, b"late"));
        assert_eq!((scene.octets(1, 4), scene.octets(7, 4)), (vec![0; 4], vec![0; 4]));
    });
}

/// The peer takes nothing, so that the connection stays open behind the Terminate, which waits.
#[test]
fn a_receive_that_this_end_has_flushed_does_not_change() {
    in_namespace(|| {
        let mut scene = Scene::new();
        let source = scene.end.region(16 << 20, Access::empty());
        let write = SendWr::write(3, source.whole(), Remote { stag: Stag(5), to: 0 });
        scene.end.qp.post_send(&write).unwrap();
        scene.end.qp.terminate();
        for _ in 0..3 {
            assert_eq!(scene.end.next().status, Status::Flushed);
        }
        scene.send_in_vain(&segment::send(1, 0, true, b"late"));
        assert_eq!(scene.octets(1, 4), [0; 4]);
    });
}

/// A message whose receive is too small fails, and its receive does not change any more, either.
#[test]
fn a_receive_of_a_message_that_is_too_long_does_not_change() {
    in_namespace(|| {
        let mut scene = Scene::new();
        scene.peer.send(&segment::send(1, 0, false, &[1; ROOM]));
        scene.peer.send(&segment::send(1, ROOM as u32, true, b"more"));
        assert_eq!(scene.end.next().status, Status::MessageTooLong);
        let then = scene.region.read(0, LEN).unwrap();
        scene.send_in_vain(&segment::send(1, 0, true, &[2; ROOM]));
        assert!(scene.region.read(0, LEN).unwrap() == then, "octets changed");
    });
}

/// A payload may look like FPDUs, where a segment begins and ends with them. The message is that of
/// the stream all the same.
#[test]
fn a_payload_that_looks_like_an_fpdu_is_delivered() {
    in_namespace(|| {
        let mut scene = Scene::new();
        let inner = scene.peer.frame(&segment::send(2, 0, true, b"inner"));
        let payload = [b"before", &inner[..], b"behind"].concat();
        let outer = scene.peer.frame(&segment::send(1, 0, true, &payload));
        let (first, rest) = outer.split_at(20 + 6);
        let (second, third) = rest.split_at(inner.len());
        for part in [first, second, third] {
            scene.peer.octets(part);
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!((scene.end.success().wr_id, scene.placed()), (1, 1));
        assert_eq!(scene.octets(1, payload.len()), payload);
        scene.peer.send(&segment::send(2, 0, true, b"the second"));
        assert_eq!(scene.end.success().wr_id, 2);
        assert_eq!(scene.octets(2, 10), b"the second");
    });
}

/// RFC 5044 §4.4: the program sums no CRC of what is in order, so the reader does.
#[test]
fn a_message_with_a_wrong_crc_is_not_delivered() {
    in_namespace(|| {
        let mut scene = Scene::new();
        let mut octets = scene.peer.frame(&segment::send(1, 0, true, b"message"));
        *octets.last_mut().unwrap() ^= 1;
        scene.peer.octets(&octets);
        assert_eq!((scene.end.next().status, scene.placed()), (Status::Flushed, 1));
    });
}

/// The peer has no right to write (RFC 5042 §6.2.1), and so the program does not write for it.
#[test]
fn memory_for_receives_is_none_for_writes() {
    in_namespace(|| {
        let mut scene = Scene::new();
        let to = scene.region.remote(part(1).start);
        scene.send_in_vain(&segment::write(to.stag, to.to, false, b"a write"));
        assert_eq!(scene.end.next().status, Status::Flushed);
        assert_eq!(scene.octets(1, 7), [0; 7]);
    });
}

/// The region has the right, and the QP lets no peer write.
#[test]
fn a_peer_that_may_not_write_does_not() {
    in_namespace(|| {
        let kernel = KernelPlacement { interfaces: vec!["lo".into()], trusted: true };
        let mut scene = Scene::with(kernel, Placement::Kernel, |config| config.inbound_write = false);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let options = RegionOptions { kernel: true, ..Default::default() };
        let region = scene.end.pd.allocate_with(LEN, access, &options).unwrap();
        let to = region.remote(0);
        scene.send_in_vain(&segment::write(to.stag, to.to, false, b"a write"));
        assert_eq!(scene.end.next().status, Status::Flushed);
        assert_eq!(region.read(0, 7).unwrap(), [0; 7]);
    });
}

/// Memory that this end's own requests may not write is none for its receives either.
#[test]
fn a_receive_in_memory_without_local_write_is_refused() {
    in_namespace(|| {
        let scene = Scene::new();
        let options = RegionOptions { kernel: true, ..Default::default() };
        let region = scene.end.pd.allocate_with(LEN, Access::REMOTE_READ, &options).unwrap();
        scene.end.qp.post_recv(RecvWr::one(3, region.sge(0..ROOM))).unwrap_err();
    });
}
