//! The effective MSS of a connection, and when TCP is asked for it (RFC 5044 §4.5).
//!
//! It may change during a connection, as when the path's MTU does, and TCP does not tell. So TCP is
//! asked again after a second, and behind writes that were longer than a segment or taken in part,
//! as a question is a system call. The longer the answer has stayed the same, the more of these
//! writes pass before the next question.

use std::time::{Duration, Instant};

use crate::conn::socket::DeviceSocket;

/// The segment size to go by when TCP does not tell.
const DEFAULT: usize = 1460;

/// Time for which an answer is believed: TCP's search for the path's MTU changes it now and then.
const HOLDS: Duration = Duration::from_secs(1);

/// The most long writes between two questions.
const PATIENCE: u32 = 64;

/// The EMSS as TCP last told it.
#[derive(Debug)]
pub(super) struct Emss {
    octets: usize,
    /// The moment up to which it is not asked for again.
    until: Instant,
    /// Long writes before it is asked for again, and how many these were at first.
    writes: u32,
    patience: u32,
}

impl Emss {
    /// Asks TCP.
    pub(super) fn of(socket: &DeviceSocket) -> Self {
        let octets = socket.tcp_mss().map_or(DEFAULT, |mss| mss as usize);
        Emss { octets, until: Instant::now() + HOLDS, writes: 1, patience: 1 }
    }

    /// Returns the EMSS, for which it asks TCP if the answer is old.
    pub(super) fn get(&mut self, socket: &DeviceSocket) -> usize {
        if self.is_old() {
            let before = std::mem::replace(self, Self::of(socket));
            if self.octets == before.octets {
                self.patience = (2 * before.patience).min(PATIENCE);
                self.writes = self.patience;
            }
        }
        self.octets
    }

    /// Returns whether TCP is asked the next time.
    pub(super) fn is_old(&self) -> bool {
        self.writes == 0 || Instant::now() >= self.until
    }

    /// Counts a write, behind which the EMSS may be another if it was cut or longer than a segment.
    pub(super) fn note_write(&mut self, octets: usize, cut: bool) {
        if cut || octets > self.octets {
            self.writes = self.writes.saturating_sub(1);
        }
    }

    /// Pretends that TCP has answered so, and that the answer is good until then.
    #[cfg(test)]
    pub(super) fn pretend(&mut self, octets: usize, until: Instant) {
        *self = Emss { octets, until, writes: 1, patience: 1 };
    }
}
