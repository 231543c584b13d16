//! Receiving segments in any order: each is placed when it arrives, even if others before it are
//! missing, and possibly more than once; messages are delivered once and in order (RFC 5041 §5.3,
//! §5.4).
//!
//! This is for an LLP that keeps segment boundaries, and for placement underneath TCP. A segment is
//! identified by its *position*, the range that it takes up in the stream: TCP sequence numbers
//! extended to 64 bits, or the number of a record and the number after it. The *turn* is the
//! position up to which every segment has been placed and counted.
//!
//! Only the segment at the turn can be refused, since TCP vouches for its octets. A segment ahead
//! of the turn is placed if nothing is wrong with it, and otherwise put off without a verdict: its
//! buffer may still be posted, and if it is forged, the true segment may still arrive. So the fault
//! that is reported is the first in the order of the stream.

use core::ops::Range;
use std::collections::VecDeque;

use crate::{DdpError, Header, Msn, Qn, UntaggedRepr};

/// The decision what to do with a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Place the segment's payload, then call [`placed`](AnyOrder::placed). The caller first checks
    /// the memory of a tagged segment with payload. If that check fails, it is a fault when the
    /// segment is at its [turn](AnyOrder::turn), and a reason to put the segment off when it is
    /// early.
    Place,
    /// Keep the segment for later. It is early, and cannot be placed now: another segment is noted
    /// at its position, its buffer is not posted yet, or no more segments can be noted. Present it
    /// again when its turn comes, or any time before.
    Later,
    /// Drop the segment. All or part of it was counted before, or the stream has ended; placing it
    /// could change what has been delivered.
    Drop,
}

/// A message that is complete, like all before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The header of the message's last segment.
    pub header: Header,
    /// The length of the message, if it is untagged.
    pub length: Option<u32>,
    /// The position of the message's last segment.
    pub position: Range<u64>,
}

/// The receiving half of a stream whose segments come in any order.
#[derive(Clone, Debug)]
pub struct AnyOrder {
    turn: u64,
    /// Segments that were placed and not yet counted, disjoint and sorted by position.
    noted: VecDeque<Noted>,
    room: usize,
    /// The number of the next message to deliver, for each queue.
    queues: Box<[Msn]>,
    dead: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Noted {
    position: Range<u64>,
    header: Header,
    len: usize,
}

impl AnyOrder {
    /// The state of a stream with `queues` queues whose first segment is at position `start`. At
    /// most `room` early segments are noted; nothing that a peer does makes it use more memory.
    #[must_use]
    pub fn new(queues: u32, start: u64, room: usize) -> Self {
        Self {
            turn: start,
            // One more than `room`, because the segment at the turn is always noted.
            noted: VecDeque::with_capacity(room + 1),
            room,
            queues: vec![Msn::FIRST; queues as usize].into(),
            dead: false,
        }
    }

    /// Returns the position at which the next segment to be counted begins.
    #[must_use]
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// Returns how many segments have been placed and wait for others before them.
    #[must_use]
    pub fn noted(&self) -> usize {
        self.noted.len()
    }

    /// Returns the number of the next message to deliver on queue `qn`. Those before it were
    /// delivered.
    #[must_use]
    pub fn next_msn(&self, qn: Qn) -> Option<Msn> {
        self.queues.get(qn.0 as usize).copied()
    }

    /// Decides about a segment with `len` octets of payload, and changes nothing. `buffer` returns
    /// the length of a message's buffer, or `None` when none is posted yet; it must return the same
    /// buffer until the message is delivered.
    ///
    /// A fault, only for the segment at the turn. The fault is final once the segment's CRC is
    /// known to be good; the caller then calls [`fail`](Self::fail).
    pub fn check(
        &self,
        position: &Range<u64>,
        header: &Header,
        len: usize,
        buffer: &mut dyn FnMut(Qn, Msn) -> Option<u64>,
    ) -> Result<Admission, DdpError> {
        if self.dead || position.start < self.turn || position.is_empty() {
            return Ok(Admission::Drop);
        }
        let sound = match header {
            Header::Tagged(_) => Ok(()),
            Header::Untagged(header) => self.check_untagged(header, len, buffer),
        };
        if position.start == self.turn {
            return sound.map(|()| Admission::Place);
        }
        if sound.is_ok() && self.can_note(position, header, len) {
            return Ok(Admission::Place);
        }
        Ok(Admission::Later)
    }

    /// Notes that a segment was placed which [`check`](Self::check) admitted and whose CRC is good.
    pub fn placed(&mut self, position: Range<u64>, header: &Header, len: usize) {
        if self.dead || position.start < self.turn || position.is_empty() {
            return;
        }
        if position.start == self.turn {
            // A segment noted at the same octets was not the one that the stream really holds
            // there.
            self.noted.retain(|noted| noted.position.start >= position.end);
        } else if !self.can_note(&position, header, len) {
            return;
        }
        let at = self.noted.partition_point(|noted| noted.position.start < position.start);
        let noted = Noted { position, header: *header, len };
        if self.noted.get(at) != Some(&noted) {
            self.noted.insert(at, noted);
        }
    }

    /// Returns the next message that is complete, if there is one. To be called until it returns
    /// `None`.
    ///
    /// # Errors
    /// [`DdpError::MsnOutOfRange`]: the sender has ended messages out of order, or continued one
    /// that it had ended. The stream has then ended.
    pub fn deliver(&mut self) -> Result<Option<Delivered>, DdpError> {
        while let Some(noted) = self.take_noted_at_turn() {
            self.turn = noted.position.end;
            let length = self.count(&noted).inspect_err(|_| self.fail())?;
            if noted.header.last() {
                return Ok(Some(Delivered { header: noted.header, length, position: noted.position }));
            }
        }
        Ok(None)
    }

    /// Ends the stream: nothing more is placed or delivered (RFC 5041 §7.1).
    pub fn fail(&mut self) {
        self.dead = true;
        self.noted.clear();
    }

    /// Returns whether the stream has ended.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// Makes the five checks of an untagged segment (RFC 5041 §7.1). A message that is not the next
    /// of its queue is in order as long as a buffer is posted for it.
    fn check_untagged(
        &self,
        header: &UntaggedRepr,
        len: usize,
        buffer: &mut dyn FnMut(Qn, Msn) -> Option<u64>,
    ) -> Result<(), DdpError> {
        let UntaggedRepr { qn, msn, mo, .. } = *header;
        self.check_msn(header)?;
        let buffer = match buffer(qn, msn) {
            Some(buffer) => buffer.min(u64::from(u32::MAX)),
            None if self.next_msn(qn) == Some(msn) => return Err(DdpError::NoBuffer { qn, msn }),
            None => return Err(self.msn_out_of_range(header)),
        };
        if u64::from(mo) > buffer || (u64::from(mo) == buffer && len > 0) {
            return Err(DdpError::MoOutsideBuffer { mo, buffer });
        }
        if u64::from(mo) + len as u64 > buffer {
            return Err(DdpError::TooLong { mo, len, buffer });
        }
        Ok(())
    }

    /// Checks that the queue exists, and that the message has not been delivered.
    fn check_msn(&self, header: &UntaggedRepr) -> Result<(), DdpError> {
        let UntaggedRepr { qn, msn, .. } = *header;
        match self.next_msn(qn) {
            None => Err(DdpError::InvalidQn { qn }),
            Some(next) if msn.ahead_of(next) < HALF => Ok(()),
            Some(_) => Err(self.msn_out_of_range(header)),
        }
    }

    fn msn_out_of_range(&self, header: &UntaggedRepr) -> DdpError {
        let UntaggedRepr { qn, msn: got, .. } = *header;
        DdpError::MsnOutOfRange { qn, got, expected: self.next_msn(qn).unwrap_or_default() }
    }

    /// Returns whether an early segment may be noted: either it is noted already, or its octets are
    /// free and there is space.
    fn can_note(&self, position: &Range<u64>, header: &Header, len: usize) -> bool {
        let at = self.noted.partition_point(|noted| noted.position.end <= position.start);
        match self.noted.get(at) {
            Some(noted) if noted.position.start < position.end => {
                noted.position == *position && noted.header == *header && noted.len == len
            }
            _ => self.noted.len() < self.room,
        }
    }

    fn take_noted_at_turn(&mut self) -> Option<Noted> {
        let due = self.noted.front().is_some_and(|noted| noted.position.start == self.turn);
        if due { self.noted.pop_front() } else { None }
    }

    /// Counts the segment at the turn, and returns the length of the untagged message that it ends.
    fn count(&mut self, noted: &Noted) -> Result<Option<u32>, DdpError> {
        let Header::Untagged(header) = &noted.header else {
            return Ok(None);
        };
        self.check_msn(header)?;
        if !header.last {
            return Ok(None);
        }
        // RFC 5041 §5.3: messages are sent, and delivered, in order.
        if self.next_msn(header.qn) != Some(header.msn) {
            return Err(self.msn_out_of_range(header));
        }
        self.queues[header.qn.0 as usize] = header.msn.next();
        Ok(Some(u32::try_from(u64::from(header.mo) + noted.len as u64).unwrap_or(u32::MAX)))
    }
}

/// The border between past and future: MSNs less than this ahead of the next are still to come, the
/// others are past.
const HALF: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Stag, TaggedRepr};

    fn send(msn: u32, mo: u32, last: bool) -> Header {
        UntaggedRepr { last, rsvd_ulp: [0x43, 0, 0, 0, 0], qn: Qn(0), msn: Msn(msn), mo }.into()
    }

    fn write(to: u64, last: bool) -> Header {
        TaggedRepr { last, rsvd_ulp: 0x40, stag: Stag(1), to }.into()
    }

    /// Buffers of 100 octets for messages 1 to 3 on every queue.
    fn posted(_: Qn, msn: Msn) -> Option<u64> {
        (1..=3).contains(&msn.0).then_some(100)
    }

    fn check(rx: &AnyOrder, at: Range<u64>, header: Header, len: usize) -> Result<Admission, DdpError> {
        rx.check(&at, &header, len, &mut posted)
    }

    /// Presents a segment that must be placed, and returns where the messages that are delivered
    /// begin.
    fn give(rx: &mut AnyOrder, at: Range<u64>, header: Header, len: usize) -> Vec<u64> {
        assert_eq!(check(rx, at.clone(), header, len), Ok(Admission::Place));
        rx.placed(at, &header, len);
        core::iter::from_fn(|| rx.deliver().unwrap()).map(|delivered| delivered.position.start).collect()
    }

    #[test]
    fn a_message_waits_for_everything_in_front_of_it() {
        // RFC 5041 §5.4
        let mut rx = AnyOrder::new(3, 0, 8);
        assert_eq!(give(&mut rx, 20..30, send(2, 0, true), 5), []);
        assert_eq!(give(&mut rx, 10..20, send(1, 50, true), 5), []);
        assert_eq!(give(&mut rx, 0..10, send(1, 0, false), 50), [10, 20]);
        assert_eq!(rx.turn(), 30);
        assert_eq!(rx.next_msn(Qn(0)), Some(Msn(3)));
    }

    #[test]
    fn the_length_is_that_of_the_last_segment() {
        // RFC 5041 §5.4
        let mut rx = AnyOrder::new(3, 0, 8);
        rx.placed(10..20, &send(1, 50, true), 5);
        rx.placed(0..10, &send(1, 0, false), 50);
        let delivered = rx.deliver().unwrap().unwrap();
        assert_eq!((delivered.length, delivered.header.control()), (Some(55), 0x43));
        assert_eq!(rx.deliver(), Ok(None));
    }

    #[test]
    fn a_segment_may_be_placed_again_until_it_is_counted() {
        // RFC 5041 §5.3
        let mut rx = AnyOrder::new(3, 0, 8);
        assert_eq!(give(&mut rx, 10..20, write(0, true), 5), []);
        assert_eq!(give(&mut rx, 10..20, write(0, true), 5), []);
        assert_eq!(rx.noted(), 1);
        assert_eq!(give(&mut rx, 0..10, write(9, true), 5), [0, 10]);
        assert_eq!(check(&rx, 10..20, write(0, true), 5), Ok(Admission::Drop));
        assert_eq!(check(&rx, 0..10, write(9, true), 5), Ok(Admission::Drop));
    }

    #[test]
    fn an_early_segment_without_a_buffer_is_put_off_and_not_judged() {
        let mut rx = AnyOrder::new(3, 0, 8);
        assert_eq!(check(&rx, 10..20, send(4, 0, true), 5), Ok(Admission::Later));
        assert_eq!(check(&rx, 10..20, send(0, 0, true), 5), Ok(Admission::Later));
        assert_eq!(check(&rx, 10..20, send(2, 0, true), 101), Ok(Admission::Later));
        let bad_queue = UntaggedRepr { last: true, rsvd_ulp: [0; 5], qn: Qn(3), msn: Msn(1), mo: 0 };
        assert_eq!(check(&rx, 10..20, bad_queue.into(), 5), Ok(Admission::Later));
        assert_eq!(give(&mut rx, 0..10, send(1, 0, true), 5), [0]);
        assert!(check(&rx, 10..20, send(2, 0, true), 101).is_err(), "its turn has come");
    }

    #[test]
    fn a_faulty_segment_at_the_turn_has_the_code_of_the_rfc() {
        // RFC 5041 §7.1, §7.2
        let rx = AnyOrder::new(1, 0, 8);
        let code = |header, len| check(&rx, 0..10, header, len).unwrap_err().code();
        let bad_queue = UntaggedRepr { last: true, rsvd_ulp: [0; 5], qn: Qn(1), msn: Msn(1), mo: 0 };
        assert_eq!(code(bad_queue.into(), 5), (2, 1));
        assert_eq!(rx.check(&(0..10), &send(1, 0, true), 5, &mut |_, _| None).unwrap_err().code(), (2, 2));
        assert_eq!(code(send(0, 0, true), 5), (2, 3));
        assert_eq!(code(send(4, 0, true), 5), (2, 3));
        assert_eq!(code(send(1, 100, true), 1), (2, 4));
        assert_eq!(code(send(1, 101, true), 0), (2, 4));
        assert_eq!(code(send(1, 99, true), 2), (2, 5));
        assert_eq!(check(&rx, 0..10, send(1, 100, true), 0), Ok(Admission::Place));
        assert_eq!(check(&rx, 0..10, send(1, 50, true), 50), Ok(Admission::Place), "a gap may yet be filled");
    }

    #[test]
    fn a_segment_without_a_position_is_dropped() {
        let mut rx = AnyOrder::new(3, 0, 8);
        for at in [0, 10] {
            assert_eq!(check(&rx, at..at, write(0, true), 1), Ok(Admission::Drop));
            rx.placed(at..at, &write(0, true), 1);
        }
        assert_eq!(rx.noted(), 0);
    }

    #[test]
    fn an_msn_half_the_range_ahead_counts_as_past() {
        // RFC 5041 §4.3
        let rx = AnyOrder::new(3, 0, 8);
        let early = |msn| rx.check(&(10..20), &send(msn, 0, true), 1, &mut |_, _| Some(100));
        assert_eq!(early(1 + (HALF - 1)), Ok(Admission::Place));
        assert_eq!(early(1 + HALF), Ok(Admission::Later));
        assert_eq!(early(0), Ok(Admission::Later));
    }

    #[test]
    fn the_true_segment_displaces_what_was_noted_in_its_place() {
        let mut rx = AnyOrder::new(3, 0, 8);
        rx.placed(5..15, &write(0, true), 1);
        rx.placed(20..30, &write(1, true), 1);
        assert_eq!(check(&rx, 15..21, write(2, true), 1), Ok(Admission::Later), "the place is taken");
        assert_eq!(check(&rx, 20..30, write(2, true), 1), Ok(Admission::Later), "by another segment");
        assert_eq!(give(&mut rx, 0..10, write(3, true), 1), [0]);
        assert_eq!(rx.noted(), 1);
        assert_eq!(give(&mut rx, 10..20, write(4, true), 1), [10, 20]);
    }

    #[test]
    fn noted_segments_are_limited_and_the_one_at_the_turn_always_fits() {
        let mut rx = AnyOrder::new(3, 0, 2);
        assert_eq!(give(&mut rx, 10..20, write(0, true), 1), []);
        assert_eq!(give(&mut rx, 20..30, write(1, true), 1), []);
        assert_eq!(check(&rx, 30..40, write(2, true), 1), Ok(Admission::Later));
        rx.placed(30..40, &write(2, true), 1);
        assert_eq!(rx.noted(), 2, "not even when it was placed unasked");
        assert_eq!(
            check(&rx, 20..30, write(1, true), 1),
            Ok(Admission::Place),
            "what is noted may be repeated"
        );
        assert_eq!(give(&mut rx, 0..10, write(3, true), 1), [0, 10, 20]);
    }

    #[test]
    fn messages_ended_out_of_order_end_the_stream() {
        // RFC 5041 §5.3
        let mut rx = AnyOrder::new(3, 0, 8);
        rx.placed(0..10, &send(2, 0, true), 1);
        assert!(!rx.is_dead(), "until it is their turn");
        let error = rx.deliver().unwrap_err();
        assert_eq!(error, DdpError::MsnOutOfRange { qn: Qn(0), got: Msn(2), expected: Msn(1) });
        assert!(rx.is_dead());
        assert_eq!(check(&rx, 10..20, send(1, 0, true), 1), Ok(Admission::Drop));
    }

    #[test]
    fn a_message_does_not_go_on_after_its_end() {
        // RFC 5041 §4.1: nothing of a message is behind its last segment.
        let mut rx = AnyOrder::new(3, 0, 8);
        rx.placed(10..20, &send(1, 0, false), 1);
        rx.placed(0..10, &send(1, 1, true), 1);
        assert_eq!(rx.deliver().unwrap().unwrap().position, 0..10);
        assert!(rx.deliver().is_err());
    }

    #[test]
    fn a_dead_stream_drops_everything() {
        // RFC 5041 §7.1
        let mut rx = AnyOrder::new(3, 0, 8);
        rx.placed(0..10, &write(0, true), 1);
        rx.fail();
        assert_eq!(rx.deliver(), Ok(None));
        assert_eq!(check(&rx, 0..10, write(0, true), 1), Ok(Admission::Drop));
        rx.placed(0..10, &write(0, true), 1);
        assert_eq!(rx.deliver(), Ok(None));
    }
}
