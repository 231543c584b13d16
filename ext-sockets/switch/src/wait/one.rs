//! One descriptor of ours in a `poll` or a `select`, and the way in which it is waited for.

use std::ffi::{c_int, c_short};
use std::time::Duration;

use super::edges::{Edges, Way};
use super::watched::Watched;

/// A descriptor of ours.
pub(super) struct One {
    /// Place in the program's list, or number.
    pub(super) at: usize,
    /// The events that the program waits for.
    pub(super) want: c_short,
    watched: Watched,
    /// The way in which the next sleep is for it.
    way: Way,
    /// Tag in the set of the wait, once it is registered there.
    tag: Option<u32>,
}

impl One {
    /// Returns the descriptor `fd`, if the kernel alone does not know its readiness.
    #[inline]
    pub(super) fn of(fd: c_int, at: usize, want: c_short) -> Option<Self> {
        Some(One { at, want, watched: Watched::of(fd)?, way: Way::Level, tag: None })
    }

    /// Returns whether the socket's kind, and not the kernel, reports urgent octets.
    pub(super) fn tells_urgent(&self) -> bool {
        self.watched.tells_urgent()
    }

    /// Chooses the way in which the next sleep is for it. Returns the events to ask the kernel for,
    /// if they are not in the set of the wait, and shortens `nap` to the longest sleep.
    pub(super) fn prepare(&mut self, edges: &mut Edges, nap: &mut Option<Duration>) -> Option<c_short> {
        self.way = edges.way(&self.watched, self.want, &mut self.tag);
        let limits = [*nap, self.watched.deadline(self.want), self.way.longest()];
        *nap = limits.into_iter().flatten().min();
        (self.way == Way::Level).then(|| self.watched.interest(self.want))
    }

    /// Returns the events for the program, after the kernel has answered `ready` to what was asked
    /// of it. `None`: the number is another file's by now, for which the kernel must be asked
    /// again.
    pub(super) fn told(&self, edges: &mut Edges, ready: c_short) -> Option<c_short> {
        let ready = match self.way {
            Way::Level => ready,
            way => edges.take(way, &self.watched, self.want),
        };
        let must_recheck = self.way.must_recheck() || self.watched.deadline(self.want).is_some();
        if ready == 0 && !must_recheck { Some(0) } else { self.watched.current(ready, self.want) }
    }
}
