//! Readiness of a framed socket, and the steps that it takes while no call is at work on it.

use std::ffi::c_short;
use std::time::Duration;

use libc::{POLLIN, POLLNVAL, POLLRDHUP, POLLRDNORM};
use rddp_stream::{Phase, Uncancelled};

use super::{Framed, Protocol, fall_back};
use crate::kinds::kind::Readiness;
use crate::{exit, trace, wait};

impl<P: Protocol> Readiness for Framed<P> {
    fn interest(&self, want: c_short) -> c_short {
        self.stream().map_or(want, |stream| stream.interest(want))
    }

    fn revents(&self, ready: c_short, want: c_short) -> c_short {
        let (Some(state), Some(stream)) = (self.held.state(), self.stream()) else { return ready };
        let Some(at_work) = self.held.work_on(self.fd) else {
            return if exit::has_begun() { 0 } else { POLLNVAL };
        };
        let _uncancelled = Uncancelled::here();
        let before = state.condition();
        let mut revents = stream.called_by(&at_work).revents(ready, want);
        if state.phase() == Phase::Ended && fall_back::is_due(self) {
            revents = fall_back::revents(self, want);
        } else if state.phase() == Phase::Ended {
            self.tell_end();
        }
        if state.phase() == Phase::Plain {
            self.become_plain();
        }
        if state.condition() != before {
            self.changed(state);
        }
        revents
    }

    fn deadline(&self, want: c_short) -> Option<Duration> {
        let readable = want & (POLLIN | POLLRDNORM) != 0;
        let hears = readable || want & POLLRDHUP != 0;
        if self.is_over() || readable && self.holds_octets() || hears && self.hears_nothing() {
            return Some(Duration::ZERO);
        }
        self.deadline_of_stream()
    }

    fn waits_by_edges(&self, want: c_short) -> bool {
        self.stream().is_some_and(|stream| stream.waits_by_edges(want))
    }

    fn tells_urgent(&self) -> bool {
        P::TELLS_URGENT
    }

    fn is_settled(&self) -> bool {
        self.held.state().is_none_or(|state| state.condition().is_settled())
    }

    /// Takes a step; the socket's own calls report the errors.
    fn step(&self) -> bool {
        let (Some(state), Some(at_work)) = (self.held.state(), self.held.work_on(self.fd)) else {
            return false;
        };
        let before = state.condition();
        if before.is_settled() {
            return false;
        }
        self.tell_silent(state);
        self.stream().into_iter().for_each(|stream| stream.called_by(&at_work).step());
        trace::startup_is_over(&self.held, self.fd, state);
        self.tell_plain_peer(state);
        if self.held.is_watched() && state.condition() != before {
            wait::changed(&self.held, self.fd);
        }
        true
    }

    fn nap(&self) -> Option<Duration> {
        let (state, stream) = (self.held.state()?, self.stream()?);
        let owes = stream.owes().then(|| stream.recheck());
        [owes, self.until_told(state)].into_iter().flatten().min()
    }
}

impl<P: Protocol> Framed<P> {
    /// Returns the time within which the stream must be looked at, if there is a limit.
    pub(super) fn deadline_of_stream(&self) -> Option<Duration> {
        self.stream()?.deadline()
    }

    /// Returns whether every call reports the stream's end, whatever state the kernel's socket is
    /// in.
    fn is_over(&self) -> bool {
        self.held.state().is_some_and(|state| state.phase() == Phase::Ended)
    }

    /// Returns whether the program has closed the receiving direction, of which TCP is not told.
    fn hears_nothing(&self) -> bool {
        self.stream().is_some_and(|stream| P::is_shut_for_receiving(&stream))
    }

    /// Returns whether the stream holds octets that the kernel does not know of. A confined process
    /// asks this before it waits.
    fn holds_octets(&self) -> bool {
        self.stream().is_some_and(|stream| stream.holds_octets())
    }
}
