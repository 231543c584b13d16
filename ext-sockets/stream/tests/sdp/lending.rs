//! Sends whose octets the peer reads from the program's memory, and those that it does not read.

use std::thread;

use rddp_stream::{Options, SdpOptions};
use rddp_test_support::random_octets;

use crate::common::{initiator, responder};
use crate::{pair, with};

/// Returns these options for SDP with memory lent by each send.
fn lending(options: Options) -> Options {
    with(options, SdpOptions { threshold: 0, ..SdpOptions::DEFAULT })
}

#[test]
fn octets_cross_from_the_memory_of_the_sender() {
    let (a, b) = pair(&lending(initiator()), &lending(responder()));
    for (seed, size) in [2, 10, 100, 5000, 70_000, 1 << 20, 3_000_000].into_iter().enumerate() {
        let octets = random_octets(seed as u64, size);
        thread::scope(|scope| {
            scope.spawn(|| a.send_all(&octets));
            let mut got = vec![0; size];
            assert_eq!(b.recv(&mut got, libc::MSG_WAITALL), Ok(size));
            assert!(got == octets, "of {size} octets");
        });
    }
    assert_eq!((a.state.ended(), b.state.ended()), (None, None));
}
