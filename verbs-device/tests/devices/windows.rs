//! Memory windows: of type 2, for the peer of one connection.

use rddp_rdma::{Access, Completed, Remote, SendWr, Status};
use rddp_verbs_device::{DeviceError, Endpoint, Event, PostError, Registration, Window};

use crate::support::{Host, adapters, completion, event, rnics};

const BOTH: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);
const BINDABLE: Access = Access::LOCAL_WRITE.union(Access::BIND);

/// Both ends of a connection, and memory of the passive one that a window is bound to.
struct Bound {
    active: Endpoint,
    passive: Endpoint,
    region: Registration,
    window: Window,
    there: Remote,
    /// Memory of the active end.
    own: Registration,
}

/// Binds a window to the octets 16 to 48.
fn bound(host: &Host, rights: Access) -> Bound {
    let (active, mut passive) = host.connect_plainly();
    let (region, own) = (host.memory(64, BINDABLE), host.memory(64, Access::LOCAL_WRITE));
    region.write(16, &[7; 32]);
    let window = Window::new(host.device.domain()).unwrap();
    assert_eq!(window.remote(), None);
    passive.post_bind((&window, 0x77), (&region, 16..48), rights, (1, true)).unwrap();
    let done = completion(&mut passive);
    assert_eq!((done.status, done.completed, done.wr_id), (Status::Success, Completed::Bind, 1));
    let there = window.remote().unwrap();
    assert_eq!(there.stag.0 & 0xff, 0x77);
    Bound { active, passive, region, window, there, own }
}

fn write(active: &mut Endpoint, own: &Registration, to: Remote) -> Status {
    active.post_send(&SendWr::write(2, own.piece(0, 8), to)).unwrap();
    completion(active).status
}

fn read(active: &mut Endpoint, own: &Registration, from: Remote) -> Status {
    active.post_send(&SendWr::read(3, own.piece(8, 8), from)).unwrap();
    completion(active).status
}

#[test]
fn peers_read_and_write_through_a_window_and_not_beyond() {
    for host in adapters("window", 0) {
        let mut of = bound(&host, BOTH);
        of.own.write(0, b"written!");
        assert_eq!(write(&mut of.active, &of.own, of.there.at(24)), Status::Success);
        assert_eq!(read(&mut of.active, &of.own, of.there), Status::Success);
        let mut octets = [0; 8];
        of.region.read(40, &mut octets);
        assert_eq!(&octets, b"written!");
        of.own.read(8, &mut octets);
        assert_eq!(octets, [7; 8]);
        assert_eq!(write(&mut of.active, &of.own, of.there.at(25)), Status::RemoteAccess);
    }
}

#[test]
fn a_window_gives_the_rights_of_its_own() {
    for host in adapters("rights_of", 0) {
        let mut of = bound(&host, Access::REMOTE_READ);
        assert_eq!(read(&mut of.active, &of.own, of.there), Status::Success);
        assert_eq!(write(&mut of.active, &of.own, of.there), Status::RemoteAccess);
    }
}

#[test]
fn a_window_is_for_the_peer_of_one_connection() {
    for host in adapters("one_peer", 0) {
        let of = bound(&host, BOTH);
        let (mut other, _passive) = host.connect_plainly();
        assert_eq!(read(&mut other, &of.own, of.there), Status::RemoteAccess);
    }
}

#[test]
fn a_window_that_is_invalidated_opens_nothing() {
    for host in adapters("invalidated", 0) {
        let mut of = bound(&host, BOTH);
        of.passive.post_send(&SendWr::invalidate(4, of.there.stag)).unwrap();
        let done = completion(&mut of.passive);
        assert_eq!((done.status, done.completed), (Status::Success, Completed::Invalidate));
        assert_eq!(read(&mut of.active, &of.own, of.there), Status::RemoteAccess);
    }
}

#[test]
fn a_window_that_is_gone_opens_nothing() {
    for host in adapters("dropped", 0) {
        let mut of = bound(&host, BOTH);
        drop(of.window);
        assert_eq!(read(&mut of.active, &of.own, of.there), Status::RemoteAccess);
    }
}

/// Devices refuse to end a registration that has windows, and its memory would stay open.
#[test]
fn a_window_ends_before_its_registration_and_its_connection() {
    for host in adapters("before", 0) {
        let Bound { mut active, region, window, there, own, passive } = bound(&host, BOTH);
        drop(region);
        assert_eq!(read(&mut active, &own, there), Status::RemoteAccess);
        drop((active, passive, own, window));
        let Bound { active, region, window, own, passive, .. } = bound(&host, BOTH);
        drop((active, passive));
        drop((region, own, window));
        host.until_nothing_is_left();
    }
}

#[test]
fn a_bind_that_fails_ends_the_connection() {
    for host in adapters("bind_fails", 0) {
        let (mut active, mut passive) = host.connect_plainly();
        let (region, window) = (host.memory(64, BINDABLE), Window::new(host.device.domain()).unwrap());
        passive.post_bind((&window, 1), (&region, 32..65), BOTH, (1, true)).unwrap();
        let failed = completion(&mut passive);
        // rxe of Linux 6.12 tells a request that it cannot carry out to be flushed.
        assert!(matches!(failed.status, Status::MemoryBind | Status::Flushed), "{failed:?}");
        assert_eq!(failed.completed, Completed::Bind);
        assert!(matches!(event(&mut active), Event::Disconnected));
    }
}

#[test]
fn a_window_is_bound_once() {
    for host in adapters("once", 0) {
        let mut of = bound(&host, BOTH);
        let again = of.passive.post_bind((&of.window, 2), (&of.region, 0..8), BOTH, (2, true));
        assert!(matches!(again, Err(PostError::Unsupported { .. })), "{again:?}");
        assert_eq!(read(&mut of.active, &of.own, of.there), Status::Success);
    }
}

#[test]
fn windows_are_refused_by_name_where_a_device_has_none() {
    for host in rnics("no_windows", 0) {
        assert!(!host.device.capabilities().windows);
        let refused = Window::new(host.device.domain()).unwrap_err();
        assert!(matches!(refused, DeviceError::Unsupported { what: "memory windows", .. }), "{refused}");
        let region = Registration::allocate(host.device.domain(), 8, BINDABLE).unwrap_err();
        assert!(matches!(region, DeviceError::Unsupported { what: "memory windows", .. }), "{region}");
        let (mut active, _passive) = host.connect_plainly();
        let refused = active.post_send(&SendWr::invalidate(1, rddp_rdma::Stag(0x100)));
        assert!(matches!(refused, Err(PostError::Unsupported { .. })), "{refused:?}");
    }
}
