//! The end of a connection: `shutdown`, and the last `close`.
//!
//! A direction ends by `DisConn`, behind all octets. TCP's FIN follows when both have: until then
//! the credits of the other direction must come through.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use super::live;
use crate::rx::Pull;
use crate::sink::Sink;
use crate::state::Phase;
use crate::{Errno, Stream};

impl Stream<'_> {
    /// Closes directions of a connection of SDP (`shutdown`). The receiving one is only noted: TCP
    /// must go on to take control messages.
    pub(crate) fn shutdown_sdp(&self, how: c_int) -> Result<(), Errno> {
        if how != libc::SHUT_WR {
            self.state.shut_receive.store(true, Ordering::Release);
        }
        if how != libc::SHUT_RD {
            self.state.shut_send.store(true, Ordering::Release);
            self.end_sending()?;
        }
        Ok(())
    }

    /// Has `DisConn` sent behind everything else.
    fn end_sending(&self) -> Result<(), Errno> {
        let mut rx = self.lock_rx()?;
        let mut tx = self.lock_tx()?;
        tx.fin_due = true;
        let paid = self.pay_messages(&mut rx, &mut tx);
        self.note_blocked(&mut rx);
        paid.map(drop)
    }

    /// Returns whether closing the socket now would lose something. A kernel that gets a message
    /// for a closed socket resets the connection, and octets that the peer has not taken are lost:
    /// so the peer's `DisConn` is waited for.
    pub(crate) fn is_unfinished_sdp(&self) -> bool {
        let is_done = self.lock_rx().is_ok_and(|rx| rx.sdp.is_done());
        self.owes() || !is_done
    }

    /// Does what can be done without waiting for a connection that the program has closed: sends
    /// `DisConn`, and drops what comes. `true`: that was all, or no more can be done.
    pub(crate) fn finishes_sdp(&self) -> bool {
        if self.state.is_held_by_others() {
            return self.pay_if_owing() != Ok(false);
        }
        match self.end_closed() {
            Ok(is_done) => is_done,
            Err(error) => {
                self.remember(error);
                true
            }
        }
    }

    /// Returns whether the peer has an advert out; takes back the own one.
    fn is_offered_octets(&self) -> Result<bool, Errno> {
        let mut rx = self.lock_rx()?;
        self.take_back_sink(&mut rx);
        Ok(live(&mut rx).machine().peer_sources_pending())
    }

    fn end_closed(&self) -> Result<bool, Errno> {
        let first = {
            let mut rx = self.lock_rx()?;
            std::mem::replace(&mut rx.sdp.closing, 1) == 0
        };
        // TCP resets a connection that is closed with octets unread; so does one that is offered
        // some.
        if first && (self.look()? == Pull::Some || self.is_offered_octets()?) {
            self.kernel.reset();
            return Ok(true);
        }
        self.end_sending()?;
        while self.pull(&mut Sink::counter())? == Pull::Some {}
        self.pay_if_owing()?;
        Ok(!self.is_unfinished_sdp() || self.state.phase() != Phase::Framed)
    }
}
