//! Readiness: what to ask the kernel for, and what its answer means to the program.
//!
//! Whoever waits (in `poll`, `select` or an epoll set) asks the kernel for [`Stream::interest`] and shows what it says to
//! [`Stream::revents`]. If nothing is left, the wait goes on with the interest asked for anew: it may have changed.

use std::ffi::c_short;
use std::sync::atomic::Ordering;
use std::time::Duration;

use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLRDHUP, POLLRDNORM, POLLWRNORM};

use super::options::Role;
use super::rx::Pull;
use super::state::Phase;
use super::sys::now;
use super::wait::Patience;
use super::{Errno, Stream};

impl Stream<'_> {
    /// The events of the kernel's socket that have to do with what a program `want`s to know (of `POLLIN`, `POLLOUT` and
    /// the others of `poll`).
    #[must_use]
    pub fn interest(&self, want: c_short) -> c_short {
        let owing = if self.wants_room() { POLLOUT } else { 0 };
        let (readable, writable) = (want & (POLLIN | POLLRDNORM), want & (POLLOUT | POLLWRNORM));
        let other = want & !(POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM);
        match self.state.phase() {
            Phase::Plain => want,
            // The Terminate may be owed.
            Phase::Ended => want | owing,
            // TCP is being connected, or cannot be: the program's own events, and the one for us
            // that it is.
            Phase::Starting if !self.is_connected() => want | POLLOUT,
            Phase::Starting if writable != 0 && self.takes_early() => {
                other | writable | self.startup_interest() | owing
            }
            Phase::Starting => other | self.startup_interest() | owing,
            Phase::Framed if self.state.may_send.load(Ordering::Acquire) => want | owing,
            // What is waited for is the peer's first FPDU.
            Phase::Framed if writable != 0 && self.takes_early() => want | POLLIN | owing,
            Phase::Framed if writable != 0 || self.owes() => other | readable | POLLIN | owing,
            Phase::Framed => other | readable | owing,
        }
    }

    /// Before the Request is out an initiator waits for room (and for TCP to be connected), then for the peer's frame.
    fn startup_interest(&self) -> c_short {
        let began = self.state.began.load(Ordering::Relaxed) > 0;
        let greets = self.state.asked.role() == Role::Initiator && !began;
        if greets || self.wants_room() { POLLOUT } else { POLLIN }
    }

    /// Whether what is owed can go when TCP has room.
    fn wants_room(&self) -> bool {
        let may_go = self.state.phase() == Phase::Ended || self.state.may_send.load(Ordering::Acquire);
        self.state.wants_room.load(Ordering::Acquire) || may_go && self.owes()
    }

    /// What of `want` holds for the program, the kernel having answered `ready`. Does what is to be done for that, and
    /// never waits. `POLLERR`, `POLLHUP` and `POLLNVAL` are told whether they are wanted or not.
    #[must_use]
    pub fn revents(&self, ready: c_short, want: c_short) -> c_short {
        // The kernel has told a call of it, which had octets to tell of.
        let untold = ready & POLLHUP != 0 && self.state.pending.load(Ordering::Acquire) != 0;
        self.holds(ready, want) | if untold { POLLERR } else { 0 }
    }

    fn holds(&self, ready: c_short, want: c_short) -> c_short {
        let always = ready & (POLLERR | POLLHUP | POLLNVAL);
        // An error of the connection is the program's to fetch.
        let is_tcps = match self.state.phase() {
            Phase::Plain => true,
            Phase::Starting => !self.is_connected(),
            Phase::Framed | Phase::Ended => false,
        };
        if is_tcps || always & (POLLERR | POLLNVAL) != 0 {
            return ready & (want | always);
        }
        match self.establish() {
            Ok(false) => return always | self.early_room(ready, want) | self.shut_early(want),
            Err(Errno::PLAIN) => return self.fresh(want),
            Err(error) => return self.fails_with(error, ready, want),
            Ok(true) => {}
        }
        // What is owed may take the room of which the kernel has told.
        let has_room = ready & POLLOUT != 0 && !self.owes();
        if ready & POLLOUT != 0
            && let Err(error) = self.pay_if_owing()
        {
            return self.fails_with(error, ready, want);
        }
        let mut out = always | ready & want & POLLRDHUP;
        let writable = want & (POLLOUT | POLLWRNORM);
        let readable = want & (POLLIN | POLLRDNORM);
        if readable != 0 || !self.state.may_send.load(Ordering::Acquire) {
            match self.look() {
                Ok(Pull::Some | Pull::End) => out |= readable,
                Ok(Pull::Nothing(_)) => {}
                Err(error) => return self.fails_with(error, ready, want),
            }
        }
        if self.state.may_send.load(Ordering::Acquire) {
            if writable != 0 && (has_room && !self.owes() || self.is_writable()) {
                out |= writable;
            }
        } else {
            out |= self.early_room(ready, want) | self.shut_early(want);
        }
        out
    }

    /// Returns whether there is room for octets before there is leave to send, as a wait tells it.
    fn early_room(&self, ready: c_short, want: c_short) -> c_short {
        let writable = want & (POLLOUT | POLLWRNORM);
        let is_ready = || ready & POLLOUT != 0 || self.fresh(POLLOUT) & POLLOUT != 0;
        let has_room = writable != 0 && self.takes_early() && is_ready();
        if has_room { writable } else { 0 }
    }

    /// Returns what TCP would say of an end that reads no more.
    fn shut_early(&self, want: c_short) -> c_short {
        if !self.is_shut_early() {
            return 0;
        }
        let both = self.state.shut_send.load(Ordering::Acquire);
        want & (POLLIN | POLLRDNORM | POLLRDHUP) | if both { POLLHUP } else { 0 }
    }

    /// A call would answer this error, and one will: the kernel says it only once.
    fn fails_with(&self, error: Errno, ready: c_short, want: c_short) -> c_short {
        self.remember(error);
        let moving = POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM;
        match error {
            // Nothing is wrong with the stream: the program hears what the kernel says.
            Errno::INTERRUPTED | Errno::DEADLOCK if ready & want != 0 => ready & (want | POLLHUP),
            // What the kernel says was asked for by us, and is there for good. Told of nothing, the
            // wait would spin.
            Errno::INTERRUPTED | Errno::DEADLOCK => moving & want | ready & POLLHUP,
            _ => (moving | POLLRDHUP) & want | POLLERR | POLLHUP,
        }
    }

    /// When to call [`revents`](Self::revents) at the latest (with 0), although nothing has happened.
    ///
    /// The startup takes no longer than its time. And another thread, or another process, may be the one that ends it, or
    /// takes the FPDU that gives leave to send: nothing in the kernel would then wake this one.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        match self.state.phase() {
            // TCP has a time of its own for connecting.
            Phase::Starting if !self.is_connected() => None,
            Phase::Starting => {
                self.note_beginning();
                self.startup_left().map(|left| left.min(self.recheck()))
            }
            Phase::Framed if !self.state.may_send.load(Ordering::Acquire) => Some(self.recheck()),
            _ => None,
        }
    }

    /// Often at first; peers that say nothing for long cost no more than a look now and then.
    pub fn recheck(&self) -> Duration {
        let began = self.state.began.load(Ordering::Relaxed);
        let waited = Duration::from_nanos(now().saturating_sub(began));
        if began == 0 || waited < PATIENCE { RECHECK } else { 20 * RECHECK }
    }

    /// Whether a read would give octets of which the kernel knows nothing. Only after [`confine`](super::confine): such a
    /// process asks before it sleeps, and goes on to [`revents`](Self::revents) with 0 if so.
    #[must_use]
    pub fn holds_octets(&self) -> bool {
        self.state.holding.load(Ordering::Acquire)
    }

    /// Whether a send would take at least one octet.
    fn is_writable(&self) -> bool {
        self.state.may_send.load(Ordering::Acquire)
            && self.pay_if_owing() != Ok(false)
            && self.fresh(POLLOUT) & (POLLOUT | POLLERR | POLLHUP) != 0
    }

    /// What the kernel says at this moment.
    fn fresh(&self, want: c_short) -> c_short {
        self.kernel.poll(want, Some(Duration::ZERO)).unwrap_or(POLLNVAL)
    }

    /// Sleeps until TCP has room, or the peer has said what has to come first.
    pub(super) fn wait_to_pay(&self, patience: &Patience) -> Result<(), Errno> {
        if patience.is_over() {
            return Err(Errno::WOULD_BLOCK);
        }
        let left = [patience.left(), self.deadline()].into_iter().flatten().min();
        self.kernel.poll(self.interest_to_pay(), left).map(drop)
    }

    /// What whoever [finishes](Stream::finish) it waits for.
    #[must_use]
    pub fn interest_to_pay(&self) -> c_short {
        match self.state.phase() {
            Phase::Ended => POLLOUT,
            Phase::Framed if !self.state.may_send.load(Ordering::Acquire) => POLLIN | self.interest(0),
            _ => self.interest(0),
        }
    }
}

/// How soon a wait sees what somebody else has brought about, before octets flow both ways.
const RECHECK: Duration = Duration::from_millis(10);
/// How long it looks that soon.
const PATIENCE: Duration = Duration::from_secs(1);
