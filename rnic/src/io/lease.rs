//! Leases: the background thread leaves a queue's sockets to the program that reads them itself.
//!
//! Two threads that read the same sockets cost each other time, so the background thread finds out
//! whether the program's threads read them. Only a poll that finds its queue empty reads sockets:
//! such a poll is a *look*, and looks are counted. Of a program that polls without pause, a look is
//! under way when the background thread asks, or many have been since it last asked. Of a program
//! that polls now and then, and watches memory in between, that is not so: what arrives for it must
//! not wait for its next poll, and the background thread reads it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The time between two looks, on average, of a program that polls without pause: it may poll
/// several queues, and work on what it finds.
const MOMENT: Duration = Duration::from_micros(10);

/// The answer to the question whether a program reads a queue's sockets, in rising order. Of a QP
/// with two queues the greater answer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Lease {
    /// No look since the background thread last asked, and no thread sleeps on the queue.
    None,
    /// A few looks since then, and none under way.
    Paused,
    /// A thread has been asleep on the queue since then. It calls
    /// [`Driver::end_of_wait`](super::driver::Driver::end_of_wait) when it goes on.
    Waited,
    /// Threads sleep on the queue for short times, again and again.
    Returning,
    /// No look is under way, but there have been so many since then that the next is about to come.
    Frequent,
    /// A look is under way.
    Polled,
}

impl Lease {
    /// Returns whether the sockets are left to the program.
    pub(crate) fn is_held(self) -> bool {
        self >= Lease::Waited
    }
}

/// A record of the looks and waits of a program's threads at one queue.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    /// The number of looks, counted twice: a look adds one when it begins and one when it ends, so
    /// that the number is odd while a thread looks. The end of a wait adds two.
    looks: AtomicU64,
    /// Threads asleep on the queue, or on its channel.
    waiters: AtomicUsize,
    /// Set when the background thread has left sockets alone for as long as a waiter sleeps: the
    /// last waiter has to wake it.
    parked: AtomicBool,
    /// The turn in which the background thread last asked.
    turn: AtomicU64,
    /// The value of `looks` when it last asked, or when the program gave its lease back.
    seen: AtomicU64,
    /// The moment at which it last asked.
    asked: Mutex<Option<Instant>>,
    /// The answer that it got, for other sockets of the queue in the same turn.
    answer: AtomicU8,
}

impl Presence {
    /// Begins a look, which ends when the result is dropped.
    pub(crate) fn look(&self) -> Look<'_> {
        // Relaxed, here and below: the background thread compares counts that it read at different
        // times, and needs no other memory of the program's thread. This is on the way of each
        // poll.
        self.looks.fetch_add(1, Ordering::Relaxed);
        Look(self)
    }

    /// Returns whether a thread looks, and none sleeps.
    pub(crate) fn is_looked_at(&self) -> bool {
        self.looks.load(Ordering::Relaxed) % 2 == 1 && self.waiters.load(Ordering::SeqCst) == 0
    }

    /// Notes that a thread is going to sleep.
    pub(crate) fn begin_wait(&self) {
        self.waiters.fetch_add(1, Ordering::SeqCst);
    }

    /// Notes that a thread goes on. Returns whether the background thread is to be woken, so that
    /// it asks anew.
    pub(crate) fn end_wait(&self) -> bool {
        self.looks.fetch_add(2, Ordering::Relaxed);
        self.waiters.fetch_sub(1, Ordering::SeqCst) == 1 && self.parked.swap(false, Ordering::SeqCst)
    }

    /// Ends the lease: the looks so far are no sign any more that the program reads the sockets.
    pub(crate) fn give_back(&self) {
        self.seen.store(self.looks.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Asks whether the program reads the queue's sockets. Called by the background thread, which
    /// gets the same answer for all sockets of a queue within one `turn`. It waits for no look: to
    /// yield to the program would give the processor to whichever wants it, for a slice.
    pub(crate) fn lease(&self, turn: u64, now: Instant) -> Lease {
        if self.turn.swap(turn, Ordering::Relaxed) != turn {
            let answer = self.ask(now);
            self.answer.store(answer as u8, Ordering::Relaxed);
            return answer;
        }
        use Lease::{Frequent, None, Paused, Polled, Returning, Waited};
        const ALL: [Lease; 6] = [None, Paused, Waited, Returning, Frequent, Polled];
        ALL[usize::from(self.answer.load(Ordering::Relaxed))]
    }

    fn ask(&self, now: Instant) -> Lease {
        // An odd count may have been odd all the time since the last question: that is one long
        // look.
        let looks = self.looks.load(Ordering::Relaxed);
        let before = self.seen.swap(looks, Ordering::Relaxed);
        let is_looking = looks % 2 == 1;
        let time = self.asked.lock().replace(now).map_or(Duration::MAX, |asked| now - asked);
        // A program that gives its lease back meanwhile has `seen` pass this count.
        let since = u128::from(looks.saturating_sub(before) / 2);
        let are_many = since > 1 && since * MOMENT.as_nanos() > time.as_nanos();
        match () {
            () if looks <= before && !is_looking => self.ask_waiters(),
            () if self.waiters.load(Ordering::SeqCst) > 0 => Lease::Returning,
            () if is_looking => Lease::Polled,
            () if are_many => Lease::Frequent,
            () => Lease::Paused,
        }
    }

    /// Asks whether a thread sleeps on the queue, where nothing else has happened since the last
    /// question.
    fn ask_waiters(&self) -> Lease {
        if self.waiters.load(Ordering::SeqCst) == 0 {
            return Lease::None;
        }
        // The waiter leaves `waiters` before it looks at `parked`, and this thread does it the
        // other way round: so either this thread sees that the waiter has gone, or the waiter wakes
        // it.
        self.parked.store(true, Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) == 0 { Lease::None } else { Lease::Waited }
    }
}

/// A look that is under way.
pub(crate) struct Look<'a>(&'a Presence);

impl Drop for Look<'_> {
    fn drop(&mut self) {
        self.0.looks.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_polls_without_pause_is_seen_to() {
        let (presence, now) = (Presence::default(), Instant::now());
        let look = presence.look();
        assert_eq!(presence.lease(1, now), Lease::Polled);
        drop(look);
        // Within the same turn nothing is asked again.
        assert_eq!(presence.lease(1, now), Lease::Polled);
        // A look that lasts is one without pause.
        let look = presence.look();
        assert_eq!(presence.lease(2, now), Lease::Polled);
        assert_eq!(presence.lease(3, now), Lease::Polled);
        drop(look);
        assert_eq!(presence.lease(4, now + 10 * MOMENT), Lease::Paused);
        // Between two of many looks.
        (0..11).for_each(|_| drop(presence.look()));
        assert_eq!(presence.lease(5, now + 20 * MOMENT), Lease::Frequent);
        (0..10).for_each(|_| drop(presence.look()));
        assert_eq!(presence.lease(6, now + 30 * MOMENT), Lease::Paused);
    }

    /// A moment so far behind the last that looks in between were few.
    fn later() -> Instant {
        static SECONDS: AtomicU64 = AtomicU64::new(0);
        Instant::now() + Duration::from_secs(SECONDS.fetch_add(1, Ordering::Relaxed))
    }

    #[test]
    fn a_program_that_has_polled_and_does_something_else_is_no_longer_left_alone() {
        let presence = Presence::default();
        assert_eq!(presence.lease(1, later()), Lease::None);
        drop(presence.look());
        assert_eq!(presence.lease(2, later()), Lease::Paused);
        assert_eq!(presence.lease(3, later()), Lease::None);
        // Given back by the program itself, which has looked since the last question.
        drop(presence.look());
        presence.give_back();
        assert_eq!(presence.lease(4, later()), Lease::None);
    }

    #[test]
    fn a_lease_that_is_given_back_while_it_is_asked_for_is_none() {
        let presence = Presence::default();
        // The count that was given back is of a look behind the question's count.
        presence.seen.store(2, Ordering::Relaxed);
        assert_eq!(presence.lease(1, later()), Lease::None);
    }

    #[test]
    fn a_program_that_waits_holds_the_lease_and_is_parked_only_if_it_sleeps_on() {
        let presence = Presence::default();
        presence.begin_wait();
        assert!(!presence.end_wait());
        presence.begin_wait();
        assert_eq!(presence.lease(1, later()), Lease::Returning);
        assert!(!presence.end_wait(), "nobody is to be told of a short wait");
        presence.begin_wait();
        assert_eq!(presence.lease(2, later()), Lease::Returning);
        assert_eq!(presence.lease(3, later()), Lease::Waited);
        assert!(presence.end_wait());
    }
}
