//! Waits for what lies behind octets that the program has not read, and their sleeps by edges.
//!
//! The kernel's socket stays readable while octets are there that are not what the wait is for. So
//! a wait for credits, for the peer's end alone or for an urgent octet alone takes messages when
//! something has come, and sleeps until something comes again.

use std::ffi::c_short;
use std::sync::atomic::Ordering;

use libc::{POLLHUP, POLLIN, POLLOUT, POLLPRI, POLLRDHUP, POLLRDNORM, POLLWRNORM};

use super::counters::CREDIT_WAITS;
use super::part::{AT_MARK, BLOCKED, BLOCKED_BEHIND, NOT_BLOCKED, SHORT};
use super::zcopy::note_joining;
use super::{Shared, live};
use crate::Errno;
use crate::base::Base;
use crate::patience::Patience;
use crate::rx::Pull;
use crate::sdp::Stream;
use crate::sink::Sink;
use crate::state::{Phase, Rx};
use crate::sys::{Guard, is_confined};

impl Stream<'_> {
    /// Returns whether a wait for `want` must be for edges.
    pub(super) fn needs_edges(&self, want: c_short) -> bool {
        let state = self.state;
        let is_open = state.phase() == Phase::Framed && state.may_send() && !is_confined();
        // After SHUT_RD every wait for octets is told at once.
        if !is_open || self.is_shut_early() {
            return false;
        }
        let readable = want & READABLE != 0;
        let writable = want & WRITABLE != 0;
        let blocked = state.sdp.blocked.load(Ordering::Acquire);
        if blocked & AT_MARK != 0 {
            return readable || want & POLLRDHUP != 0;
        }
        if writable && self.lacks_credits() {
            return true;
        }
        if readable || want & (POLLRDHUP | POLLPRI) == 0 {
            return false;
        }
        let is_there = || self.lock_rx().is_ok_and(|rx| told(&rx.sdp, want) != 0);
        !(is_there() || writable && self.has_room_now())
    }

    /// Returns the events to ask the kernel for, where they depend on messages.
    pub(super) fn interest_in_messages(&self, want: c_short, owing: c_short) -> Option<c_short> {
        // Credits come with the peer's messages.
        if want & WRITABLE != 0 && self.lacks_credits() {
            return Some(want & !WRITABLE | self.interest_for_credits());
        }
        // `DisConn` and urgent octets are messages.
        self.is_beside_octets(want).then_some(want | POLLIN | owing)
    }

    /// Takes messages for a wait for `want` that has the kernel's answer.
    pub(super) fn look_for_messages(&self, want: c_short) -> Result<(), Errno> {
        let is_for_credits = want & WRITABLE != 0 && !has_many_credits(self);
        if is_for_credits || self.is_beside_octets(want) { self.look_behind(want) } else { Ok(()) }
    }

    /// Takes messages for a wait for `want`, as far as it needs what is behind octets in front.
    pub(crate) fn look_behind(&self, want: c_short) -> Result<(), Errno> {
        let wanted = if want & READABLE == 0 { want } else { want & WRITABLE };
        let mut rx = self.lock_rx()?;
        if lacks(&mut rx, wanted) {
            let taken = self.take_until(&mut rx, |rx| !lacks(rx, wanted));
            if wanted & WRITABLE != 0 && rx.sdp.is_blocked() {
                rx.sdp.wait_for_credits();
            }
            self.answer_peer(&mut rx, 0);
            taken?;
        }
        Ok(())
    }

    /// Returns the events of `want` that SDP tells and TCP does not, and notes that the wait is
    /// about to sleep if it is to be by edges.
    pub(crate) fn told_beside_octets(&self, want: c_short, others: c_short) -> c_short {
        let told = if want & (POLLRDHUP | POLLPRI) == 0 {
            0
        } else {
            self.lock_rx().map_or(0, |rx| told(&rx.sdp, want))
        };
        if told | others == 0 && self.needs_edges(want) {
            // The note is made under the lock; what came before it is seen by the next look.
            let _rx = self.lock_rx();
            self.note_wait_of_program();
        }
        told
    }

    /// Waits until there are credits, by edges: the socket may be readable by octets that nobody
    /// reads.
    #[cold]
    pub(crate) fn wait_for_credits(&self, patience: &Patience) -> Result<(), Errno> {
        self.wait_by_edges(patience, || {
            let mut rx = self.lock_rx()?;
            self.take_credits(&mut rx)?;
            if rx.sdp.is_blocked() {
                rx.sdp.wait_for_credits();
            }
            self.answer_peer(&mut rx, 0);
            let waits = live(&mut rx).blocks_sends() && self.state.phase() == Phase::Framed;
            self.state.sdp.count(CREDIT_WAITS, usize::from(waits));
            Ok(waits.then(|| self.note_waiter()))
        })
    }

    /// Waits for the rest of an FPDU by edges: `SO_RCVLOWAT`, which would hide its beginning, may
    /// be another sleeper's.
    #[cold]
    pub(crate) fn wait_beside_sleepers(&self, patience: &Patience) -> Result<(), Errno> {
        self.wait_by_edges(patience, || {
            let mut rx = self.lock_rx()?;
            let pulled = self.pull_apart(&mut rx, &mut Sink::new(&mut [], false));
            self.answer_peer(&mut rx, 0);
            Ok(matches!(pulled?, Pull::Nothing(_)).then(|| self.note_waiter()))
        })
    }

    /// Notes whether a send waits for credits rather than for TCP, and wakes those who sleep until
    /// something is there that is there now. The caller holds both locks.
    pub(crate) fn note_blocked(&self, rx: &mut Guard<'_, Rx>) {
        let is_readable = rx.left > 0 || rx.sdp.has_stub();
        let has_many = rx.sdp.has_many_credits();
        note_joining(self, rx, has_many);
        let is_short = !has_many && rx.sdp.queue.hungry == 0 && live(rx).is_short();
        let blocks_sends = live(rx).blocks_sends();
        let blocked = match is_short || blocks_sends {
            _ if rx.sdp.queue.hungry == 1 => BLOCKED_BEHIND,
            false => NOT_BLOCKED,
            true if is_readable => BLOCKED_BEHIND,
            true => BLOCKED,
        };
        let blocked = if is_short { blocked | SHORT } else { blocked };
        let at_mark = rx.left == 0 && rx.held.len() == 1 && self.is_before_urgent(rx);
        let at_mark = if at_mark { AT_MARK } else { 0 };
        self.state.sdp.blocked.store(blocked | at_mark, Ordering::Release);
        let has_room = rx.sdp.queue.cramped == 1 && rx.left == 0 && self.has_room_for_one(rx);
        if has_room {
            rx.sdp.queue.cramped = 0;
        }
        if rx.sdp.tells_more(!blocks_sends, has_many) || has_room {
            self.kick();
        }
    }

    /// Returns the event that a wait for room waits for while it [lacks
    /// credits](Self::lacks_credits).
    pub(crate) fn interest_for_credits(&self) -> c_short {
        // The socket is readable by octets that nobody waits for. Who cannot wait by edges looks
        // from time to time.
        let behind = self.state.sdp.blocked.load(Ordering::Acquire) & !SHORT == BLOCKED_BEHIND;
        if behind && is_confined() { 0 } else { POLLIN }
    }

    /// Returns whether a send waits for credits, and not for room at TCP.
    pub(crate) fn is_blocked(&self) -> bool {
        self.lacks_credits() && self.state.sdp.blocked.load(Ordering::Acquire) & SHORT == 0
    }

    /// Returns whether a wait for room waits for credits, and not for room at TCP.
    pub(crate) fn lacks_credits(&self) -> bool {
        !has_many_credits(self) && !self.state.flow.wants_room.load(Ordering::Acquire)
    }

    /// Returns whether there is something to read in front of a reset.
    pub(super) fn has_more_than_reset(&self) -> bool {
        let is_open =
            self.state.phase() == Phase::Framed && !self.state.flow.shut_send.load(Ordering::Acquire);
        if !is_open {
            return false;
        }
        // Octets of the peer, or its `DisConn`.
        match self.look() {
            Ok(Pull::Some) => true,
            Ok(_) => self.lock_rx().is_ok_and(|rx| rx.sdp.is_over()),
            Err(error) => {
                self.remember(error);
                false
            }
        }
    }

    /// Returns the events of an ended direction, of which TCP knows nothing.
    pub(super) fn ends_told(&self, ready: c_short, want: c_short) -> c_short {
        let shut_send = self.state.flow.shut_send.load(Ordering::Acquire);
        let is_asked = want & POLLRDHUP != 0 || shut_send;
        let is_over = is_asked && self.lock_rx().is_ok_and(|rx| rx.sdp.is_over());
        // The peer's FIN follows both `DisConn`, and may stand behind octets.
        let both = if shut_send && (is_over || ready & POLLRDHUP != 0) { POLLHUP } else { 0 };
        self.shut_early(want) | both | if is_over { want & POLLRDHUP } else { 0 }
    }

    /// Returns whether `want` is for what messages of SDP bring besides octets, and for no octets.
    pub(crate) fn is_beside_octets(&self, want: c_short) -> bool {
        want & (POLLRDHUP | POLLPRI) != 0
            && want & (POLLIN | POLLRDNORM) == 0
            && self.state.may_send()
            && !is_confined()
    }

    /// Returns whether a wait for credits learns of them by looking alone: this process has no
    /// edges, or another one that has the socket wakes nobody.
    pub(crate) fn must_look_again(&self) -> bool {
        let blocked = self.state.sdp.blocked.load(Ordering::Acquire);
        blocked & BLOCKED_BEHIND != 0 && (is_confined() || self.state.sleepers.are_not_told())
    }
}

/// Returns whether a wait for room is over, were there room at TCP. Like TCP, which tells of a
/// third of its buffer, it does not tell of a single message: programs take a send of some messages
/// that moves a part for an error.
#[inline]
pub(super) fn has_many_credits(base: &Base<'_>) -> bool {
    base.state.sdp.blocked.load(Ordering::Acquire) & !AT_MARK == NOT_BLOCKED
}

/// Returns whether the events of `want` need a message that has not been taken.
fn lacks(rx: &mut Guard<'_, Rx>, want: c_short) -> bool {
    if want & WRITABLE != 0 && (live(rx).blocks_sends() || live(rx).is_short()) {
        return true;
    }
    let sdp = &rx.sdp;
    want & POLLRDHUP != 0 && !sdp.nothing_comes()
        || want & POLLPRI != 0 && !sdp.has_urgent() && !sdp.nothing_comes()
}

/// Returns the events of `want` that messages have brought.
fn told(sdp: &Shared, want: c_short) -> c_short {
    let end = if sdp.is_over() { POLLRDHUP } else { 0 };
    let urgent = if sdp.has_urgent() { POLLPRI } else { 0 };
    want & (end | urgent)
}

const READABLE: c_short = POLLIN | POLLRDNORM;
const WRITABLE: c_short = POLLOUT | POLLWRNORM;

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::sys::{Calls, SharedState};
    use crate::{Format, Options, Role, SdpOptions};

    /// A message that is left in the kernel for want of memory is looked at again whenever more
    /// comes, however few the credits are: it may have some.
    #[test]
    fn few_credits_are_not_few_beside_a_message_that_is_left() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let format = Format::Sdp(SdpOptions::DEFAULT);
        let state = SharedState::anonymous(&Options { format, ..Options::new(Role::Initiator) }).unwrap();
        state.set_framed();
        let calls = Calls::libc();
        let stream = Stream::new(tcp.as_raw_fd(), &state, &calls).unwrap();
        let mut rx = stream.lock_rx().unwrap();
        (rx.sdp.size, rx.sdp.bufs) = (4000, 256);
        rx.sdp.begin(64, 4000, 1).unwrap();
        let mut blocked_after = |hungry, is_short: bool| {
            rx.sdp.queue.hungry = hungry;
            stream.note_blocked(&mut rx);
            assert_eq!(live(&mut rx).is_short(), is_short);
            let looks = crate::sdp::inbound::needs_what_comes(&stream, &rx);
            while !live(&mut rx).is_short() {
                live(&mut rx).data(1).unwrap();
            }
            (state.sdp.blocked.load(Ordering::Acquire), looks)
        };
        assert_eq!(blocked_after(0, false), (NOT_BLOCKED, false));
        assert_eq!(blocked_after(0, true), (BLOCKED | SHORT, false));
        assert_eq!(blocked_after(1, true), (BLOCKED_BEHIND, true));
    }
}
