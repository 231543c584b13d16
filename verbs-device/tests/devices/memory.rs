//! Registered memory, and events of devices.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rddp_rdma::{Access, SendWr, Status};
use rddp_verbs_device::{DeviceError, DeviceEvent, Event, Registration};

use crate::logged::logged;
use crate::support::{Kind, completion, event, host, hosts, quirk};

fn refused(outcome: Result<Registration, DeviceError>) -> DeviceError {
    outcome.expect_err("registered")
}

#[test]
fn the_limit_of_locked_memory_is_named() {
    let host = host("limit", Kind::Siw, quirk::LOCKED_MEMORY);
    // The processes of a container may have no limit.
    let (soft, hard) = getrlimit(Resource::RLIMIT_MEMLOCK).unwrap();
    setrlimit(Resource::RLIMIT_MEMLOCK, soft.min(1 << 30), hard).unwrap();
    let error = refused(Registration::allocate(host.device.domain(), 1 << 20, Access::empty()));
    assert!(matches!(error, DeviceError::LockedMemory { len: 0x10_0000, .. }), "{error}");
    assert!(error.to_string().contains("ulimit -l"), "{error}");
}

#[test]
fn rights_that_devices_refuse_are_refused_with_a_reason() {
    for host in hosts("rights", 0) {
        let ask = |access| refused(Registration::allocate(host.device.domain(), 8, access));
        assert!(matches!(ask(Access::REMOTE_WRITE), DeviceError::Rights));
        assert!(matches!(ask(Access::ZERO_BASED), DeviceError::Unsupported { .. }));
        assert!(matches!(ask(Access::REMOTE_INVALIDATE), DeviceError::Unsupported { .. }));
    }
}

/// An RNIC wants a right of peers for the sink of a Read: a key with it is shown to nobody.
#[test]
fn a_sink_of_reads_has_no_key_for_peers() {
    for host in hosts("sink", 0) {
        let (mut active, _passive) = host.connect_plainly();
        let (source, plain) = (host.open_memory(8), host.memory(8, Access::LOCAL_WRITE));
        source.write(0, b"contents");
        let sink = plain.read_sink().unwrap();
        assert!(sink.remote().is_none() && plain.remote().is_none());
        drop(plain);
        active.post_send(&SendWr::read(1, sink.piece(0, 8), source.remote().unwrap())).unwrap();
        let read = completion(&mut active);
        assert_eq!((read.status, read.byte_len), (Status::Success, 8));
        let mut octets = [0; 8];
        sink.read(0, &mut octets);
        assert_eq!(&octets, b"contents");
    }
}

#[test]
fn memory_that_is_not_registered_fails_the_request() {
    for host in hosts("gone", 0) {
        let (mut active, _passive) = host.connect_plainly();
        let gone = host.memory(8, Access::empty()).piece(0, 8);
        active.post_send(&SendWr::send(1, gone)).unwrap();
        let status = completion(&mut active).status;
        // siw and rxe do not tell it from what else they cannot carry out, and rxe not always that.
        let expected: &[Status] = match host.kind {
            Kind::Siw => &[Status::LocalOperation],
            Kind::Rxe => &[Status::LocalOperation, Status::Flushed],
            Kind::Adapter => &[Status::LocalProtection],
        };
        assert!(expected.contains(&status), "{status:?}");
    }
}

#[test]
fn a_failure_without_a_word_is_told_from_one_that_has_one() {
    const GENERAL_ERR: u32 = 21;
    let host = host("strange", Kind::Adapter, quirk::STRANGE);
    let (mut active, mut passive) = host.connect_plainly();
    let gone = host.memory(8, Access::empty()).piece(0, 8);
    active.post_send(&SendWr::send(1, gone)).unwrap();
    let logged = logged(|| assert_eq!(completion(&mut active).status, Status::Other));
    let numbers = format!("status={GENERAL_ERR} vendor_err=77");
    assert!(logged.starts_with("WARN rddp_verbs_device") && logged.contains(&numbers), "{logged}");
    assert!(matches!(event(&mut passive), Event::Disconnected));
}

#[test]
fn a_failure_that_is_told_to_be_a_flush_ends_the_connection() {
    for host in hosts("flushed", quirk::FLUSHED) {
        let (mut active, mut passive) = host.connect_plainly();
        let gone = host.memory(8, Access::empty()).piece(0, 8);
        active.post_send(&SendWr::send(1, gone)).unwrap();
        assert!(matches!(event(&mut active), Event::Disconnected));
        assert!(matches!(event(&mut passive), Event::Disconnected));
    }
}

#[test]
fn events_of_a_device_are_taken_once() {
    const PORT_ERR: u32 = 10;
    let host = host("events", Kind::Rxe, 0);
    assert_eq!(host.device.event().unwrap(), None);
    host.tell(PORT_ERR);
    assert_eq!(host.device.event().unwrap(), Some(DeviceEvent { kind: PORT_ERR, qp: None }));
    assert_eq!(host.device.event().unwrap(), None);
}
