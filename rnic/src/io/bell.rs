//! The bell of a completion queue: it wakes all threads that sleep on the queue.
//!
//! A sleeping thread watches the bell's descriptor beside the sockets of the queue's QPs. So it
//! learns what no socket shows: a completion that another thread made, or a QP that connects.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::notify::Notify;

/// A wake-up for many threads. Its descriptor is readable from a [`ring`](Self::ring) until all
/// threads that were asleep then, or fell asleep since, have woken up: so a thread that is slow to
/// wake up finds it readable still, though others were faster.
#[derive(Debug)]
pub(crate) struct Bell {
    flag: Notify,
    sleepers: Mutex<Sleepers>,
    /// A copy of `Sleepers::count`, so that to ring where nobody sleeps takes no lock.
    asleep: AtomicUsize,
    /// Number of sleepers that wait for completions. A thread that waits for a channel's event is
    /// woken by the channel.
    awaiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct Sleepers {
    count: usize,
    rung: bool,
}

/// A thread that is asleep, or that looks once more for a reason to stay awake.
pub(crate) struct Asleep<'a> {
    bell: &'a Bell,
    /// 1 if the thread counts in `awaiting`, else 0.
    awaits: usize,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        let (asleep, awaiting) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Ok(Bell { flag: Notify::new()?, sleepers: Mutex::default(), asleep, awaiting })
    }

    /// Wakes all threads that are asleep. The caller has stored with `SeqCst` what they are to see.
    ///
    /// That store comes before this look at the number of sleepers, and a thread adds itself to
    /// that number before it looks for the last time: so one of the two sees the other.
    pub(crate) fn ring(&self) {
        if self.asleep.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut sleepers = self.sleepers.lock();
        if sleepers.count > 0 && !sleepers.rung {
            sleepers.rung = true;
            self.flag.give();
        }
    }

    /// Wakes the threads that wait for a completion, if there are any, as [`ring`](Self::ring)
    /// does. The caller has stored with `SeqCst` that there is one.
    pub(crate) fn ring_for_completion(&self) {
        if self.awaiting.load(Ordering::SeqCst) > 0 {
            self.ring();
        }
    }

    /// Counts the calling thread as asleep: from here on the bell wakes it, but not for
    /// completions. The thread now looks once more for a reason to stay awake, and sleeps if there
    /// is none.
    pub(crate) fn fall_asleep(&self) -> Asleep<'_> {
        self.count_in(0)
    }

    /// Counts the calling thread as asleep as [`fall_asleep`](Self::fall_asleep) does, and the bell
    /// wakes it for completions too.
    pub(crate) fn await_completion(&self) -> Asleep<'_> {
        self.count_in(1)
    }

    fn count_in(&self, awaits: usize) -> Asleep<'_> {
        let mut sleepers = self.sleepers.lock();
        sleepers.count += 1;
        self.asleep.store(sleepers.count, Ordering::SeqCst);
        // Last: who sees this thread among those that await completions rings for all that are
        // asleep.
        self.awaiting.fetch_add(awaits, Ordering::SeqCst);
        Asleep { bell: self, awaits }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.flag.as_fd()
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        let bell = self.bell;
        let mut sleepers = bell.sleepers.lock();
        bell.awaiting.fetch_sub(self.awaits, Ordering::SeqCst);
        sleepers.count -= 1;
        bell.asleep.store(sleepers.count, Ordering::SeqCst);
        if sleepers.count == 0 && std::mem::take(&mut sleepers.rung) {
            bell.flag.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn is_ringing(bell: &Bell) -> bool {
        poll(&mut [PollFd::new(bell.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO) == Ok(1)
    }

    #[test]
    fn a_bell_rings_until_the_last_thread_has_woken_up() {
        let bell = Bell::new().unwrap();
        bell.ring();
        assert!(!is_ringing(&bell), "nobody is asleep");
        let (first, second) = (bell.fall_asleep(), bell.fall_asleep());
        bell.ring();
        bell.ring();
        drop(first);
        assert!(is_ringing(&bell), "the second has not seen it yet");
        let third = bell.fall_asleep();
        drop(second);
        assert!(is_ringing(&bell), "the third is not to miss what came since");
        drop(third);
        assert!(!is_ringing(&bell));
    }

    #[test]
    fn a_completion_rings_only_for_threads_that_wait_for_one() {
        let bell = Bell::new().unwrap();
        let of_channel = bell.fall_asleep();
        bell.ring_for_completion();
        assert!(!is_ringing(&bell), "the channel wakes it");
        let awaiting = bell.await_completion();
        bell.ring_for_completion();
        assert!(is_ringing(&bell));
        drop(awaiting);
        drop(of_channel);
        let of_channel = bell.fall_asleep();
        bell.ring_for_completion();
        assert!(!is_ringing(&bell), "nobody waits for one any more");
        bell.ring();
        assert!(is_ringing(&bell), "for anything else it is woken");
        drop(of_channel);
    }
}
