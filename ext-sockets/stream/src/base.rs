//! The base of a stream of any kind: the descriptor, the shared state, and what asks nobody which
//! kind it is.

use std::ffi::c_short;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use libc::{POLLNVAL, POLLOUT};

use super::caller::Nobody;
use super::state::{Rx, State};
use super::sys::{Kernel, Scratch, held, is_confined};
use super::{Caller, Calls, Errno};

/// The part of a stream that is the same for each kind.
#[derive(Clone, Copy, Debug)]
pub struct Base<'a> {
    pub(super) kernel: Kernel<'a>,
    pub(super) state: &'a State,
}

impl<'a> Base<'a> {
    /// Returns the base of a stream on `fd`, a connected (or connecting) TCP socket.
    #[must_use]
    pub fn new(fd: RawFd, state: &'a State, calls: &'a Calls) -> Self {
        held::begin_call();
        Self { kernel: Kernel { fd, calls, caller: &Nobody }, state }
    }

    pub(super) fn called_by(self, caller: &'a dyn Caller) -> Self {
        Self { kernel: Kernel { caller, ..self.kernel }, state: self.state }
    }

    /// Returns the socket's `SO_COOKIE`, by which the state is found again.
    ///
    /// # Errors
    /// The errno of `getsockopt`.
    pub fn cookie(&self) -> Result<u64, Errno> {
        self.kernel.cookie()
    }

    /// Returns whether more octets have come than [`available`](super::Framed::available) looks at.
    #[must_use]
    pub fn has_more_than_a_look(&self) -> bool {
        self.kernel.unread().is_ok_and(|octets| octets > Scratch::LEN)
    }

    /// Returns whether the descriptor does not block; in a confined process, whether it did not
    /// when another process last asked.
    pub(super) fn is_nonblocking(&self) -> Result<bool, Errno> {
        if is_confined() {
            return Ok(self.state.flow.nonblocking.load(Ordering::Relaxed));
        }
        let nonblocking = self.kernel.is_nonblocking()?;
        self.state.flow.nonblocking.store(nonblocking, Ordering::Relaxed);
        Ok(nonblocking)
    }

    /// Sets `SO_RCVLOWAT`, if it is not that already.
    pub(super) fn wake_at(&self, rx: &mut Rx, count: usize) -> Result<(), Errno> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        if rx.window.wake_at.max(1) != count {
            rx.window.wake_at = count;
            self.kernel.wake_at(count)?;
        }
        Ok(())
    }

    /// Returns whether TCP must still get octets or the end: the rest of a write that stopped
    /// inside an FPDU, an answer to the peer, or a `shutdown` behind them.
    #[must_use]
    pub fn owes(&self) -> bool {
        self.state.flow.owing.load(Ordering::Acquire)
    }

    /// Resets the connection; octets that are owed are lost.
    pub fn abandon(&self) {
        self.kernel.reset();
    }

    /// Returns whether TCP has room for octets at this moment.
    pub(super) fn has_room_now(&self) -> bool {
        self.fresh(POLLOUT) & POLLOUT != 0
    }

    /// Returns the time to the next check: short at first; a peer that says nothing for long costs
    /// only a check now and then.
    pub fn recheck(&self) -> Duration {
        let waited = self.state.startup.age().unwrap_or_default();
        if waited < PATIENCE { RECHECK } else { 20 * RECHECK }
    }

    /// Returns whether a read would give octets that the kernel no longer has. Needed only after
    /// [`confine`](super::confine): such a process asks before it sleeps, and if so goes on to
    /// [`revents`](super::Framed::revents) with 0.
    #[must_use]
    pub fn holds_octets(&self) -> bool {
        self.state.flow.holding.load(Ordering::Acquire)
    }

    /// Returns the events that the kernel has at this moment.
    pub(super) fn fresh(&self, want: c_short) -> c_short {
        self.kernel.poll(want, Some(Duration::ZERO)).unwrap_or(POLLNVAL)
    }

    /// Sets `TCP_CORK`: while it is on, a segment that is not full waits for more octets. Turning
    /// it off sends what waits.
    ///
    /// # Errors
    /// The errno of `setsockopt`.
    pub fn cork(&self, on: bool) -> Result<(), Errno> {
        let was_on = self.state.flow.corked.swap(on, Ordering::Relaxed);
        if was_on && !on { self.kernel.no_delay() } else { Ok(()) }
    }
}

/// Longest delay with which a wait sees what another thread has done, before octets flow both ways.
pub(super) const RECHECK: Duration = Duration::from_millis(10);
/// Time for which a wait checks so often.
const PATIENCE: Duration = Duration::from_secs(1);
