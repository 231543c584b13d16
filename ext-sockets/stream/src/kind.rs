//! The kinds of byte stream: plain octets, and messages of SDP (`sdp/kind.rs`).
//!
//! The loops of `recv`, `send` and `revents` are written once, for any [`Kind`]: what it does in
//! them besides moving octets it says by functions whose own bodies are those of plain octets, for
//! which there is nothing to do. So a stream of plain octets has none of the code of another kind.
//!
//! A kind makes the format of a step out of the state; what the loops do for FPDUs of that format
//! is in `duties.rs`.

use std::ffi::{c_int, c_short};
use std::fmt::Debug;
use std::time::Duration;

use rddp_octets::Agreed;

use super::base::Base;
use super::duties::Duties;
use super::ended::Why;
use super::options::{Options, Plain, PrivateData};
use super::patience::Patience;
use super::rx::{Next, Pull};
use super::sink::{Sink, Source};
use super::state::{Rx, Tx};
use super::sys::{Guard, Scratch};
use super::{Errno, Framed, Octets};

/// A kind of byte stream: [`Octets`](crate::Octets), or the messages of
/// [`sdp::Stream`](crate::sdp::Stream).
#[expect(private_bounds, reason = "no other crate makes a kind")]
pub trait Kind: Functions {}

impl<K: Functions> Kind for K {}

/// The functions of a [`Kind`].
pub(super) trait Functions: Copy + Debug + Send + Sync + 'static {
    /// True if the FPDUs carry messages.
    const HAS_MESSAGES: bool = false;
    /// True if a message may be taken before it was looked at (`at_once.rs`).
    const IS_TAKEN_AT_ONCE: bool = true;
    /// True if the last octet of a send may be urgent.
    const HAS_URGENT: bool = false;
    /// True if TCP receives after the program has closed that direction.
    const RECEIVES_WHEN_SHUT: bool = false;
    /// True if octets that can be read may be too few for a wait, whatever its low-water mark.
    const HAS_STARTS: bool = false;
    /// True if the end of what this end sends may wait for messages of the peer.
    const ENDS_BY_MESSAGES: bool = false;
    /// Most Reads of the peer that may be outstanding.
    const MOST_READS: u16 = u16::MAX;
    /// The end of a stream whose Request was rejected.
    const REJECTS: Why = Why::Rejected;
    /// Octets of the headers in front of a message's payload, besides those of DDP.
    const HEADERS: usize = 0;

    /// Memory for the format, for the length of a step.
    type Place: Default;
    /// The format of its Sends.
    type Format<'s>: Duties;

    /// Returns the format as the state has it.
    fn format<'s>(rx: &mut Guard<'_, Rx>, place: &'s mut Self::Place) -> Self::Format<'s>;

    /// Returns whether the values that are this kind's own fit together.
    #[inline(always)]
    fn is_sound(_: &mut Guard<'_, Rx>) -> bool {
        true
    }

    /// Returns the private data of this end's Request.
    fn data_to_request(_: &Framed<'_, Self>, _: &mut Rx, options: &Options) -> Result<PrivateData, Errno> {
        Ok(options.private_data)
    }

    /// Returns the private data of this end's Reply to a Request with that of `request`. `None`:
    /// the Request is rejected.
    fn data_to_reply(
        _: &Framed<'_, Self>,
        _: &mut Rx,
        options: &Options,
        request: &[u8],
    ) -> Option<PrivateData> {
        // Where plain TCP is allowed, an end of another format gets that.
        let is_foreign = options.plain == Plain::Allowed && options.format.differs_from(request);
        (!is_foreign).then_some(options.private_data)
    }

    /// Takes the private data of the peer's Reply.
    fn take_answer(_: &Framed<'_, Self>, _: &mut Rx, _data: &[u8]) -> Result<(), Errno> {
        Ok(())
    }

    /// Begins with what both ends have agreed on.
    fn begins(_: &mut Rx, _: &Agreed) {}

    /// Moves octets that are there to the program, those of the kind's own memory first.
    #[inline(always)]
    fn advance(
        stream: &Framed<'_, Self>,
        rx: &mut Guard<'_, Rx>,
        sink: &mut Sink<'_, '_>,
    ) -> Result<Next, Errno> {
        stream.advance_octets(rx, sink)
    }

    /// Called behind a pull, whose result this may change: so many octets were moved, and the
    /// program has so much room for more.
    #[inline(always)]
    fn moved(
        _: &Framed<'_, Self>,
        _: &mut Guard<'_, Rx>,
        pulled: Result<Pull, Errno>,
        _octets: usize,
        _room: usize,
    ) -> Result<Pull, Errno> {
        pulled
    }

    /// Moves octets behind [a start](Pull::Start), if no other call has received any since.
    fn pull_rest(_: &Framed<'_, Self>, _: &mut Sink<'_, '_>, _received: u64) -> Result<Pull, Errno> {
        Ok(Pull::End)
    }

    /// Takes the FPDU in front outside of a batch, as its format has asked.
    fn fetch_alone(_: &Framed<'_, Self>, _: &mut Guard<'_, Rx>, _: &mut Scratch) -> Result<Next, Errno> {
        Ok(Next::More)
    }

    /// Returns whether what has come is looked at although the program reads nothing.
    #[inline(always)]
    fn needs_what_comes(_: &Base<'_>, _: &Rx) -> bool {
        false
    }

    /// Notes that the program has read the FPDU in front to its end.
    #[inline(always)]
    fn front_is_read(_: &mut Rx) {}

    /// Handles the peer's FIN between two messages.
    fn fin(_: &Framed<'_, Self>, _: &mut Guard<'_, Rx>) -> Result<(), Errno> {
        Ok(())
    }

    /// Notes that TCP has told of the end of the connection.
    fn is_cut(_: &mut Rx) {}

    /// Looks at the first `seen` octets in memory of an FPDU, and takes it if it is whole. `Some`:
    /// it has at least so many octets.
    fn absorbed(
        stream: &Framed<'_, Self>,
        rx: &mut Guard<'_, Rx>,
        seen: usize,
    ) -> Result<Option<usize>, Errno> {
        stream.absorbed_octets(rx, seen)
    }

    /// Receives the urgent octet (`recv` with `MSG_OOB`), with the errno that TCP has.
    fn recv_urgent(_: &Framed<'_, Self>, _: &mut Sink<'_, '_>, _peeks: bool) -> Result<usize, Errno> {
        Err(Errno::INVALID)
    }

    /// Returns whether there is something to read in front of a reset.
    #[inline(always)]
    fn is_reset_behind_more(_: &Framed<'_, Self>) -> bool {
        false
    }

    /// Notes that a receive has told of a reset, whichever call had met it.
    fn reset_is_told(_: &Framed<'_, Self>) {}

    /// Waits a moment for octets that were asked for, for a call that does not wait otherwise.
    /// Returns whether something has come; the moment begins with the first wait.
    #[inline(always)]
    fn response_comes(_: &Framed<'_, Self>, _: &mut Option<Patience>) -> bool {
        false
    }

    /// Returns whether the peer will send more though nothing can be read.
    fn is_offered_more(_: &Framed<'_, Self>) -> bool {
        false
    }

    /// Called before a receive without octets waits that has `room`.
    #[inline(always)]
    fn before_wait(_: &Framed<'_, Self>, _room: usize, _: &Patience) {}

    /// Waits for the rest of an FPDU, where that must not disturb others who sleep.
    #[inline(always)]
    fn wait_for_rest(_: &Framed<'_, Self>, _: &Patience) -> Option<Result<(), Errno>> {
        None
    }

    /// Returns whether a read stops in front of the next octet.
    fn stops_in_front(_: &Framed<'_, Self>) -> bool {
        false
    }

    /// Copies octets to the program's buffers without taking them and without waiting.
    fn glimpse(
        stream: &Framed<'_, Self>,
        rx: &mut Guard<'_, Rx>,
        sink: &mut Sink<'_, '_>,
    ) -> Result<Pull, Errno> {
        stream.glimpse_octets(rx, sink)
    }

    /// Copies octets as [`glimpse`](Self::glimpse) does, waiting a moment for those that belong to
    /// the first.
    fn glimpse_all(
        stream: &Framed<'_, Self>,
        sink: &mut Sink<'_, '_>,
        _moment: &mut Option<Patience>,
    ) -> Result<Pull, Errno> {
        stream.glimpse(sink)
    }

    /// Copies octets that have to be shown from other memory than the kernel's.
    fn show_apart(
        _: &Framed<'_, Self>,
        _: &mut Guard<'_, Rx>,
        _: &mut Sink<'_, '_>,
    ) -> Result<Option<Pull>, Errno> {
        Ok(None)
    }

    /// Sends octets by other ways than copies, as far as that goes. `Err`: the call is over, with
    /// all octets sent, or by this error.
    #[inline(always)]
    fn lend(_: &Framed<'_, Self>, _: &mut Source<'_>, _: &Patience) -> Result<(), Option<Errno>> {
        Ok(())
    }

    /// Gives TCP what it takes of `source`, without waiting. Returns how many of its octets are
    /// taken or owed; `EAGAIN` when none.
    #[inline(always)]
    fn push(
        stream: &Framed<'_, Self>,
        source: Source<'_>,
        more: bool,
        _urgent: bool,
    ) -> Result<usize, Errno> {
        stream.push_octets(source, more)
    }

    /// Waits until a send may go on, where that is not TCP's business.
    #[inline(always)]
    fn wait_to_send(_: &Framed<'_, Self>, _: &Patience) -> Option<Result<(), Errno>> {
        None
    }

    /// Called when a send returns with octets left.
    fn after_part(_: &Framed<'_, Self>) {}

    /// Returns the error of a send that has met this one.
    fn error_of_send(_: &Framed<'_, Self>, error: Errno) -> Errno {
        error
    }

    /// Gives TCP what is owed to it, for a caller that holds the lock of that direction alone.
    #[inline]
    fn pay(stream: &Framed<'_, Self>, tx: &mut Tx) -> Result<bool, Errno> {
        stream.pay_and_frame(tx)
    }

    /// Gives TCP what is owed to it, for a caller that holds both locks.
    fn pay_locked(stream: &Framed<'_, Self>, _: &mut Guard<'_, Rx>, tx: &mut Tx) -> Result<bool, Errno> {
        Self::pay(stream, tx)
    }

    /// Gives TCP what is owed to it, for a caller without locks.
    fn pay_all(stream: &Framed<'_, Self>) -> Result<bool, Errno> {
        Self::pay(stream, &mut *stream.lock_tx()?)
    }

    /// Closes directions, where that is not TCP's business.
    fn shutdown(_: &Framed<'_, Self>, _how: c_int) -> Option<Result<(), Errno>> {
        None
    }

    /// Returns whether closing the socket now would lose something, where that does not depend on
    /// octets alone.
    fn is_unfinished(_: &Framed<'_, Self>) -> Option<bool> {
        None
    }

    /// Does what can be done without waiting for a stream that is unfinished, where that is more
    /// than to give TCP what is owed. `true`: that was all, or no more can be done.
    fn finishes(_: &Framed<'_, Self>) -> Option<bool> {
        None
    }

    /// Returns whether all is paid that can be, where more may become due.
    fn is_paid(_: &Framed<'_, Self>) -> Option<bool> {
        None
    }

    /// Returns the events to ask the kernel for once FPDUs flow, where the events `want` of the
    /// program depend on more than TCP; `owing` is the one that what is owed waits for.
    #[inline(always)]
    fn interest(_: &Framed<'_, Self>, _want: c_short, _owing: c_short) -> Option<c_short> {
        None
    }

    /// Takes what stands between the octets that came and the events `want`.
    #[inline(always)]
    fn look_for(_: &Framed<'_, Self>, _want: c_short) -> Result<(), Errno> {
        Ok(())
    }

    /// Returns whether a wait for room is over, were there room at TCP.
    #[inline(always)]
    fn has_leave_of_peer(_: &Base<'_>) -> bool {
        true
    }

    /// Returns whether a wait for octets is over.
    fn is_readable(stream: &Framed<'_, Self>) -> Result<bool, Errno> {
        stream.has_enough()
    }

    /// Returns the number of octets from which on a wait is over.
    fn low_water(stream: &Framed<'_, Self>) -> Result<usize, Errno> {
        Ok(stream.state.low_water())
    }

    /// Returns whether the octets that can be read are too few for a wait; `few` if they are fewer
    /// than its low-water mark.
    fn are_too_few(_: &Framed<'_, Self>, _: &mut Guard<'_, Rx>, few: bool) -> bool {
        few
    }

    /// Returns the events of `want` that TCP does not tell; `others` are those that it does.
    #[inline(always)]
    fn told(_: &Framed<'_, Self>, _want: c_short, _others: c_short) -> c_short {
        0
    }

    /// Returns the events of `want` for a direction that has ended without TCP.
    #[inline(always)]
    fn ended_directions(_: &Framed<'_, Self>, _ready: c_short, _want: c_short) -> c_short {
        0
    }

    /// Returns when a wait looks again although nothing has happened, once octets flow both ways.
    fn deadline(_: &Framed<'_, Self>) -> Option<Duration> {
        None
    }

    /// Sends what may wake a peer that has not seen this end's first octets, if it is time.
    #[inline(always)]
    fn nudge(_: &Framed<'_, Self>) {}

    /// Returns whether a wait for `want` must be for edges: see [`Framed::waits_by_edges`].
    fn waits_by_edges(_: &Framed<'_, Self>, _want: c_short) -> bool {
        false
    }

    /// Reserves memory that a process cannot get once it is confined.
    fn prepare_to_confine(_: &mut Guard<'_, Rx>) {}
}

impl Functions for Octets {
    type Place = ();
    type Format<'s> = Self;

    #[inline(always)]
    fn format(_: &mut Guard<'_, Rx>, (): &mut ()) -> Self {
        Self
    }
}
