//! Octets that connections by SDP have delivered and copied, as `DDP_SDP_INFO` counts them.

use std::net::TcpStream;

use nix::sys::socket::getsockopt;
use nix::{getsockopt_impl, sockopt_impl};
use rddp_switch::socket::{DDP_SDP_INFO, SOL_DDP};

use crate::Outcome;
use crate::spec::{Op, Spec};

/// Counts of one end's connections, in octets; zeros unless they speak SDP.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Copies {
    pub(crate) delivered: u64,
    pub(crate) copied: u64,
}

impl Copies {
    /// Returns the sum of the connections since they were opened.
    pub(super) fn of<'a>(spec: &Spec, streams: impl IntoIterator<Item = &'a TcpStream>) -> Outcome<Self> {
        let mut sum = Copies::default();
        if spec.op == Op::Sdp {
            for stream in streams {
                let [_, _, _, _, counters @ ..] = getsockopt(stream, Info)?;
                sum.delivered += counters[2];
                sum.copied += counters[4];
            }
        }
        Ok(sum)
    }
}

// `struct ddp_sdp_info`: 32 octets of state, and eight counters.
sockopt_impl!(Info, GetOnly, SOL_DDP, DDP_SDP_INFO, [u64; 12]);
