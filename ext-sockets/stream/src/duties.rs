//! The duties of a stream to the FPDUs of its kind: where their octets lie, and where they are
//! made.
//!
//! The bodies of these functions are those of plain octets, which have no duties.

use std::convert::Infallible;
use std::ops::Range;

use rddp_ddp::OpenTagged;
use rddp_iwarp::{Delivered, Record, Segment};
use rddp_octets::{After, Format, Incoming, Limits, Load, Message, Plain};

use super::Errno;
use super::base::Base;
use super::sink::Source;
use super::state::Rx;
use super::sys::Guard;
use super::train::Train;

/// The duties of a stream to the format of its Sends.
pub(super) trait Duties: Format + Sized {
    /// Returns the octets of the longest Send that is taken.
    #[inline(always)]
    fn max_send(&self, base: &Base<'_>) -> u32 {
        base.state.asked.max_send
    }

    /// Returns the receiving direction as the state has it.
    #[inline(always)]
    fn incoming(&self, base: &Base<'_>, rx: &Rx) -> Incoming {
        Incoming::new(&rx.terms, &rx.at, self.max_send(base), self)
    }

    /// Called before FPDUs that were counted in leave the kernel.
    #[inline(always)]
    fn before_drop(&mut self, _: &Base<'_>) {}

    /// Stores what was counted in; so many octets of it were copied to the program.
    #[inline(always)]
    fn store(&self, _: &Base<'_>, _rx: &mut Guard<'_, Rx>, _copied: usize) {}

    /// Returns how many octets of headers, [`LONGEST_HEADERS`] at most, stand before the program's
    /// in a segment that is there and begins with `octets`. `None`: it has nothing for the program,
    /// or something else besides.
    #[inline(always)]
    fn headers(&self, _segment: &Segment, _octets: &[u8]) -> Option<usize> {
        Some(0)
    }

    /// Counts in such a segment, whose octets are with the program already; `open` is the tagged
    /// message that is open behind it.
    #[inline(always)]
    fn count_in(
        &mut self,
        _: &Base<'_>,
        _delivered: &Delivered,
        _open: Option<OpenTagged>,
        _headers: &[u8],
    ) -> Result<(), Errno> {
        Ok(())
    }

    /// Returns how many of the octets that were counted in last stand before the place where a look
    /// stops.
    #[inline(always)]
    fn before_stop(&self) -> Option<usize> {
        None
    }

    /// Returns the error of an FPDU that cannot be taken; the stream is over if that is the peer's
    /// fault. `stays`: it may stay in the kernel for want of memory.
    fn refusal(base: &Base<'_>, what: &Self::Apart, stays: bool) -> Option<Errno>;

    /// Takes an FPDU whose octets are in the block of kept ones.
    fn take_kept(
        base: &Base<'_>,
        rx: &mut Guard<'_, Rx>,
        what: Self::Apart,
        payload: Range<usize>,
    ) -> Result<(), Errno>;
}

/// The octets of headers for which [`Duties::headers`] has room.
pub(super) const LONGEST_HEADERS: usize = 16;

/// The sending direction of a kind, as a loop that makes FPDUs needs it.
pub(super) trait Outbound {
    /// Returns whether one more FPDU may be sent, were there room at TCP.
    #[inline(always)]
    fn has_leave(&mut self) -> bool {
        true
    }

    /// Returns the average size of pieces up to which an FPDU is copied next to its header.
    #[inline(always)]
    fn copies_up_to(&self, base: &Base<'_>) -> usize {
        base.state.asked.copies_up_to()
    }

    /// Fills the train with octets of `source`; `open` is the message that goes on. `EFAULT`: some
    /// of them are not mapped.
    fn load<'a>(
        &self,
        load: &mut Load<'_>,
        train: &mut Train<'a, '_>,
        limits: Limits,
        source: Source<'a>,
        open: Option<Message>,
    ) -> Result<(), Errno>;

    /// Notes that TCP has taken or begun so many FPDUs of a train.
    #[inline(always)]
    fn taken(&mut self, _: &Base<'_>, _records: &[Record<After>], _fpdus: usize) {}
}

impl Duties for Plain {
    fn refusal(_: &Base<'_>, what: &Infallible, _: bool) -> Option<Errno> {
        match *what {}
    }

    fn take_kept(
        _: &Base<'_>,
        _: &mut Guard<'_, Rx>,
        what: Infallible,
        _: Range<usize>,
    ) -> Result<(), Errno> {
        match what {}
    }
}

impl Outbound for Plain {
    #[inline(always)]
    fn load<'a>(
        &self,
        load: &mut Load<'_>,
        train: &mut Train<'a, '_>,
        limits: Limits,
        mut source: Source<'a>,
        open: Option<Message>,
    ) -> Result<(), Errno> {
        load.write(train, limits, &mut source, open).map_err(|_| Errno::FAULT)
    }
}
