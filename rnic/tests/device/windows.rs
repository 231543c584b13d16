//! Memory windows: bound and unbound by requests, in the table and by the device.

use rddp_rnic::{
    Access, Completed, Error, MemError, MemoryRegion, MemoryWindow, PostError, RecvWr, Remote, SendWr, Stag,
    Status,
};
use rddp_verbs_device::{DeviceError, Endpoint, Event, Registration};

use crate::support::{End, Host, Kind, completion, event, host, quirk};

const BINDABLE: Access = Access::LOCAL_WRITE.union(Access::BIND);
const BOTH: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);

/// A window that is bound to the octets 16 to 48 of a region that gives peers no right, and a peer
/// with memory.
struct Bound {
    region: MemoryRegion,
    window: MemoryWindow,
    own: Registration,
    peer: Endpoint,
    end: End,
    host: Host,
}

fn bound(name: &str, kind: Kind, rights: Access) -> Bound {
    let host = host(name, kind, 0);
    let (end, peer) = host.pair();
    let region = end.pd.allocate(64, BINDABLE).unwrap();
    let window = end.pd.allocate_window().unwrap();
    assert_eq!(window.remote(0), Remote { stag: Stag(0), to: 0 });
    let own = host.memory(64);
    let of = Bound { region, window, own, peer, end, host };
    of.bind(rights);
    of
}

impl Bound {
    fn bind(&self, rights: Access) {
        let bind = SendWr::bind(1, self.window.stag(), self.region.sge(16..48), rights);
        self.end.qp.post_send(&bind).unwrap();
        let done = self.end.next();
        assert_eq!((done.wr_id, done.status, done.completed), (1, Status::Success, Completed::Bind));
    }

    fn invalidate(&self) {
        self.end.qp.post_send(&SendWr::invalidate(2, self.window.stag())).unwrap();
        let done = self.end.next();
        assert_eq!((done.wr_id, done.status, done.completed), (2, Status::Success, Completed::Invalidate));
    }

    fn write(&mut self, to: Remote) -> Status {
        self.peer.post_send(&SendWr::write(3, self.own.piece(0, 8), to)).unwrap();
        completion(&mut self.peer).status
    }

    fn read(&mut self, from: Remote) -> Status {
        self.peer.post_send(&SendWr::read(4, self.own.piece(8, 8), from)).unwrap();
        completion(&mut self.peer).status
    }
}

#[test]
fn a_peer_reaches_what_a_window_lends_and_no_more() {
    for kind in [Kind::Rxe, Kind::Adapter] {
        let mut of = bound(&format!("lends{}", kind as u8), kind, BOTH);
        of.own.write(0, b"by peer!");
        of.region.write(24, b"for peer").unwrap();
        assert_eq!(of.write(of.window.remote(24)), Status::Success);
        assert_eq!(of.region.read(40, 8).unwrap(), b"by peer!");
        assert_eq!(of.read(of.window.remote(8)), Status::Success);
        let mut octets = [0; 8];
        of.own.read(8, &mut octets);
        assert_eq!(&octets, b"for peer");
        assert_eq!(of.write(of.window.remote(25)), Status::RemoteAccess);
        assert!(matches!(event(&mut of.peer), Event::Disconnected));
    }
}

#[test]
fn a_window_gives_no_right_that_it_does_not_have() {
    // Its offsets count from its own first octet, however the program has them.
    let mut of = bound("no_right", Kind::Rxe, Access::REMOTE_READ | Access::ZERO_BASED);
    assert_eq!(of.read(of.window.remote(0)), Status::Success);
    assert_eq!(of.write(of.window.remote(0)), Status::RemoteAccess);
}

#[test]
fn a_window_is_bound_again_under_another_key() {
    let mut of = bound("again_bound", Kind::Rxe, BOTH);
    let (before, objects) = (of.window.remote(0), of.host.objects());
    of.invalidate();
    assert_eq!(of.window.remote(0).stag, Stag(0));
    // What is unbound already is none of the device's.
    of.invalidate();
    of.bind(BOTH);
    let after = of.window.remote(0);
    assert!(after.stag != before.stag && after.to == before.to);
    assert_eq!(of.host.objects(), objects);
    assert_eq!(of.write(after), Status::Success);
    assert_eq!(of.write(before), Status::RemoteAccess);
}

/// Requests for windows are carried out one after the other, also by a device that is slow.
#[test]
fn requests_for_windows_are_posted_together() {
    let host = host("together", Kind::Rxe, quirk::SLOW);
    let (end, mut peer) = host.pair();
    let (region, own) = (end.pd.allocate(64, BINDABLE).unwrap(), host.memory(64));
    let windows = [0, 1].map(|_| end.pd.allocate_window().unwrap());
    let bind = |id, window: &MemoryWindow| SendWr::bind(id, window.stag(), region.sge(..32), BOTH);
    let read = SendWr::read(1, region.sge(..8), own.remote().unwrap());
    let list = [read, bind(2, &windows[0]), bind(3, &windows[1])];
    end.qp.post_sends(&list).unwrap();
    assert_eq!([(); 3].map(|()| end.next().status), [Status::Success; 3]);
    for window in &windows {
        peer.post_send(&SendWr::write(4, own.piece(0, 8), window.remote(8))).unwrap();
        assert_eq!(completion(&mut peer).status, Status::Success);
    }
    let list = [SendWr::invalidate(5, windows[0].stag()), bind(6, &windows[0])];
    end.qp.post_sends(&list).unwrap();
    assert_eq!([(); 2].map(|()| end.next().status), [Status::Success; 2]);
    peer.post_send(&SendWr::read(7, own.piece(0, 8), windows[0].remote(8))).unwrap();
    assert_eq!(completion(&mut peer).status, Status::Success);
}

/// InfiniBand's windows are the peer's to give back, whatever rights they have.
#[test]
fn a_window_that_its_peer_gives_back_is_unbound() {
    let mut of = bound("given_back", Kind::Rxe, BOTH);
    let (stag, there) = (of.window.stag(), of.window.remote(0));
    of.end.qp.post_recv(RecvWr::new(7, [])).unwrap();
    of.peer.post_send(&SendWr::send_invalidate(8, Vec::new(), there.stag)).unwrap();
    assert_eq!(completion(&mut of.peer).status, Status::Success);
    let received = of.end.next();
    assert_eq!((received.wr_id, received.invalidated), (7, Some(stag)));
    of.bind(BOTH);
    assert_eq!(of.read(of.window.remote(0)), Status::Success);
    of.invalidate();
    of.region.deregister().unwrap();
}

#[test]
fn a_region_is_not_deregistered_while_a_window_is_bound_to_it() {
    let mut of = bound("lent", Kind::Rxe, BOTH);
    let there = of.window.remote(0);
    assert!(matches!(of.region.deregister(), Err(MemError::WindowsBound { windows: 1, .. })));
    assert!(matches!(of.region.reregister(BINDABLE), Err(MemError::WindowsBound { windows: 1, .. })));
    assert_eq!(of.write(there), Status::Success, "nothing has changed");
    let Bound { region, window, .. } = &of;
    assert!(region.is_valid() && window.remote(0) == there);
    of.invalidate();
    of.region.deregister().unwrap();
}

#[test]
fn a_window_that_is_dropped_while_it_is_bound_opens_nothing() {
    let Bound { region, window, own, mut peer, end, host } = bound("dropped", Kind::Rxe, BOTH);
    let there = window.remote(0);
    drop(window);
    peer.post_send(&SendWr::write(3, own.piece(0, 8), there)).unwrap();
    assert_eq!(completion(&mut peer).status, Status::RemoteAccess);
    region.deregister().unwrap();
    drop((region, own, peer, end));
    host.until_nothing_is_left();
}

#[test]
fn a_region_or_a_queue_pair_that_is_dropped_takes_its_windows_along() {
    let Bound { region, window, own, mut peer, end, host } = bound("region_first", Kind::Rxe, BOTH);
    let there = window.remote(0);
    drop(region);
    assert_eq!(window.remote(0).stag, Stag(0));
    peer.post_send(&SendWr::write(3, own.piece(0, 8), there)).unwrap();
    assert_eq!(completion(&mut peer).status, Status::RemoteAccess);
    drop((window, own, peer, end));
    host.until_nothing_is_left();
    let Bound { region, window, own, peer, end, host } = bound("pair_first", Kind::Rxe, BOTH);
    drop((end.qp, peer));
    assert_eq!(window.remote(0).stag, Stag(0));
    drop((own, region, window, end.cq, end.pd));
    host.until_nothing_is_left();
}

#[test]
fn a_bind_that_fails_ends_the_connection_and_leaves_the_window_unbound() {
    let of = bound("fails", Kind::Rxe, BOTH);
    // What the table refuses, the device is not asked for.
    let second = SendWr::bind(9, of.window.stag(), of.region.sge(..8), BOTH);
    of.end.qp.post_send(&second).unwrap();
    let refused = of.end.next();
    assert_eq!((refused.wr_id, refused.status), (9, Status::MemoryBind));
    drop(of);

    let host = host("device_fails", Kind::Rxe, 0);
    let (end, _peer) = host.pair();
    // rxe binds no window to no octets, which the table knows nothing of.
    let region = end.pd.allocate(64, BINDABLE).unwrap();
    let window = end.pd.allocate_window().unwrap();
    end.qp.post_send(&SendWr::bind(10, window.stag(), region.sge(8..8), BOTH)).unwrap();
    let refused = end.next();
    assert_eq!((refused.wr_id, refused.status, refused.completed), (10, Status::MemoryBind, Completed::Bind));
    assert_eq!(window.remote(0).stag, Stag(0));
    region.deregister().unwrap();
    let region = end.pd.allocate(64, BINDABLE).unwrap();
    assert!(end.qp.reset());
    let mut peer = host.connect(&end);
    end.qp.post_send(&SendWr::bind(11, window.stag(), region.whole(), BOTH)).unwrap();
    assert_eq!(end.next().status, Status::Success);
    let own = host.memory(8);
    peer.post_send(&SendWr::write(12, own.piece(0, 8), window.remote(0))).unwrap();
    assert_eq!(completion(&mut peer).status, Status::Success);
}

#[test]
fn what_a_device_has_not_is_refused_by_name_or_when_it_is_posted() {
    let unsupported = |error: Error, text: &str| {
        assert!(matches!(error, Error::Device(DeviceError::Unsupported { .. })), "{error}");
        assert!(error.to_string().contains(text), "{error}");
    };
    let none = host("without", Kind::Siw, 0);
    let (end, _peer) = none.pair();
    assert!(!none.rnic.capabilities().windows);
    unsupported(end.pd.allocate_window().unwrap_err(), "without does not have memory windows");
    let region = end.pd.allocate(8, BINDABLE).unwrap_err();
    unsupported(region, "without does not have memory windows");
    let bind = SendWr::bind(
        1,
        Stag(0x100),
        end.pd.allocate(8, BOTH | BINDABLE.difference(Access::BIND)).unwrap().whole(),
        BOTH,
    );
    assert!(matches!(end.qp.post_send(&bind), Err(PostError::Unsupported)));
    assert_eq!(end.pd.users(), 1, "the queue pair");

    let of = bound("type_2", Kind::Rxe, BOTH);
    assert!(of.host.rnic.capabilities().windows);
    unsupported(of.end.pd.allocate_rebindable_window().unwrap_err(), "bound again while they are bound");
    let keyed = SendWr::bind_with_key(1, of.window.stag(), of.region.whole(), BOTH, 5);
    for refused in [keyed, SendWr::invalidate(2, of.region.stag())] {
        assert!(matches!(of.end.qp.post_send(&refused), Err(PostError::Unsupported)));
    }
}
