//! Samples: what all processes have counted at one moment, beside TCP.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rddp_command::failure::Failure;
use rddp_command::out::say;
use rddp_stat::{Connection, Counts};

use super::diag;
use super::process::{self, Process};
use super::streams;
use super::tcp_info::{TcpInfo, TcpSocket};

/// A connection, and what TCP says of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joined {
    pub(super) rddp: Connection,
    pub(super) tcp: Option<TcpInfo>,
}

/// Joins a connection to its socket, whose addresses it may not know itself.
fn joined(mut rddp: Connection, socket: Option<&TcpSocket>) -> Joined {
    if let Some(socket) = socket {
        rddp.identity.local.get_or_insert(socket.local);
        rddp.identity.peer.get_or_insert(socket.peer);
    }
    Joined { rddp, tcp: socket.map(|socket| socket.info) }
}

/// Counts of processes at one moment.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) taken: Instant,
    /// Nanoseconds from 1970 on.
    pub(super) time: u64,
    pub(super) processes: Vec<(Process, Vec<Joined>)>,
    /// Number of processes that were not looked into.
    closed: usize,
}

impl Sample {
    /// Looks at these processes, or at all if there are none named.
    ///
    /// # Errors
    /// A named process cannot be looked at.
    pub(super) fn take(pids: &[u32]) -> Result<Self, Failure> {
        let streams = streams::all();
        let (processes, closed) = if pids.is_empty() {
            let found = process::all(&streams)?;
            (found.processes, found.closed)
        } else {
            (pids.iter().map(|pid| process::one(*pid, &streams)).collect::<Result<_, _>>()?, 0)
        };
        let has_any = processes.iter().any(|process: &Process| !process.connections.is_empty());
        let tcp = if has_any { diag::connections() } else { HashMap::new() };
        let join = |process: Process| {
            let joined = process.connections.iter().map(|rddp| joined(*rddp, tcp.get(&rddp.identity.cookie)));
            let joined = joined.collect();
            (process, joined)
        };
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_nanos() as u64);
        let processes = processes.into_iter().map(join).collect();
        Ok(Sample { taken: Instant::now(), time, processes, closed })
    }

    /// Returns all connections, each with its process.
    pub(super) fn connections(&self) -> impl Iterator<Item = (&Process, &Joined)> {
        self.processes.iter().flat_map(|(process, joined)| joined.iter().map(move |one| (process, one)))
    }

    /// Returns what a process had counted at this moment; `None` if it was not there.
    pub(super) fn total_of(&self, pid: u32) -> Option<Counts> {
        self.processes.iter().find(|(process, _)| process.pid == pid).map(|(process, _)| process.total())
    }

    /// Returns a connection as it was at this moment.
    pub(super) fn same(&self, pid: u32, other: &Connection) -> Option<&Connection> {
        let (_, joined) = self.processes.iter().find(|(process, _)| process.pid == pid)?;
        joined.iter().map(|joined| &joined.rddp).find(|one| one.identity == other.identity)
    }

    /// Returns the seconds since an earlier moment.
    pub(super) fn seconds_since(&self, before: &Sample) -> f64 {
        self.taken.duration_since(before.taken).max(Duration::from_millis(1)).as_secs_f64()
    }

    /// Says so if there is nothing to show, and where there may be some.
    pub(super) fn say_if_empty(&self) {
        if self.processes.iter().any(|(process, _)| !process.connections.is_empty()) {
            return;
        }
        say!("no connection by rddp in the programs that may be looked into");
        if self.closed > 0 {
            say!("  {} processes are other users': root sees them, too", self.closed);
        }
    }
}

#[cfg(test)]
impl Sample {
    /// Returns a sample of these processes.
    pub(super) fn of(processes: Vec<(Process, Vec<Joined>)>) -> Self {
        Sample { taken: Instant::now(), time: 0, processes, closed: 0 }
    }
}
