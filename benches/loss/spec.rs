//! Settings of a cell, and its results.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The way of octets into the receiver's memory.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// By `read` from a TCP socket.
    Tcp,
    /// RDMA Writes, placed by this process.
    User,
    /// RDMA Writes, placed by the kernel behind a hole.
    Auto,
    /// RDMA Writes, placed by the kernel.
    Kernel,
}

impl Mode {
    pub(crate) const ALL: [Self; 4] = [Self::Tcp, Self::User, Self::Auto, Self::Kernel];
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Cell {
    pub(crate) mode: Mode,
    pub(crate) mtu: u32,
    pub(crate) round_trip: Duration,
    /// Segments with payload that are lost, of 10,000.
    pub(crate) loss: u32,
    pub(crate) seed: u64,
    /// Octets of a message.
    pub(crate) message: usize,
    /// Messages that are under way at once.
    pub(crate) depth: usize,
    /// Ends after this time, or this number of messages.
    pub(crate) time: Duration,
    pub(crate) messages: u64,
    /// The number of the only segment that is lost, once.
    pub(crate) hole: Option<u64>,
    /// TCP has large buffers and a large initial window, in place of Linux's own settings.
    pub(crate) tuned: bool,
}

/// The receiver's results.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Received {
    pub(crate) messages: u64,
    /// From the first message's beginning to the last one's arrival.
    pub(crate) seconds: f64,
    /// Processor time of the process meanwhile.
    pub(crate) cpu_seconds: f64,
    /// The time from a message's beginning to its arrival, in microseconds.
    pub(crate) median_us: f64,
    pub(crate) p99_us: f64,
    /// Time at which the last message arrived (`CLOCK_MONOTONIC`).
    pub(crate) last_ns: u64,
    pub(crate) kernel_segments: u64,
    pub(crate) kernel_placed: u64,
    pub(crate) kernel_confirmed: u64,
    pub(crate) kernel_octets_behind: u64,
}

/// A cell and what was measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) cell: Cell,
    pub(crate) received: Received,
    pub(crate) octets_per_second: f64,
    /// Segments with payload that came by, and those of them that were lost.
    pub(crate) segments: u64,
    pub(crate) lost: u64,
    /// Processor time of the thread that hands frames to the receiver: TCP and the program at tc
    /// ingress run in it.
    pub(crate) path_cpu_seconds: f64,
    /// From the arrival of the segment that was lost to that of the message, in microseconds.
    pub(crate) after_hole_us: Option<f64>,
}
