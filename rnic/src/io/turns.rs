//! The background thread's turns: events, what is left to programs, timers.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::epoll::EpollEvent;

use super::driver::{Driver, Holder, Timer, WAKE};
use super::lease::Lease;
use crate::cq::FEW;

/// After how long a holder is asked anew whether its program still polls: at first, and in the end.
/// Each time that it does, the next question takes twice as long.
const FIRST_LEASE: Duration = Duration::from_micros(30);
const LEASE: Duration = Duration::from_millis(1);

/// Sources are left to a holder, which is asked again when that is `due`.
struct Left {
    holder: Arc<dyn Holder>,
    due: Instant,
    /// From a question to the next.
    time: Duration,
    /// None of their sockets has to be taken out of the set any more.
    rested: bool,
    /// The last one found it at something else, with octets unread, and the next comes sooner.
    doubted: bool,
}

impl Left {
    fn new(holder: Arc<dyn Holder>, time: Duration) -> Self {
        Left { holder, due: Instant::now(), time, rested: false, doubted: false }
    }

    fn tokens(&self) -> Vec<u64> {
        self.holder.left().lock().iter().copied().collect()
    }
}

/// What only the background thread holds.
pub(super) struct Turns<'a> {
    driver: &'a Driver,
    turn: u64,
    /// Sources are left to these, because a program polls.
    polled: Vec<Left>,
    /// Sources are left to these, because a program is asleep on them.
    waited: Vec<Arc<dyn Holder>>,
    /// Had more to do than one turn allows.
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
        }
        Ok(())
    }

    fn timeout(&self) -> Option<Duration> {
        if !self.again.is_empty() {
            return Some(Duration::ZERO);
        }
        let timer = self.driver.shared.lock().timers.peek().map(|timer| timer.due.0);
        let due = self.polled.iter().map(|left| left.due).chain(timer).min()?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    /// Takes the wake-up: a thread that slept goes on, so that all holders are asked anew.
    fn wake(&mut self, now: Instant) {
        self.driver.wake.take();
        self.polled.iter_mut().for_each(|left| left.due = now);
        let waited = self.waited.drain(..);
        self.polled.extend(waited.map(|holder| Left { due: now, rested: true, ..Left::new(holder, LEASE) }));
    }

    fn serve(&mut self, token: u64) {
        let Some(source) = self.driver.source(token) else { return };
        let driver = self.driver;
        let Some(lease) = driver.call(token, || source.lease(self.turn)) else { return };
        match lease {
            Some((lease, holder)) => {
                let mut left = holder.left().lock();
                let first = left.is_empty();
                left.insert(token);
                drop(left);
                // One that had some already is in a list.
                if first {
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

    /// Notes a holder that something is left to, and when to ask it again. One that polls without
    /// pause, or sleeps on its sockets itself, is better off when they are in no set.
    fn list(&mut self, lease: Lease, left: Left) {
        let time = if lease == Lease::Polled { left.time.min(LEASE) } else { LEASE };
        let mut left = Left { due: Instant::now() + time, time, doubted: false, ..left };
        if time == LEASE && !left.rested {
            let mut tokens = left.tokens();
            tokens.retain(|token| !self.driver.rest(*token));
            left.rested = tokens.is_empty();
        }
        match lease {
            Lease::Waited => self.waited.push(left.holder),
            _ => self.polled.push(left),
        }
    }

    /// Something more is left to a holder in one of the lists.
    fn list_more(&mut self, holder: &Arc<dyn Holder>, token: u64) {
        let left = self.polled.iter_mut().find(|left| Arc::ptr_eq(&left.holder, holder));
        match left {
            Some(left) if left.time < LEASE => {}
            Some(left) => left.rested &= self.driver.rest(token),
            None => drop(self.driver.rest(token)),
        }
    }

    /// Takes back what was left to a holder whose lease has lapsed.
    fn review(&mut self, left: Left) {
        match left.holder.lease(self.turn) {
            Lease::None => self.take_back(&left.holder),
            Lease::Paused => {
                // It has left something unread: unless it looks very soon, it does something else.
                let doubted = !left.doubted && self.has_arrived(&left);
                let due = Instant::now() + if doubted { FIRST_LEASE } else { left.time };
                self.polled.push(Left { due, doubted, ..left });
            }
            lease => self.list(lease, Left { time: left.time * 2, ..left }),
        }
    }

    /// Returns whether something of what is left to a holder has not been read.
    /// To ask many takes too long.
    fn has_arrived(&self, left: &Left) -> bool {
        let tokens = left.tokens();
        let has_arrived = |token| {
            let source = self.driver.source(token);
            source.is_some_and(|source| self.driver.call(token, || source.has_arrived()) == Some(true))
        };
        tokens.len() > FEW || tokens.into_iter().any(has_arrived)
    }

    fn take_back(&mut self, holder: &Arc<dyn Holder>) {
        let back = std::mem::take(&mut *holder.left().lock());
        back.into_iter().for_each(|token| self.serve(token));
    }

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
