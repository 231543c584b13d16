//! The kinds of byte stream: plain octets, and messages of SDP (`sdp/format.rs`).
//!
//! The loops that move octets are written once, for any [`Kind`]. It makes the format of a step out
//! of the state, and the format's [`Duties`] are what the stream does for it besides moving octets.
//! Their own bodies are those of plain octets, which have none.

use std::convert::Infallible;
use std::ops::Range;

use rddp_ddp::OpenTagged;
use rddp_iwarp::{Delivered, Segment};
use rddp_octets::{Format, Incoming, Plain};

use super::state::Rx;
use super::sys::Guard;
use super::{Errno, Stream};

/// A kind of byte stream.
pub(super) trait Kind {
    /// True if a message may be taken before it was looked at (`at_once.rs`).
    const IS_TAKEN_AT_ONCE: bool;
    /// Memory for the format, for the length of a step.
    type Place: Default;
    /// The format of its Sends.
    type Format<'s>: Duties;

    /// Returns the format as the state has it.
    fn format<'s>(rx: &mut Guard<'_, Rx>, place: &'s mut Self::Place) -> Self::Format<'s>;
}

/// The duties of a stream to the format of its Sends.
pub(super) trait Duties: Format + Sized {
    /// Returns the octets of the longest Send that is taken.
    #[inline(always)]
    fn max_send(&self, stream: &Stream<'_>) -> u32 {
        stream.state.asked.max_send
    }

    /// Returns the receiving direction as the state has it.
    #[inline(always)]
    fn incoming(&self, stream: &Stream<'_>, rx: &Rx) -> Incoming {
        Incoming::new(&rx.terms, &rx.at, self.max_send(stream), self)
    }

    /// Called before FPDUs that were counted in leave the kernel.
    #[inline(always)]
    fn before_drop(&mut self, _stream: &Stream<'_>) {}

    /// Stores what was counted in; so many octets of it were copied to the program.
    #[inline(always)]
    fn store(&self, _stream: &Stream<'_>, _rx: &mut Guard<'_, Rx>, _copied: usize) {}

    /// Returns how many octets of headers stand before the program's in a segment that is there and
    /// begins with `octets`. `None`: it has nothing for the program, or something else besides.
    #[inline(always)]
    fn headers(&self, _segment: &Segment, _octets: &[u8]) -> Option<usize> {
        Some(0)
    }

    /// Counts in such a segment, whose octets are with the program already; `open` is the tagged
    /// message that is open behind it.
    #[inline(always)]
    fn count_in(
        &mut self,
        _stream: &Stream<'_>,
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
    fn refusal(stream: &Stream<'_>, what: &Self::Apart, stays: bool) -> Option<Errno>;

    /// Takes an FPDU whose octets are in the block of kept ones.
    fn take_kept(
        stream: &Stream<'_>,
        rx: &mut Guard<'_, Rx>,
        what: Self::Apart,
        payload: Range<usize>,
    ) -> Result<(), Errno>;
}

impl Kind for Plain {
    const IS_TAKEN_AT_ONCE: bool = true;
    type Place = ();
    type Format<'s> = Self;

    #[inline(always)]
    fn format(_: &mut Guard<'_, Rx>, (): &mut ()) -> Self {
        Self
    }
}

impl Duties for Plain {
    fn refusal(_: &Stream<'_>, what: &Infallible, _: bool) -> Option<Errno> {
        match *what {}
    }

    fn take_kept(
        _: &Stream<'_>,
        _: &mut Guard<'_, Rx>,
        what: Infallible,
        _: Range<usize>,
    ) -> Result<(), Errno> {
        match what {}
    }
}
