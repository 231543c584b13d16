//! Urgent octets: sent as the last of a Data, kept in the stream behind a mark, and read out of the
//! order by `MSG_OOB` (docs/sdp.md).
//!
//! Octets of a message with the mark, and those behind it, go by way of the queue, where a read
//! stops at the mark. The rules are those of TCP on Linux.

use rddp_sdp::machine::{Machine, Urgent};

use super::Shared;
use crate::Errno;
use crate::rx::{Hold, Next};
use crate::sdp::Stream;
use crate::sink::Sink;
use crate::state::{Phase, Rx};
use crate::sys::{Guard, parts};

impl Shared {
    /// Returns how many octets that the program has not taken stand before the urgent one.
    pub(crate) fn ahead_of_mark(&self) -> Option<u64> {
        match Machine::new(&mut self.core.clone(), None).urgent() {
            Urgent::Mark(ahead) if self.size != 0 => Some(ahead),
            _ => None,
        }
    }

    /// Returns whether a read has to stop at a mark.
    #[inline]
    pub(crate) fn has_mark(&self) -> bool {
        self.urgent.marked == 1
    }

    /// Returns whether there is an urgent octet that nobody has read by `MSG_OOB`.
    pub(crate) fn has_urgent(&self) -> bool {
        self.has_mark() && self.urgent.oob_read == 0
    }

    /// Notes that an urgent octet is the last of a message's payload.
    pub(super) fn note_mark(&mut self, payload_len: usize) {
        let real = u64::from(self.queue.ahead) + payload_len as u64 - 1;
        let mut machine = self.machine();
        if let Urgent::Mark(ahead) = machine.urgent() {
            // Octets that were taken while there was no mark were not counted.
            machine.octets_taken(ahead.saturating_sub(real));
            (self.urgent.marked, self.urgent.oob_read) = (1, 0);
        }
    }

    /// Takes the mark for passed.
    pub(super) fn forget_mark(&mut self) {
        let ahead = self.ahead_of_mark().unwrap_or_default();
        self.machine().octets_taken(ahead + 1);
        self.urgent.marked = 0;
    }

    /// Counts octets that the program has taken, while there is a mark.
    pub(super) fn taken_before_mark(&mut self, count: usize) {
        if self.has_mark() {
            self.machine().octets_taken(count as u64);
            self.urgent.marked = u32::from(self.ahead_of_mark().is_some());
        }
    }
}

impl Stream<'_> {
    /// Receives the urgent octet (`recv` with `MSG_OOB`), with the errno that TCP has.
    pub(super) fn take_urgent(&self, sink: &mut Sink<'_, '_>, peeks: bool) -> Result<usize, Errno> {
        if !self.establish()? {
            return Err(Errno::INVALID);
        }
        let mut rx = self.lock_rx()?;
        // A later urgent octet takes the place of an earlier one when it comes.
        let taken = self.take_until(&mut rx, |rx| rx.sdp.nothing_comes());
        self.answer_peer(&mut rx, 0);
        taken?;
        if self.is_urgent_inline() || !rx.sdp.has_urgent() {
            return Err(Errno::INVALID);
        }
        let ahead = rx.sdp.ahead_of_mark().unwrap_or_default() as usize;
        let mut octet = [0];
        let (shared, chains, _) = parts(&mut rx);
        if chains.read_at(&shared.held, ahead, &mut octet).is_err() {
            // More of its message is to come.
            return if shared.sdp.nothing_comes() { Ok(0) } else { Err(Errno::WOULD_BLOCK) };
        }
        if sink.room() > 0 && sink.fill(&octet) == 0 {
            return Err(Errno::FAULT);
        }
        if !peeks {
            rx.sdp.urgent.oob_read = 1;
        }
        Ok(sink.done())
    }

    /// Returns whether the next octet to read is the urgent one, or was (`SIOCATMARK`).
    ///
    /// # Errors
    /// The error that a read would have.
    pub fn is_at_mark(&self) -> Result<bool, Errno> {
        if self.state.phase() != Phase::Framed {
            return Ok(false);
        }
        self.look()?;
        let rx = self.lock_rx()?;
        Ok(rx.sdp.ahead_of_mark() == Some(0))
    }

    /// Returns whether the next octet is an urgent one that is none of the stream.
    pub(crate) fn is_before_urgent(&self, rx: &Rx) -> bool {
        rx.sdp.has_mark()
            && rx.sdp.ahead_of_mark() == Some(0)
            && !rx.held.is_empty()
            && !self.is_urgent_inline()
    }

    /// Returns whether the urgent octet is one of the stream (`SO_OOBINLINE`).
    pub(super) fn is_urgent_inline(&self) -> bool {
        self.kernel.reads_urgent_in_line()
    }

    /// Returns how many octets of the queue a read may take now: it stops in front of the urgent
    /// one, and passes over it when it begins there. `Err`: none.
    pub(super) fn up_to_mark(
        &self,
        rx: &mut Guard<'_, Rx>,
        sink: &mut Sink<'_, '_>,
    ) -> Result<Result<usize, Next>, Errno> {
        match rx.sdp.ahead_of_mark().filter(|_| rx.sdp.has_mark()) {
            None => Ok(Ok(usize::MAX)),
            Some(0) if sink.done() > 0 => {
                sink.ends_here();
                Ok(Err(Next::Full))
            }
            Some(0) if self.is_urgent_inline() => Ok(Ok(usize::MAX)),
            Some(0) => {
                self.drop_from_queue(rx, 1)?;
                Ok(Err(Next::More))
            }
            Some(ahead) => Ok(Ok(usize::try_from(ahead).unwrap_or(usize::MAX))),
        }
    }

    /// Returns what a look finds where only the urgent octet may be left, which is none of the
    /// stream's.
    pub(super) fn look_at_mark(&self, rx: &mut Guard<'_, Rx>) -> Result<Next, Errno> {
        let is_alone = |rx: &Rx| rx.held.len() == 1 && self.is_before_urgent(rx);
        if !is_alone(rx) {
            return Ok(Next::Full);
        }
        self.fetch_behind(rx)?;
        Ok(match () {
            () if !is_alone(rx) => Next::Full,
            () if rx.sdp.nothing_comes() => Next::End,
            () => Next::Nothing(Hold::Idle),
        })
    }
}
