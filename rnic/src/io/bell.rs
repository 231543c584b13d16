//! Wakes threads that sleep on descriptors, each of those that are asleep.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::notify::Notify;

/// Its descriptor is readable from a [`ring`](Self::ring) until the last thread that was asleep then, or fell asleep since, has
/// woken up: so none is overlooked because another was faster.
#[derive(Debug)]
pub(crate) struct Bell {
    flag: Notify,
    sleepers: Mutex<Sleepers>,
    /// `Sleepers::count`, to be looked at without the lock.
    asleep: AtomicUsize,
}

#[derive(Debug, Default)]
struct Sleepers {
    count: usize,
    rung: bool,
}

/// A thread that is asleep, or looks for the last time whether it has to.
pub(crate) struct Asleep<'a>(&'a Bell);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Bell { flag: Notify::flag()?, sleepers: Mutex::default(), asleep: AtomicUsize::new(0) })
    }

    /// Wakes all who are asleep. What they are to see must have been stored before, with `SeqCst`.
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

    /// From here on this thread is woken: it now looks whether there is a reason to stay awake, and else sleeps.
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
    fn it_rings_until_the_last_has_woken_up() {
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
