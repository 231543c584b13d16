//! Processors: the time that this process has used, and where it runs.

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::unistd::Pid;

use crate::failure::Failure;

/// Returns the seconds of all threads so far, in user and system mode.
pub(super) fn seconds() -> f64 {
    getrusage(UsageWho::RUSAGE_SELF).map_or(0.0, |usage| {
        (usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e6
    })
}

/// Returns two processors that this process may use.
pub(super) fn two() -> Result<[usize; 2], Failure> {
    let usable = sched_getaffinity(Pid::from_raw(0)).map_err(failed)?;
    let mut numbers = (0..CpuSet::count()).filter(|number| usable.is_set(*number).unwrap_or(false));
    match (numbers.next(), numbers.next_back()) {
        (Some(first), Some(last)) => Ok([first, last]),
        _ => Err(Failure::failed("--pin needs two processors, and this process may use one")
            .remedy("leave out --pin")),
    }
}

/// Keeps this thread on a processor, and the threads and processes that it begins from here on.
pub(super) fn keep_on(processor: usize) -> Result<(), Failure> {
    let mut set = CpuSet::new();
    set.set(processor).map_err(failed)?;
    sched_setaffinity(Pid::from_raw(0), &set).map_err(failed)
}

fn failed(error: Errno) -> Failure {
    Failure::failed(format!("--pin: {error}"))
}
