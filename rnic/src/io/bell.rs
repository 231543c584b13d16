//! The bell of a completion queue: it wakes all threads that sleep on the queue.
//!
//! A sleeping thread watches its [alarm] beside the sockets of the queue's QPs. So it learns what
//! no socket shows: a completion that another thread made, or a QP that connects.
//!
//! [alarm]: super::alarm

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::notify::Notify;

/// A wake-up for many threads. It sets the alarm of each, which stays set until that thread has
/// woken up.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    sleepers: Mutex<SmallVec<[Sleeper; 2]>>,
    /// The number of `sleepers`, so that to ring where nobody sleeps takes no lock.
    asleep: AtomicUsize,
    /// Number of sleepers that wait for completions. A thread that waits for a channel's event is
    /// woken by the channel.
    awaiting: AtomicUsize,
}

#[derive(Debug)]
struct Sleeper {
    alarm: Arc<Notify>,
    rung: bool,
}

/// A thread that is asleep, or that looks once more for a reason to stay awake.
pub(crate) struct Asleep<'a> {
    bell: &'a Bell,
    alarm: Arc<Notify>,
    /// 1 if the thread counts in `awaiting`, else 0.
    awaits: usize,
}

impl Bell {
    /// Wakes all threads that are asleep. The caller has stored with `SeqCst` what they are to see.
    ///
    /// That store comes before this look at the number of sleepers, and a thread adds itself to
    /// that number before it looks for the last time: so one of the two sees the other.
    pub(crate) fn ring(&self) {
        if self.asleep.load(Ordering::SeqCst) == 0 {
            return;
        }
        for sleeper in self.sleepers.lock().iter_mut().filter(|sleeper| !sleeper.rung) {
            sleeper.rung = true;
            sleeper.alarm.give();
        }
    }

    /// Wakes the threads that wait for a completion, if there are any, as [`ring`](Self::ring)
    /// does. The caller has stored with `SeqCst` that there is one.
    pub(crate) fn ring_for_completion(&self) {
        if self.awaiting.load(Ordering::SeqCst) > 0 {
            self.ring();
        }
    }

    /// Counts the calling thread, whose alarm this is, as asleep: from here on the bell wakes it,
    /// but not for completions. The thread now looks once more for a reason to stay awake, and
    /// sleeps if there is none.
    pub(crate) fn fall_asleep(&self, alarm: &Arc<Notify>) -> Asleep<'_> {
        self.count_in(alarm, 0)
    }

    /// Counts the calling thread as asleep as [`fall_asleep`](Self::fall_asleep) does, and the bell
    /// wakes it for completions too.
    pub(crate) fn await_completion(&self, alarm: &Arc<Notify>) -> Asleep<'_> {
        self.count_in(alarm, 1)
    }

    fn count_in(&self, alarm: &Arc<Notify>, awaits: usize) -> Asleep<'_> {
        let alarm = alarm.clone();
        let mut sleepers = self.sleepers.lock();
        sleepers.push(Sleeper { alarm: alarm.clone(), rung: false });
        self.asleep.store(sleepers.len(), Ordering::SeqCst);
        // Last: who sees this thread among those that await completions rings for all that are
        // asleep.
        self.awaiting.fetch_add(awaits, Ordering::SeqCst);
        Asleep { bell: self, alarm, awaits }
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        let bell = self.bell;
        let mut sleepers = bell.sleepers.lock();
        bell.awaiting.fetch_sub(self.awaits, Ordering::SeqCst);
        let own = sleepers.iter().position(|sleeper| Arc::ptr_eq(&sleeper.alarm, &self.alarm));
        if own.is_some_and(|own| sleepers.swap_remove(own).rung) {
            self.alarm.take();
        }
        bell.asleep.store(sleepers.len(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;

    use super::*;

    fn alarms<const N: usize>() -> [Arc<Notify>; N] {
        [(); N].map(|()| Arc::new(Notify::new().unwrap()))
    }

    fn is_set(alarm: &Notify) -> bool {
        poll(&mut [PollFd::new(alarm.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO) == Ok(1)
    }

    #[test]
    fn a_bell_sets_the_alarms_of_those_who_are_asleep_until_each_has_woken_up() {
        let bell = Bell::default();
        let [first, second, third] = alarms();
        bell.ring();
        let asleep = [&first, &second].map(|alarm| bell.fall_asleep(alarm));
        assert!(!is_set(&first), "nobody was asleep");
        bell.ring();
        bell.ring();
        let [of_first, of_second] = asleep;
        drop(of_first);
        assert!(!is_set(&first) && is_set(&second), "the second has not seen it yet");
        let of_third = bell.fall_asleep(&third);
        assert!(!is_set(&third), "nothing has happened since");
        bell.ring();
        assert!(is_set(&third));
        drop((of_second, of_third));
        assert!(!is_set(&second) && !is_set(&third));
    }

    #[test]
    fn a_thread_asleep_on_two_queues_is_woken_by_either_and_once() {
        let bells = [Bell::default(), Bell::default()];
        let [alarm] = alarms();
        for ringing in [&bells[..1], &bells[1..], &bells] {
            let asleep = [&bells[0], &bells[1]].map(|bell| bell.fall_asleep(&alarm));
            ringing.iter().for_each(Bell::ring);
            assert!(is_set(&alarm));
            drop(asleep);
            assert!(!is_set(&alarm));
        }
    }

    #[test]
    fn a_completion_rings_only_for_threads_that_wait_for_one() {
        let bell = Bell::default();
        let [of_channel, of_queue] = alarms();
        let asleep = bell.fall_asleep(&of_channel);
        bell.ring_for_completion();
        assert!(!is_set(&of_channel), "the channel wakes it");
        let awaiting = bell.await_completion(&of_queue);
        bell.ring_for_completion();
        assert!(is_set(&of_queue));
        drop((awaiting, asleep));
        let _asleep = bell.fall_asleep(&of_channel);
        bell.ring_for_completion();
        assert!(!is_set(&of_channel), "nobody waits for one any more");
        bell.ring();
        assert!(is_set(&of_channel), "for anything else it is woken");
    }
}
