//! The words of a measurement: operations, ways to wait, levels of placement.

use clap::ValueEnum;
use rddp_rnic::Placement;
use serde::{Deserialize, Serialize};

/// Number of octets of an atomic operation.
pub(super) const ATOMIC: u32 = 8;

/// An operation to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Op {
    /// A plain TCP socket, no RDMA
    Tcp,
    /// A plain UDP socket: sendto and recv for each message
    Udp,
    /// Queue pairs over plain TCP, whose octets any TCP program reads
    QpRaw,
    /// Queue pairs over plain TCP, each message behind its length
    QpRecord,
    /// Queue pairs over plain UDP
    QpUdp,
    /// RDMA Writes
    Write,
    /// Sends, each into a posted receive
    Send,
    /// RDMA Reads
    Read,
    /// Atomic adds (RFC 7306 `FetchAdd`), of 8 octets
    FetchAdd,
    /// Atomic swaps (RFC 7306 `CmpSwap`), of 8 octets
    CmpSwap,
}

impl Op {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Op::Tcp => "tcp",
            Op::Udp => "udp",
            Op::QpRaw => "qp-raw",
            Op::QpRecord => "qp-record",
            Op::QpUdp => "qp-udp",
            Op::Write => "write",
            Op::Send => "send",
            Op::Read => "read",
            Op::FetchAdd => "fetch-add",
            Op::CmpSwap => "cmp-swap",
        }
    }

    /// Returns whether the operation is one of iWARP.
    pub(super) fn is_iwarp(self) -> bool {
        self.is_answered() || matches!(self, Op::Write | Op::Send)
    }

    /// Returns whether messages are datagrams, which may be lost.
    pub(super) fn is_datagrams(self) -> bool {
        matches!(self, Op::Udp | Op::QpUdp)
    }

    /// Returns whether the operation is one of RFC 7306 §5, which have [`ATOMIC`] octets.
    pub(super) fn is_atomic(self) -> bool {
        matches!(self, Op::FetchAdd | Op::CmpSwap)
    }

    /// Returns whether the peer answers each request by itself, with octets from its memory.
    pub(super) fn is_answered(self) -> bool {
        self == Op::Read || self.is_atomic()
    }
}

/// Octets of the longest datagram, over either IP.
pub(super) const MAX_DATAGRAM: u32 = 65_507;

/// The way in which an end waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Wait {
    /// Spinning for some round trips, then asleep: lowest latency, one processor busy at each end
    Poll,
    /// Asleep until something arrives
    #[value(alias = "sleep")]
    Event,
}

/// The level at which Writes are placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// By the process, when TCP hands the octets over
    #[default]
    User,
    /// By the kernel where a segment is missing in front
    Auto,
    /// By the kernel
    Kernel,
}

impl From<Level> for Placement {
    fn from(level: Level) -> Self {
        match level {
            Level::User => Placement::User,
            Level::Auto => Placement::Auto,
            Level::Kernel => Placement::Kernel,
        }
    }
}
