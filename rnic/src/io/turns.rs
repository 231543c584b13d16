//! Turns of the background thread: in each it serves the sockets that are ready, asks the holders
//! whose answer is due whether their programs still poll, and runs the timers.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::epoll::EpollEvent;

use super::driver::{Driver, Holder, SOON, Timer, WAKE};
use super::lease::Lease;
use crate::cq::FEW;
use crate::trace;

/// The time after which a holder is asked for the first time whether its program still polls. With
/// each yes the time to the next question doubles, up to [`LONGEST`].
const FIRST_LEASE: Duration = Duration::from_micros(30);

/// The time between two questions to a holder whose program sleeps on its sockets, and the time
/// from which on sockets of one that polls leave the epoll set.
const LEASE: Duration = Duration::from_millis(1);

/// The longest time between two questions to a holder whose program polls. Where other programs
/// want the processor, each question costs the poller a slice, as the scheduler chooses anew: by
/// one each millisecond, one ping-pong in a hundred took half a millisecond.
const LONGEST: Duration = Duration::from_millis(8);

/// A holder that sources are left to, and when it is asked again.
struct Left {
    holder: Arc<dyn Holder>,
    due: Instant,
    /// The time from the last question to the next.
    time: Duration,
    /// Set when none of the sources' sockets is in the epoll set any more.
    out_of_set: bool,
    /// Set when no look was under way at the last question, with octets unread: the next question
    /// comes early.
    doubted: bool,
}

impl Left {
    fn new(holder: Arc<dyn Holder>, time: Duration) -> Self {
        Left { holder, due: Instant::now(), time, out_of_set: false, doubted: false }
    }

    fn tokens(&self) -> Vec<u64> {
        self.holder.left().lock().iter().copied().collect()
    }
}

/// The state of the background thread that no other thread sees.
pub(super) struct Turns<'a> {
    driver: &'a Driver,
    turn: u64,
    /// Holders that have sources because a program polls.
    polled: Vec<Left>,
    /// Holders that have sources because a program sleeps on their sockets.
    waited: Vec<Arc<dyn Holder>>,
    /// Tokens of sources that have more to do than one turn allows.
    again: Vec<u64>,
}

impl<'a> Turns<'a> {
    pub(super) fn new(driver: &'a Driver) -> Self {
        let (polled, waited, again) = Default::default();
        Turns { driver, turn: 0, polled, waited, again }
    }

    /// Goes on until the driver is stopped, or the epoll set fails.
    pub(super) fn run(mut self) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); 256];
        while !self.driver.shared.lock().stopped {
            let count = self.driver.sleep(&mut events, self.timeout())?;
            let now = Instant::now();
            self.turn += 1;
            for event in &events[..count] {
                match event.data() {
                    WAKE => self.wake(now),
                    token => self.serve(token),
                }
            }
            for token in std::mem::take(&mut self.again) {
                self.serve(token);
            }
            for left in self.polled.extract_if(.., |left| left.due <= now).collect::<Vec<_>>() {
                self.review(left);
            }
            self.expire(now);
            self.show(now);
        }
        Ok(())
    }

    /// Returns the time to the next question or timer; `None` where there is neither.
    fn timeout(&self) -> Option<Duration> {
        if !self.again.is_empty() {
            return Some(Duration::ZERO);
        }
        let mut shared = self.driver.shared.lock();
        let timer = shared.timers.peek().map(|timer| timer.due.0);
        let show = shared.to_show.front().map(|(due, _)| *due);
        shared.next_turn = self.polled.iter().map(|left| left.due).chain(timer).chain(show).min();
        Some(shared.next_turn?.saturating_duration_since(Instant::now()))
    }

    /// Shows what is due, which may be due again.
    fn show(&mut self, now: Instant) {
        loop {
            let mut shared = self.driver.shared.lock();
            match shared.to_show.front() {
                Some((due, _)) if *due <= now => {}
                _ => return,
            }
            let Some((_, what)) = shared.to_show.pop_front() else { return };
            drop(shared);
            if what.upgrade().is_some_and(|what| what.show()) {
                self.driver.shared.lock().to_show.push_back((now + SOON, what));
            }
        }
    }

    /// Takes the wake-up. If a program's thread that slept may have gone on, all holders are asked
    /// anew.
    fn wake(&mut self, now: Instant) {
        self.driver.wake.take();
        if !self.driver.takes_question() {
            return;
        }
        self.polled.iter_mut().for_each(|left| left.due = now);
        let waited = self.waited.drain(..);
        self.polled.extend(waited.map(|holder| Left {
            due: now,
            out_of_set: true,
            ..Left::new(holder, LEASE)
        }));
    }

    /// Serves a source whose socket is ready, or leaves it to the program that reads it.
    fn serve(&mut self, token: u64) {
        let Some(source) = self.driver.source(token) else { return };
        let driver = self.driver;
        let Some(lease) = driver.call(token, || source.lease(self.turn)) else { return };
        match lease {
            Some((lease, holder)) => {
                driver.call(token, || source.disarm(driver));
                let mut left = holder.left().lock();
                let first = left.is_empty();
                left.insert(token);
                drop(left);
                // A holder that had sources already is in one of the lists.
                if first {
                    trace::lease_begins();
                    self.list(lease, Left::new(holder, FIRST_LEASE));
                } else {
                    self.list_more(&holder, token);
                }
            }
            None => {
                if driver.call(token, || source.on_ready(driver)) == Some(true) {
                    self.again.push(token);
                }
            }
        }
    }

    /// Adds a holder to the list that its lease calls for, and sets the time of the next question.
    /// The sockets of a program that has polled for a while, or that sleeps on them, leave the
    /// epoll set: in it they would cost the kernel time with each packet.
    fn list(&mut self, lease: Lease, left: Left) {
        let time = if lease >= Lease::Frequent { left.time.min(LONGEST) } else { LEASE };
        let mut left = Left { due: Instant::now() + time, time, doubted: false, ..left };
        // Not at once: to leave the set and come back takes two system calls, which a program that
        // polls only briefly would not win back.
        if time >= LEASE && !left.out_of_set {
            let mut tokens = left.tokens();
            tokens.retain(|token| !self.driver.leave_to_program(*token));
            left.out_of_set = tokens.is_empty();
        }
        match lease {
            Lease::Waited => self.waited.push(left.holder),
            _ => self.polled.push(left),
        }
    }

    /// Leaves another source to a holder that is in one of the lists already.
    fn list_more(&mut self, holder: &Arc<dyn Holder>, token: u64) {
        let left = self.polled.iter_mut().find(|left| Arc::ptr_eq(&left.holder, holder));
        match left {
            // `list` takes all sockets out of the set once the program has polled for long enough.
            Some(left) if left.time < LEASE => {}
            Some(left) => left.out_of_set &= self.driver.leave_to_program(token),
            None => drop(self.driver.leave_to_program(token)),
        }
    }

    /// Asks a holder again, and takes back its sources if the program no longer reads them.
    fn review(&mut self, left: Left) {
        match left.holder.lease(self.turn) {
            Lease::None => self.take_back(&left.holder),
            // A program that has polled since the last question and leaves octets unread may be at
            // its completions, or at something else for long. If it has not looked again by the
            // next question, which comes early once, its lease has ended.
            Lease::Paused | Lease::Frequent if !left.doubted && self.has_arrived(&left) => {
                self.ask_in(FIRST_LEASE, Left { doubted: true, ..left });
            }
            Lease::Paused => {
                let time = (left.time / 2).max(FIRST_LEASE);
                self.ask_in(time, Left { time, doubted: false, ..left });
            }
            lease => self.list(lease, Left { time: left.time * 2, ..left }),
        }
    }

    fn ask_in(&mut self, time: Duration, left: Left) {
        self.polled.push(Left { due: Instant::now() + time, ..left });
    }

    /// Returns whether a source that is left to a holder has octets unread. To ask more than a few
    /// would take too long: the answer is yes then.
    fn has_arrived(&self, left: &Left) -> bool {
        let tokens = left.tokens();
        let has_arrived = |token| {
            let source = self.driver.source(token);
            source.is_some_and(|source| self.driver.call(token, || source.has_arrived()) == Some(true))
        };
        tokens.len() > FEW || tokens.into_iter().any(has_arrived)
    }

    /// Serves all that was left to a holder.
    fn take_back(&mut self, holder: &Arc<dyn Holder>) {
        let back = std::mem::take(&mut *holder.left().lock());
        trace::lease_ends(back.len());
        back.into_iter().for_each(|token| self.serve(token));
    }

    /// Runs the timers that are due.
    fn expire(&mut self, now: Instant) {
        loop {
            let mut shared = self.driver.shared.lock();
            match shared.timers.peek() {
                Some(timer) if timer.due.0 <= now => {}
                _ => return,
            }
            let Some(Timer { token, .. }) = shared.timers.pop() else { return };
            drop(shared);
            if let Some(source) = self.driver.source(token) {
                self.driver.call(token, || source.on_timer(self.driver, now));
            }
        }
    }
}

#[cfg(test)]
mod tests;
