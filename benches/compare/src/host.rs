//! Measurements of the host: clock, processor time, memory.

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::Outcome;

/// Processor time and memory that this process has used so far.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// Seconds of all threads, in user and system mode.
    pub(crate) cpu_s: f64,
    /// Octets of memory that are present.
    pub(crate) resident: u64,
}

impl Usage {
    pub(crate) fn now() -> Outcome<Self> {
        Ok(Usage { cpu_s: cpu_s()?, resident: resident()? })
    }
}

pub(crate) fn cpu_s() -> Outcome<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    Ok((usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e6)
}

pub(crate) fn resident() -> Outcome<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib =
        line.and_then(|rest| rest.trim().strip_suffix(" kB")).ok_or("/proc/self/status has no VmRSS")?;
    Ok(kib.trim().parse::<u64>()? * 1024)
}

/// Returns nanoseconds of the clock that all processes of this host share.
pub(crate) fn now_ns() -> Outcome<u64> {
    Ok(u64::try_from(clock_gettime(ClockId::CLOCK_MONOTONIC)?.num_nanoseconds())?)
}

/// Raises the limit of descriptors for that many connections, as far as the system allows.
pub(crate) fn allow_connections(count: usize) -> Outcome<()> {
    let need = count as u64 + 200;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft >= need {
        return Ok(());
    }
    setrlimit(Resource::RLIMIT_NOFILE, need, hard.max(need)).map_err(|error| {
        format!("{count} connections need {need} descriptors ({hard} allowed): {error}").into()
    })
}
