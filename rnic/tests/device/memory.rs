//! Memory: the names that requests, devices and peers have for it.

use rddp_rnic::{Access, Error, QpState, RegionOptions, SendWr, Status};
use rddp_verbs_device::DeviceError;

use crate::support::{Kind, completion, host, quirk};

const KINDS: [Kind; 3] = [Kind::Siw, Kind::Rxe, Kind::Adapter];

#[test]
fn memory_of_the_peer_is_written_and_read() {
    for kind in KINDS {
        let host = host(&format!("memory{}", kind as u8), kind, 0);
        let (end, _peer) = host.pair();
        let there = host.memory(64);
        let region = end.pd.allocate(64, Access::LOCAL_WRITE).unwrap();
        region.write(0, b"written").unwrap();
        let place = there.remote().unwrap();
        end.qp.post_send(&SendWr::write(1, region.sge(..7), place.at(8)).unsignaled()).unwrap();
        end.qp.post_send(&SendWr::read(2, region.sge(32..39), place.at(8))).unwrap();
        let read = end.next();
        assert_eq!((read.wr_id, read.status, read.byte_len), (2, Status::Success, 7), "{kind:?}");
        assert_eq!(region.read(32, 7).unwrap(), b"written");
    }
}

/// Offsets of a region are the program's, and peers and the device know addresses.
#[test]
fn regions_begin_at_whatever_offset_the_program_has_chosen() {
    let host = host("bases", Kind::Rxe, 0);
    let (end, mut peer) = host.pair();
    let there = host.memory(8);
    let all = Access::LOCAL_WRITE | Access::REMOTE;
    let based = RegionOptions { base: Some(0x1000), ..RegionOptions::default() };
    for region in [
        end.pd.allocate(64, all | Access::ZERO_BASED).unwrap(),
        end.pd.allocate_with(64, all, &based).unwrap(),
    ] {
        region.write(8, b"8").unwrap();
        end.qp.post_send(&SendWr::write(1, region.sge(8..9), there.remote().unwrap())).unwrap();
        assert_eq!(end.next().status, Status::Success);
        there.write(1, b"from th");
        let write = SendWr::write(2, there.piece(0, 8), region.remote(16));
        peer.post_send(&write).unwrap();
        assert_eq!(completion(&mut peer).status, Status::Success);
        assert_eq!(region.read(16, 8).unwrap(), b"8from th");
    }
}

/// RNICs write what a Read brings by a right of peers. One that the program has not given is not
/// given by the key that peers know.
#[test]
fn the_sink_of_a_read_is_not_open_to_peers() {
    let host = host("sink", Kind::Siw, 0);
    let (end, mut peer) = host.pair();
    let there = host.memory(8);
    let sink = end.pd.allocate(8, Access::LOCAL_WRITE | Access::REMOTE_READ).unwrap();
    let told = sink.remote(0);
    end.qp.post_send(&SendWr::read(1, sink.whole(), there.remote().unwrap())).unwrap();
    assert_eq!(end.next().status, Status::Success);
    assert_eq!(sink.remote(0), told);
    there.write(0, b"hostile!");
    peer.post_send(&SendWr::write(2, there.piece(0, 8), told)).unwrap();
    assert_eq!(completion(&mut peer).status, Status::Success, "TCP has it, and a Terminate comes back");
    assert_eq!(sink.read(0, 8).unwrap(), [0; 8]);
    host.until(|| end.qp.state() != QpState::ReadyToSend);
}

/// RFC 5042 §6.1.1: a peer reaches memory of its own protection domain alone.
#[test]
fn peers_reach_no_memory_of_another_protection_domain() {
    let host = host("domains", Kind::Rxe, 0);
    let (_end, mut peer) = host.pair();
    let other = host.rnic.alloc_pd().allocate(8, Access::LOCAL_WRITE | Access::REMOTE).unwrap();
    let there = host.memory(8);
    peer.post_send(&SendWr::write(1, there.piece(0, 8), other.remote(0))).unwrap();
    assert_eq!(completion(&mut peer).status, Status::RemoteAccess);
}

#[test]
fn a_region_that_is_gone_is_nothing_to_the_device() {
    let host = host("gone", Kind::Rxe, 0);
    let (end, mut peer) = host.pair();
    let there = host.memory(8);
    let region = end.pd.allocate(8, Access::LOCAL_WRITE | Access::REMOTE).unwrap();
    let told = region.remote(0);
    region.deregister().unwrap();
    peer.post_send(&SendWr::write(1, there.piece(0, 8), told)).unwrap();
    assert_eq!(completion(&mut peer).status, Status::RemoteAccess);
}

#[test]
fn a_region_has_a_new_key_once_it_is_registered_again() {
    let host = host("again", Kind::Rxe, 0);
    let (end, mut peer) = host.pair();
    let there = host.memory(8);
    there.write(0, b"two keys");
    let region = end.pd.allocate(8, Access::LOCAL_WRITE).unwrap();
    let told = region.remote(0);
    region.reregister(Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    assert_ne!(region.remote(0), told);
    peer.post_send(&SendWr::write(1, there.piece(0, 8), region.remote(0))).unwrap();
    assert_eq!(completion(&mut peer).status, Status::Success);
    assert_eq!(region.read(0, 8).unwrap(), b"two keys");
}

#[test]
fn a_region_is_what_it_was_when_another_registration_is_refused() {
    let host = host("as_it_was", Kind::Rxe, 0);
    let (end, _peer) = host.pair();
    let there = host.memory(8);
    let region = end.pd.allocate(8, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    let told = region.remote(0);
    for refused in [Access::REMOTE_WRITE, Access::LOCAL_WRITE | Access::REMOTE_INVALIDATE] {
        region.reregister(refused).unwrap_err();
    }
    assert_eq!(region.remote(0), told);
    end.qp.post_send(&SendWr::write(1, region.whole(), there.remote().unwrap())).unwrap();
    assert_eq!(end.next().status, Status::Success);
}

/// A region that is deregistered while another thread registers it again is left with nobody.
#[test]
fn a_region_that_is_deregistered_is_nowhere() {
    let host = host("nowhere", Kind::Rxe, 0);
    let pd = host.rnic.alloc_pd();
    let before = host.objects();
    let regions: Vec<_> = (0..2000).map(|_| pd.allocate(8, Access::LOCAL_WRITE).unwrap()).collect();
    let start = &std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for region in &regions {
                start.wait();
                let _ = region.reregister(Access::LOCAL_WRITE);
            }
        });
        for region in &regions {
            start.wait();
            region.deregister().unwrap();
        }
    });
    assert_eq!(host.objects(), before);
}

#[test]
fn a_registration_that_is_refused_says_what_helps() {
    let host = host("limit", Kind::Siw, quirk::LOCKED_MEMORY);
    let pd = host.rnic.alloc_pd();
    let refused = pd.allocate(1 << 20, Access::LOCAL_WRITE).unwrap_err();
    // The limit is named where there is one.
    let is_memory =
        matches!(refused, Error::Device(DeviceError::LockedMemory { .. } | DeviceError::Memory { .. }));
    assert!(is_memory, "{refused}");
    assert_eq!(pd.users(), 0);
    let windows = pd.allocate_window().unwrap_err();
    assert!(matches!(windows, Error::Device(DeviceError::Unsupported { .. })), "{windows}");
    assert!(windows.to_string().contains("limit does not have memory windows"), "{windows}");
}
