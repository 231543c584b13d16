//! Messages to the peer: Data, and the control messages that are due.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rddp_ddp::UntaggedRepr;
use rddp_iwarp::Record;
use rddp_octets::{After, Limits, Load};
use rddp_sdp::wire::{HEADER_LEN, LONGEST_CONTROL};

use super::counters::{COPIED, SENT};
use super::{Adverts, Live, live};
use crate::Errno;
use crate::base::Base;
use crate::options::Role;
use crate::owed::owe_send;
use crate::sdp::Stream;
use crate::sink::Source;
use crate::state::{Phase, Rx, Tx};
use crate::sys::{Direction, Guard, now};
use crate::train::Train;

impl Stream<'_> {
    /// Gives TCP what it and the peer's credits take of `source`, in messages, without waiting.
    /// Returns how many of its octets are taken or owed; `EAGAIN` when none.
    pub(super) fn push_messages(
        &self,
        mut source: Source<'_>,
        more: bool,
        urgent: bool,
    ) -> Result<usize, Errno> {
        let mut rx = self.lock_rx()?;
        self.take_credits(&mut rx)?;
        if rx.sdp.is_blocked() {
            rx.sdp.wait_for_credits();
        }
        let mut tx = self.lock_tx()?;
        let paid = self.pay_messages(&mut rx, &mut tx);
        if !paid? {
            self.note_blocked(&mut rx);
            return Err(Errno::WOULD_BLOCK);
        }
        if tx.fin_due {
            return Err(Errno::BROKEN_PIPE);
        }
        let all = source.left();
        if live(&mut rx).queues() && !urgent {
            let queued = self.zero_copy().queue_behind(&mut rx, &mut source);
            self.state.sdp.count(SENT, all - source.left());
            self.note_blocked(&mut rx);
            if queued != Ok(0) {
                return queued;
            }
        }
        if rx.sdp.has_adverts == 1 && urgent {
            // The octet goes as Data, behind what was written.
            self.zero_copy().complete_writes(&mut rx, &mut tx)?;
            if !self.pay_messages(&mut rx, &mut tx)? {
                self.note_blocked(&mut rx);
                return Err(Errno::WOULD_BLOCK);
            }
        } else if rx.sdp.has_adverts == 1 {
            let written = self.zero_copy().push_writes(&mut rx, &mut tx, &mut source);
            let done = all - source.left();
            if done > 0 && (written != Ok(true) || source.left() == 0) {
                let completed = match source.left() {
                    0 => self.zero_copy().complete_writes(&mut rx, &mut tx),
                    // This call may go on.
                    _ => Ok(()),
                };
                if let Err(error) = written.map(drop).and(completed) {
                    self.remember(error);
                }
                self.note_blocked(&mut rx);
                return Ok(done);
            }
            if !written? {
                return Err(Errno::WOULD_BLOCK);
            }
        }
        rx.set_changing(true);
        rx.sdp.urgent.left = if urgent { u32::try_from(all).unwrap_or(u32::MAX) } else { 0 };
        let written = self.push_source(&mut tx, &mut source, more, &mut live(&mut rx));
        rx.sdp.urgent.left = 0;
        rx.set_changing(false);
        self.state.sdp.count(SENT, all - source.left());
        if self.state.asked.format.has_private_copies() {
            self.state.sdp.count(COPIED, all - source.left());
        }
        tx.spare_owed();
        self.state.note_owed(&tx);
        self.note_blocked(&mut rx);
        let done = all - source.left();
        match written {
            Err(error) if done == 0 => Err(error),
            Err(error) => {
                self.remember(error);
                Ok(done)
            }
            Ok(false) if done == 0 => Err(Errno::WOULD_BLOCK),
            Ok(_) => Ok(done),
        }
    }

    /// Gives TCP what is owed to it and the messages that are due, without waiting. Returns whether
    /// that was all that was owed.
    pub(crate) fn pay_messages(&self, rx: &mut Guard<'_, Rx>, tx: &mut Tx) -> Result<bool, Errno> {
        let mut paid = self.pay_octets(tx, 0);
        let frames = self.state.phase() == Phase::Framed && self.state.may_send();
        if paid == Ok(true) && frames {
            rx.set_changing(true);
            paid = self.frame_early(tx, &mut live(rx));
            if paid == Ok(true) && tx.early().is_empty() {
                self.settle_mode(rx, tx);
                if tx.fin_due {
                    live(rx).machine().close_sending();
                }
                self.owe_controls(rx, tx);
                tx.fin_sent |= rx.sdp.is_closed();
            }
            rx.set_changing(false);
            if paid == Ok(true) {
                paid = self.pay_octets(tx, 0);
            }
            if paid == Ok(true) && rx.sdp.has_adverts == 1 {
                paid = self.pay_adverts(rx, tx);
            }
            // Both have said that they send nothing more: the connection is over.
            if paid == Ok(true) && rx.sdp.is_done() && rx.sdp.end.fin_sent == 0 && self.may_send_fin(rx) {
                rx.sdp.end.fin_sent = 1;
                let _ = self.kernel.shut(Direction::Send);
            }
        }
        self.note_owed(tx);
        paid
    }

    /// Sends what came back of own adverts, and answers the peer's Reads of the stream's memory.
    /// Returns whether TCP has taken all of that.
    fn pay_adverts(&self, rx: &mut Guard<'_, Rx>, tx: &mut Tx) -> Result<bool, Errno> {
        self.zero_copy().drop_what_the_dead_lent(rx);
        if !live(rx).owes_octets() {
            return Ok(true);
        }
        self.zero_copy().push_returned(rx, tx)?;
        self.zero_copy().serve(rx, tx, None)?;
        rx.set_changing(true);
        // `DisConn` and others may have waited for that.
        self.owe_controls(rx, tx);
        tx.fin_sent |= rx.sdp.is_closed();
        rx.set_changing(false);
        self.pay_octets(tx, 0)
    }

    /// Adds the control messages that are due, as far as credits allow. Behind the peer's FIN they
    /// count as sent: nobody takes them, and a kernel that has closed the socket answers by a
    /// reset, at which programs leave what they have not read.
    fn owe_controls(&self, rx: &mut Guard<'_, Rx>, tx: &mut Tx) {
        if self.holds_update_back(rx) {
            return;
        }
        let is_shut = rx.sdp.end.is_shut == 1;
        let owe = |tx: &mut Tx, front: &[u8]| {
            if !self.peer_has_left(is_shut) {
                owe_send(tx, front);
            }
        };
        while tx.prepare_to_owe(ROOM) && live(rx).next_control(|front| owe(tx, front)) {}
    }

    /// Returns whether all that is due is an update that is not to go yet, and notes it if it is to
    /// go: two ends that are full have an answer to every answer. What is held back goes with the
    /// next message, by a call that comes later, or when a wait has lasted
    /// [so long](crate::Stream::deadline).
    fn holds_update_back(&self, rx: &mut Guard<'_, Rx>) -> bool {
        let may_wait = rx.sdp.answer.is_due == 0 && live(rx).machine().update_may_wait();
        let is_held = may_wait && now() < self.state.sdp.next_update.load(Ordering::Relaxed);
        if may_wait && !is_held {
            // Ends that asked at the same times would always ask in vain.
            let pace = match self.state.asked.role() {
                Role::Initiator => PACE,
                Role::Responder => PACE + PACE / 2,
            };
            self.state.sdp.next_update.store(now() + pace, Ordering::Relaxed);
        }
        self.state.sdp.holds_update.store(is_held.into(), Ordering::Relaxed);
        is_held
    }

    /// Returns how long an update is still held back, if one is.
    pub(crate) fn update_held_for(&self) -> Option<Duration> {
        let is_held = self.state.sdp.holds_update.load(Ordering::Relaxed) == 1;
        let left = || self.state.sdp.next_update.load(Ordering::Relaxed).saturating_sub(now());
        is_held.then(|| Duration::from_nanos(left()))
    }
}

impl Live<'_> {
    /// Fills the train with messages of one FPDU each, as far as credits allow. `EFAULT`: some of
    /// its octets are not mapped.
    pub(super) fn load_messages<'a>(
        &self,
        load: &mut Load<'_>,
        train: &mut Train<'a, '_>,
        limits: Limits,
        mut source: Source<'a>,
    ) -> Result<(), Errno> {
        let (mut sdp, mut adverts) = (*self.sdp, None::<Adverts>);
        let adverts = self.adverts.as_deref().map(|now| adverts.insert(*now));
        let mut live = Live { sdp: &mut sdp, adverts };
        let in_fpdu = limits.mulpdu.saturating_sub(UntaggedRepr::LEN).min(limits.max_send as usize);
        let longest = in_fpdu.saturating_sub(HEADER_LEN).max(1);
        while source.left() > 0 && load.has_room() {
            let Ok(room) = live.data_room() else { break };
            let len = source.left().min(room).min(longest);
            let Ok(front) = live.data(len) else { break };
            if !load.send(train, &front, &mut source, len).map_err(|_| Errno::FAULT)? {
                break;
            }
        }
        Ok(())
    }
}

/// Returns the average size of pieces up to which an FPDU is copied next to its header.
pub(super) fn copies_up_to(base: &Base<'_>) -> usize {
    // The copy of the payload is the sender's private buffer.
    if base.state.asked.format.has_private_copies() { usize::MAX } else { base.state.asked.copies_up_to() }
}

/// Counts the messages of a train that TCP has taken or begun.
pub(super) fn count_taken(live: &mut Live<'_>, records: &[Record<After>], fpdus: usize) {
    let mut before = 0;
    for record in &records[..fpdus] {
        let _ = live.data(record.after.payload - before);
        before = record.after.payload;
    }
    live.sdp.note_sent(fpdus, before);
}

/// Nanoseconds between two updates of credits that may wait.
const PACE: u64 = 250_000_000;
/// Room for an FPDU of a control message: length, header, pad, CRC and a marker.
pub(super) const ROOM: usize = 2 + UntaggedRepr::LEN + LONGEST_CONTROL + 3 + 4 + 4;
