//! Exclusion of forks and our locks: a fork waits until no thread holds one of our locks, and no
//! thread takes one until the fork is over.
//!
//! No order between the fork and the locks is needed, however many locks there are, and in the
//! child all are free. A thread that already holds one of our locks takes others without waiting
//! for the fork.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::NoSignals;

/// Number of threads that hold locks of ours.
static HOLDERS: AtomicUsize = AtomicUsize::new(0);
/// Set while a thread forks.
static FORKING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Number of our locks that this thread holds.
    static HERE: Cell<usize> = const { Cell::new(0) };
}

/// Pause between two checks of a waiting thread: a fork takes about a millisecond.
const A_MOMENT: Duration = Duration::from_micros(50);

/// Counts one lock of the calling thread. Made before the lock is taken, and dropped after it.
#[derive(Debug)]
pub struct Lockable {
    _here: PhantomData<*const ()>,
}

impl Lockable {
    /// Waits for a fork of another thread to be over. The caller takes no signals as long as this
    /// lives.
    #[must_use]
    pub fn here() -> Self {
        let before = HERE.replace(HERE.get() + 1);
        if before == 0 {
            HOLDERS.fetch_add(1, Ordering::SeqCst);
            while FORKING.load(Ordering::SeqCst) {
                give_way();
            }
        }
        Self { _here: PhantomData }
    }
}

#[cold]
fn give_way() {
    HOLDERS.fetch_sub(1, Ordering::SeqCst);
    while FORKING.load(Ordering::Relaxed) {
        std::thread::sleep(A_MOMENT);
    }
    HOLDERS.fetch_add(1, Ordering::SeqCst);
}

impl Drop for Lockable {
    fn drop(&mut self) {
        let left = HERE.get() - 1;
        HERE.set(left);
        if left == 0 {
            HOLDERS.fetch_sub(1, Ordering::Release);
        }
    }
}

/// A fork under way: no other thread holds a lock of ours. Dropped in the parent and in the child.
#[derive(Debug)]
pub struct Forking {
    // The last field, so that signals come only when all else is done.
    _no_signals: NoSignals,
}

impl Forking {
    /// Begins a fork by the calling thread. `None`: the thread holds a lock of ours, as may be when
    /// a handler of its own faults forks.
    #[must_use]
    pub fn here() -> Option<Self> {
        let no_signals = NoSignals::here();
        if HERE.get() > 0 {
            return None;
        }
        while FORKING.swap(true, Ordering::SeqCst) {
            std::thread::sleep(A_MOMENT);
        }
        for round in 0.. {
            if HOLDERS.load(Ordering::SeqCst) == 0 {
                break;
            }
            if round < SOON { std::thread::yield_now() } else { std::thread::sleep(A_MOMENT) }
        }
        HERE.set(1);
        Some(Self { _no_signals: no_signals })
    }
}

const SOON: u32 = 20;

impl Drop for Forking {
    fn drop(&mut self) {
        HERE.set(0);
        FORKING.store(false, Ordering::SeqCst);
    }
}

/// Resets the counts in the child of a fork, however it was made: no other thread is there.
pub fn is_only_thread() {
    HOLDERS.store(usize::from(HERE.get() > 0), Ordering::SeqCst);
    FORKING.store(false, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_fork_waits_for_locks_and_locks_for_a_fork() {
        let (say, hear) = mpsc::channel();
        let (go_on, goes_on) = mpsc::channel::<()>();
        let holder = std::thread::spawn({
            let say = say.clone();
            move || {
                let outer = Lockable::here();
                say.send("locked").unwrap();
                goes_on.recv().unwrap();
                // The thread holds a lock already, so that a second one does not wait for the fork.
                drop(Lockable::here());
                say.send("unlocked").unwrap();
                drop(outer);
            }
        });
        assert_eq!(hear.recv().unwrap(), "locked");
        let forks = std::thread::spawn({
            let say = say.clone();
            move || {
                let forking = Forking::here().unwrap();
                say.send("forks").unwrap();
                let later = std::thread::spawn(move || {
                    let _lock = Lockable::here();
                    say.send("locked again").unwrap();
                });
                drop(Lockable::here());
                std::thread::sleep(A_MOMENT * 20);
                drop(forking);
                later.join().unwrap();
            }
        });
        while !FORKING.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        go_on.send(()).unwrap();
        for said in ["unlocked", "forks", "locked again"] {
            assert_eq!(hear.recv().unwrap(), said);
        }
        holder.join().unwrap();
        forks.join().unwrap();
    }

    #[test]
    fn a_thread_with_a_lock_forks_without_waiting_for_itself() {
        let _lock = Lockable::here();
        assert!(Forking::here().is_none());
    }
}
