//! Ways out where both ends send and nobody receives, and limits of time.
//!
//! Both ends have an advert out and wait for each other. The end that connected takes its advert
//! back at once and sends Data; the other one does so when that has not happened after
//! [`Times::tie_break`](super::Times::tie_break), or reads the peer's advert into private memory.
//! An advert for which no receive comes is Read into private memory, as far as that goes, after
//! [`Times::read_ahead`](super::Times::read_ahead).
//! An advert that nobody reads at all is taken back after [`Times::advert`](super::Times::advert).
//! Octets in private buffers that nobody receives move to private memory, so that short messages do
//! not use up the credits of both ends.

use core::time::Duration;

use super::{Error, Piece, Role, Socket, Storage};
use crate::machine::Blocked;
use crate::transport::Transport;

impl<T: Transport> Socket<T> {
    /// Returns whether the peer's advert is Read into private memory although nobody receives: this
    /// end sends, too, and cannot go on; or the advert has waited for a receive for long.
    pub(super) fn absorbs(&self) -> bool {
        if !self.receives.is_empty() {
            return false;
        }
        if self.unread_is_old() {
            return true;
        }
        if self.sends.is_empty() {
            return false;
        }
        let advertises = self.sends.iter().any(|op| !op.adverts.is_empty());
        !advertises || self.crossing_is_old()
    }

    /// Moves octets that nobody receives out of their buffers while a send waits for credits and
    /// half of the buffers are taken: those of the peer's sends, too, then go on. As much memory is
    /// used as for octets that are read ahead. Returns whether any were moved.
    pub(super) fn empty_buffers(&mut self) -> bool {
        let waits = self.receives.is_empty() && self.sends.iter().any(|op| op.left() > 0);
        let few = u32::from(self.config.buffers) / 2;
        if !waits || self.machine().free_bufs() > few || self.machine().data_room() != Err(Blocked::Credits) {
            return false;
        }
        let is_copied = |piece: &Piece<T>| matches!(piece.storage, Storage::Buffer(_)) && !piece.urgent;
        let Some(first) = self.inbox.iter().position(is_copied) else { return false };
        let room = self.config.read_ahead.saturating_sub(self.ahead_octets);
        let (mut count, mut octets) = (0, 0);
        for piece in self.inbox.iter().skip(first).take_while(|piece| is_copied(piece)) {
            if octets + piece.to - piece.from > room {
                break;
            }
            (count, octets) = (count + 1, octets + piece.to - piece.from);
        }
        let Some(memory) = (count > 0).then(|| self.transport.allocate(octets)).flatten() else {
            return false;
        };
        let mut at = 0;
        for piece in self.inbox.range(first..first + count) {
            if let Storage::Buffer(buffer) = piece.storage {
                let copied = self.transport.deliver(buffer, piece.from..piece.to, &memory, at);
                debug_assert!(copied.is_ok(), "private memory of that length");
                at += piece.to - piece.from;
            }
        }
        self.ahead_octets += octets;
        let whole = Piece { storage: Storage::Read(memory), from: 0, to: octets, urgent: false };
        let mut emptied = self.inbox.split_off(first);
        let behind = emptied.split_off(count);
        self.inbox.push_back(whole);
        self.inbox.extend(behind);
        emptied.into_iter().for_each(|piece| self.free(piece));
        true
    }

    fn crossing_is_old(&self) -> bool {
        let limit = self.crossing_since.map(|since| since + self.config.times.tie_break);
        limit.is_some_and(|at| at <= self.now)
    }

    /// Returns whether an update that answers the peer's, or asks for an answer, has to wait: two
    /// ends would else do so without end.
    pub(super) fn paces_update(&mut self) -> bool {
        if !self.machine().update_may_wait() {
            return false;
        }
        if self.answered_at.is_some_and(|at| at + self.update_pause() > self.now) {
            return true;
        }
        self.answered_at = Some(self.now);
        false
    }

    /// The two ends pause for different times, so that their updates do not cross for ever.
    fn update_pause(&self) -> Duration {
        let pause = self.config.times.update;
        if self.role == Role::Active { pause } else { pause * 3 / 2 }
    }

    fn unread_is_old(&self) -> bool {
        let limit = self.unread_since.map(|since| since + self.config.times.read_ahead);
        limit.is_some_and(|at| at <= self.now)
    }

    /// Records since when an advert of the peer has been waiting for a receive, while there is room
    /// to read it ahead.
    fn check_unread(&mut self) {
        let has_room = self.ahead_octets < self.config.read_ahead;
        if !has_room || !self.receives.is_empty() || self.unread().is_none() {
            self.unread_since = None;
            return;
        }
        self.unread_since.get_or_insert(self.now);
        if self.unread_is_old() {
            self.drive();
        }
    }

    /// Acts on what has taken too long.
    pub(super) fn check_timeouts(&mut self) {
        if self.over.is_some() {
            return;
        }
        self.check_crossing();
        self.check_unread();
        let oldest = self.oldest_advert();
        if self.cancel_since.is_none() && oldest.is_some_and(|at| at + self.config.times.advert <= self.now) {
            self.cancel_sources();
            self.drive();
        }
        let unanswered = self.cancel_since.is_some_and(|at| at + self.config.times.answer <= self.now);
        if unanswered || self.closing_is_late() {
            self.fail(Error::TimedOut);
        }
    }

    fn check_crossing(&mut self) {
        let crosses = self.receives.is_empty() && self.oldest_advert().is_some() && self.unread().is_some();
        if !crosses {
            self.crossing_since = None;
            return;
        }
        self.crossing_since.get_or_insert(self.now);
        let is_first = self.role == super::Role::Active;
        if self.cancel_since.is_none() && (is_first || self.crossing_is_old()) {
            self.cancel_sources();
        }
        self.drive();
    }

    fn oldest_advert(&self) -> Option<Duration> {
        self.sends.iter().flat_map(|op| &op.adverts).map(|advert| advert.since).min()
    }

    /// Returns the time at which [`progress`](Self::progress) has something to do although nothing
    /// has happened.
    #[must_use]
    pub fn deadline(&mut self) -> Option<Duration> {
        if self.over.is_some() {
            return None;
        }
        let paced = self.machine().update_may_wait();
        let times = &self.config.times;
        let update = self.answered_at.filter(|_| paced).map(|at| at + self.update_pause());
        let answer = self.cancel_since.map(|at| at + times.answer);
        let advert = self.oldest_advert().filter(|_| self.cancel_since.is_none()).map(|at| at + times.advert);
        let crossing = self.crossing_since.filter(|_| !self.crossing_is_old());
        let crossing = crossing.filter(|_| self.role == Role::Passive).map(|at| at + times.tie_break);
        let unread = self.unread_since.filter(|_| !self.unread_is_old()).map(|at| at + times.read_ahead);
        let closing = [self.closing.look_at, self.closing_deadline()];
        [answer, advert, crossing, unread, update].into_iter().chain(closing).flatten().min()
    }
}
