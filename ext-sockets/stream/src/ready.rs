//! Readiness: the events to ask the kernel for, and the meaning of its answer for the program.
//!
//! A caller that waits (in `poll`, `select` or an epoll set) asks the kernel for
//! [`Stream::interest`] and passes the answer to [`Stream::revents`]. If no event is left, it asks
//! for the interest anew, which may have changed, and waits again.

use std::ffi::c_short;
use std::sync::atomic::Ordering;
use std::time::Duration;

use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLRDHUP, POLLRDNORM, POLLWRNORM};

use super::fail::AT_END;
use super::kind::Kind;
use super::options::Role;
use super::patience::Patience;
use super::rx::Pull;
use super::state::Phase;
use super::{Errno, Framed};

impl<K: Kind> Framed<'_, K> {
    /// Returns the events of the kernel's socket that matter for the events `want` of the program
    /// (`POLLIN`, `POLLOUT` and the others of `poll`).
    #[must_use]
    pub fn interest(&self, want: c_short) -> c_short {
        let owing = if self.wants_room() { POLLOUT } else { 0 };
        let (readable, writable) = (want & (POLLIN | POLLRDNORM), want & (POLLOUT | POLLWRNORM));
        let other = want & !(POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM);
        match self.state.phase() {
            Phase::Plain => want,
            // The Terminate may still be owed.
            Phase::Ended => want | owing,
            // TCP is being connected, or cannot be: the program's own events, and the one by which
            // we learn that it is connected.
            Phase::Starting if !self.is_connected() => want | POLLOUT,
            Phase::Starting if writable != 0 && self.takes_early() => {
                other | writable | self.startup_interest() | owing
            }
            Phase::Starting => other | self.startup_interest() | owing,
            Phase::Framed => K::interest(self, want, owing).unwrap_or_else(|| match () {
                () if self.state.may_send() => want | owing,
                // The end waits for the peer's first FPDU.
                () if writable != 0 && self.takes_early() => want | POLLIN | owing,
                () if writable != 0 || self.owes() => other | readable | POLLIN | owing,
                () => other | readable | owing,
            }),
        }
    }

    /// Returns the event that the startup waits for: before the Request is sent an initiator waits
    /// for room (and for TCP to be connected), then for the peer's frame.
    fn startup_interest(&self) -> c_short {
        let greets = self.state.asked.role() == Role::Initiator && !self.state.startup.has_begun();
        if greets || self.wants_room() { POLLOUT } else { POLLIN }
    }

    /// Returns whether owed octets can be sent when TCP has room.
    fn wants_room(&self) -> bool {
        let phase = self.state.phase();
        let may_go = phase == Phase::Ended || self.state.may_send();
        // An end that is due and not made waits for the peer.
        let waits_for_peer = phase == Phase::Framed && K::ENDS_BY_MESSAGES;
        self.state.flow.wants_room.load(Ordering::Acquire) || may_go && !waits_for_peer && self.owes()
    }

    /// Returns the events of `want` that hold for the program, the kernel having answered `ready`.
    /// Does work that is due for that, and never waits. `POLLERR`, `POLLHUP` and `POLLNVAL` are
    /// returned whether wanted or not.
    #[must_use]
    pub fn revents(&self, ready: c_short, want: c_short) -> c_short {
        // A call that had moved octets has kept an error of the kernel's for the next call.
        let untold = ready & POLLHUP != 0 && self.state.flow.pending.load(Ordering::Acquire) != 0;
        self.holds(ready, want) | if untold { POLLERR } else { 0 }
    }

    fn holds(&self, ready: c_short, want: c_short) -> c_short {
        // The kernel's events are those of the reset by which this end has answered.
        if self.is_closed_at_once() {
            return AT_END & want | ready & POLLNVAL;
        }
        let mut always = ready & (POLLERR | POLLHUP | POLLNVAL);
        if always & (POLLERR | POLLHUP) != 0 && K::is_reset_behind_more(self) {
            always &= POLLNVAL;
        }
        // The error of a connect is for the program to fetch; that of a connection that was made
        // says what the peer thinks of the startup.
        let (is_tcps, starts) = match self.state.phase() {
            Phase::Plain => (true, false),
            Phase::Starting => (!self.is_connected(), true),
            Phase::Framed | Phase::Ended => (false, false),
        };
        let fails = if starts { POLLNVAL } else { POLLERR | POLLNVAL };
        if is_tcps || always & fails != 0 {
            return ready & want | always;
        }
        match self.establish() {
            Ok(false) => return always | self.early_events(ready, want) | self.shut_early(want),
            Err(Errno::PLAIN) => return self.fresh(want),
            Err(error) => return self.fails_with(error, ready, want),
            Ok(true) => K::nudge(self),
        }
        // Sending what is owed may use up the room that the kernel has announced.
        let has_room = ready & POLLOUT != 0 && !self.owes();
        if ready & POLLOUT != 0
            && let Err(error) = self.pay_if_owing()
        {
            return self.fails_with(error, ready, want);
        }
        let mut out = always | ready & want & POLLRDHUP;
        let writable = want & (POLLOUT | POLLWRNORM);
        let readable = want & (POLLIN | POLLRDNORM);
        if let Err(error) = K::look_for(self, want) {
            return self.fails_with(error, ready, want);
        }
        if readable != 0 || !self.state.may_send() {
            match K::is_readable(self) {
                Ok(true) => out |= readable,
                Ok(false) => {}
                Err(error) => return self.fails_with(error, ready, want),
            }
        }
        if self.state.may_send() {
            if writable != 0 && K::has_leave_of_peer(self) && (has_room && !self.owes() || self.is_writable())
            {
                out |= writable;
            }
            out |= K::told(self, want, out);
        } else {
            out |= self.early_events(ready, want) | self.shut_early(want);
        }
        out | K::ended_directions(self, ready, want)
    }

    /// Returns whether there is what a wait for octets waits for, or the end.
    pub(super) fn has_enough(&self) -> Result<bool, Errno> {
        Ok(match self.look()? {
            Pull::Nothing(_) => false,
            Pull::End => true,
            Pull::Some | Pull::Start { .. } => !self.waits_for_more(),
        })
    }

    /// Returns the events that TCP would have for an end whose receiving direction is closed.
    pub(super) fn shut_early(&self, want: c_short) -> c_short {
        if !self.is_shut_early() {
            return 0;
        }
        let both = self.state.flow.shut_send.load(Ordering::Acquire);
        want & (POLLIN | POLLRDNORM | POLLRDHUP) | if both { POLLHUP } else { 0 }
    }

    /// Returns when to call [`revents`](Self::revents) at the latest (with 0), although nothing has
    /// happened.
    ///
    /// The startup has a time limit. Also another thread or process may end it, or take the FPDU
    /// that lets this end send: nothing in the kernel would then wake this one.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        match self.state.phase() {
            // TCP has its own time limit for connecting.
            Phase::Starting if !self.is_connected() => None,
            Phase::Starting => {
                self.state.startup.note_beginning();
                self.startup_left().map(|left| left.min(self.recheck()))
            }
            Phase::Framed if !self.state.may_send() => Some(self.recheck()),
            Phase::Framed => K::deadline(self),
            _ => None,
        }
    }

    /// Returns whether a send would take at least one octet.
    fn is_writable(&self) -> bool {
        self.state.may_send()
            && self.pay_if_owing() != Ok(false)
            && self.fresh(POLLOUT) & (POLLOUT | POLLERR | POLLHUP) != 0
    }

    /// Returns whether a wait for `want` must be for edges: octets may be in the kernel, now or
    /// later, that are not what it is for. The caller [looks](Self::revents) once more before it
    /// sleeps.
    #[must_use]
    pub fn waits_by_edges(&self, want: c_short) -> bool {
        K::waits_by_edges(self, want)
    }

    /// Returns whether there is something to read in front of a reset. A peer of SDP that has sent
    /// everything closes its socket, whose kernel answers an update of credits by a reset.
    #[must_use]
    pub fn is_reset_behind_more(&self) -> bool {
        K::is_reset_behind_more(self)
    }

    /// Sleeps until TCP has room, or until the peer has sent what must come first.
    pub(super) fn wait_to_pay(&self, patience: &Patience) -> Result<(), Errno> {
        if patience.is_over() {
            return Err(Errno::WOULD_BLOCK);
        }
        let left = [patience.left(), self.deadline()].into_iter().flatten().min();
        self.kernel.poll(self.interest_to_pay(), left).map(drop)
    }

    /// Returns the events that a caller who [finishes](Self::finish) the stream waits for.
    #[must_use]
    pub fn interest_to_pay(&self) -> c_short {
        match self.state.phase() {
            Phase::Ended => POLLOUT,
            Phase::Framed if K::ENDS_BY_MESSAGES => POLLIN | self.interest(0),
            Phase::Framed if !self.state.may_send() => POLLIN | self.interest(0),
            _ => self.interest(0),
        }
    }
}
