//! Faults of either side end their own connection, in the right way; all others go on.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rddp_gateway::{Options, Reason, RunError};
use rddp_rnic::{Access, ConnectOptions, Operation, RecvWr, Remote, Rnic, SendWr, Stag, Status};
use rddp_test_support::pattern;
use rddp_verbs_device::{DeviceError, Event, Offer};

use crate::devices::{self, Host, Kind, completion, completions};
use crate::world::{PATIENCE, Plain, Program, World, gateway_to, reverse, slow_world, world};

/// Checks that a connection still carries octets.
pub(crate) fn still_works(plain: &Plain, program: &Program) {
    let octets = pattern(3000, 9);
    let sink = plain.memory(&[0; 3000]);
    plain
        .qp
        .post_send(&SendWr::write(1, plain.memory(&octets).whole(), program.remote()).unsignaled())
        .unwrap();
    let done = plain.does(&SendWr::read(2, sink.whole(), program.remote()));
    assert_eq!(done.status, Status::Success);
    assert!(sink.read(0, 3000).unwrap() == octets);
}

/// Has one of two connections break, and returns the Terminate that its plain host gets.
fn terminated(world: &World, breaks: impl FnOnce(&Plain, &Program)) -> u16 {
    let (good, broken) = (world.connect(), world.connect());
    breaks(&broken.0, &broken.1);
    let code = broken.0.terminated();
    let (Plain { qp, .. }, mut program) = broken;
    assert!(matches!(devices::event(&mut program.end), Event::Disconnected));
    qp.disconnect();
    let (_, reason) = world.gateway.ended();
    assert_eq!(reason.terminate().map(|code| code.0), Some(code), "{reason}");
    still_works(&good.0, &good.1);
    drop(good);
    assert!(world.gateway.ended().1.is_orderly());
    code
}

fn wrong(program: &Program) -> Remote {
    let there = program.remote();
    Remote { stag: Stag(there.stag.0 ^ 0xff), ..there }
}

#[test]
fn what_the_devices_host_has_not_granted_becomes_the_terminate_of_its_kind() {
    for kind in [Kind::Rxe, Kind::Adapter] {
        let world = world(&format!("gw_wrong{}", kind as u8), kind);
        let write = |plain: &Plain, program: &Program| {
            let source = plain.memory(b"no right");
            plain.qp.post_send(&SendWr::write(1, source.whole(), wrong(program))).unwrap();
        };
        assert_eq!(terminated(&world, write), 0x1100);
        let read = |plain: &Plain, program: &Program| {
            let sink = plain.memory(&[0; 8]);
            plain.qp.post_send(&SendWr::read(1, sink.whole(), wrong(program))).unwrap();
        };
        assert_eq!(terminated(&world, read), 0x0102);
        let add = |plain: &Plain, program: &Program| {
            let sink = plain.memory(&[0; 8]);
            plain.qp.post_send(&SendWr::fetch_add(1, sink.whole(), wrong(program), 1)).unwrap();
        };
        assert_eq!(terminated(&world, add), 0x0102);
    }
}

#[test]
fn what_infiniband_does_not_have_is_an_unexpected_opcode() {
    let world = world("gw_masks", Kind::Rxe);
    let masked = |plain: &Plain, program: &Program| {
        let (sink, remote) = (plain.memory(&[0; 8]), program.remote());
        let operation = Operation::FetchAdd { sink: sink.whole(), remote, add: 1, mask: 1 << 31 };
        plain.qp.post_send(&SendWr::new(1, operation)).unwrap();
    };
    assert_eq!(terminated(&world, masked), 0x0206);
    let eight = |plain: &Plain, _: &Program| {
        plain.qp.post_send(&SendWr::immediate(1, [1; 8])).unwrap();
    };
    assert_eq!(terminated(&world, eight), 0x0206);
}

#[test]
fn a_device_without_atomics_has_none_for_plain_hosts() {
    let world = world("gw_lacks", Kind::Siw);
    let add = |plain: &Plain, program: &Program| {
        let sink = plain.memory(&[0; 8]);
        plain.qp.post_send(&SendWr::fetch_add(1, sink.whole(), program.remote(), 1)).unwrap();
    };
    assert_eq!(terminated(&world, add), 0x0206);
}

#[test]
fn a_message_beyond_the_limit_ends_its_connection_from_either_side() {
    let world = world("gw_long", Kind::Rxe);
    let long = |plain: &Plain, _: &Program| {
        let source = plain.memory(&pattern((64 << 10) + 1, 1));
        plain.qp.post_send(&SendWr::send(1, source.whole())).unwrap();
        // It goes when the message has.
        std::mem::forget(source);
    };
    assert_eq!(terminated(&world, long), 0x1205);
    let (plain, mut program) = world.connect();
    let source = world.host.memory((64 << 10) + 1, Access::empty());
    program.end.post_send(&SendWr::send(1, source.piece(0, source.len()))).unwrap();
    assert_eq!(plain.terminated(), 0x0207);
    assert_eq!(completion(&mut program.end).status, Status::RemoteOperation);
    let (_, reason) = world.gateway.ended();
    assert!(reason.to_string().contains("longer than the receive"), "{reason}");
}

#[test]
fn a_terminate_of_the_plain_host_ends_the_other_leg_behind_what_came_before() {
    let world = world("gw_terminate", Kind::Rxe);
    let (plain, mut program) = world.connect();
    let source = plain.memory(&pattern(1 << 20, 5));
    assert_eq!(plain.does(&SendWr::write(1, source.whole(), program.remote())).status, Status::Success);
    plain.qp.terminate();
    assert!(matches!(devices::event(&mut program.end), Event::Disconnected));
    assert!(program.octets(0, 1 << 20) == pattern(1 << 20, 5));
    let (_, reason) = world.gateway.ended();
    assert!(reason.to_string().contains("the plain host ended the stream"), "{reason}");
}

/// FIN comes behind what was asked for, and the device's host has all of it.
#[test]
fn a_plain_host_that_closes_has_everything_done() {
    for kind in [Kind::Rxe, Kind::Siw] {
        let world = slow_world(&format!("gw_fin{}", kind as u8), kind);
        let (plain, mut program) = world.connect();
        let source = plain.memory(&pattern(1 << 20, 6));
        plain.qp.post_send(&SendWr::write(1, source.whole(), program.remote())).unwrap();
        plain.qp.disconnect();
        assert!(matches!(devices::event(&mut program.end), Event::Disconnected));
        assert!(program.octets(0, 1 << 20) == pattern(1 << 20, 6));
        let (counts, reason) = world.gateway.ended();
        assert!(matches!(reason, Reason::PlainClosed), "{reason}");
        assert_eq!((counts.writes, counts.octets_in), (1, 1 << 20));
    }
}

/// Messages of the program behind the device arrive, though it has gone since.
#[test]
fn a_program_that_closes_has_its_messages_delivered() {
    let world = world("gw_drain", Kind::Rxe);
    let (plain, mut program) = world.connect();
    let inbox: Vec<_> = (0..10).map(|_| plain.memory(&vec![0; 60_000])).collect();
    for (at, inbox) in (0..).zip(&inbox) {
        plain.qp.post_recv(RecvWr::one(at, inbox.whole())).unwrap();
    }
    let source = world.host.memory(60_000, Access::empty());
    for at in 0..8 {
        program.end.post_send(&SendWr::send(at, source.piece(0, 60_000))).unwrap();
    }
    completions(&mut program.end, 8);
    program.end.close();
    drop(program);
    for at in 0..8 {
        let received = plain.completion();
        assert_eq!((received.wr_id, received.status, received.byte_len), (at, Status::Success, 60_000));
    }
    assert_eq!(plain.completion().status, Status::Flushed);
    plain.qp.disconnect();
    assert!(matches!(world.gateway.ended().1, Reason::DeviceClosed));
}

/// RNR: the device's host waits. TCP's window: the plain host waits.
#[test]
fn a_side_that_takes_nothing_holds_the_other_one_back_and_loses_nothing() {
    const COUNT: u64 = 40;
    let world = world("gw_held", Kind::Rxe);
    let (plain, mut program) = world.connect();
    let source = plain.memory(&pattern(60_000, 2));
    for at in 0..COUNT {
        plain.qp.post_send(&SendWr::send(at, source.whole())).unwrap();
    }
    let inbox = world.host.memory(60_000, Access::LOCAL_WRITE);
    for at in 0..COUNT {
        program.end.post_receive(&RecvWr::one(at, inbox.piece(0, 60_000))).unwrap();
        let received = completion(&mut program.end);
        assert_eq!((received.wr_id, received.byte_len), (at, 60_000));
    }
    for at in 0..COUNT {
        assert_eq!(plain.completion().wr_id, at);
    }
    still_works(&plain, &program);
    drop(plain);
    assert_eq!(world.gateway.ended().0.sends, COUNT);
}

#[test]
fn a_program_that_is_killed_and_a_device_that_goes_are_the_end_for_their_plain_hosts() {
    let mut world = world("gw_kill", Kind::Rxe);
    let (plain, program) = world.connect();
    plain.qp.post_recv(RecvWr::new(1, Vec::new())).unwrap();
    drop(program);
    assert_eq!(plain.completion().status, Status::Flushed);
    assert!(matches!(world.gateway.ended().1, Reason::DeviceClosed));
    let (plain, _program) = world.connect();
    plain.qp.post_recv(RecvWr::new(1, Vec::new())).unwrap();
    world.host.remove();
    assert_eq!(plain.completion().status, Status::Flushed);
    let ended = world.gateway.end();
    assert!(matches!(ended, Err(RunError::NoListener(_))), "{ended:?}");
    let (_, reason) = world.gateway.ended();
    assert!(matches!(reason, Reason::Device(DeviceError::Removed { .. })), "{reason}");
    assert_eq!(reason.to_string(), "gw_kill was removed from this host");
}

/// InfiniBand tells of no host that is gone, and a program that waits for requests asks nothing.
#[test]
fn a_devices_host_that_vanishes_is_noticed_by_a_question() {
    let host = devices::host("gw_vanish", Kind::Rxe, 0);
    let listener = host.listen();
    let options = Options { probe_time: Duration::from_millis(100), ..Options::default() };
    let gateway = gateway_to(&host, &listener.address(), options);
    let world = World { gateway, listener, host, rnic: Rnic::open().unwrap() };
    let (plain, _program) = world.connect();
    plain.qp.post_recv(RecvWr::new(1, Vec::new())).unwrap();
    world.host.cut();
    assert_eq!(plain.completion().status, Status::Flushed);
    world.gateway.ended();
}

#[test]
fn a_gateway_that_stops_ends_its_connections_behind_what_was_asked_for() {
    let mut world = slow_world("gw_stop", Kind::Rxe);
    let (plain, mut program) = world.connect();
    let source = plain.memory(&pattern(1 << 20, 8));
    plain.qp.post_recv(RecvWr::new(1, Vec::new())).unwrap();
    plain.qp.post_send(&SendWr::write(2, source.whole(), program.remote()).unsignaled()).unwrap();
    // A Read is answered behind the Write.
    let sink = plain.memory(&[0; 8]);
    assert_eq!(plain.does(&SendWr::read(3, sink.whole(), program.remote())).status, Status::Success);
    world.gateway.stop();
    assert!(matches!(devices::event(&mut program.end), Event::Disconnected));
    assert_eq!(plain.completion().status, Status::Flushed);
    let (_, reason) = world.gateway.ended();
    assert!(matches!(reason, Reason::Stopped), "{reason}");
    assert!(program.octets(0, 1 << 20) == pattern(1 << 20, 8));
}

pub(crate) fn in_a_hurry() -> Options {
    Options { leg_time: Duration::from_millis(300), ..Options::default() }
}

#[test]
fn a_silent_host_behind_the_device_is_given_up_with_a_reason() {
    let taken = [Kind::Siw, Kind::Rxe].map(|kind| {
        let world = world(&format!("gw_silent{}", kind as u8), kind);
        let gateway = gateway_to(&world.host, &world.host.address(200, 7), in_a_hurry());
        let plain = Plain::new(&world.rnic);
        let connected = plain.qp.connect(gateway.address, &ConnectOptions::default());
        let Err(rddp_rnic::ConnectError::Rejected { private_data }) = connected else {
            panic!("{connected:?}");
        };
        let text = String::from_utf8(private_data).unwrap();
        assert!(text.contains("the device's leg took too long"), "{text}");
        gateway.places.clone()
    });
    // Both gateways have ended. siw's driver still waits, with a thread and a queue pair.
    assert_eq!(taken[0].load(Ordering::Relaxed), 1, "the place is free before the thread has ended");
    Host::end_silence();
    let since = Instant::now();
    while taken.iter().any(|taken| taken.load(Ordering::Relaxed) > 0) {
        assert!(since.elapsed() < PATIENCE, "a place is not free again");
        std::thread::yield_now();
    }
}

#[test]
fn a_plain_host_that_does_not_answer_is_given_up_with_a_reason() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (gateway, host) = reverse("gw_mute", Kind::Rxe, &listener.local_addr().unwrap(), in_a_hurry());
    let mut end = host.ask(gateway.address, Offer::default());
    let Event::Failed(failed) = devices::event(&mut end) else { panic!("no answer") };
    let rddp_verbs_device::ConnectFailed::Rejected { private_data } = failed else { panic!("{failed}") };
    let text = String::from_utf8(private_data).unwrap();
    assert!(text.contains("Reply took too long"), "{text}");
}

/// A stranger learns nothing of this host's devices and addresses.
#[test]
fn a_way_that_is_not_the_devices_is_told_to_the_log_alone() {
    let (world, other) = (world("gw_elsewhere", Kind::Rxe), devices::host("gw_other", Kind::Rxe, 0));
    let gateway = gateway_to(&world.host, &other.address(1, 7), Options::default());
    let plain = Plain::new(&world.rnic);
    let connected = plain.qp.connect(gateway.address, &ConnectOptions::default());
    let Err(rddp_rnic::ConnectError::Rejected { private_data }) = connected else {
        panic!("{connected:?}");
    };
    assert_eq!(private_data, b"rddp gateway: it cannot serve at the moment");
    let reason = gateway.refused().to_string();
    assert!(reason.contains("gw_elsewhere"), "{reason}");
}
