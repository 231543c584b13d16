//! Sends that are under way between calls, and lend their memory for so long.
//!
//! A thread of the program's process does nothing else as long as there are any: it is the lender,
//! as a blocking call is for its own time. Each send has an advert of its own, or several, and as
//! many are out at once as the peer takes.

use std::io::IoSlice;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::lent::{Lent, Owner};
use super::spill::LAST_IS_OWED;
use crate::Errno;
use crate::sdp::Stream;
use crate::sink::Source;
use crate::state::{Phase, State};
use crate::sys::{Tcp, Tried, is_confined, lent::guard};

/// Sends whose memory may be lent, in their order: see [`Stream::lend_sends`]. No lock of the
/// stream is held when these methods are called.
pub trait Sends<'m> {
    /// Returns the memory of the next send, of at least two octets, if there is one.
    fn next(&mut self) -> Option<&'m [IoSlice<'m>]>;

    /// Learns how many octets of these sends, in their order, are accepted: the peer has them, or
    /// will have them from memory of the stream. The memory of a send all of which is accepted is
    /// used no more.
    fn accepted(&mut self, octets: usize);

    /// Returns whether the memory is wanted back.
    fn recall(&mut self) -> Recall;

    /// Returns a descriptor that is readable when there may be another send, or a recall.
    fn descriptor(&self) -> RawFd;

    /// Returns the time after which the memory is wanted back.
    fn left(&self) -> Option<Duration>;
}

/// The wish for memory that is lent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recall {
    /// The memory may stay lent.
    #[default]
    No,
    /// The memory is wanted back. Without memory of the stream for its octets the peer's leave is
    /// waited for.
    Asked,
    /// The memory is wanted back, and without memory for its octets the connection ends.
    AtOnce,
}

struct Operations<'o, 'a> {
    sends: &'o mut dyn Sends<'a>,
    recall: Recall,
    state: &'o State,
}

impl<'a> Owner<'a> for Operations<'_, 'a> {
    fn next(&mut self) -> Option<Source<'a>> {
        if self.state.is_held_by_others() {
            return None;
        }
        self.sends.next().map(Source::new)
    }

    fn told(&mut self, octets: usize) {
        self.sends.accepted(octets);
    }

    fn reason(&mut self) -> Option<Errno> {
        self.recall = self.sends.recall();
        match self.recall {
            Recall::No if self.left() == Some(Duration::ZERO) => Some(Errno::WOULD_BLOCK),
            Recall::No => None,
            Recall::Asked | Recall::AtOnce => Some(Errno::INTERRUPTED),
        }
    }

    fn cannot_wait(&self) -> bool {
        self.recall == Recall::AtOnce
    }

    fn descriptor(&mut self) -> Option<RawFd> {
        Some(self.sends.descriptor())
    }

    fn left(&self) -> Option<Duration> {
        self.sends.left()
    }
}

impl Stream<'_> {
    /// Returns whether a send of so many octets that is no call's may lend its memory, by what is
    /// known without a look: see [`lend_sends`](Self::lend_sends).
    #[must_use]
    pub fn lends(&self, octets: usize) -> bool {
        octets as u64 >= self.state.threshold()
            && octets > 1
            && self.state.phase() == Phase::Framed
            && self.state.may_send()
            && !self.state.flow.shut_send.load(Ordering::Acquire)
            && !is_confined()
            && !self.state.is_held_by_others()
    }

    /// Has the peer read octets of `sends` from their memory, with several adverts out at a time,
    /// until there are no more sends. The calling thread has its signals blocked; it reads the
    /// memory, and nobody else does. `O_NONBLOCK` and `SO_SNDTIMEO` mean nothing here.
    ///
    /// Memory that is recalled is copied first, as by a call that is interrupted: its octets are
    /// accepted. So is memory of which the peer reads nothing for a second.
    ///
    /// Returns whether the first octets that are not accepted are to go by copies, that is by
    /// [`send`](Self::send).
    ///
    /// # Errors
    /// The connection has an error, and those octets will not be sent.
    pub fn lend_sends<'m>(&self, sends: &mut dyn Sends<'m>) -> Result<bool, Errno> {
        guard();
        if is_confined() || !self.zero_copy().may_lend() {
            return Ok(true);
        }
        let mut lender = match self.state.sdp.lender.try_lock() {
            Tried::Taken => return Ok(true),
            Tried::Free(lender) | Tried::OfTheDead(lender) => lender,
        };
        *lender = lender.wrapping_add(1);
        let mut owner = Operations { sends, recall: Recall::No, state: self.state };
        let (lending, read) = {
            let mut lent = Lent::new(2, true);
            let lending = self.zero_copy().serve_until_read(&mut lent, &mut owner);
            if lending.is_err() {
                self.zero_copy().drop_lent(&mut lent);
            }
            (lending, lent.read)
        };
        owner.told(read);
        lending.map(|lending| lending.copies)
    }

    /// Offers the peer to write, and Reads what it advertises: `room` octets of receives wait that
    /// are under way between calls.
    pub fn offer_room(&self, room: usize) {
        let speaks = self.state.phase() == Phase::Framed && self.state.may_send();
        if !speaks || is_confined() {
            return;
        }
        self.zero_copy().offer_sink(room);
        if let Ok(mut rx) = self.lock_rx()
            && rx.sdp.has_adverts == 1
        {
            self.answer_peer(&mut rx, room);
        }
    }

    /// Returns whether the peer may still read octets from the stream's memory, or they wait to be
    /// sent, though no call of the program may ever come.
    #[must_use]
    pub fn has_obligation(&self) -> bool {
        let left = match self.state.sdp.spilled.load(Ordering::Acquire) {
            LAST_IS_OWED if !self.owes() => {
                self.state.sdp.spilled.store(0, Ordering::Release);
                0
            }
            left => left,
        };
        left > 0 && self.state.phase() == Phase::Framed
    }

    /// Meets as much of the [obligation](Self::has_obligation) as is possible without waiting:
    /// takes what the peer sends, answers its Reads, sends what came back.
    ///
    /// An error is left to the program's next call.
    pub fn meet_obligation(&self) {
        if !self.has_obligation() {
            return;
        }
        let met = self.lock_rx().and_then(|mut rx| {
            // Behind `shutdown` no send waits for the peer, which reads the adverts all the same.
            let taken = self.take_until(&mut rx, |_| !self.has_obligation());
            let taken = taken.and_then(|()| self.take_credits(&mut rx));
            self.answer_peer(&mut rx, 0);
            if self.kernel.tcp() == Tcp::Closed || rx.sdp.ended_by_fin() {
                self.zero_copy().drop_spilled(&mut rx);
            }
            taken
        });
        if let Err(error) = met.and_then(|()| self.pay_if_owing()) {
            self.remember(error);
        }
    }
}
