//! The end of a connection: `shutdown`, and the last `close`.
//!
//! A direction ends by `DisConn`, behind all octets. TCP's FIN follows when both have: until then
//! the credits of the other direction must come through.
//!
//! A kernel that has octets unread when it closes a socket, or gets some later, resets the
//! connection, and what its peer's TCP does not have yet is lost. The peer returns credits until it
//! has taken `DisConn`. So a closed connection is [left](Stream::leave) in steps, by a caller that
//! goes on until the peer's TCP has everything.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::live;
use crate::Errno;
use crate::patience::Patience;
use crate::rx::Pull;
use crate::sdp::Stream;
use crate::sink::Sink;
use crate::state::Phase;
use crate::sys::Tcp;

/// Progress of a connection of SDP that the program has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// This end has more to send, its `DisConn` at the least.
    Sending,
    /// TCP has been given everything. The peer's `DisConn` has not come.
    Sent,
    /// The peer's `DisConn` has come too.
    Over,
}

impl Stream<'_> {
    /// Returns whether the program has closed the receiving direction of a connection of SDP. TCP
    /// is not told, so that no event of the kernel's follows.
    #[must_use]
    pub fn is_shut_for_receiving(&self) -> bool {
        self.state.flow.shut_receive.load(Ordering::Acquire)
    }

    /// Has `DisConn` sent behind everything else.
    pub(super) fn end_sending(&self) -> Result<(), Errno> {
        let mut rx = self.lock_rx()?;
        let mut tx = self.lock_tx()?;
        tx.fin_due = true;
        let paid = self.pay_messages(&mut rx, &mut tx);
        self.note_blocked(&mut rx);
        paid.map(drop)
    }

    /// Does what can be done without waiting for a connection of SDP that its last holder has
    /// closed: sends `DisConn`, and drops what comes. `None`: the close is the kernel's, since the
    /// connection is not up, has ended, or has other holders.
    #[must_use]
    pub fn leave(&self) -> Option<Leaving> {
        let is_up = self.establish() == Ok(true);
        if !is_up || self.state.phase() != Phase::Framed || self.state.is_left_to_others() {
            return None;
        }
        self.end_closed().unwrap_or_else(|error| {
            self.remember(error);
            None
        })
    }

    /// Waits, up to `timeout` or until a signal comes, until the peer's TCP has all that was sent
    /// on a connection that the program has closed (`SO_LINGER`). Returns whether it has.
    #[must_use]
    pub fn leave_within(&self, timeout: Duration) -> bool {
        let patience = Patience::new(false, Some(timeout));
        loop {
            match self.leave() {
                None => return true,
                Some(Leaving::Sent | Leaving::Over) if self.kernel.unacknowledged() == 0 => return true,
                Some(_) => {}
            }
            if patience.is_over() {
                return false;
            }
            // An acknowledgement is no event.
            match self.wait_to_pay(&patience.at_most(TO_LOOK)) {
                // The time to look again has come, as on a busy machine it may at once.
                Ok(()) | Err(Errno::WOULD_BLOCK) => {}
                Err(_) => return false,
            }
        }
    }

    /// Returns whether the peer has an advert out; takes back the own one.
    fn is_offered_octets(&self) -> Result<bool, Errno> {
        let mut rx = self.lock_rx()?;
        self.zero_copy().take_back_sink(&mut rx);
        Ok(live(&mut rx).machine().peer_sources_pending())
    }

    fn end_closed(&self) -> Result<Option<Leaving>, Errno> {
        let first = {
            let mut rx = self.lock_rx()?;
            std::mem::replace(&mut rx.sdp.end.closing, 1) == 0
        };
        // TCP resets a connection that is closed with octets unread; so does one that is offered
        // some.
        if first && (self.look()? == Pull::Some || self.is_offered_octets()?) {
            self.kernel.reset();
            return Ok(None);
        }
        self.end_sending()?;
        if self.drops_what_comes()? && self.kernel.unacknowledged() == 0 {
            // TCP answers octets for a closed socket by a reset. Here they are dropped as long as
            // the reset could take octets along.
            self.kernel.reset();
            return Ok(None);
        }
        self.pay_if_owing()?;
        let mut rx = self.lock_rx()?;
        let is_sent = !self.owes() && rx.sdp.is_closed();
        // RFC 5044 §7.1.2 r4: the message that lets this end send will never come.
        let is_mute = rx.sdp.nothing_comes() && !self.state.may_send();
        // Nobody reads what is advertised any more, and `DisConn` waits for that.
        let is_left = rx.sdp.ended_by_fin() && live(&mut rx).machine().sources_out();
        if is_mute || !is_sent && (is_left || self.kernel.tcp() == Tcp::Closed) {
            drop(rx);
            self.kernel.reset();
            return Ok(None);
        }
        Ok(Some(match () {
            () if !is_sent => Leaving::Sending,
            () if rx.sdp.is_done() => {
                // Nothing that still comes is of use, and the kernel must find nothing unread.
                self.drain();
                Leaving::Over
            }
            () => Leaving::Sent,
        }))
    }

    /// Takes messages, and drops their octets. Returns whether there were octets.
    fn drops_what_comes(&self) -> Result<bool, Errno> {
        let mut some = false;
        while !self.lock_rx()?.sdp.is_done() && self.pull(&mut Sink::counter())? == Pull::Some {
            some = true;
        }
        Ok(some)
    }
}

/// The time between two looks at what the peer's TCP has not acknowledged.
const TO_LOOK: Duration = Duration::from_millis(5);
