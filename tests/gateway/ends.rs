//! Ends that are not in order: of the gateway itself, and of its plain hosts.

use std::cell::Cell;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rddp_gateway::{Event, Options, Reason, Route, RunError};
use rddp_rnic::{Access, SendWr};
use rddp_test_support::segment;
use rddp_verbs_device::{Event as DeviceEvent, Listener, Offer};

use crate::devices::{self, Host, Kind, completion, host};
use crate::hostile::by_hand;
use crate::world::{PATIENCE, until, world};

fn route(host: &Host) -> Route {
    let listener = Listener::open(&host.device, host.address(1, 0), 8).unwrap();
    Route::FromDevice { listener, to: "127.0.0.1:1".to_owned() }
}

#[test]
fn a_gateway_ends_when_the_device_of_its_last_listener_is_removed() {
    let (first, second) = (host("gw_gone1", Kind::Rxe, 0), host("gw_gone2", Kind::Rxe, 0));
    let routes = [route(&first), route(&second)];
    let (until, has_told, has_gone) = (Instant::now() + PATIENCE, AtomicBool::new(false), Cell::new(false));
    first.remove();
    let tell = |event: Event<'_>| {
        assert!(matches!(event, Event::CannotAccept { .. }), "{event:?}");
        assert!(!has_told.swap(true, Ordering::Relaxed), "told twice");
    };
    let is_stopped = || {
        // The second device goes when the gateway has gone on without the first.
        if has_told.load(Ordering::Relaxed) && !has_gone.replace(true) {
            second.remove();
        }
        Instant::now() > until
    };
    let ended = rddp_gateway::run(&routes, &Options::default(), |_| Ok(()), tell, is_stopped);
    let Err(RunError::NoListener(reason)) = ended else { panic!("{ended:?}") };
    assert!(reason.to_string().contains("gw_gone2 was removed"), "{reason}");
}

/// The device makes nothing for a stranger, however many come.
#[test]
fn a_peer_that_is_refused_has_no_queue_pair() {
    let host = host("gw_stranger", Kind::Rxe, 0);
    let routes = [route(&host)];
    let Route::FromDevice { listener, .. } = &routes[0] else { unreachable!() };
    let mut peer = host.ask(listener.address(), Offer::default());
    devices::wait(listener, Instant::now());
    let (asked, until, has_told) = (host.objects(), Instant::now() + PATIENCE, AtomicBool::new(false));
    let admit = |_| {
        assert_eq!(host.objects(), asked, "something was made before the peer was admitted");
        Err::<(), _>("a stranger".to_owned())
    };
    let tell = |event: Event<'_>| {
        assert!(matches!(event, Event::Refused { reason: Reason::NotAdmitted(_), .. }), "{event:?}");
        has_told.store(true, Ordering::Relaxed);
    };
    let is_stopped = || has_told.load(Ordering::Relaxed) || Instant::now() > until;
    rddp_gateway::run(&routes, &Options::default(), admit, tell, is_stopped).unwrap();
    assert!(matches!(devices::event(&mut peer), DeviceEvent::Failed(_)));
    host.until_left(asked - 1);
}

/// Without a connection, no event of one tells that the device is gone.
#[test]
fn a_gateway_for_plain_hosts_ends_when_the_device_behind_it_is_removed() {
    let host = host("gw_behind", Kind::Rxe, 0);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let to = host.address(1, 7).to_string();
    let routes = [Route::FromPlain { listener, device: host.device.clone(), to }];
    let (until, has_begun) = (Instant::now() + PATIENCE, Cell::new(false));
    let is_stopped = || {
        if !has_begun.replace(true) {
            host.remove();
        }
        Instant::now() > until
    };
    let tell = |event: Event<'_>| panic!("{event:?}");
    let ended = rddp_gateway::run(&routes, &Options::default(), |_| Ok(()), tell, is_stopped);
    let Err(RunError::NoListener(reason)) = ended else { panic!("{ended:?}") };
    assert!(reason.to_string().contains("gw_behind was removed"), "{reason}");
    let Route::FromPlain { listener, .. } = &routes[0] else { unreachable!() };
    assert!(TcpStream::connect(listener.local_addr().unwrap()).is_err(), "a peer would wait for ever");
}

/// The device's host gets all that came before, as at any other close.
#[test]
fn a_plain_host_that_closes_in_the_middle_of_a_message_has_not_ended_in_order() {
    let world = world("gw_cut", Kind::Rxe);
    for what in ["nothing", "an FPDU", "a Send", "a Write"] {
        let (mut peer, mut program) = by_hand(&world);
        let there = program.remote();
        let write = |last, octets: &[u8]| segment::write(there.stag, there.to, last, octets);
        peer.send(&write(true, what.as_bytes()));
        match what {
            "an FPDU" => {
                let half = peer.frame(&write(true, b"half an FPDU"));
                peer.octets(&half[..20]);
            }
            "a Send" => peer.send(&segment::send(1, 0, false, b"half a message")),
            "a Write" => peer.send(&segment::write(there.stag, there.to + 100, false, b"half a Write")),
            _ => {}
        }
        peer.fin();
        assert!(matches!(devices::event(&mut program.end), DeviceEvent::Disconnected));
        assert_eq!(program.octets(0, what.len()), what.as_bytes());
        let (_, reason) = world.gateway.ended();
        let is_orderly = matches!(reason, Reason::PlainClosed);
        assert_eq!((is_orderly, matches!(reason, Reason::PlainCut)), (what == "nothing", what != "nothing"));
    }
}

/// A responder sends nothing before the initiator's first FPDU (RFC 5044 §7.1.2), which may come
/// when the device's host has gone.
#[test]
fn messages_and_faults_of_the_devices_host_wait_for_a_plain_hosts_first_fpdu() {
    let world = world("gw_early", Kind::Rxe);
    for len in [8, (64 << 10) + 1] {
        let (mut peer, mut program) = by_hand(&world);
        let source = world.host.memory(len, Access::empty());
        program.end.post_send(&SendWr::send(1, source.piece(0, len))).unwrap();
        completion(&mut program.end);
        drop(program);
        until("the gateway has heard of the end", || world.host.receives() == 0);
        peer.open();
        if len == 8 {
            assert_eq!(peer.segment().expect("a Send").1.len(), 8);
            peer.fin();
            assert_eq!(peer.ended(), None);
            assert!(matches!(world.gateway.ended().1, Reason::DeviceClosed));
        } else {
            assert_eq!(peer.terminate_code().0, 0x0207);
            drop(peer);
            assert!(matches!(world.gateway.ended().1, Reason::Broken { .. }));
        }
    }
}
