//! Peers that vanish while octets are unacknowledged, or wait for a window.
//!
//! Linux's keepalive sends no probes then, and TCP retransmits for a quarter of an hour before it
//! gives up. `TCP_USER_TIMEOUT` would end that, but it counts the time of a closed window even
//! where the peer answers each question about it, so a living peer that takes nothing would be lost
//! (`tcp_probe_timer`, Linux 6.18). The device therefore looks now and then at what TCP has asked
//! in vain. A connection costs one system call in a quarter of its user timeout.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::watch::Watch;
use crate::deadline::Deadline;
use crate::mem::unacknowledged;
use crate::queues::attributes::QpAttributes;
use crate::sys::{Unanswered, unanswered};

/// Looks in a row that find the peer silent, after which the peer is lost.
const LOOKS: u32 = 4;

/// Questions without an answer, fewer of which may be lost on the way.
const QUESTIONS: u32 = 3;

/// The silence of a connection's peer.
#[derive(Debug)]
pub(super) struct Silence {
    /// The time between two looks.
    period: Duration,
    next: Deadline,
    /// The looks in a row that have found the peer's TCP silent.
    looks: u32,
    /// The octets that had moved by the last look at which answers were outstanding.
    moved: Option<u64>,
    /// The looks in a row that have found no further ones.
    still: u32,
}

impl Silence {
    /// Begins to look for a peer that is silent for so long.
    pub(super) fn after(limit: Duration) -> Self {
        let period = (limit / LOOKS).max(Duration::from_millis(1));
        Silence { period, next: Deadline::after(period), looks: 0, moved: None, still: 0 }
    }

    /// Notes what a look has found. Returns whether the peer is lost.
    fn note(&mut self, found: Unanswered) -> bool {
        // A question about the window may be under way, since the peer is asked seldom: the peer is
        // silent then, and lives.
        let in_vain = found.questions >= QUESTIONS && found.silence >= self.period;
        self.looks = if in_vain { self.looks + 1 } else { 0 };
        self.looks >= LOOKS
    }

    /// Notes how many octets have moved either way, if answers are outstanding. Returns whether the
    /// peer is lost: its host answers, and it does not.
    fn note_moved(&mut self, moved: Option<u64>) -> bool {
        let is_still = moved.is_some() && moved == self.moved;
        self.still = if is_still { self.still + 1 } else { 0 };
        self.moved = moved;
        self.still >= LOOKS
    }
}

impl Watch {
    /// Has a peer be lost that is silent for so long from now on.
    pub(crate) fn set_user_timeout(&mut self, attrs: &QpAttributes, limit: Duration) {
        self.silence = Some(Silence::after(limit));
        self.look_for_silence(attrs);
    }

    /// Sets the timer of the next look at the peer.
    pub(super) fn look_for_silence(&self, attrs: &QpAttributes) {
        if let Some(silence) = &self.silence {
            attrs.device.driver.by(silence.next, attrs.token);
        }
    }

    /// Returns whether the peer has vanished, as far as TCP knows: it has been silent for the
    /// connection's user timeout (RFC 9293 §3.9.1) while something was to be acknowledged. Or that
    /// it has answered nothing in that time: `moved` has the octets given to TCP and taken from it,
    /// if answers are outstanding.
    pub(crate) fn has_vanished(&mut self, attrs: &QpAttributes, now: Instant, moved: Option<u64>) -> bool {
        let Some(silence) = self.silence.as_mut().filter(|silence| silence.next.is_over(now)) else {
            return false;
        };
        let mut vanished = unanswered(self.socket.as_fd()).is_ok_and(|found| silence.note(found));
        let waits = unacknowledged(self.socket.as_fd()).unwrap_or(0) as u64;
        vanished |= silence.note_moved(moved.map(|octets| octets.wrapping_sub(waits)));
        silence.next = Deadline::after(silence.period);
        self.look_for_silence(attrs);
        vanished
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of the look that finds the peer lost, of looks which find these questions
    /// and seconds of silence.
    fn lost_at(found: &[(u32, u64)]) -> Option<usize> {
        let mut silence = Silence::after(Duration::from_secs(120));
        let mut looks = found
            .iter()
            .map(|&(questions, seconds)| Unanswered { questions, silence: Duration::from_secs(seconds) });
        looks.position(|found| silence.note(found))
    }

    /// RFC 9293 §3.9.1: the user timeout.
    #[test]
    fn a_peer_that_is_silent_for_the_user_timeout_is_lost() {
        assert_eq!(lost_at(&[(3, 10), (6, 40), (7, 70), (8, 100), (9, 130)]), Some(4));
        // It was idle before the first octet, for longer than that.
        assert_eq!(lost_at(&[(0, 500), (5, 530), (7, 560), (8, 590), (9, 620)]), Some(4));
    }

    #[test]
    fn a_peer_that_moves_nothing_while_answers_are_outstanding_is_lost() {
        let mut silence = Silence::after(Duration::from_secs(4));
        let mut lost = |moved: &[Option<u64>]| {
            let mut looks = moved.iter().map(|moved| silence.note_moved(*moved));
            looks.position(|lost| lost)
        };
        assert_eq!(lost(&[Some(7); 5]), Some(4));
        assert_eq!(lost(&[Some(8), Some(8), Some(8), Some(8), Some(9), Some(9)]), None);
        assert_eq!(lost(&[Some(9), None, Some(9), Some(9), Some(9), Some(9)]), None);
        assert_eq!(lost(&[None; 20]), None);
    }

    /// RFC 9293 §3.8.6.1: whoever answers the probes of its window lives, however long that is
    /// closed; and TCP probes seldom then.
    #[test]
    fn a_peer_that_answers_is_not_lost() {
        let closed = [(0, 30), (0, 60), (0, 90), (1, 119), (0, 10)].repeat(10);
        assert_eq!(lost_at(&closed), None);
        // Losses, and an answer now and then.
        assert_eq!(lost_at(&[(4, 31), (5, 61), (6, 91), (1, 5), (4, 35), (5, 65), (6, 95), (0, 0)]), None);
        // Nothing is unacknowledged: keepalive asks.
        assert_eq!(lost_at(&[(0, 1000); 20]), None);
    }
}
