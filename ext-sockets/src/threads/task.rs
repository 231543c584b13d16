//! Work that is gone on with whenever its sockets are ready.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use libc::pollfd;

/// Work under way. Whoever drives it calls [`advance`](Task::advance), and again when what it [waits for](Task::waits_for) is there.
pub trait Task: Send + Sync {
    /// A number of its own ([`next_id`]).
    fn id(&self) -> u64;

    /// A descriptor that it concerns.
    fn fd(&self) -> c_int;

    /// Does what can be done without waiting. `false`: nothing is left.
    fn advance(&self) -> bool;

    /// Says what has to come before it can go on; whether there is anything. It is polled then, up to [`waited`](Task::waited).
    fn waits_for(&self, waits: &mut Waits) -> bool;

    /// Nothing of what it said is polled any more by whoever asked.
    fn waited(&self) {}

    /// Nobody goes on with it: all that is left fails with this errno.
    fn abandon(&self, errno: c_int);
}

/// A number that no other task has.
pub fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// What tasks wait for: any of some descriptors, or a time.
#[derive(Debug, Default)]
pub struct Waits {
    pub(super) fds: Vec<pollfd>,
    pub(super) until: Option<Instant>,
}

impl Waits {
    /// Events of a descriptor, as for `poll`.
    pub fn add(&mut self, fd: c_int, events: i16) {
        self.fds.push(pollfd { fd, events, revents: 0 });
    }

    /// A time at which to go on in any case.
    pub fn until(&mut self, time: Instant) {
        self.until = Some(self.until.map_or(time, |until| until.min(time)));
    }
}
