//! A train: many FPDUs in one vectored write, their payload still in registered memory.
//!
//! Headers, trailers and short payloads lie in the arena; long payloads are pieces of registered
//! memory, held live by their [`Grant`]s until the write has returned, and what others may change
//! is copied as well. A train lives for one write only: FPDUs that TCP did not begin to take are
//! forgotten and built anew later, the rest of one that it did begin is copied out by
//! [`Train::copy_out`].

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use rddp_ddp::Header;
use rddp_iwarp::{Gather, Record, Segments, Taken, push_copied, push_gathered, taken};
use rddp_mpa::Framer;
use smallvec::SmallVec;

use super::ahead::Ahead;
use super::arena::Arena;
use super::lend::Answered;
use crate::mem::{Claim, Faulted, Grant, Piece, SendFlags, send_vectored};
use crate::queues::attributes::QpAttributes;
use crate::queues::memory::Grants;
use crate::queues::sq::Cursor;

/// Payloads up to this size are copied next to their headers: an iovec more costs as much.
pub(super) const COPY_UP_TO: usize = 2048;

/// Octets with which a train is full. TCP takes as much as its buffers have room for; in trains of
/// 128 KiB a quarter less goes over loopback.
const MAX_OCTETS: usize = 1024 * 1024;

/// Octets in the arena with which a train is full: what TCP does not take is copied for nothing,
/// and what a cache does not hold is copied slowly. With a TCP segment of 1500 octets, all of a
/// train is.
const MAX_COPIED: usize = 256 * 1024;

/// Octets with which a train is full whose FPDUs are aligned with TCP segments, until TCP has taken
/// such a train whole. Within a write they lose that where TCP meets the edge of the peer's window;
/// the next begins a segment again. A message of 64 KiB is one write.
pub(super) const MAX_ALIGNED: usize = 72 * 1024;

/// Octets that TCP hands to a device as one segment, which the device cuts: 64 KiB less the room
/// that Linux keeps for headers.
const SUPER_SEGMENT: usize = 65_215;

/// Super-segments with which an aligned train is full that follows one which TCP has taken whole.
const SUPER_SEGMENTS: usize = 4;

/// Returns the octets of such a train: a shorter super-segment at its end would cost as much.
pub(super) fn long_aligned(emss: usize) -> usize {
    SUPER_SEGMENTS * (SUPER_SEGMENT - SUPER_SEGMENT % emss.max(1))
}

/// Pieces that one write takes (`IOV_MAX` is 1024), with room for one FPDU and the octets that go
/// first.
const MAX_PIECES: usize = 1000;

/// Octets of registered memory, or of an inline request.
pub(super) enum Source<'a> {
    Granted(&'a mut Grants),
    /// Memory that may change between its CRC and the write.
    Shared(&'a mut Grants),
    InFile(&'a mut InFile<'a>),
    Inline(&'a [u8]),
}

/// Memory some or all of which is in a file, and what has been read of that.
pub(super) struct InFile<'a> {
    pub(super) grants: &'a mut Grants,
    pub(super) ahead: &'a mut Ahead,
    pub(super) attrs: &'a QpAttributes,
}

impl InFile<'_> {
    #[cold]
    #[inline(never)]
    fn copy_to(&mut self, offset: usize, out: &mut [u8]) -> Result<(), Faulted> {
        let Self { grants, ahead, attrs } = self;
        copy_gathered(grants, offset, out, |grant, at, out| ahead.copy_to(attrs, grant, at, out))
    }
}

impl Source<'_> {
    /// Copies from the payload, beginning `offset` octets into it.
    #[inline]
    fn copy_to(&mut self, offset: usize, out: &mut [u8]) -> Result<(), Faulted> {
        match self {
            Source::Inline(octets) => {
                out.copy_from_slice(&octets[offset..offset + out.len()]);
                Ok(())
            }
            Source::Granted(grants) | Source::Shared(grants) => {
                copy_gathered(grants, offset, out, Grant::copy_to)
            }
            Source::InFile(octets) => octets.copy_to(offset, out),
        }
    }

    /// Lets go of its memory.
    #[inline]
    fn let_go(&mut self) {
        if let Source::Granted(grants) | Source::Shared(grants) = self {
            grants.clear();
        }
    }
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

/// The position behind an FPDU.
#[derive(Clone, Copy, Debug)]
pub(super) enum Position {
    /// In the send queue.
    Own(Cursor),
    /// In the line of Responses. All FPDUs of a train are of one kind.
    Response(Answered),
}

/// The state to take up when TCP has taken an FPDU.
#[derive(Clone, Debug)]
pub(super) struct Behind {
    pub(super) position: Position,
    pub(super) framer: Framer,
    /// Payload octets up to there that were copied because they may change.
    pub(super) copied: usize,
}

#[derive(Default)]
pub(super) struct Train {
    arena: Arena,
    parts: Vec<Part>,
    records: Vec<Record<Behind>>,
    len: usize,
    copied: usize,
    pub(super) segments: Segments,
    /// Octets with which the train is full if its FPDUs are aligned.
    pub(super) most_aligned: usize,
    /// The claim of a train with payloads that are summed where they lie, until its octets are with
    /// TCP or copied.
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
        let most = if self.segments.is_set() { self.most_aligned } else { MAX_OCTETS };
        self.len >= most || self.arena.len() >= MAX_COPIED || self.parts.len() >= MAX_PIECES
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the FPDUs are of Responses.
    pub(super) fn answers(&self) -> bool {
        matches!(
            self.records.first(),
            Some(Record { after: Behind { position: Position::Response(_), .. }, .. })
        )
    }

    /// Returns whether a payload of registered memory is summed where it lies.
    #[inline]
    pub(super) fn sums_in_place(framer: &Framer, payload_len: usize) -> bool {
        payload_len > COPY_UP_TO && framer.framing().crc && !framer.framing().markers
    }

    /// Keeps FPDUs from reaching over the end of a TCP segment from here on; of those in the train
    /// already none does.
    pub(super) fn align(&mut self, mut segments: Segments) {
        if !self.segments.is_set() {
            segments.admit(self.len);
            self.segments = segments;
        }
    }

    /// Adds one FPDU, if it belongs to this write. `position` is the one behind it.
    ///
    /// # Errors
    /// Memory of the payload has gone bad. The train and `framer` are as before.
    #[inline]
    pub(super) fn push(
        &mut self,
        framer: &mut Framer,
        header: &Header,
        mut payload: Source<'_>,
        payload_len: usize,
        position: Position,
    ) -> Result<bool, Faulted> {
        if !self.segments.admit(framer.fpdu_len(header.len() + payload_len)) {
            return Ok(false);
        }
        let framing = framer.framing();
        let is_copied = match payload {
            // What is in a file is read whole, then summed.
            Source::Inline(_) | Source::InFile(_) => true,
            Source::Granted(_) => payload_len <= COPY_UP_TO || framing.markers || self.copies,
            Source::Shared(_) => false,
        };
        let pushed = if is_copied {
            push_copied(self, framer, header, payload_len, |offset, out| payload.copy_to(offset, out))?
        } else {
            push_gathered(self, framer, header, payload_len, |train, crc| match &mut payload {
                Source::Granted(grants) => train.lend(grants, framing.crc.then_some(crc)),
                Source::Shared(grants) => train.copy_and_sum(grants, crc),
                Source::Inline(_) | Source::InFile(_) => Ok(None),
            })?
        };
        if !pushed {
            return Ok(false);
        }
        payload.let_go();
        let after = Behind { position, framer: framer.clone(), copied: self.copied };
        self.records.push(Record { end: self.len, after });
        Ok(true)
    }

    /// Appends memory where it lies. Returns `crc` continued over it, and sums nothing without one.
    #[inline]
    fn lend(&mut self, grants: &mut Grants, crc: Option<u32>) -> Result<Option<u32>, Faulted> {
        let sum = |crc| grants.iter().try_fold(crc, |crc, grant| grant.crc32c_append(0, grant.len(), crc));
        let crc = crc.map_or(Ok(0), sum)?;
        for grant in grants.drain(..) {
            self.len += grant.len();
            self.parts.push(Part::Granted(grant));
        }
        Ok(Some(crc))
    }

    /// Appends copies, summed in the same pass. Returns `crc` continued over them.
    fn copy_and_sum(&mut self, grants: &mut Grants, mut crc: u32) -> Result<Option<u32>, Faulted> {
        let start = self.arena.len();
        // RFC 5044 §4.4: the CRC is of the octets that leave, whatever becomes of those in memory.
        for grant in grants.drain(..) {
            crc = grant.copy_to_with_crc(0, self.arena.room(grant.len()), crc)?;
        }
        self.copied += self.arena.len() - start;
        self.arena_part(start);
        Ok(Some(crc))
    }

    /// Adds the arena from `start` on to the train, joined to the part before it where they touch.
    fn arena_part(&mut self, start: usize) {
        let end = self.arena.len();
        self.len += end - start;
        match self.parts.last_mut() {
            Some(Part::Arena(range)) if range.end == start => range.end = end,
            _ => self.parts.push(Part::Arena(start..end)),
        }
    }

    /// Writes `first` (octets that were promised to TCP earlier) and the train. Returns how many
    /// octets TCP took.
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

    /// Returns what became of the FPDUs, `octets` of the train being TCP's now.
    #[inline]
    pub(super) fn taken(&self, octets: usize) -> Taken<'_, Behind> {
        taken(&self.records, octets)
    }

    /// Copies octets of the train: what is left of a started FPDU must not depend on memory that
    /// may be deregistered.
    pub(super) fn copy_out(&self, range: Range<usize>) -> Result<Vec<u8>, Faulted> {
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

/// The length of a train, for cutting it back.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    arena: usize,
    parts: usize,
    len: usize,
}

impl Gather for Train {
    type Mark = Mark;

    #[inline]
    fn mark(&self) -> Mark {
        Mark { arena: self.arena.len(), parts: self.parts.len(), len: self.len }
    }

    #[inline]
    fn cut_back(&mut self, mark: Mark) {
        self.arena.truncate(mark.arena);
        self.parts.truncate(mark.parts);
        if let Some(Part::Arena(range)) = self.parts.last_mut() {
            range.end = range.end.min(mark.arena);
        }
        self.len = mark.len;
    }

    #[inline]
    fn own<R>(&mut self, len: usize, write: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        let start = self.arena.len();
        let written = write(self.arena.room(len));
        self.arena_part(start);
        Some(written)
    }
}

/// Copies from the gather list, beginning `offset` octets into it.
#[inline]
fn copy_gathered(
    grants: &[Grant],
    mut offset: usize,
    mut out: &mut [u8],
    mut copy: impl FnMut(&Grant, usize, &mut [u8]) -> Result<(), Faulted>,
) -> Result<(), Faulted> {
    for grant in grants {
        if offset >= grant.len() {
            offset -= grant.len();
            continue;
        }
        let count = out.len().min(grant.len() - offset);
        let (now, later) = out.split_at_mut(count);
        copy(grant, offset, now)?;
        out = later;
        offset = 0;
        if out.is_empty() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(train: &mut Train, octets: &[u8]) {
        train.own(octets.len(), |out| out.copy_from_slice(octets)).expect("there is always room");
    }

    #[test]
    fn a_train_that_is_cut_back_is_as_it_was() {
        let mut train = Train::default();
        append(&mut train, b"kept");
        let mark = train.mark();
        append(&mut train, b" and forgotten");
        train.cut_back(mark);
        assert_eq!(train.len(), 4);
        append(&mut train, b", too");
        assert_eq!((train.len(), train.parts.len()), (9, 1));
        assert_eq!(train.copy_out(0..9).unwrap(), b"kept, too");
    }
}
