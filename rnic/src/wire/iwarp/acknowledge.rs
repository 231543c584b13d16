//! Acknowledging, where a request completes when the peer has executed it
//! ([`Transport::Acknowledged`](crate::Transport::Acknowledged)): one acknowledgement for each turn
//! of reading.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rddp_ddp::Header;
use rddp_iwarp::{Acknowledgement, Value};
use rddp_rdma::Status;
use rddp_rdmap::{Fault, REQUEST_QUEUE, TerminateCode, TerminateRepr};
use rddp_stat::Counter;

use super::late::Late;
use super::link::Link;
use crate::deadline::Deadline;
use crate::queues::context::Context;
use crate::wire::{Watch, WireEvent};

/// Octets that TCP is promised with which the next acknowledgement waits: it says what those that
/// wait for TCP say, and more.
const MAX_PROMISED: usize = 4096;

/// Octets that a held ULPDU counts beside its own.
pub(super) const COST: usize = 32;

/// Time for which a message may be held while memory for such is short.
const TOO_LONG: Duration = Duration::from_secs(2);

/// The progress of acknowledging.
#[derive(Debug, Default)]
pub(super) struct Acknowledging {
    /// Number of the peer's messages that it was told of.
    told: u32,
    /// Number of its Writes of no octets, which are not acknowledged: the first FPDU of a
    /// connection may be one.
    empty: u32,
    /// The count behind which the peer was told last that the next message has no receive.
    told_not_ready: Option<u32>,
    /// Messages of the peer that wait for receives.
    pub(super) held: Option<Held>,
    /// The value of the peer's next Send.
    pub(super) value: Option<Value>,
    /// Set while the peer has no receive for a message: the number before it, and the end of its
    /// tries.
    tries: Option<(u32, Deadline)>,
    pub(super) late: Late,
}

/// Requests of the peer behind a message that waits for a receive: see `held`.
#[derive(Debug)]
pub(super) struct Held {
    ulpdus: VecDeque<Vec<u8>>,
    /// Octets of them as the device's budget counts them.
    octets: usize,
    /// The moment since which nothing has found a receive.
    since: Instant,
}

impl Default for Held {
    fn default() -> Self {
        Held { ulpdus: VecDeque::new(), octets: 0, since: Instant::now() }
    }
}

impl Held {
    /// Adds a ULPDU, which the device's budget then counts.
    pub(super) fn add(&mut self, ulpdu: &[u8]) {
        self.octets += ulpdu.len() + COST;
        self.ulpdus.push_back(ulpdu.to_vec());
    }

    /// Takes the oldest ULPDU.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        let ulpdu = self.ulpdus.pop_front()?;
        self.octets -= ulpdu.len() + COST;
        self.since = Instant::now();
        Some(ulpdu)
    }

    /// Returns the octets that the device's budget counts.
    pub(super) fn octets(&self) -> usize {
        self.octets
    }

    /// Returns whether this is held for too long while memory is short.
    pub(super) fn is_stalled(&self, now: Instant) -> bool {
        now.duration_since(self.since) >= TOO_LONG
    }
}

impl Acknowledging {
    /// Returns the number of the peer's messages that were executed.
    fn executed(&self, cx: &Context<'_>) -> u32 {
        // Both counts begin with the connection.
        let executed = cx.tally.of(Counter::SendsReceived) + cx.tally.of(Counter::WritesReceived);
        (executed as u32).wrapping_sub(self.empty)
    }

    /// Returns whether the peer is to be told of one message, and of nothing else.
    fn owes_one(&self, cx: &Context<'_>) -> bool {
        self.executed(cx) == self.told.wrapping_add(1) && self.held.is_none()
    }
}

impl Link {
    /// Queues an acknowledgement, if there is something to acknowledge. Returns whether it did.
    #[inline]
    pub(super) fn acknowledge(&mut self, cx: &Context<'_>) -> bool {
        self.acknowledging.is_some() && self.acknowledge_executed(cx)
    }

    // Out of the way of connections that have no acknowledgements.
    #[cold]
    #[inline(never)]
    fn acknowledge_executed(&mut self, cx: &Context<'_>) -> bool {
        if !self.is_open() {
            return false;
        }
        let Some(acknowledging) = &mut self.acknowledging else { return false };
        let executed = acknowledging.executed(cx);
        let is_not_ready = acknowledging.held.is_some();
        let is_news =
            executed != acknowledging.told || is_not_ready && acknowledging.told_not_ready != Some(executed);
        if !is_news || self.out.owed().len() >= MAX_PROMISED {
            return false;
        }
        acknowledging.told = executed;
        acknowledging.late.stop();
        acknowledging.told_not_ready = is_not_ready.then_some(executed);
        let not_ready = if is_not_ready { micros(cx.sq.patience.rnr_timer) } else { 0 };
        self.push_own(&Acknowledgement { executed, not_ready }.header(), &[]);
        true
    }

    /// Acknowledges what a turn of reading has brought, at once or with what the program posts
    /// next.
    #[inline]
    pub(crate) fn acknowledge_turn(&mut self, watch: &mut Watch, cx: &Context<'_>) {
        if self.acknowledging.is_some() {
            self.acknowledge_now_or_late(watch, cx);
        }
    }

    // As `acknowledge_executed`.
    #[cold]
    #[inline(never)]
    fn acknowledge_now_or_late(&mut self, watch: &mut Watch, cx: &Context<'_>) {
        let Some(acknowledging) = &mut self.acknowledging else { return };
        let (waited, is_one) = (acknowledging.late.waits(), acknowledging.owes_one(cx));
        if is_one && acknowledging.late.hold_back(watch, cx) {
            return;
        }
        if self.acknowledge(cx)
            && let Some(acknowledging) = &mut self.acknowledging
        {
            acknowledging.late.note_alone(waited, is_one);
        }
    }

    /// Acknowledges what waits for a request of the program's, if there may be one to send now.
    #[inline]
    pub(crate) fn acknowledge_with_own(&mut self, cx: &Context<'_>) {
        if self.acknowledging.is_some() {
            self.acknowledge_late(cx);
        }
    }

    // As `acknowledge_executed`.
    #[cold]
    #[inline(never)]
    fn acknowledge_late(&mut self, cx: &Context<'_>) {
        let Some(acknowledging) = &mut self.acknowledging else { return };
        if acknowledging.late.waits() {
            self.acknowledge(cx);
        } else if cx.sq.has_unsent() {
            acknowledging.late.note_posted(Instant::now);
        }
    }

    /// Returns whether an acknowledgement waits for what the program posts.
    pub(crate) fn owes_acknowledgement(&self) -> bool {
        self.acknowledging.as_ref().is_some_and(|acknowledging| acknowledging.late.waits())
    }

    /// Returns whether an acknowledgement has waited for as long as it may.
    pub(crate) fn is_acknowledgement_due(
        &mut self,
        watch: &mut Watch,
        cx: &Context<'_>,
        now: Instant,
    ) -> bool {
        let acknowledging = self.acknowledging.as_mut();
        acknowledging.is_some_and(|acknowledging| acknowledging.late.is_due(watch, now, cx.attrs))
    }

    /// Takes a ULPDU with the opcode of acknowledgements.
    ///
    /// # Errors
    /// It is no acknowledgement, or acknowledges what cannot be. Or the peer has no receive for a
    /// message, and there are no more tries.
    pub(super) fn take_acknowledgement(
        &mut self,
        cx: &mut Context<'_>,
        ulpdu: &[u8],
    ) -> Result<(), WireEvent> {
        let said = Acknowledgement::parse(ulpdu);
        let said = said.ok_or(Fault::UnknownOpcode { opcode: Acknowledgement::OPCODE })?;
        cx.acknowledged(said)?;
        let tries = &mut self.acknowledging.get_or_insert_default().tries;
        if said.not_ready == 0 {
            *tries = None;
        } else if tries.is_none_or(|(before, _)| before != said.executed) {
            let end = cx.sq.patience.end_of_tries(Duration::from_micros(said.not_ready.into()));
            cx.attrs.device.driver.by(end, cx.attrs.token);
            *tries = Some((said.executed, end));
        }
        if self.are_tries_over(Instant::now()) { Err(WireEvent::NoReceive) } else { Ok(()) }
    }

    /// Returns whether the peer has no receive for a message, so that no further one is sent.
    #[inline]
    pub(super) fn awaits_peers_receive(&self) -> bool {
        self.acknowledging.as_ref().is_some_and(|acknowledging| acknowledging.tries.is_some())
    }

    /// Returns whether the peer acknowledges requests, and has a receive for the next one as far as
    /// is known.
    pub(crate) fn awaits_answers(&self) -> bool {
        self.acknowledging.is_some() && !self.awaits_peers_receive()
    }

    /// Returns whether the peer has had no receive for a message at the end of its tries.
    pub(crate) fn are_tries_over(&self, now: Instant) -> bool {
        let tries = self.acknowledging.as_ref().and_then(|acknowledging| acknowledging.tries);
        tries.is_some_and(|(_, end)| end.is_over(now))
    }

    /// Returns whether the peer's next Send has a value.
    pub(super) fn has_value(&self) -> bool {
        self.acknowledging.as_ref().is_some_and(|acknowledging| acknowledging.value.is_some())
    }

    /// Notes the value of the peer's next Send.
    pub(super) fn note_value(&mut self, value: Value) {
        self.acknowledging.get_or_insert_default().value = Some(value);
    }

    /// Takes the value that came in front of the Send that has come now.
    #[inline]
    pub(super) fn value_of_send(&mut self) -> Option<[u8; 8]> {
        let Value(octets) = self.acknowledging.as_mut()?.value.take()?;
        Some(octets)
    }

    /// Notes that the peer has written no octets.
    #[cold]
    pub(super) fn note_empty_write(&mut self) {
        if let Some(acknowledging) = &mut self.acknowledging {
            acknowledging.empty = acknowledging.empty.wrapping_add(1);
        }
    }
}

#[cfg(test)]
impl Link {
    /// Pretends that the program has answered the last message at once, or has not.
    pub(crate) fn pretend_answers(&mut self, answers: bool) {
        self.acknowledging.get_or_insert_default().late.pretend_answers(answers);
    }

    /// Returns whether the program has answered the last message at once.
    pub(crate) fn answers_at_once(&self) -> bool {
        self.acknowledging.as_ref().is_some_and(|acknowledging| acknowledging.late.answers())
    }
}

/// Returns a time as an acknowledgement says it.
fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX).max(1)
}

/// Returns the status of the request that the peer has refused with this Terminate, as InfiniBand
/// names it.
pub(super) fn status_of(terminate: &TerminateRepr) -> Status {
    let is_about_request =
        matches!(terminate.header, Some(Header::Untagged(header)) if header.qn == REQUEST_QUEUE);
    match terminate.code {
        // RFC 7306 §5.1: an atomic that is not aligned, above all.
        TerminateCode::CATASTROPHIC_STREAM if is_about_request => Status::RemoteInvalidRequest,
        TerminateCode::CANNOT_INVALIDATE_PROTECTION | TerminateCode::CANNOT_INVALIDATE_OPERATION => {
            Status::RemoteInvalidRequest
        }
        code => match (code.layer(), code.etype()) {
            // Protection of RDMAP, and tagged buffers of DDP.
            (0, 1) | (1, 1) => Status::RemoteAccess,
            // Untagged buffers of DDP: longer than its receive, above all.
            (1, 2) => Status::RemoteInvalidRequest,
            _ => Status::RemoteOperation,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_says_what_was_wrong_with_the_request() {
        let status = |code: &TerminateCode| status_of(&TerminateRepr::bare(*code));
        let of = |codes: &[TerminateCode]| codes.iter().map(status).collect::<Vec<_>>();
        let access =
            [TerminateCode::TAGGED_INVALID_STAG, TerminateCode::TAGGED_BOUNDS, TerminateCode::BOUNDS];
        assert_eq!(of(&access), [Status::RemoteAccess; 3]);
        let request = [TerminateCode::UNTAGGED_TOO_LONG, TerminateCode::CANNOT_INVALIDATE_PROTECTION];
        assert_eq!(of(&request), [Status::RemoteInvalidRequest; 2]);
        let operation = [TerminateCode::LOCAL_CATASTROPHIC, TerminateCode::MPA_CRC];
        assert_eq!(of(&operation), [Status::RemoteOperation; 2]);
    }
}
