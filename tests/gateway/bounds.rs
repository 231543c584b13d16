//! A peer that is slow, silent or in the wrong costs no more than some time and some memory.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use rddp_gateway::Reason;
use rddp_rnic::{Access, SendWr};
use rddp_test_support::{connect, pattern, segment};

use crate::devices::{Kind, post, quirk};
use crate::hostile::{by_hand, read_of, send_damaged};
use crate::troubles::still_works;
use crate::world::{PATIENCE, Told, until, world, world_with};

/// The Request would be whole after twice the time that a test has.
#[test]
fn a_plain_host_that_drips_its_request_is_given_up() {
    let world = world("gw_drip", Kind::Rxe);
    let mut socket = connect(world.gateway.address);
    let dripping = std::thread::spawn(move || {
        for octet in b"MPA ID Req Frame\x40\x01\0\0" {
            if socket.write_all(&[*octet]).is_err() {
                return;
            }
            std::thread::sleep(PATIENCE / 10);
        }
    });
    assert!(matches!(world.gateway.refused(), Reason::TooLong(_)));
    dripping.join().unwrap();
}

/// The Terminate that it is owed waits behind what it does not read.
#[test]
fn a_plain_host_that_breaks_a_rule_and_reads_nothing_is_given_up() {
    let world = world("gw_deaf", Kind::Rxe);
    let good = world.connect();
    let (mut peer, program) = by_hand(&world);
    for msn in 1..=16 {
        peer.send(&segment::read(msn, &read_of(program.remote(), 1 << 20)));
    }
    until("TCP has taken what it can", || has_closed_window(world.gateway.address, &peer.socket));
    send_damaged(&mut peer);
    let (_, reason) = world.gateway.ended();
    assert!(matches!(reason, Reason::Broken { .. }), "{reason}");
    still_works(&good.0, &good.1);
    drop(peer);
}

/// Returns whether the socket at an address of this host waits for its peer to read: field 6 of
/// `/proc/net/tcp` begins with 4 while TCP asks for the peer's window.
fn has_closed_window(address: SocketAddr, peer: &TcpStream) -> bool {
    let ends = [address.port(), peer.local_addr().unwrap().port()].map(|port| format!(":{port:04X}"));
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let mut sockets = sockets.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    sockets.any(|of| of[1].ends_with(&ends[0]) && of[2].ends_with(&ends[1]) && of[5].starts_with("04"))
}

/// The plain host stays, and the device never tells that its leg has ended.
#[test]
fn a_fault_ends_the_connection_though_the_device_does_not_tell_of_the_end() {
    let world = world_with("gw_untold", Kind::Siw, quirk::UNTOLD);
    let (mut peer, _program) = by_hand(&world);
    peer.open();
    send_damaged(&mut peer);
    assert_eq!(peer.terminate_code().0, 0x2002);
    let (_, reason) = world.gateway.ended();
    assert!(matches!(reason, Reason::Broken { .. }), "{reason}");
}

/// SIGTERM gives a connection 3 s, and the end that has begun before 10. Of two connections whose
/// ends have begun, the later one is over first.
#[test]
fn a_gateway_that_stops_waits_no_longer_for_an_end_that_has_begun() {
    let [waits, mut stops] = ["gw_waits", "gw_stops"].map(|name| world_with(name, Kind::Siw, quirk::UNTOLD));
    let mut connections = Vec::new();
    for world in [&waits, &stops] {
        let (mut peer, program) = by_hand(world);
        peer.open();
        send_damaged(&mut peer);
        assert_eq!(peer.terminate_code().0, 0x2002);
        connections.push((peer, program));
    }
    stops.gateway.stop();
    assert!(matches!(stops.gateway.ended().1, Reason::Broken { .. }));
    assert!(waits.gateway.told.try_iter().all(|told| matches!(told, Told::Opened)));
}

/// TCP would reset a connection whose octets nobody has read, and the Terminate with it.
#[test]
fn a_plain_host_that_speaks_on_behind_its_fault_learns_of_it() {
    let world = world("gw_deaf_on", Kind::Rxe);
    let (mut peer, _program) = by_hand(&world);
    peer.open();
    send_damaged(&mut peer);
    peer.octets(&vec![0; 32 << 20]);
    assert_eq!(peer.terminate_code().0, 0x2002);
}

/// The device's host waits for receives, which come when what was in them has left.
#[test]
fn messages_for_a_plain_host_that_reads_nothing_wait_at_the_devices_host() {
    const COUNT: u64 = 400;
    const LEN: usize = 60_000;
    let world = world("gw_unread", Kind::Rxe);
    let (mut peer, mut program) = by_hand(&world);
    peer.open();
    let source = world.host.memory(COUNT as usize + LEN, Access::empty());
    source.write(0, &pattern(source.len(), 3));
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let mut told = Vec::new();
            for at in 0..COUNT {
                post(&mut program.end, &SendWr::send(at, source.piece(at as usize, LEN)), &mut told);
            }
        });
        let since = Instant::now();
        while world.host.receives() > 0 {
            assert!(since.elapsed() < PATIENCE, "the gateway goes on to receive");
            std::thread::yield_now();
        }
        assert!(!sending.is_finished(), "the gateway has taken {COUNT} messages");
        for at in 0..COUNT as usize {
            assert!(peer.payload(LEN) == pattern(source.len(), 3)[at..at + LEN], "message {at}");
        }
    });
    peer.fin();
    assert_eq!(world.gateway.ended().0.receives, COUNT);
}
