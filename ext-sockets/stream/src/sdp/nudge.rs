//! Nudges for a peer that may have left this end's first FPDU unread.
//!
//! A passive siw overlooks what comes between its Reply and the moment at which it takes up the
//! connection, until more comes. A responder that is to speak first would never get to. So while
//! nothing has come from it, an initiator follows its first message with RDMA Writes of no octets,
//! which other peers ignore.

use std::sync::atomic::Ordering;
use std::time::Duration;

use libc::{POLLIN, POLLRDHUP};
use rddp_iwarp::OwnMessage;

use super::Part;
use crate::Errno;
use crate::owed::owe_fpdu;
use crate::sdp::Stream;
use crate::state::Phase;
use crate::sys::{is_confined, now};

/// Number of nudges.
const NUDGES: u64 = 5;

/// Nanoseconds until the first nudge; each later one follows after twice the time.
const FIRST: u64 = 100_000_000;

/// Bits of the number of nudges.
const BITS: u32 = 3;

impl Part {
    /// Lets nudges follow the first message of an initiator.
    pub(super) fn begin_nudges(&self) {
        self.set_nudges(NUDGES);
    }

    /// Notes how many nudges are left, and when the first of them may go. Both are in one number,
    /// for which there is room in the state: the count in its lowest bits.
    fn set_nudges(&self, left: u64) {
        let time = now() + (FIRST << (NUDGES - left));
        self.nudges.store(if left == 0 { 0 } else { time << BITS | left }, Ordering::Release);
    }

    fn nudges_left(&self) -> u64 {
        self.nudges.load(Ordering::Relaxed) & !(u64::MAX << BITS)
    }

    /// Returns whether a nudge may yet be due.
    pub(crate) fn may_nudge(&self) -> bool {
        self.nudges.load(Ordering::Acquire) > 0
    }

    /// Returns the time until the next nudge, if there may be one.
    pub(super) fn until_nudge(&self) -> Option<Duration> {
        let nudges = self.nudges.load(Ordering::Relaxed);
        (nudges > 0).then(|| Duration::from_nanos((nudges >> BITS).saturating_sub(now())))
    }
}

/// Sends a nudge if one is due; sends none any more once something has come.
#[cold]
pub(super) fn nudge(stream: &Stream<'_>) {
    if let Err(error) = try_to_nudge(stream) {
        stream.remember(error);
    }
}

fn try_to_nudge(stream: &Stream<'_>) -> Result<(), Errno> {
    let part = &stream.state.sdp;
    let mut rx = stream.lock_rx()?;
    let mut tx = stream.lock_tx()?;
    // Another thread may have come first.
    if !part.may_nudge() || !stream.state.may_send() {
        return Ok(());
    }
    let is_over = stream.state.phase() != Phase::Framed || is_confined();
    if is_over || rx.at.octets > 0 || stream.fresh(POLLIN | POLLRDHUP) != 0 {
        part.set_nudges(0);
        return Ok(());
    }
    if part.until_nudge() != Some(Duration::ZERO) {
        return Ok(());
    }
    part.set_nudges(part.nudges_left() - 1);
    // What is owed is as good as a nudge.
    if !stream.owes() && owe_fpdu(&mut tx, &OwnMessage::empty_write().header, &[]) {
        stream.pay_messages(&mut rx, &mut tx)?;
    }
    Ok(())
}
