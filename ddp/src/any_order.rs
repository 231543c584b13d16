//! `AnyOrder`: segments are placed as they come, whatever is missing in front of them, and possibly more than
//! once; messages are delivered once and in order (RFC 5041 §5.3, §5.4).
//!
//! For an LLP that keeps segment boundaries, and for placement underneath TCP. A segment is known by its
//! *position*, the range it takes up in the stream: TCP sequence numbers carried on to 64 bits, or a record
//! number and the next. Everything in front of the *turn* has been placed and counted. Only the segment at
//! the turn is judged: it is the one that TCP vouches for. One that is early is either sound and placed, or
//! put off without a verdict, for a buffer may yet be posted and a forged copy may yet be replaced by the
//! true one. So the first fault in the order of the stream is the one reported.

use core::ops::Range;
use std::collections::VecDeque;

use crate::{DdpError, Header, Msn, Qn, UntaggedRepr};

/// What to do with a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Place its payload, then call [`placed`](AnyOrder::placed). Before that, the memory of a tagged segment
    /// with payload is to be checked; where that fails it is a fault at its [turn](AnyOrder::turn), and else
    /// a reason to put it off.
    Place,
    /// Early, and not to be placed now: something else is noted there, its buffer is not there yet, or
    /// nothing more can be noted. Give it again when its turn comes, or any time before.
    Later,
    /// All or part of it has been counted already, or the stream is dead. Drop it: what has been delivered
    /// must not change.
    Drop,
}

/// A message that is complete, and so is everything before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Header of its last segment.
    pub header: Header,
    /// Octets of the message, if it is untagged.
    pub length: Option<u32>,
    /// Position of its last segment.
    pub position: Range<u64>,
}

/// The receiving half of a stream whose segments come in any order.
#[derive(Clone, Debug)]
pub struct AnyOrder {
    turn: u64,
    /// Placed and not counted yet, disjoint and by position.
    noted: VecDeque<Noted>,
    room: usize,
    /// The message to be delivered next on each queue.
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
    /// A stream with `queues` queues whose first segment is at position `start`. Notes no more than `room`
    /// early segments; that, and nothing a peer does, decides how much memory it takes.
    #[must_use]
    pub fn new(queues: u32, start: u64, room: usize) -> Self {
        Self {
            turn: start,
            // One more, because the segment whose turn it is always finds room.
            noted: VecDeque::with_capacity(room + 1),
            room,
            queues: vec![Msn::FIRST; queues as usize].into(),
            dead: false,
        }
    }

    /// Where the next segment to be counted begins.
    #[must_use]
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// Segments that are placed and wait for others in front of them.
    #[must_use]
    pub fn noted(&self) -> usize {
        self.noted.len()
    }

    /// The message to be delivered next on queue `qn`; those before it are done with.
    #[must_use]
    pub fn next_msn(&self, qn: Qn) -> Option<Msn> {
        self.queues.get(qn.0 as usize).copied()
    }

    /// Judges a segment with `len` octets of payload. `buffer` gives the length of the buffer of a message,
    /// `None` when there is none yet; until the message is delivered it is always the same buffer. Changes
    /// nothing.
    ///
    /// # Errors
    /// A fault, only of the segment whose turn it is. It is final once its CRC is known to be good; then call
    /// [`fail`](Self::fail).
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

    /// Notes that a segment was placed which [`check`](Self::check) had admitted, and whose CRC is good.
    pub fn placed(&mut self, position: Range<u64>, header: &Header, len: usize) {
        if self.dead || position.start < self.turn || position.is_empty() {
            return;
        }
        if position.start == self.turn {
            // What was noted on the same octets was not what the stream really held there.
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

    /// The next message that is complete, if there is one; to be called until there is none.
    ///
    /// # Errors
    /// [`DdpError::MsnOutOfRange`]: the sender has ended messages out of their order, or gone on with one
    /// that it had ended. The stream is then dead.
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

    /// Whether the stream has ended.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// RFC 5041 §7.1, the five checks of an untagged segment. A message that is not yet its queue's next is
    /// in order as long as there is a buffer for it.
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

    /// The queue is there, and the message has not been delivered.
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

    /// Whether an early segment may be noted: either it is already, or its octets are free and there is room.
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

    /// Counts the segment in that is at the turn; gives the length of the untagged message it ends.
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

/// MSNs up to here ahead of the next one are of the future, the others of the past.
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

    /// Gives a segment that is to be placed; says where what is delivered begins.
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
    fn at_its_turn_a_segment_has_the_codes_of_the_rfc() {
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
    fn a_message_from_half_the_numbers_ahead_is_of_the_past() {
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
    fn notes_are_limited_and_the_turn_always_goes_on() {
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
