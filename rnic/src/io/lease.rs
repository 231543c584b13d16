//! What a program does about the sockets of a queue: whether it looks after them itself.
//!
//! Only a poll that finds nothing in its queue reads sockets; such a poll is a *look*, and
//! looks are counted. A program that polls without pause is seen to look at any moment. One
//! that polls now and then, and watches memory otherwise, is not, and the background thread
//! must not wait for its next poll.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// How a program looks after its sockets, from not at all to at this moment. Of a QP with two
/// queues the greater counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Lease {
    /// Nothing since the background thread last asked.
    None,
    /// It has looked at them since then, but not at the moment.
    Paused,
    /// A thread is asleep on them, and will call
    /// [`Driver::end_of_wait`](super::driver::Driver::end_of_wait).
    Waited,
    /// Threads sleep on them again and again.
    Returning,
    /// It looks at them at the moment.
    Polled,
}

impl Lease {
    /// Returns whether the sockets are the program's to look after.
    pub(crate) fn is_held(self) -> bool {
        self >= Lease::Waited
    }
}

/// What the threads of a program do about one queue.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    /// Grows by one when a look begins and when it ends, so that it is odd during a look, and by
    /// two when a wait ends.
    looks: AtomicU64,
    /// Threads asleep on the queue, or on its channel.
    waiters: AtomicUsize,
    /// The background thread left sockets alone for as long as a waiter sleeps.
    parked: AtomicBool,
    /// Of the background thread: the turn in which it last asked, what `looks` was then, and the
    /// answer.
    turn: AtomicU64,
    seen: AtomicU64,
    answer: AtomicU8,
}

impl Presence {
    /// A look begins; it ends when the result is dropped.
    pub(crate) fn look(&self) -> Look<'_> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        Look(self)
    }

    /// A thread is going to sleep.
    pub(crate) fn begin_wait(&self) {
        self.waiters.fetch_add(1, Ordering::SeqCst);
    }

    /// A thread has slept enough. Returns whether the background thread is to be told.
    pub(crate) fn end_wait(&self) -> bool {
        self.looks.fetch_add(2, Ordering::Relaxed);
        self.waiters.fetch_sub(1, Ordering::SeqCst) == 1 && self.parked.swap(false, Ordering::SeqCst)
    }

    /// Whatever the program has done so far counts no more.
    pub(crate) fn give_back(&self) {
        self.seen.store(self.looks.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Asks what the program does: once in a `turn` of the background thread. `pause` lets a moment
    /// go by, and returns false when enough of them have.
    pub(crate) fn lease(&self, turn: u64, pause: impl FnMut() -> bool) -> Lease {
        if self.turn.swap(turn, Ordering::Relaxed) != turn {
            let answer = self.ask(pause);
            self.answer.store(answer as u8, Ordering::Relaxed);
            return answer;
        }
        const ALL: [Lease; 5] = [Lease::None, Lease::Paused, Lease::Waited, Lease::Returning, Lease::Polled];
        ALL[usize::from(self.answer.load(Ordering::Relaxed))]
    }

    fn ask(&self, mut pause: impl FnMut() -> bool) -> Lease {
        let first = self.looks.load(Ordering::Relaxed);
        let before = self.seen.swap(first, Ordering::Relaxed);
        let is_looking = first % 2 == 1;
        if first == before && !is_looking {
            return self.ask_waiters();
        }
        loop {
            let now = self.looks.load(Ordering::Relaxed);
            if self.waiters.load(Ordering::SeqCst) > 0 {
                return Lease::Returning;
            }
            if is_looking || now != first {
                return Lease::Polled;
            }
            if !pause() {
                return Lease::Paused;
            }
        }
    }

    /// Returns whether a waiter sleeps, where nothing has happened since the last question.
    fn ask_waiters(&self) -> Lease {
        if self.waiters.load(Ordering::SeqCst) == 0 {
            return Lease::None;
        }
        // The waiter looks at `parked` after it has gone from `waiters`:
        // one of the two sees the other.
        self.parked.store(true, Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) == 0 { Lease::None } else { Lease::Waited }
    }
}

/// A look at a queue's sockets, while it lasts.
pub(crate) struct Look<'a>(&'a Presence);

impl Drop for Look<'_> {
    fn drop(&mut self) {
        self.0.looks.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `pause` after which no moment is left.
    fn at_once() -> bool {
        false
    }

    #[test]
    fn a_program_that_polls_without_pause_is_seen_to() {
        let presence = Presence::default();
        drop(presence.look());
        let mut moments = 0;
        let lease = presence.lease(1, || {
            moments += 1;
            if moments == 3 {
                drop(presence.look());
            }
            true
        });
        assert_eq!((lease, moments), (Lease::Polled, 3));
        // Within the same turn nothing is asked again.
        assert_eq!(presence.lease(1, at_once), Lease::Polled);
        // A look that lasts is one without pause.
        let look = presence.look();
        assert_eq!(presence.lease(2, at_once), Lease::Polled);
        assert_eq!(presence.lease(3, at_once), Lease::Polled);
        drop(look);
        assert_eq!(presence.lease(4, at_once), Lease::Paused);
    }

    #[test]
    fn a_program_that_has_polled_and_does_something_else_is_no_longer_waited_for() {
        let presence = Presence::default();
        assert_eq!(presence.lease(1, at_once), Lease::None);
        drop(presence.look());
        let mut moments = 0;
        let lease = presence.lease(2, || {
            moments += 1;
            moments < 5
        });
        assert_eq!((lease, moments), (Lease::Paused, 5));
        assert_eq!(presence.lease(3, || unreachable!("nothing has happened")), Lease::None);
        // Given back by the program itself, which has looked since the last question.
        drop(presence.look());
        presence.give_back();
        assert_eq!(presence.lease(4, || unreachable!("nothing counts")), Lease::None);
    }

    #[test]
    fn a_program_that_waits_holds_the_lease_and_is_parked_only_if_it_sleeps_on() {
        let presence = Presence::default();
        presence.begin_wait();
        assert!(!presence.end_wait());
        presence.begin_wait();
        assert_eq!(presence.lease(1, at_once), Lease::Returning);
        assert!(!presence.end_wait(), "nobody is to be told of a short wait");
        // Between two waits, for a moment.
        let lease = presence.lease(2, || {
            presence.begin_wait();
            true
        });
        assert_eq!(lease, Lease::Returning);
        assert_eq!(presence.lease(3, at_once), Lease::Waited);
        assert!(presence.end_wait());
    }
}
