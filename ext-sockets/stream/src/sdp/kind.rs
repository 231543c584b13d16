//! SDP as a kind of byte stream: what its calls do besides moving octets.

use std::ffi::{c_int, c_short};
use std::sync::atomic::Ordering;
use std::time::Duration;

use libc::POLLRDHUP;
use rddp_iwarp::Record;
use rddp_octets::{After, Agreed, Limits, Load, Message};
use rddp_sdp::wire::HEADER_LEN;

use super::counters::SENT_MESSAGES;
use super::format::Messages;
use super::look::{Look, Places};
use super::nudge::nudge;
use super::outbound::{copies_up_to, count_taken};
use super::zcopy::READS;
use super::{Leaving, Live, Stream, is_start, live};
use crate::Errno;
use crate::base::{Base, RECHECK};
use crate::duties::{LONGEST_HEADERS, Outbound};
use crate::ended::Why;
use crate::kind::Functions;
use crate::options::{Options, PrivateData};
use crate::patience::Patience;
use crate::rx::{Hold, Next, Pull};
use crate::sink::{Sink, Source};
use crate::state::{Phase, Rx, Tx};
use crate::sys::{BLOCK, Guard, Scratch, parts};
use crate::train::Train;

impl Functions for Messages {
    const HAS_MESSAGES: bool = true;
    // Messages have obligations besides octets.
    const IS_TAKEN_AT_ONCE: bool = false;
    const HAS_URGENT: bool = true;
    const RECEIVES_WHEN_SHUT: bool = true;
    const HAS_STARTS: bool = true;
    const ENDS_BY_MESSAGES: bool = true;
    // Requests that SDP serves have a place in the shared state.
    const MOST_READS: u16 = READS as u16;
    const REJECTS: Why = Why::NotSdp;
    const HEADERS: usize = HEADER_LEN;

    type Place = Places;
    type Format<'s> = Look<'s>;

    #[inline(always)]
    fn format<'s>(rx: &mut Guard<'_, Rx>, place: &'s mut Places) -> Look<'s> {
        let Live { sdp, adverts } = live(rx);
        Look::at(sdp, adverts.map(|adverts| &*adverts), place)
    }

    fn is_sound(rx: &mut Guard<'_, Rx>) -> bool {
        rx.sdp.is_sound() && rx.rooms.is_sound() && live(rx).is_sound()
    }

    fn data_to_request(stream: &Stream<'_>, rx: &mut Rx, _: &Options) -> Result<PrivateData, Errno> {
        stream.hello(rx)
    }

    fn data_to_reply(stream: &Stream<'_>, rx: &mut Rx, _: &Options, request: &[u8]) -> Option<PrivateData> {
        stream.hello_ack(rx, request)
    }

    fn take_answer(stream: &Stream<'_>, rx: &mut Rx, data: &[u8]) -> Result<(), Errno> {
        stream.take_hello_ack(rx, data)
    }

    fn begins(rx: &mut Rx, agreed: &Agreed) {
        if agreed.at.rtr_read {
            rx.sdp.note_rtr_read();
        }
    }

    #[inline(never)]
    fn advance(stream: &Stream<'_>, rx: &mut Guard<'_, Rx>, sink: &mut Sink<'_, '_>) -> Result<Next, Errno> {
        match stream.advance_queue(rx, sink)? {
            Some(next) => Ok(next),
            None => stream.advance_octets(rx, sink),
        }
    }

    fn moved(
        stream: &Stream<'_>,
        rx: &mut Guard<'_, Rx>,
        pulled: Result<Pull, Errno>,
        octets: usize,
        room: usize,
    ) -> Result<Pull, Errno> {
        stream.note_received(rx, octets, room);
        if pulled == Ok(Pull::Some) && rx.sdp.has_adverts == 1 && is_start(rx, octets) {
            return Ok(Pull::Start { received: stream.state.sdp.received() });
        }
        pulled
    }

    // Those of a call are one run of the stream's.
    #[cold]
    fn pull_rest(stream: &Stream<'_>, sink: &mut Sink<'_, '_>, received: u64) -> Result<Pull, Errno> {
        let mut rx = stream.lock_rx()?;
        if stream.state.sdp.received() != received {
            return Ok(Pull::End);
        }
        let before = sink.done();
        let pulled = stream.pull_apart(&mut rx, sink);
        stream.note_received(&mut rx, sink.done() - before, sink.room());
        pulled
    }

    fn fetch_alone(
        stream: &Stream<'_>,
        rx: &mut Guard<'_, Rx>,
        scratch: &mut Scratch,
    ) -> Result<Next, Errno> {
        stream.zero_copy().take_alone(rx, scratch)
    }

    #[inline]
    fn needs_what_comes(base: &Base<'_>, rx: &Rx) -> bool {
        super::inbound::needs_what_comes(base, rx)
    }

    #[inline]
    fn front_is_read(rx: &mut Rx) {
        rx.sdp.consumed();
    }

    fn fin(stream: &Stream<'_>, rx: &mut Guard<'_, Rx>) -> Result<(), Errno> {
        if stream.zero_copy().awaits_response(rx) {
            rx.sdp.note_octets_lost();
        }
        rx.sdp.note_fin()
    }

    // It is told now, and not once more for what an advert of the peer held.
    fn is_cut(rx: &mut Rx) {
        let _ = rx.sdp.note_fin();
    }

    fn absorbed(stream: &Stream<'_>, rx: &mut Guard<'_, Rx>, seen: usize) -> Result<Option<usize>, Errno> {
        stream.absorbed_messages(rx, seen)
    }

    fn recv_urgent(stream: &Stream<'_>, sink: &mut Sink<'_, '_>, peeks: bool) -> Result<usize, Errno> {
        stream.take_urgent(sink, peeks)
    }

    #[cold]
    fn is_reset_behind_more(stream: &Stream<'_>) -> bool {
        stream.has_more_than_reset()
    }

    fn reset_is_told(stream: &Stream<'_>) {
        if let Ok(mut rx) = stream.lock_rx() {
            rx.sdp.forget_lost();
        }
    }

    #[cold]
    fn response_comes(stream: &Stream<'_>, moment: &mut Option<Patience>) -> bool {
        stream.zero_copy().waits_for_response(moment)
    }

    // Octets of an advert were sent before all that comes.
    fn is_offered_more(stream: &Stream<'_>) -> bool {
        stream.lock_rx().is_ok_and(|mut rx| live(&mut rx).machine().peer_sources_pending())
    }

    // Offers the peer to write.
    fn before_wait(stream: &Stream<'_>, room: usize, patience: &Patience) {
        if !patience.is_none() && !patience.is_over() && stream.is_nonblocking() == Ok(false) {
            stream.zero_copy().offer_sink(room);
        }
    }

    fn wait_for_rest(stream: &Stream<'_>, patience: &Patience) -> Option<Result<(), Errno>> {
        stream.state.sleepers.any().then(|| stream.wait_beside_sleepers(patience))
    }

    fn stops_in_front(stream: &Stream<'_>) -> bool {
        stream.lock_rx().is_ok_and(|rx| stream.is_before_urgent(&rx))
    }

    fn glimpse(stream: &Stream<'_>, rx: &mut Guard<'_, Rx>, sink: &mut Sink<'_, '_>) -> Result<Pull, Errno> {
        stream.glimpse_messages(rx, sink)
    }

    // Where the first octets of an advert are alone, the others are being Read.
    fn glimpse_all(
        stream: &Stream<'_>,
        sink: &mut Sink<'_, '_>,
        moment: &mut Option<Patience>,
    ) -> Result<Pull, Errno> {
        loop {
            let pulled = stream.glimpse(sink)?;
            if sink.room() == 0
                || !stream.zero_copy().is_start_alone(sink.done())
                || !stream.zero_copy().waits_for_response(moment)
            {
                return Ok(pulled);
            }
            sink.rewind();
        }
    }

    // Octets up to the mark go by way of the queue.
    fn show_apart(
        stream: &Stream<'_>,
        rx: &mut Guard<'_, Rx>,
        sink: &mut Sink<'_, '_>,
    ) -> Result<Option<Pull>, Errno> {
        if !rx.sdp.has_mark() || !stream.absorb_front(rx)? {
            return Ok(None);
        }
        Ok(Some(if stream.show_held(rx, sink)? { Pull::Some } else { Pull::Nothing(Hold::Idle) }))
    }

    #[inline]
    fn lend(stream: &Stream<'_>, source: &mut Source<'_>, patience: &Patience) -> Result<(), Option<Errno>> {
        if (source.left() as u64) < stream.state.threshold() {
            return Ok(());
        }
        stream.zero_copy().send_lent(source, patience)
    }

    #[inline]
    fn push(stream: &Stream<'_>, source: Source<'_>, more: bool, urgent: bool) -> Result<usize, Errno> {
        stream.push_messages(source, more && !urgent, urgent)
    }

    fn wait_to_send(stream: &Stream<'_>, patience: &Patience) -> Option<Result<(), Errno>> {
        stream.is_blocked().then(|| stream.wait_for_credits(patience))
    }

    fn after_part(stream: &Stream<'_>) {
        stream.zero_copy().end_writes();
    }

    // Where the peer had ended its direction before it reset the connection, as a peer does that
    // has closed, TCP says `EPIPE`.
    fn error_of_send(stream: &Stream<'_>, error: Errno) -> Errno {
        if error != Errno::RESET || stream.state.end.is_set() {
            return error;
        }
        let _ = stream.look();
        let is_over = stream.lock_rx().is_ok_and(|rx| rx.sdp.is_over());
        if is_over { Errno::BROKEN_PIPE } else { error }
    }

    fn pay(stream: &Stream<'_>, tx: &mut Tx) -> Result<bool, Errno> {
        if stream.state.phase() == Phase::Ended {
            return stream.pay_at_end(tx);
        }
        let paid = stream.pay_octets(tx, 0);
        stream.note_owed(tx);
        paid
    }

    fn pay_locked(stream: &Stream<'_>, rx: &mut Guard<'_, Rx>, tx: &mut Tx) -> Result<bool, Errno> {
        stream.pay_messages(rx, tx)
    }

    fn pay_all(stream: &Stream<'_>) -> Result<bool, Errno> {
        let mut rx = stream.lock_rx()?;
        stream.take_credits_for_end(&mut rx)?;
        let mut tx = stream.lock_tx()?;
        stream.pay_messages(&mut rx, &mut tx)
    }

    // The receiving direction is only noted: TCP must go on to take control messages.
    fn shutdown(stream: &Stream<'_>, how: c_int) -> Option<Result<(), Errno>> {
        if !stream.is_connected() {
            return None;
        }
        let flow = &stream.state.flow;
        if how != libc::SHUT_WR {
            flow.shut_receive.store(true, Ordering::Release);
        }
        if how == libc::SHUT_RD {
            return Some(Ok(()));
        }
        flow.shut_send.store(true, Ordering::Release);
        Some(stream.end_sending())
    }

    fn is_unfinished(stream: &Stream<'_>) -> Option<bool> {
        let is_left = || stream.lock_rx().is_ok_and(|rx| rx.sdp.end.closing == 1 && rx.sdp.is_done());
        is_framed(stream).then(|| stream.owes() || !is_left())
    }

    fn finishes(stream: &Stream<'_>) -> Option<bool> {
        if stream.establish() != Ok(true) {
            return None;
        }
        if stream.state.is_left_to_others() {
            return Some(stream.pay_if_owing() != Ok(false));
        }
        Some(stream.leave().is_none_or(|progress| progress == Leaving::Over))
    }

    fn is_paid(stream: &Stream<'_>) -> Option<bool> {
        is_framed(stream).then(|| !stream.owes())
    }

    fn interest(stream: &Stream<'_>, want: c_short, owing: c_short) -> Option<c_short> {
        stream.interest_in_messages(want, owing)
    }

    fn look_for(stream: &Stream<'_>, want: c_short) -> Result<(), Errno> {
        stream.look_for_messages(want)
    }

    #[inline]
    fn has_leave_of_peer(base: &Base<'_>) -> bool {
        super::waits::has_many_credits(base)
    }

    // Where it begins a Read of the peer's advert, it waits a moment for the Response: a wait that
    // has no time would not find octets that over TCP are here.
    fn is_readable(stream: &Stream<'_>) -> Result<bool, Errno> {
        let (before, mut moment) = (stream.state.sdp.asked_to_read(), None);
        loop {
            let is_over = stream.has_enough()?;
            let reads = stream.state.sdp.asked_to_read() != before;
            if is_over || !reads || !stream.zero_copy().waits_for_response(&mut moment) {
                return Ok(is_over);
            }
        }
    }

    // How many octets of adverts there are is known when these are Read, so a wait does not wait
    // for a number of them. `DisConn` is a message behind the octets.
    fn low_water(stream: &Stream<'_>) -> Result<usize, Errno> {
        if stream.state.low_water() > 1 {
            stream.look_behind(POLLRDHUP)?;
        }
        let has_adverts = stream.lock_rx()?.sdp.has_adverts == 1;
        let are_here = has_adverts || stream.state.sdp.asked_to_read() > 0;
        Ok(if are_here { 1 } else { stream.state.low_water() })
    }

    fn are_too_few(stream: &Stream<'_>, rx: &mut Guard<'_, Rx>, few: bool) -> bool {
        few && !rx.sdp.is_over() || stream.zero_copy().has_start_alone(rx)
    }

    fn told(stream: &Stream<'_>, want: c_short, others: c_short) -> c_short {
        stream.told_beside_octets(want, others)
    }

    fn ended_directions(stream: &Stream<'_>, ready: c_short, want: c_short) -> c_short {
        stream.ends_told(ready, want)
    }

    fn deadline(stream: &Stream<'_>) -> Option<Duration> {
        if stream.must_look_again() {
            return Some(RECHECK);
        }
        let update = stream.update_held_for().map(|left| left.max(RECHECK));
        update.into_iter().chain(stream.state.sdp.until_nudge()).min()
    }

    #[inline]
    fn nudge(stream: &Stream<'_>) {
        if stream.state.sdp.may_nudge() {
            nudge(stream);
        }
    }

    fn waits_by_edges(stream: &Stream<'_>, want: c_short) -> bool {
        stream.needs_edges(want)
    }

    fn prepare_to_confine(rx: &mut Guard<'_, Rx>) {
        // One more for the table of what is held.
        let _ = parts(rx).1.prepare_to_confine(CONFINED + BLOCK);
    }
}

impl Outbound for Live<'_> {
    #[inline]
    fn has_leave(&mut self) -> bool {
        self.data_room().is_ok()
    }

    #[inline]
    fn copies_up_to(&self, base: &Base<'_>) -> usize {
        copies_up_to(base)
    }

    #[inline(never)]
    fn load<'a>(
        &self,
        load: &mut Load<'_>,
        train: &mut Train<'a, '_>,
        limits: Limits,
        source: Source<'a>,
        _: Option<Message>,
    ) -> Result<(), Errno> {
        self.load_messages(load, train, limits, source)
    }

    fn taken(&mut self, base: &Base<'_>, records: &[Record<After>], fpdus: usize) {
        count_taken(self, records, fpdus);
        base.state.sdp.count(SENT_MESSAGES, fpdus);
    }
}

fn is_framed(stream: &Stream<'_>) -> bool {
    stream.state.phase() == Phase::Framed
}

/// Octets that a confined process moves out of the way of messages behind them.
const CONFINED: usize = 3 * BLOCK;

const _: () = assert!(HEADER_LEN <= LONGEST_HEADERS);
