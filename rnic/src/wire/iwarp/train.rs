//! A train: many FPDUs in one vectored write, their payload still in registered memory.
//!
//! Headers, trailers and short payloads lie in the arena; long payloads are pieces of registered
//! memory, held live by their [`Grant`]s until the write has returned, and what others may change
//! is copied as well. A train lives for one write only: FPDUs that TCP did not begin to take are
//! forgotten and built anew later, the rest of one that it did begin is copied out by
//! [`Train::outcome`].

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use rddp_ddp::Header;
use rddp_iwarp::Segments;
use rddp_mpa::{Framer, LENGTH_LEN, crc32c};
use smallvec::SmallVec;

use super::arena::Arena;
use crate::mem::{Claim, Faulted, Grant, Piece, SendFlags, send_vectored};
use crate::qp::memory::Grants;
use crate::qp::sq::Cursor;

/// Payloads up to this size are copied next to their headers: an iovec more costs as much.
const COPY_UP_TO: usize = 2048;

/// Octets with which a train is full. TCP takes as much as its buffers have room for; in trains of
/// 128 KiB a quarter less goes over loopback.
const MAX_OCTETS: usize = 1024 * 1024;

/// Octets in the arena with which a train is full: what TCP does not take is copied for nothing,
/// and what a cache does not hold is copied slowly. With a TCP segment of 1500 octets, all of a
/// train is.
const MAX_COPIED: usize = 256 * 1024;

/// Pieces that one write takes (`IOV_MAX` is 1024), with room for one FPDU and the octets that go
/// first.
const MAX_PIECES: usize = 1000;

/// Octets of registered memory, or of an inline request.
pub(super) enum Source<'a> {
    Granted(&'a mut Grants),
    /// Memory that may change between its CRC and the write.
    Shared(&'a mut Grants),
    Inline(&'a [u8]),
}

enum Part {
    Arena(Range<usize>),
    Granted(Grant),
}

impl Part {
    fn len(&self) -> usize {
        match self {
            Part::Arena(range) => range.len(),
            Part::Granted(grant) => grant.len(),
        }
    }
}

/// The state to take up when TCP has taken the FPDU.
#[derive(Clone, Debug)]
struct Record {
    /// Octets of the train up to the FPDU's end.
    end: usize,
    /// Payload octets of [`Source::Shared`] up to there.
    copied: usize,
    cursor: Cursor,
    framer: Framer,
}

/// The part of a train that TCP took.
pub(super) struct Outcome {
    /// The state behind the last FPDU that TCP took whole, if any.
    pub(super) whole: Option<(Cursor, Framer)>,
    /// The state behind an FPDU that TCP has begun, with the octets of it that are left, if they
    /// can still be had.
    pub(super) started: Option<(Cursor, Framer, Result<Vec<u8>, Faulted>)>,
    /// FPDUs taken or begun.
    pub(super) fpdus: usize,
    /// Octets of the train up to the end of the last of these.
    pub(super) end: usize,
    /// Payload octets of these that were copied because they may change.
    pub(super) copied: usize,
}

#[derive(Default)]
pub(super) struct Train {
    arena: Arena,
    parts: Vec<Part>,
    records: Vec<Record>,
    len: usize,
    copied: usize,
    pub(super) segments: Segments,
    /// Of a train with payloads that are summed where they lie,
    /// until its octets are TCP's or copied.
    pub(super) claim: Option<Claim>,
    /// All payload is copied: the kernel found memory that has gone bad, and copying finds which.
    pub(super) copies: bool,
}

impl Train {
    #[inline]
    pub(super) fn clear(&mut self) {
        self.arena.clear();
        self.parts.clear();
        self.records.clear();
        (self.len, self.copied) = (0, 0);
        self.segments = Segments::default();
        self.claim = None;
        self.copies = false;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len >= MAX_OCTETS || self.arena.len() >= MAX_COPIED || self.parts.len() >= MAX_PIECES
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns whether a payload of registered memory is summed where it lies.
    #[inline]
    pub(super) fn sums_in_place(framer: &Framer, payload_len: usize) -> bool {
        payload_len > COPY_UP_TO && framer.framing().crc && !framer.framing().markers
    }

    /// From here on no FPDU shall reach over the end of a segment; of what is in the train already
    /// none does.
    pub(super) fn align(&mut self, mut segments: Segments) {
        if !self.segments.is_set() {
            segments.admit(self.len);
            self.segments = segments;
        }
    }

    /// Adds one FPDU, if it belongs to this write. `after` is the place in the send queue behind
    /// it. After an error the train is as before, and `framer` of no use.
    #[inline]
    pub(super) fn push(
        &mut self,
        framer: &mut Framer,
        header: &Header,
        payload: Source<'_>,
        payload_len: usize,
        after: Cursor,
    ) -> Result<bool, Faulted> {
        if !self.segments.admit(framer.fpdu_len(header.len() + payload_len)) {
            return Ok(false);
        }
        match payload {
            Source::Inline(octets) => {
                let fill = |offset: usize, out: &mut [u8]| {
                    out.copy_from_slice(&octets[offset..offset + out.len()]);
                    Ok(())
                };
                self.push_copied(framer, header, payload_len, fill)?;
            }
            Source::Granted(grants)
                if payload_len <= COPY_UP_TO || framer.framing().markers || self.copies =>
            {
                let fill = |offset: usize, out: &mut [u8]| copy_gathered(grants, offset, out);
                self.push_copied(framer, header, payload_len, fill)?;
                grants.clear();
            }
            Source::Granted(grants) => self.push_gathered(framer, header, grants, payload_len)?,
            Source::Shared(grants) => self.push_shared(framer, header, grants, payload_len)?,
        }
        self.records.push(Record {
            end: self.len,
            copied: self.copied,
            cursor: after,
            framer: framer.clone(),
        });
        Ok(true)
    }

    #[inline]
    fn push_copied(
        &mut self,
        framer: &mut Framer,
        header: &Header,
        payload_len: usize,
        fill: impl FnMut(usize, &mut [u8]) -> Result<(), Faulted>,
    ) -> Result<(), Faulted> {
        let (header, start) = (header.octets(), self.arena.len());
        self.arena.emit(framer, header.as_ref(), payload_len, fill)?;
        self.arena_part(start);
        Ok(())
    }

    #[inline]
    fn push_gathered(
        &mut self,
        framer: &mut Framer,
        header: &Header,
        grants: &mut Grants,
        payload_len: usize,
    ) -> Result<(), Faulted> {
        let (ulpdu_len, start) = (header.len() + payload_len, self.arena.len());
        let begin = self.begin_fpdu(header, ulpdu_len);
        let crc = if framer.framing().crc {
            let crc = crc32c(self.arena.get(begin));
            let sum = grants.iter().try_fold(crc, |crc, grant| grant.crc32c_append(0, grant.len(), crc));
            sum.inspect_err(|Faulted| self.arena.truncate(start))?
        } else {
            0
        };
        self.arena_part(start);
        for grant in grants.drain(..) {
            self.len += grant.len();
            self.parts.push(Part::Granted(grant));
        }
        let start = self.arena.len();
        self.arena.append(framer.trailer(ulpdu_len, crc).as_ref());
        self.arena_part(start);
        Ok(())
    }

    /// Copies and sums in one pass. With CRC and without markers only.
    fn push_shared(
        &mut self,
        framer: &mut Framer,
        header: &Header,
        grants: &mut Grants,
        payload_len: usize,
    ) -> Result<(), Faulted> {
        let (ulpdu_len, start) = (header.len() + payload_len, self.arena.len());
        let begin = self.begin_fpdu(header, ulpdu_len);
        let mut crc = crc32c(self.arena.get(begin));
        // RFC 5044 §4.4: the CRC is of the octets that leave, whatever becomes of those in memory.
        for grant in grants.drain(..) {
            let copied = grant.copy_to_with_crc(0, self.arena.room(grant.len()), crc);
            crc = copied.inspect_err(|Faulted| self.arena.truncate(start))?;
        }
        self.arena.append(framer.trailer(ulpdu_len, crc).as_ref());
        self.arena_part(start);
        self.copied += payload_len;
        Ok(())
    }

    /// Puts what comes before the payload into the arena; where it is.
    #[inline]
    fn begin_fpdu(&mut self, header: &Header, ulpdu_len: usize) -> Range<usize> {
        let start = self.arena.len();
        let length = u16::try_from(ulpdu_len).unwrap_or(u16::MAX).to_be_bytes();
        self.arena.append(&length);
        self.arena.append(header.octets().as_ref());
        debug_assert_eq!(self.arena.len() - start, LENGTH_LEN + header.len());
        start..self.arena.len()
    }

    /// Makes the arena from `start` on part of the train, joined to the part before it where they
    /// touch.
    fn arena_part(&mut self, start: usize) {
        let end = self.arena.len();
        self.len += end - start;
        match self.parts.last_mut() {
            Some(Part::Arena(range)) if range.end == start => range.end = end,
            _ => self.parts.push(Part::Arena(start..end)),
        }
    }

    /// Writes `first` (octets that were promised to TCP earlier) and the train; how many octets TCP
    /// took.
    pub(super) fn write(
        &self,
        socket: BorrowedFd<'_>,
        first: &[u8],
        end_of_record: bool,
    ) -> io::Result<usize> {
        // Short messages are one piece, two FPDUs with long payloads five.
        let mut pieces: SmallVec<[Piece<'_>; 6]> = SmallVec::with_capacity(self.parts.len() + 1);
        if !first.is_empty() {
            pieces.push(Piece::Own(first));
        }
        pieces.extend(self.parts.iter().map(|part| match part {
            Part::Arena(range) => Piece::Own(self.arena.get(range.clone())),
            Part::Granted(grant) => Piece::Granted(grant, 0..grant.len()),
        }));
        send_vectored(socket, &pieces, SendFlags { more: false, eor: end_of_record })
    }

    /// Returns what became of the FPDUs, `taken` octets of the train being TCP's now.
    #[inline]
    pub(super) fn outcome(&self, taken: usize) -> Outcome {
        let whole = self.records.partition_point(|record| record.end <= taken);
        let begun = whole.checked_sub(1).map_or(0, |last| self.records[last].end);
        let started = self.records.get(whole).filter(|_| taken > begun);
        let end = started.map_or(begun, |record| record.end);
        let fpdus = whole + usize::from(started.is_some());
        let copied = fpdus.checked_sub(1).map_or(0, |last| self.records[last].copied);
        Outcome {
            whole: whole
                .checked_sub(1)
                .map(|last| (self.records[last].cursor, self.records[last].framer.clone())),
            started: started
                .map(|record| (record.cursor, record.framer.clone(), self.copy_out(taken..record.end))),
            fpdus,
            end,
            copied,
        }
    }

    /// Copies octets of the train: what is left of a started FPDU must not depend on memory that
    /// may be deregistered.
    fn copy_out(&self, range: Range<usize>) -> Result<Vec<u8>, Faulted> {
        let mut out = Vec::with_capacity(range.len());
        let mut at = 0;
        for part in &self.parts {
            let (from, to) = (range.start.max(at), range.end.min(at + part.len()));
            if from < to {
                let within = from - at..to - at;
                match part {
                    Part::Arena(octets) => {
                        let within = octets.start + within.start..octets.start + within.end;
                        out.extend_from_slice(self.arena.get(within));
                    }
                    Part::Granted(grant) => {
                        let start = out.len();
                        out.resize(start + within.len(), 0);
                        grant.copy_to(within.start, &mut out[start..])?;
                    }
                }
            }
            at += part.len();
        }
        Ok(out)
    }
}

/// Copies from the gather list, beginning `offset` octets into it.
fn copy_gathered(grants: &[Grant], mut offset: usize, mut out: &mut [u8]) -> Result<(), Faulted> {
    for grant in grants {
        if offset >= grant.len() {
            offset -= grant.len();
            continue;
        }
        let count = out.len().min(grant.len() - offset);
        let (now, later) = out.split_at_mut(count);
        grant.copy_to(offset, now)?;
        out = later;
        offset = 0;
        if out.is_empty() {
            break;
        }
    }
    Ok(())
}
