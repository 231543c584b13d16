//! Counters behind the descriptors of event queues.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::eventfd::{EfdFlags, EventFd};
use rustix::io::ReadWriteFlags;

/// A counter behind a descriptor that is readable while it is above 0. Who keeps a queue of events
/// for a program has it count those that the program is to learn of.
///
/// The program is shown the descriptor, and may set and clear its `O_NONBLOCK`, which is set at
/// first: [`read`](Self::read) alone goes by it.
///
/// ```
/// use rddp_rnic::Counter;
/// let counter = Counter::new()?;
/// counter.show(2); // the queue has two events now
/// counter.read()?;
/// counter.note_read();
/// counter.hide(1); // and one has been taken
/// counter.read()?;
/// assert_eq!(counter.read().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Counter {
    eventfd: EventFd,
    /// The number of events that it has been made to count. What is in the kernel is as much, less
    /// what threads have read and not [noted](Self::note_read).
    shown: AtomicUsize,
    /// Counts that were to be taken back and were not there: a thread has read each, and will find
    /// no event.
    missed: AtomicUsize,
}

impl Counter {
    /// Makes a counter of 0.
    pub fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_SEMAPHORE;
        let (shown, missed) = Default::default();
        Ok(Counter { eventfd: EventFd::from_value_and_flags(0, flags)?, shown, missed })
    }

    /// Counts up to the number of events in the queue, whose lock the caller holds.
    pub fn show(&self, events: usize) {
        while self.shown.load(Ordering::Relaxed) < events {
            self.give();
            self.shown.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts down to the number of events in the queue, whose lock the caller holds. Never sleeps.
    pub fn hide(&self, events: usize) {
        while self.shown.load(Ordering::Relaxed) > events {
            if !self.take() {
                self.missed.fetch_add(1, Ordering::Relaxed);
            }
            self.shown.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Notes a [`read`](Self::read) that was done before the caller took the queue's lock. Then the
    /// caller takes an event, if there is one, and [hides](Self::hide) it.
    pub fn note_read(&self) {
        let less = |count: usize| count.checked_sub(1);
        let taken = |count: &AtomicUsize| count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        let _ = taken(&self.missed).or_else(|_| taken(&self.shown));
    }

    /// Adds one. At the kernel's limit of 2^64 - 2 nothing is added, and it stays readable.
    pub(crate) fn give(&self) {
        let _ = self.eventfd.write(1);
    }

    /// Takes one. Returns whether there was one. Never sleeps.
    pub(crate) fn take(&self) -> bool {
        self.take_at_once().unwrap_or_else(|_| self.take_unblocked())
    }

    /// Takes one. Sleeps while there is none, or fails with `WouldBlock` if the descriptor is
    /// non-blocking.
    ///
    /// This is `read(2)`: a signal whose handler was installed without `SA_RESTART` ends the sleep
    /// with `Interrupted`, no other does, and the thread may be cancelled (`pthread_cancel`).
    pub fn read(&self) -> io::Result<()> {
        loop {
            match self.eventfd.read() {
                // Another thread is in `take_unblocked`.
                Err(Errno::EAGAIN) if !self.flags()?.contains(OFlag::O_NONBLOCK) => std::thread::yield_now(),
                result => return Ok(result.map(drop)?),
            }
        }
    }

    fn flags(&self) -> nix::Result<OFlag> {
        fcntl(&self.eventfd, FcntlArg::F_GETFL).map(OFlag::from_bits_retain)
    }

    /// Takes one, whatever the descriptor is. Fails before Linux 5.8.
    fn take_at_once(&self) -> rustix::io::Result<bool> {
        let mut count = [0; 8];
        let mut rooms = [IoSliceMut::new(&mut count)];
        // An eventfd has no offset.
        let got = rustix::io::preadv2(&self.eventfd, &mut rooms, u64::MAX, ReadWriteFlags::NOWAIT);
        match got {
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::AGAIN) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Takes one, and makes the descriptor non-blocking for that moment.
    #[cold]
    fn take_unblocked(&self) -> bool {
        let Ok(flags) = self.flags() else { return false };
        let set = |flags| fcntl(&self.eventfd, FcntlArg::F_SETFL(flags)).is_ok();
        if flags.contains(OFlag::O_NONBLOCK) {
            return self.eventfd.read().is_ok();
        }
        let taken = set(flags | OFlag::O_NONBLOCK) && self.eventfd.read().is_ok();
        set(flags);
        taken
    }
}

impl AsFd for Counter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(counter: &Counter, flags: OFlag) {
        fcntl(counter, FcntlArg::F_SETFL(flags)).unwrap();
    }

    #[test]
    fn nothing_is_taken_of_nothing_whether_the_descriptor_blocks_or_not() {
        let counter = Counter::new().unwrap();
        for flags in [OFlag::O_NONBLOCK, OFlag::empty()] {
            for take in [Counter::take, Counter::take_unblocked] {
                set(&counter, flags);
                assert!(!take(&counter));
                (0..2).for_each(|_| counter.give());
                assert_eq!([take(&counter), take(&counter), take(&counter)], [true, true, false]);
                assert_eq!(counter.flags().unwrap().contains(OFlag::O_NONBLOCK), !flags.is_empty());
            }
        }
    }

    #[test]
    fn a_read_sleeps_unless_the_descriptor_is_non_blocking() {
        let counter = Counter::new().unwrap();
        assert_eq!(counter.read().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        set(&counter, OFlag::empty());
        std::thread::scope(|scope| {
            let read = scope.spawn(|| counter.read());
            counter.give();
            assert!(read.join().unwrap().is_ok());
        });
        assert!(!counter.take());
    }

    /// One thread wakes for an event that another takes or removes.
    #[test]
    fn an_event_that_is_gone_when_a_thread_wakes_for_it_hides_no_other() {
        let counter = Counter::new().unwrap();
        for come_meanwhile in 0..3 {
            counter.show(1);
            counter.read().unwrap();
            counter.hide(0);
            counter.show(come_meanwhile);
            counter.note_read();
            counter.hide(come_meanwhile.saturating_sub(1));
            (1..come_meanwhile).for_each(|_| assert!(counter.take()));
            assert!(!counter.take());
            counter.shown.store(0, Ordering::Relaxed);
        }
        // A program reads what it was not to read, and writes what it was not to write.
        counter.show(1);
        assert!(counter.take());
        counter.hide(0);
        counter.show(1);
        assert!(counter.read().is_ok());
        counter.note_read();
        counter.hide(0);
        counter.give();
        assert!(counter.read().is_ok());
        counter.note_read();
        counter.note_read();
        counter.show(1);
        assert!(counter.take());
    }
}
