//! Octets arrive as they were sent, with any settings and however they are cut.

use std::thread;

use rddp_mpa::Revision;
use rddp_stream::{Copies, Gather, Options, SdpOptions};
use rddp_test_support::random_octets;

use crate::common::{End, fresh_pair, initiator, responder, tcp_pair_with_mss};
use crate::exchange::both_ways_on;
use crate::{pair, sdp, start, with};

fn both_ways(active: &Options, passive: &Options, count: usize) {
    let (a, b) = fresh_pair(&sdp(*active), &sdp(*passive));
    both_ways_on(&a, &b, count);
    assert_eq!((a.state.ended(), b.state.ended()), (None, None));
}

#[test]
fn octets_cross_with_all_crcs_and_markers() {
    for crc in [false, true] {
        for (ours, theirs) in [(false, false), (true, false), (false, true), (true, true)] {
            let active = Options { crc, markers: ours, ..initiator() };
            let passive = Options { crc, markers: theirs, ..responder() };
            both_ways(&active, &passive, 1 << 20);
        }
    }
}

#[test]
fn octets_cross_with_other_startups() {
    let rev_1 = Options { revision: Revision::One, peer_to_peer: false, ..initiator() };
    both_ways(&rev_1, &responder(), 300_000);
    let no_rtr = Options { peer_to_peer: false, ..initiator() };
    both_ways(&no_rtr, &responder(), 300_000);
}

#[test]
fn octets_cross_however_they_are_gathered() {
    for gather in [Gather::Copy, Gather::Vectored, Gather::Cork] {
        let options = Options { gather, ..initiator() };
        both_ways(&options, &responder(), 1 << 20);
    }
}

#[test]
fn octets_cross_with_few_and_small_buffers() {
    let few = |size| SdpOptions { bufs: 1, size, ..SdpOptions::DEFAULT };
    for size in [1, 1000, 20_000] {
        let (a, b) = fresh_pair(&with(initiator(), few(size)), &with(responder(), few(3000)));
        both_ways_on(&a, &b, 500_000);
    }
}

#[test]
fn octets_cross_short_segments() {
    for markers in [false, true] {
        let (active, passive) = tcp_pair_with_mss(1000);
        let options = |options| sdp(Options { markers, ..options });
        let (a, b) = (End::new(active, &options(initiator())), End::new(passive, &options(responder())));
        both_ways_on(&a, &b, 1 << 20);
    }
}

#[test]
fn each_size_crosses_in_one_call() {
    let (a, b) = pair(&sdp(initiator()), &sdp(responder()));
    for shift in 0..=22 {
        let octets = random_octets(shift, 1 << shift);
        thread::scope(|scope| {
            scope.spawn(|| a.send_all(&octets));
            let mut got = vec![0; octets.len()];
            assert_eq!(b.recv(&mut got, libc::MSG_WAITALL), Ok(octets.len()));
            assert!(got == octets, "of 2^{shift} octets");
        });
    }
}

#[test]
fn a_server_that_speaks_first_is_heard() {
    for peer_to_peer in [false, true] {
        let active = sdp(Options { peer_to_peer, ..initiator() });
        let (a, b) = fresh_pair(&active, &sdp(responder()));
        start(&a, &b);
        b.send_all(b"welcome");
        assert_eq!(a.read(100), Ok(b"welcome".to_vec()));
    }
}

#[test]
fn octets_cross_by_private_buffers() {
    let private = SdpOptions { copies: Copies::Private, ..SdpOptions::DEFAULT };
    for markers in [false, true] {
        let options = |options| with(Options { markers, ..options }, private);
        let (a, b) = fresh_pair(&options(initiator()), &options(responder()));
        both_ways_on(&a, &b, 2 << 20);
        let (a, b) = pair(&options(initiator()), &sdp(responder()));
        for octets in [&b"one"[..], &b"two"[..]] {
            b.send_all(octets);
        }
        let mut look = [0; 2];
        assert_eq!((a.recv(&mut look, libc::MSG_PEEK), &look), (Ok(2), b"on"));
        assert_eq!((a.read(4), a.readable(), a.read(9)), (Ok(b"onet".to_vec()), true, Ok(b"wo".to_vec())));
        assert!(!a.readable());
    }
}
