//! Framed byte streams over loopback: two ends of ours, and ends of ours with a hand-made peer.

mod at_once;
mod calls;
mod common;
mod early;
mod exchange;
mod faults;
mod gather;
mod interrupted;
mod readiness;
mod segments;
mod startup;
mod transfer;
mod vanishing;

use rddp_stream::Stream;
