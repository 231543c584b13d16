//! Processors: the time that this process has used, and has waited for; where it runs, and whether
//! there are enough.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::unistd::Pid;
use rddp_command::failure::Failure;

/// Share of the time of a measurement above which waiting for a processor has spoiled its figures.
pub(super) const SPOILED: f64 = 0.1;

/// Time for which two threads try to spin: many times what a scheduler gives each of two.
const TRIED: Duration = Duration::from_millis(40);

/// Returns the seconds of all threads so far, in user and system mode.
pub(crate) fn seconds() -> f64 {
    getrusage(UsageWho::RUSAGE_SELF).map_or(0.0, |usage| {
        (usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e6
    })
}

/// Returns the seconds that this thread has been ready to run without a processor so far; `None` if
/// the kernel does not count them.
pub(super) fn waited() -> Option<f64> {
    // Nanoseconds on a processor, nanoseconds of waiting for one, and how often it got one.
    let counters = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: f64 = counters.split_whitespace().nth(1)?.parse().ok()?;
    Some(nanoseconds / 1e9)
}

/// Returns the seconds of waiting since there were `before`.
pub(super) fn waited_since(before: Option<f64>) -> Option<f64> {
    Some(waited()? - before?)
}

/// Returns whether two threads that spin have a processor each: they try for a moment.
pub(crate) fn has_two_idle() -> bool {
    let until = Instant::now() + TRIED;
    let spin = || {
        let before = waited();
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        waited_since(before)
    };
    let waits = thread::scope(|scope| {
        let other = scope.spawn(spin);
        [spin(), other.join().unwrap_or_default()]
    });
    let most = SPOILED * TRIED.as_secs_f64();
    match waits {
        [Some(one), Some(other)] => one.max(other) <= most,
        _ => thread::available_parallelism().map_or(1, usize::from) > 1,
    }
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
