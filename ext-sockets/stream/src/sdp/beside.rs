//! The obligations of a connection of SDP besides its octets, when a program calls.

use std::ffi::{c_int, c_short};
use std::sync::atomic::Ordering;

use libc::POLLRDHUP;
use rddp_octets::Plain;
use rddp_sdp::wire::HEADER_LEN;

use super::Leaving;
use super::format::Messages;
use crate::beside::Beside;
use crate::patience::Patience;
use crate::rx::Pull;
use crate::sink::Sink;
use crate::state::{Phase, Rx, State, Tx};
use crate::sys::{BLOCK, Guard, parts};
use crate::{Errno, Stream};

impl State {
    /// Returns the obligations of the stream besides its octets.
    #[inline]
    pub(crate) fn beside(&self) -> &'static dyn Beside {
        if self.asked.is_sdp() { &Messages } else { &Plain }
    }
}

impl Beside for Messages {
    // The receiving direction is only noted: TCP must go on to take control messages.
    fn shutdown(&self, stream: &Stream<'_>, how: c_int) -> Option<Result<(), Errno>> {
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

    fn receives_when_shut(&self) -> bool {
        true
    }

    fn is_unfinished(&self, stream: &Stream<'_>) -> Option<bool> {
        let is_left = || stream.lock_rx().is_ok_and(|rx| rx.sdp.end.closing == 1 && rx.sdp.is_done());
        is_framed(stream).then(|| stream.owes() || !is_left())
    }

    fn finishes(&self, stream: &Stream<'_>) -> Option<bool> {
        if stream.establish() != Ok(true) {
            return None;
        }
        if stream.state.is_left_to_others() {
            return Some(stream.pay_if_owing() != Ok(false));
        }
        Some(stream.leave().is_none_or(|progress| progress == Leaving::Over))
    }

    fn is_paid(&self, stream: &Stream<'_>) -> Option<bool> {
        is_framed(stream).then(|| !stream.owes())
    }

    fn has_urgent(&self) -> bool {
        true
    }

    fn stops_in_front(&self, stream: &Stream<'_>) -> bool {
        stream.lock_rx().is_ok_and(|rx| stream.is_before_urgent(&rx))
    }

    // Offers the peer to write.
    fn before_wait(&self, stream: &Stream<'_>, room: usize, patience: &Patience) {
        if !patience.is_none() && !patience.is_over() && stream.is_nonblocking() == Ok(false) {
            stream.offer_sink(room);
        }
    }

    fn after_part(&self, stream: &Stream<'_>) {
        stream.end_writes();
    }

    // Where the peer had ended its direction before it reset the connection, as a peer does that
    // has closed, TCP says `EPIPE`.
    fn error_of_send(&self, stream: &Stream<'_>, error: Errno) -> Errno {
        if error != Errno::RESET || stream.state.end.is_set() {
            return error;
        }
        let _ = stream.look();
        let is_over = stream.lock_rx().is_ok_and(|rx| rx.sdp.is_over());
        if is_over { Errno::BROKEN_PIPE } else { error }
    }

    fn wait_for_rest(&self, stream: &Stream<'_>, patience: &Patience) -> Option<Result<(), Errno>> {
        stream.state.sleepers.any().then(|| stream.wait_beside_sleepers(patience))
    }

    // `DisConn` is a message behind the octets.
    fn look_for_end(&self, stream: &Stream<'_>) -> Result<(), Errno> {
        stream.look_behind(POLLRDHUP)
    }

    fn has_starts(&self) -> bool {
        true
    }

    fn told(&self, stream: &Stream<'_>, want: c_short, others: c_short) -> c_short {
        stream.told_beside_octets(want, others)
    }

    fn ends_by_messages(&self) -> bool {
        true
    }

    fn pay_locked(&self, stream: &Stream<'_>, rx: &mut Guard<'_, Rx>, tx: &mut Tx) -> Result<bool, Errno> {
        stream.pay_messages(rx, tx)
    }

    fn pay_all(&self, stream: &Stream<'_>) -> Result<bool, Errno> {
        let mut rx = stream.lock_rx()?;
        stream.take_credits_for_end(&mut rx)?;
        let mut tx = stream.lock_tx()?;
        stream.pay_messages(&mut rx, &mut tx)
    }

    fn pay(&self, stream: &Stream<'_>, tx: &mut Tx) -> Option<Result<bool, Errno>> {
        Some(stream.pay_owed(tx))
    }

    fn headers_len(&self) -> usize {
        HEADER_LEN
    }

    fn prepare_to_confine(&self, rx: &mut Guard<'_, Rx>) {
        // One more for the table of what is held.
        let _ = parts(rx).1.prepare_to_confine(CONFINED + BLOCK);
    }

    fn glimpse(
        &self,
        stream: &Stream<'_>,
        rx: &mut Guard<'_, Rx>,
        sink: &mut Sink<'_, '_>,
    ) -> Result<Pull, Errno> {
        stream.glimpse_sdp(rx, sink)
    }

    fn absorbed(
        &self,
        stream: &Stream<'_>,
        rx: &mut Guard<'_, Rx>,
        seen: usize,
    ) -> Result<Option<usize>, Errno> {
        stream.absorbed_sdp(rx, seen)
    }

    fn fin(&self, stream: &Stream<'_>, rx: &mut Guard<'_, Rx>) -> Result<(), Errno> {
        if stream.awaits_response(rx) {
            rx.sdp.note_octets_lost();
        }
        rx.sdp.note_fin()
    }
}

fn is_framed(stream: &Stream<'_>) -> bool {
    stream.state.phase() == Phase::Framed
}

/// Octets that a confined process moves out of the way of messages behind them.
const CONFINED: usize = 3 * BLOCK;
