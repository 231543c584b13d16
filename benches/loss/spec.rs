//! Settings of a cell, and its results.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How octets get into the receiver's memory.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
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
    pub const ALL: [Self; 4] = [Self::Tcp, Self::User, Self::Auto, Self::Kernel];
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Cell {
    pub mode: Mode,
    pub mtu: u32,
    pub round_trip: Duration,
    /// Of 10,000 segments with payload, those that are lost.
    pub loss: u32,
    pub seed: u64,
    /// Octets of a message.
    pub message: usize,
    /// Messages that are under way at once.
    pub depth: usize,
    /// Ends after this time, or this number of messages.
    pub time: Duration,
    pub messages: u64,
    /// The number of the only segment that is lost, once.
    pub hole: Option<u64>,
}

/// The receiver's results.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Received {
    pub messages: u64,
    /// From the first message's beginning to the last one's arrival.
    pub seconds: f64,
    /// Processor time of the process meanwhile.
    pub cpu_seconds: f64,
    /// The time from a message's beginning to its arrival, in microseconds.
    pub median_us: f64,
    pub p99_us: f64,
    /// When the last message arrived (CLOCK_MONOTONIC).
    pub last_ns: u64,
    pub kernel_segments: u64,
    pub kernel_placed: u64,
    pub kernel_confirmed: u64,
    pub kernel_octets_behind: u64,
}

/// A cell and what was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub cell: Cell,
    pub received: Received,
    pub octets_per_second: f64,
    /// Segments with payload that came by, and those of them that were lost.
    pub segments: u64,
    pub lost: u64,
    /// Processor time of the thread that hands frames to the receiver: TCP and the program at tc
    /// ingress run in it.
    pub path_cpu_seconds: f64,
    /// From the arrival of the segment that was lost to that of the message, in microseconds.
    pub after_hole_us: Option<f64>,
}
