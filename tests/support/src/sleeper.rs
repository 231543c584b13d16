//! Threads that fall asleep: a test that acts while one sleeps waits for that, and for no time.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Instant;

use crate::PATIENCE;

/// A thread of this process that is about to sleep in a call.
///
/// ```
/// let (sleeper, (tell, told)) = (rddp_test_support::Sleeper::default(), std::sync::mpsc::channel());
/// std::thread::scope(|scope| {
///     let sleeper = &sleeper;
///     scope.spawn(move || {
///         sleeper.is_here();
///         told.recv()
///     });
///     sleeper.await_asleep();
///     tell.send(1).unwrap();
/// });
/// ```
#[derive(Debug, Default)]
pub struct Sleeper(OnceLock<PathBuf>);

impl Sleeper {
    /// Returns the calling thread.
    pub fn here() -> Self {
        let sleeper = Sleeper::default();
        sleeper.is_here();
        sleeper
    }

    /// Says that it is the calling thread, which sleeps soon.
    pub fn is_here(&self) {
        let thread = std::fs::read_link("/proc/thread-self").expect("Linux has it");
        self.0.set(PathBuf::from("/proc").join(thread).join("stat")).expect("a sleeper is one thread");
    }

    /// Waits until the thread sleeps, or has ended.
    pub fn await_asleep(&self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.0.get().is_some_and(is_asleep) {
            assert!(Instant::now() < deadline, "the thread does not fall asleep");
            std::thread::yield_now();
        }
    }
}

/// Returns the answer of a thread's `stat`: behind its name, which may have any character, stands
/// its state (proc(5)).
fn is_asleep(stat: &PathBuf) -> bool {
    let Ok(stat) = std::fs::read_to_string(stat) else { return true };
    stat.rsplit(')').next().is_some_and(|behind| behind.trim_start().starts_with('S'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_sleeps_once_it_has_begun_to() {
        let (sleeper, (tell, told)) = (Sleeper::default(), std::sync::mpsc::channel());
        std::thread::scope(|scope| {
            let sleeper = &sleeper;
            let waiting = scope.spawn(move || {
                sleeper.is_here();
                told.recv()
            });
            sleeper.await_asleep();
            assert!(!waiting.is_finished());
            tell.send(1).unwrap();
            assert_eq!(waiting.join().unwrap(), Ok(1));
            sleeper.await_asleep();
        });
        assert!(!is_asleep(Sleeper::here().0.get().unwrap()));
    }
}
