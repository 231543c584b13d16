//! The Sockets Direct Protocol over loopback: two ends of ours, and ends of ours with a hand-made
//! peer.

mod advertising;
mod behind;
mod calls;
mod close;
#[expect(dead_code, reason = "the tests of plain octets use more of it")]
#[path = "../stream/common.rs"]
mod common;
mod crossings;
mod edges;
#[path = "../stream/exchange.rs"]
mod exchange;
mod lending;
mod modes;
mod nudges;
mod operations;
mod peer;
mod reading;
mod reads;
mod rules;
mod sharing;
mod transfer;
mod urgent;
mod writes;

use std::time::Duration;

use rddp_stream::sdp::Stream;
use rddp_stream::{Format, Options, SdpOptions};

use common::{End, fresh_pair};

/// Returns these options for SDP.
fn sdp(options: Options) -> Options {
    with(options, SdpOptions::DEFAULT)
}

fn with(options: Options, sdp: SdpOptions) -> Options {
    Options { format: Format::Sdp(sdp), ..options }
}

/// Returns two ends that may send.
fn pair(active: &Options, passive: &Options) -> (End, End) {
    let (a, b) = fresh_pair(active, passive);
    start(&a, &b);
    (a, b)
}

fn start(a: &End, b: &End) {
    assert_eq!(a.stream().greet(), Ok(false));
    assert_eq!(b.stream().greet(), Ok(true));
    a.stream().start(None).unwrap();
    let (told, _) = b.poll(libc::POLLOUT, Duration::from_secs(20));
    assert_eq!(told & libc::POLLOUT, libc::POLLOUT, "the first message has come");
}
