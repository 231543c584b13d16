//! Memory windows through which the kernel places: for the peer of one QP, into the memory that
//! they are bound to when it is an FPDU's turn.

use rddp_ddp::Stag;
use rddp_rnic::{Access, MemoryRegion, MemoryWindow, Placement, QueuePair, RegionOptions, SendWr, Status};
use rddp_test_support::{plain, segment};

use super::common::End;
use super::common::raw::{client_server, listen_for, open_for};
use super::forged::{self, frame, inject};
use super::hostile::{LEN, Scene, part};
use super::path_test::net::in_namespace;

const OCTETS: &[u8] = b"octets of a Write";

/// A region that the kernel reaches, and a window for parts of it.
struct Lent {
    region: MemoryRegion,
    window: MemoryWindow,
}

impl Lent {
    fn of(end: &End) -> Self {
        let options = RegionOptions { kernel: true, ..Default::default() };
        let region = end.pd.allocate_with(LEN, Access::LOCAL_WRITE | Access::BIND, &options).unwrap();
        Self { region, window: end.pd.allocate_rebindable_window().unwrap() }
    }

    /// Binds the window to a part of the region on a QP of this end's, always with the same STag,
    /// and with that part's first octet at Tagged Offset 0.
    fn bind(&self, end: &End, qp: &QueuePair, id: u64) {
        let (range, access) = (self.region.sge(part(id)), Access::REMOTE_WRITE | Access::ZERO_BASED);
        qp.post_send(&SendWr::bind_with_key(id, self.window.stag(), range, access, 7)).unwrap();
        assert_eq!(end.success().wr_id, id);
    }

    fn octets(&self, id: u64) -> Vec<u8> {
        self.region.read(part(id).start, OCTETS.len()).unwrap()
    }
}

/// RFC 5041 §5.3: the octets belong where the STag leads when the stream has reached them. The
/// program has placed them by the binding of before, when something was missing in front of them.
#[test]
fn a_window_that_is_bound_anew_behind_a_placement_gets_the_octets() {
    in_namespace(|| {
        // What comes by twice is looked at.
        for (times, is_bound_anew) in [(1, false), (1, true), (2, false), (2, true)] {
            let mut scene = forged::scene(Placement::Auto, "lo");
            let lent = Lent::of(&scene.end);
            lent.bind(&scene.end, &scene.end.qp, 1);
            let first = scene.peer.frame(&segment::write(Stag(1), 0, true, b""));
            let behind = [
                segment::write(lent.window.stag(), 0, false, OCTETS),
                segment::send(1, 0, true, b""), // and says when it is delivered
            ];
            let behind = behind.map(|ulpdu| scene.peer.frame(&ulpdu)).concat();
            for _ in 0..times {
                inject(&frame(&scene, first.len() as u32, &behind));
            }
            assert_eq!(lent.octets(1), OCTETS, "it is placed");
            if is_bound_anew {
                lent.bind(&scene.end, &scene.end.qp, 2);
            }
            scene.peer.octets(&first);
            scene.end.success();
            assert_eq!(lent.octets(if is_bound_anew { 2 } else { 1 }), OCTETS);
            let counts = scene.end.qp.kernel_counts().expect("the kernel places");
            let confirmed = u64::from(!is_bound_anew);
            assert_eq!((counts.confirmed, counts.looked_at), (confirmed, (times - 1) * confirmed));
            assert_eq!(counts.wrong, 0, "other memory is not summed");
        }
    });
}

/// draft-hilland-rddp-verbs §7.10: a window belongs to the QP on which it was bound.
#[test]
fn a_window_is_none_for_the_peer_of_another_qp() {
    in_namespace(|| {
        let mut scene = Scene::new();
        let sibling = scene.end.sibling();
        let (mut its_peer, _) = listen_for(&sibling, &client_server(), &plain());
        open_for(&mut its_peer, &sibling);
        let lent = Lent::of(&scene.end);
        lent.bind(&scene.end, &sibling.qp, 1);
        scene.send_in_vain(&segment::write(lent.window.stag(), 0, false, OCTETS));
        assert_eq!(scene.end.next().status, Status::Flushed);
        assert_eq!(lent.octets(1), vec![0; OCTETS.len()]);
    });
}

/// The memory was this end's own between the two bindings.
#[test]
fn a_window_that_is_bound_to_the_same_memory_again_gets_the_octets() {
    in_namespace(|| {
        for times in [2, 1] {
            let mut scene = forged::scene(Placement::Auto, "lo");
            let lent = Lent::of(&scene.end);
            lent.bind(&scene.end, &scene.end.qp, 1);
            let first = scene.peer.frame(&segment::write(Stag(1), 0, true, b""));
            let behind =
                [segment::write(lent.window.stag(), 0, false, OCTETS), segment::send(1, 0, true, b"")];
            let behind = behind.map(|ulpdu| scene.peer.frame(&ulpdu)).concat();
            for _ in 0..times {
                inject(&frame(&scene, first.len() as u32, &behind));
            }
            assert_eq!(lent.octets(1), OCTETS, "it is placed");
            scene.end.qp.post_send(&SendWr::invalidate(9, lent.window.stag())).unwrap();
            scene.end.success();
            lent.region.write(part(1).start, &[0; OCTETS.len()]).unwrap();
            lent.bind(&scene.end, &scene.end.qp, 1);
            scene.peer.octets(&first);
            scene.end.success();
            assert_eq!(lent.octets(1), OCTETS, "come by {times} times");
        }
    });
}
