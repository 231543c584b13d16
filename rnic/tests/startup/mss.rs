//! TCP's segment size on paths whose MTU is no multiple of four (RFC 5044 §5.1). Only root can make
//! such a path: for others the tests say that they skip it.

use std::net::TcpListener;
use std::process::Command;

use rddp_rnic::ConnectOptions;
use rddp_test_support::plain;
use socket2::SockRef;

use crate::common::End;
use crate::common::raw::{client_server, listen_on};

/// Octets of a packet in front of the payload: of IPv4, of TCP, and its option.
const HEADERS: u32 = 20 + 20 + TIMESTAMPS;
const TIMESTAMPS: u32 = 12;

/// Does `check` in a network of its own, whose only device has this MTU.
fn at_mtu(mtu: u32, check: fn(u32)) {
    let alone = move || {
        // SAFETY: takes an integer. Of this process only this thread, and those it starts, are in
        // the new network.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } < 0 {
            eprintln!("skipped at MTU {mtu}: only root can make a network of its own");
            return;
        }
        let device = format!("link set lo mtu {mtu} up");
        if Command::new("ip").args(device.split(' ')).status().is_ok_and(|status| status.success()) {
            check(mtu);
        }
    };
    std::thread::spawn(alone).join().unwrap();
}

/// Returns the segment size of the peer of an end that connects. It is also that end's, by the
/// option in its SYN.
fn segment_size(options: &ConnectOptions) -> u32 {
    let (end, listener) = (End::new(), TcpListener::bind("127.0.0.1:0").unwrap());
    let (raw, _) = listen_on(&listener, &end, options, &plain());
    SockRef::from(&raw.socket).tcp_mss().unwrap()
}

/// RFC 5044 §5.1: FPDUs, which are multiples of four octets long, fill the segments.
#[test]
fn a_connecting_end_asks_for_segments_that_fpdus_fill() {
    for mtu in [1450, 1442, 9001, 1500] {
        at_mtu(mtu, |mtu| {
            let (size, longest) = (segment_size(&client_server()), mtu - HEADERS);
            assert_eq!(size, longest - longest % 4, "at {mtu}");
        });
    }
}

/// A program that sets a limit gets what it set.
#[test]
fn a_segment_size_that_is_set_is_not_changed() {
    at_mtu(1450, |_| {
        let size = segment_size(&ConnectOptions { mss: Some(1409), ..client_server() });
        assert_eq!(size, 1409 - TIMESTAMPS);
    });
}
