//! The two ends. A message begins with the time at which it was sent, or 0: that is the end.

mod rdma;
mod tcp;

use std::net::SocketAddr;
use std::time::Duration;

use nix::sys::resource::UsageWho;

use crate::cell::{cpu, now_ns};
use crate::spec::{Cell, Mode, Received};

/// The address on which the receiver listens.
const LISTEN: &str = "10.23.0.2:0";
const PATIENCE: Duration = Duration::from_secs(120);

/// Receives, and prints first where, then the result.
pub(crate) fn receive(cell: &Cell) {
    let received = match cell.mode {
        Mode::Tcp => tcp::receive(cell),
        _ => rdma::receive(cell),
    };
    println!("{}", serde_json::to_string(&received).unwrap());
}

/// Sends until it is time to end.
pub(crate) fn send(cell: &Cell, addr: SocketAddr) {
    match cell.mode {
        Mode::Tcp => tcp::send(cell, addr),
        _ => rdma::send(cell, addr),
    }
}

/// Times of the messages that have come.
#[derive(Default)]
struct Times {
    all: Vec<u64>,
    first: u64,
    last: u64,
    cpu: Duration,
}

impl Times {
    fn begin() -> Self {
        Self { cpu: cpu(UsageWho::RUSAGE_SELF), ..Self::default() }
    }

    /// Notes that the message sent at that time is here.
    fn note(&mut self, sent: u64) {
        self.last = now_ns();
        self.first = if self.all.is_empty() { sent } else { self.first };
        self.all.push(self.last - sent);
    }

    fn result(mut self) -> Received {
        let cpu_seconds = (cpu(UsageWho::RUSAGE_SELF) - self.cpu).as_secs_f64();
        self.all.sort_unstable();
        let part = |of_100: usize| self.all[(self.all.len() - 1) * of_100 / 100] as f64 / 1e3;
        Received {
            messages: self.all.len() as u64,
            seconds: (self.last - self.first) as f64 / 1e9,
            cpu_seconds,
            median_us: part(50),
            p99_us: part(99),
            last_ns: self.last,
            ..Received::default()
        }
    }
}

/// Returns the time with which the next message begins; 0 to end.
fn stamp(cell: &Cell, began: u64, sent: u64) -> u64 {
    let now = now_ns();
    let is_over = sent >= cell.messages || now - began >= cell.time.as_nanos() as u64 && sent > 0;
    if is_over { 0 } else { now }
}
