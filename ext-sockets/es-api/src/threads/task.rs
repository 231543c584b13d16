//! Work that makes progress whenever its sockets are ready.

use std::collections::HashMap;
use std::ffi::c_int;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use libc::{POLLERR, POLLHUP, POLLNVAL, pollfd};
use rddp_real::Errno;

/// Work under way. Its driver calls [`advance`](Task::advance), and again when what the task [waits
/// for](Task::waits_for) is there.
pub trait Task: Send + Sync {
    /// Returns a number that no other task has ([`next_id`]).
    fn id(&self) -> u64;

    /// Returns a descriptor that the task uses.
    fn fd(&self) -> c_int;

    /// Does what can be done without waiting. `false`: nothing is left.
    fn advance(&self) -> bool;

    /// Adds what the task waits for; returns whether there is anything. That is polled, until
    /// [`waited`](Task::waited) is called.
    fn waits_for(&self, waits: &mut Waits) -> bool;

    /// Called when the driver no longer polls what the task waits for.
    fn waited(&self) {}

    /// Fails all that is left with this errno, as no thread makes progress with it.
    fn abandon(&self, errno: Errno);
}

/// Returns a number that no other task has.
pub fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The conditions that tasks wait for: any of some descriptors, or a time.
#[derive(Debug, Default)]
pub struct Waits {
    /// Each descriptor once: the kernel takes no more entries than a process may have descriptors.
    fds: Vec<pollfd>,
    places: HashMap<c_int, usize>,
    /// Index into `fds` of each addition, and the events that it wants.
    wanted: Vec<(usize, i16)>,
    pub(super) until: Option<Instant>,
}

impl Waits {
    /// Adds events of a descriptor, as for `poll`.
    pub fn add(&mut self, fd: c_int, events: i16) {
        let place = *self.places.entry(fd).or_insert(self.fds.len());
        if place == self.fds.len() {
            self.fds.push(pollfd { fd, events: 0, revents: 0 });
        }
        self.fds[place].events |= events;
        self.wanted.push((place, events));
    }

    /// Adds a time at which to go on in any case.
    pub fn until(&mut self, time: Instant) {
        self.until = Some(self.until.map_or(time, |until| until.min(time)));
    }

    pub(super) fn clear(&mut self) {
        self.fds.clear();
        self.places.clear();
        self.wanted.clear();
    }

    /// Returns the number of additions.
    pub(super) fn count(&self) -> usize {
        self.wanted.len()
    }

    pub(super) fn fds(&mut self) -> &mut [pollfd] {
        &mut self.fds
    }

    /// Returns the events that `poll` has found of these additions.
    pub(super) fn found(&self, added: Range<usize>) -> i16 {
        const ALWAYS: i16 = POLLERR | POLLHUP | POLLNVAL;
        let of = |&(place, events): &(usize, i16)| self.fds[place].revents & (events | ALWAYS);
        self.wanted.get(added).unwrap_or_default().iter().map(of).fold(0, |all, of| all | of)
    }
}

#[cfg(test)]
mod tests {
    use libc::{POLLIN, POLLOUT};

    use super::*;

    #[test]
    fn a_descriptor_is_polled_once_and_answers_each_who_added_it() {
        let mut waits = Waits::default();
        for (fd, events) in [(3, POLLIN), (4, POLLIN), (3, POLLOUT), (3, POLLIN)] {
            waits.add(fd, events);
        }
        assert_eq!(waits.fds().len(), 2);
        assert_eq!(waits.fds()[0].events, POLLIN | POLLOUT);
        waits.fds()[0].revents = POLLOUT;
        assert_eq!([0, 1, 2, 3].map(|at| waits.found(at..at + 1)), [0, 0, POLLOUT, 0]);
        waits.fds()[1].revents = POLLHUP;
        assert_eq!(
            (waits.found(1..2), waits.found(0..4), waits.found(2..2)),
            (POLLHUP, POLLHUP | POLLOUT, 0)
        );
        waits.clear();
        waits.add(4, POLLIN);
        assert_eq!((waits.fds().len(), waits.count(), waits.fds()[0].fd), (1, 1, 4));
    }
}
