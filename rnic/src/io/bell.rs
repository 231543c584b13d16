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
}

#[derive(Debug, Default)]
struct Sleepers {
    count: usize,
    rung: bool,
}

/// A thread that is asleep, or that looks once more for a reason to stay awake.
pub(crate) struct Asleep<'a>(&'a Bell);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Bell { flag: Notify::new()?, sleepers: Mutex::default(), asleep: AtomicUsize::new(0) })
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

    /// Counts the calling thread as asleep: from here on the bell wakes it. The thread now looks
    /// once more for a reason to stay awake, and sleeps if there is none.
    pub(crate) fn fall_asleep(&self) -> Asleep<'_> {
        let mut sleepers = self.sleepers.lock();
        sleepers.count += 1;
        self.asleep.store(sleepers.count, Ordering::SeqCst);
        Asleep(self)
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.flag.as_fd()
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        let mut sleepers = self.0.sleepers.lock();
        sleepers.count -= 1;
        self.0.asleep.store(sleepers.count, Ordering::SeqCst);
        if sleepers.count == 0 && std::mem::take(&mut sleepers.rung) {
            self.0.flag.take();
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
}
