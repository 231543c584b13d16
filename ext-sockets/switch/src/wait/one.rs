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
        // This comes first: the deadline notes that a startup has begun, and an initiator whose
        // Request is not sent waits for room, and not for a Reply.
        let level = (self.way == Way::Level).then(|| self.watched.interest(self.want));
        let limits = [*nap, self.watched.deadline(self.want), self.way.longest()];
        *nap = limits.into_iter().flatten().min();
        level
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::sync::atomic::Ordering;

    use libc::{POLLIN, POLLOUT};

    use super::*;
    use crate::kinds::fake::fake;
    use crate::socket;

    #[test]
    fn a_startup_that_has_not_begun_is_waited_for_as_such() {
        let (ours, _peer, acts) = fake();
        acts.greets.store(true, Ordering::Release);
        let (mut edges, mut nap) = (Edges::default(), None);
        let mut one = One::of(ours.as_raw_fd(), 0, POLLIN).unwrap();
        assert_eq!(one.prepare(&mut edges, &mut nap), Some(POLLOUT));
        assert_eq!(one.prepare(&mut edges, &mut nap), Some(POLLIN), "it has begun");
        socket::forget(ours.as_raw_fd());
    }
}
