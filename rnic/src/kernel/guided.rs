//! [`Guided`]: a connection whose segments the kernel places, as the reader of its stream sees it.

use std::sync::Arc;

use rddp_ddp::Stag;
use rddp_kernel_patch::kernel::{self as placed, Awaited, Guide, Most, Placing};
use rddp_kernel_patch::layout::{Outcome, RECEIVES, RECORD_BEHIND, RECORD_SUMMED, Record};
use rddp_mpa::{CRC_LEN, LENGTH_LEN, crc32c, crc32c_append, fpdu_len, pad_len};
use rddp_rdma::{RecvWr, Sge};

use super::on::Kernel;
use super::{Checked, Front, KernelCounts, Run};
use crate::mem::Grant;

/// A connection whose segments the program places.
#[derive(Debug)]
pub(crate) struct Guided {
    guide: Guide,
    kernel: Arc<Kernel>,
    /// FPDUs have CRCs.
    crc: bool,
    /// Octets that were taken from TCP since placement began.
    taken: u64,
    /// The message on queue 0 whose receive has not completed, and the first one whose receive the
    /// program has not been told of.
    next_msn: u32,
    untold_msn: u32,
    counts: KernelCounts,
}

impl Guided {
    /// Guides a reader that has read nothing since placement began, and has received no message.
    pub(super) fn new(placing: Placing, kernel: Arc<Kernel>, crc: bool) -> Self {
        Self {
            guide: Guide::new(placing, 0),
            kernel,
            crc,
            taken: 0,
            next_msn: FIRST_MSN,
            untold_msn: FIRST_MSN,
            counts: KernelCounts::default(),
        }
    }

    /// Notes that so many octets were taken from TCP: the program places nothing in front of their
    /// end any more.
    pub(crate) fn note_read(&mut self, count: usize) {
        self.taken += count as u64;
        self.guide.note_read(self.taken, count);
    }

    /// Returns how many octets the next read may take, at most `room`, where `have` octets of the
    /// stream have been read and not handled: no payload that has been placed is to be copied.
    pub(crate) fn room(&mut self, have: usize, room: usize) -> usize {
        let front = self.taken - have as u64;
        // The one at the front is not confirmed, or it would not be read.
        let from = self.taken.max(front + 1);
        let Some(free) = self.guide.free(from) else { return room };
        // A record within the FPDU at the front is of octets that only look like an FPDU.
        let room_before = usize::try_from(from - self.taken + free).unwrap_or(room);
        room.min(room_before.max(1))
    }

    /// Returns whether the program has placed the FPDU at the front of the stream, of which nothing
    /// has been taken from TCP.
    pub(crate) fn is_next_placed(&mut self) -> bool {
        self.guide.is_placed(self.taken)
    }

    /// Begins the turn of the FPDUs at the front of the stream that the program has placed. Since
    /// before the call TCP has had `there` octets.
    pub(crate) fn enter_run(&mut self, there: usize) -> Run {
        let placed::Run { octets, is_sure } = self.guide.enter_run(self.taken, there as u64, MOST);
        Run { octets: octets as usize, is_sure }
    }

    /// Returns the front of the FPDU of a sure run that is `ahead` octets behind what was taken
    /// from TCP.
    pub(crate) fn front(&self, ahead: usize) -> Option<Front> {
        self.guide.record(self.taken + ahead as u64).map(|record| record.front)
    }

    /// Confirms that FPDU, if its payload is in the granted place and its CRC fits: the octets are
    /// summed where they lie, if they have not been. A Write is by `stag`, which has to be open
    /// since before that: what has been closed meanwhile was this end's own.
    pub(crate) fn confirm(&mut self, ahead: usize, grant: &Grant, stag: Option<Stag>) -> Option<Checked> {
        let position = self.taken + ahead as u64;
        let Record { at, len, crc, front, opening, stamp, .. } = *self.guide.record(position)?;
        let fpdu_len = len_of(&front)?;
        if stag.is_some_and(|stag| self.kernel.opening(stag) != Some(opening)) {
            return None;
        }
        if (at..at + u64::from(len)) != self.kernel.place_of(&grant.octets())? {
            return None;
        }
        if self.crc && stamp & RECORD_SUMMED == 0 {
            let (before, pad) = around(&front, grant.len())?;
            let sum = grant.crc32c_append(0, grant.len(), before).ok()?;
            if crc32c_append(sum, pad).to_le_bytes() != crc {
                self.counts.wrong += 1;
                return None;
            }
        }
        self.count_confirmed(grant.len(), stamp);
        // The next one is at the front then, where it is found at once.
        let end = position + fpdu_len as u64;
        self.guide.enter(end, end);
        Some(Checked { fpdu_len, crc: u32::from_le_bytes(crc), field: crc })
    }

    /// Checks the payload in the granted place of an FPDU whose turn it is, `ahead` octets behind
    /// what was taken from TCP. `fpdu` is what the stream has of it, which is all of it, and the
    /// payload has so many octets in front of it.
    pub(crate) fn confirm_by_look(
        &mut self,
        ahead: usize,
        (fpdu, front_len): (&[u8], usize),
        grant: &Grant,
    ) -> Option<Checked> {
        let position = self.taken + ahead as u64;
        let (front, rest) = fpdu.split_at_checked(front_len)?;
        let (payload, tail) = rest.split_at_checked(grant.len())?;
        let (pad, field) = tail.split_last_chunk::<CRC_LEN>()?;
        if self.guide.claim(position, front)? != self.kernel.place_of(&grant.octets())? {
            return None;
        }
        // With CRCs off, the octets in memory must be those of the stream all the same.
        let before = if self.crc { crc32c(front) } else { 0 };
        let sum = grant.crc32c_append(0, grant.len(), before).ok()?;
        let (sum, is_right) = match self.crc {
            true => {
                let sum = crc32c_append(sum, pad);
                (sum, sum.to_le_bytes() == *field)
            }
            false => (0, sum == crc32c(payload)),
        };
        if !is_right {
            self.counts.wrong += 1;
            return None;
        }
        let stamp = self.guide.record(position)?.stamp;
        self.count_confirmed(grant.len(), stamp);
        self.counts.looked_at += 1;
        Some(Checked { fpdu_len: fpdu.len(), crc: sum, field: *field })
    }

    /// Takes what the program has placed since, and sums it, while there is nothing to read.
    /// Returns whether there was something to sum, and whether anything waits for its turn.
    pub(crate) fn sum_ahead(&mut self) -> (bool, bool) {
        if !self.crc {
            return (false, false);
        }
        let (summed, is_any) = self.guide.sum_ahead(|record| fits(&self.kernel, record));
        self.counts.summed_ahead += summed;
        (summed > 0, is_any)
    }

    fn count_confirmed(&mut self, octets: usize, stamp: u32) {
        self.counts.confirmed += 1;
        self.counts.octets += octets as u64;
        if stamp & RECORD_BEHIND != 0 {
            self.counts.octets_behind += octets as u64;
        }
    }

    /// Stores the payload of the FPDU whose turn it is, or a part of it, by `store`, which returns
    /// whether it could. What the program has put there of FPDUs that follow is void.
    pub(crate) fn store(&mut self, grant: &Grant, store: impl FnOnce() -> bool) -> bool {
        let place = self.kernel.place_of(&grant.octets());
        let stored = store();
        if let Some(place) = place {
            self.guide.placed_by_user(&place);
        }
        stored
    }

    /// Tells the program of the receives that it does not know yet, of as many messages as it can.
    /// `posted` are those that no message has taken, and `taken` is how many messages have taken
    /// one that has not completed.
    pub(crate) fn tell_receives<'a>(
        &mut self,
        posted: impl ExactSizeIterator<Item = &'a RecvWr>,
        taken: u32,
    ) {
        let first = self.next_msn.wrapping_add(taken);
        // Of those, the ones that the program knows, or has missed, come first.
        let known = self.untold_msn.wrapping_sub(first).cast_signed().max(0) as usize;
        let most = (RECEIVES - taken) as usize;
        let end = posted.len().min(most);
        for (number, wr) in posted.enumerate().take(end).skip(known) {
            if let [sge] = &wr.scatter[..]
                && let Some(memory) = self.awaited(sge)
            {
                self.guide.open_receive(first.wrapping_add(number as u32), &memory);
            }
        }
        self.untold_msn = first.wrapping_add(end.max(known) as u32);
    }

    /// Notes that the receive of the next message is about to complete: its memory is the user's
    /// from now on.
    pub(crate) fn end_receive(&mut self) {
        self.guide.close_receive(self.next_msn);
        self.next_msn = self.next_msn.wrapping_add(1);
    }

    /// Tells the program of a Read that is about to be sent.
    pub(crate) fn tell_sink(&mut self, id: u64, sink: &Sge) {
        if let Some(memory) = self.awaited(sink) {
            self.guide.open_sink(id, &memory);
        }
    }

    /// Notes that a Read is about to complete.
    pub(crate) fn end_sink(&mut self, id: u64) {
        self.guide.close_sink(id);
    }

    /// Ends placement: whatever completes from now on, the program does not change its memory.
    pub(crate) fn stop(&mut self) {
        self.guide.stop();
    }

    /// Returns what has been counted.
    pub(crate) fn counts(&self) -> KernelCounts {
        let program = self.guide.placing().counts();
        KernelCounts {
            segments: program.segments,
            placed: program.fpdus,
            unaligned: self.guide.placing().left(Outcome::Unaligned),
            octets_unseen: program.octets_unseen,
            interface: program.interface,
            ..self.counts
        }
    }

    /// Returns memory of this end's as the program knows it, if it reaches it.
    fn awaited(&self, sge: &Sge) -> Option<Awaited> {
        let Sge { stag, addr, len } = *sge;
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.kernel.is_open_to_own(stag).then_some(Awaited { stag: stag.0, to: addr, len })
    }
}

/// Octets that are confirmed and dropped at a time. Those that are looked at are few enough to stay
/// in the cache, and enough for a system call to be of no account.
const MOST: Most = Most { sure: 1 << 20, looked_at: 66 << 10 };

/// MSN of a queue's first message (RFC 5041 §5.1).
const FIRST_MSN: u32 = 1;

/// Returns whether the CRC of an FPDU fits the octets in its place.
fn fits(kernel: &Kernel, record: &Record) -> bool {
    let sum = || {
        let (before, pad) = around(&record.front, record.len as usize)?;
        let sum = kernel.crc32c_append(&(record.at..record.at + u64::from(record.len)), before)?;
        Some(crc32c_append(sum, pad))
    };
    sum().is_some_and(|sum| sum.to_le_bytes() == record.crc)
}

/// Returns the CRC of what an FPDU has in front of so many octets of payload, and the pad behind
/// them. Octets of pads are zero (RFC 5044 §4.1); an FPDU of others is taken from the stream.
fn around(front: &[u8], payload_len: usize) -> Option<(u32, &'static [u8])> {
    let [first, second, ..] = *front else { return None };
    let ulpdu_len = usize::from(u16::from_be_bytes([first, second]));
    let front = front.get(..(LENGTH_LEN + ulpdu_len).checked_sub(payload_len)?)?;
    Some((crc32c(front), &[0; 3][..pad_len(ulpdu_len)]))
}

/// Returns the octets of the FPDU whose first ones these are.
fn len_of(octets: &[u8]) -> Option<usize> {
    octets.first_chunk().map(|len| fpdu_len(usize::from(u16::from_be_bytes(*len))))
}
