//! The three ways to gather FPDUs make the same octets.

use std::io::IoSlice;

use rddp_mpa::{Rtr, RtrSet, StartupConfig};
use rddp_stream::{Gather, Options};
use rddp_test_support::random_octets;

use crate::common::{by_responder, by_responder_on, initiator, tcp_pair_with_mss};

/// Returns a configuration with an RTR without payload.
fn silent() -> StartupConfig {
    StartupConfig { rtr: RtrSet::only(Rtr::Write), ..StartupConfig::default() }
}

/// Returns the segments as the peer gets them.
fn on_the_wire(gather: Gather, pieces: usize, count: usize, crc: bool) -> Vec<(String, Vec<u8>)> {
    let options = Options { gather, crc, ..initiator() };
    let tcp = tcp_pair_with_mss(1448);
    let (mut peer, end) = by_responder_on(tcp, &StartupConfig { crc, ..silent() }, &options);
    let data = random_octets(1, count);
    let source: Vec<_> = data.chunks(count.div_ceil(pieces)).map(IoSlice::new).collect();
    assert_eq!(end.stream().send(&source, 0), Ok(count));
    end.stream().shutdown(libc::SHUT_WR).unwrap();
    let mut segments = Vec::new();
    while let Some((header, payload)) = peer.segment() {
        segments.push((header.to_string(), payload));
    }
    let got: Vec<u8> = segments.iter().flat_map(|(_, payload)| payload.clone()).collect();
    assert!(got == data);
    segments
}

#[test]
fn every_way_to_gather_makes_the_same_fpdus() {
    for crc in [false, true] {
        for pieces in [1, 2, 17, 1024] {
            for count in [1024, 5000, 100_000] {
                let vectored = on_the_wire(Gather::Vectored, pieces, count, crc);
                assert!(
                    on_the_wire(Gather::Copy, pieces, count, crc) == vectored,
                    "{pieces} pieces of {count}"
                );
                assert!(
                    on_the_wire(Gather::Cork, pieces, count, crc) == vectored,
                    "{pieces} pieces of {count}"
                );
            }
        }
    }
}

// A write is one Send if it fits one.
#[test]
fn a_write_is_one_send_and_a_long_one_several() {
    let options = Options { max_send: 1000, ..initiator() };
    let (mut peer, end) = by_responder(&silent(), &options);
    end.send_all(&random_octets(1, 1000));
    end.send_all(&random_octets(1, 2500));
    end.stream().shutdown(libc::SHUT_WR).unwrap();
    let mut messages = Vec::new();
    while let Some((header, payload)) = peer.segment() {
        if !payload.is_empty() {
            messages.push((payload.len(), header.last()));
        }
    }
    assert_eq!(messages, [(1000, true), (1000, true), (1000, true), (500, true)]);
}

// The rest of a Send that does not fill its last segment would be a short FPDU between long ones,
// each time.
#[test]
fn a_write_of_several_sends_has_one_short_fpdu() {
    let options = Options { max_send: 5000, ..initiator() };
    let (mut peer, end) = by_responder_on(tcp_pair_with_mss(1448), &silent(), &options);
    end.send_all(&random_octets(1, 20_000));
    end.stream().shutdown(libc::SHUT_WR).unwrap();
    let mut lengths = Vec::new();
    while let Some((_, payload)) = peer.segment() {
        lengths.push(payload.len());
    }
    let longest = lengths.iter().copied().max();
    let short: Vec<_> = lengths.iter().filter(|len| Some(**len) != longest && **len > 0).collect();
    assert_eq!(short.len(), 1, "{lengths:?}");
    assert_eq!(lengths.iter().sum::<usize>(), 20_000);
}
