//! Sending: octets become FPDUs in the call that brings them, and go to TCP in that call.
//!
//! A write is one Send, or several when it is longer than the longest one; their segments fit the
//! EMSS of the moment. When TCP takes only a part, the rest of the FPDU that it has begun is
//! **owed**: copied to shared memory, where the next call finds it. A message that is then still
//! open is ended by another short FPDU, so that none is ever open between two calls: the next
//! octets may come from another process.

use std::io::IoSlice;
use std::ops::Range;

use rddp_ddp::UntaggedRepr;
use rddp_iwarp::{Record, Segments};
use rddp_mpa::mulpdu;
use rddp_octets::{After, Limits, Message, Plain};

use super::Errno;
use super::base::Base;
use super::buffers::LITTLE_SEND;
use super::duties::Outbound;
use super::options::write_each;
use super::owed::owe_end;
use super::sink::Source;
use super::state::Tx;
use super::sys::{BLOCK, Scratch, is_confined, lent, now};
use super::train::Train;

impl Base<'_> {
    /// Gives TCP what it takes of `source`, as plain octets in FPDUs, without waiting. Returns how
    /// many of its octets are taken or owed; `EAGAIN` when none.
    pub(super) fn push_octets(&self, mut source: Source<'_>, more: bool) -> Result<usize, Errno> {
        let mut tx = self.lock_tx()?;
        if !self.pay_and_frame(&mut tx)? {
            return Err(Errno::WOULD_BLOCK);
        }
        if tx.fin_due {
            return Err(Errno::BROKEN_PIPE);
        }
        let all = source.left();
        let written = self.push_source(&mut tx, &mut source, more, &mut Plain);
        tx.spare_owed();
        self.state.note_owed(&tx);
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

    /// Gives TCP what it takes of `source`, which moves on, in the FPDUs that `out` makes of it.
    /// Returns whether that was all.
    pub(super) fn push_source(
        &self,
        tx: &mut Tx,
        source: &mut Source<'_>,
        more: bool,
        out: &mut impl Outbound,
    ) -> Result<bool, Errno> {
        let mut open = None;
        let mut written = Ok(true);
        let mut good = None;
        // Taken once for all trains: if it fails, nothing has happened yet.
        let mut scratch = Scratch::take()?;
        while written == Ok(true) && source.left() > 0 {
            source.reach = good.unwrap_or(usize::MAX);
            if !out.has_leave() {
                written = Ok(false);
                break;
            }
            // A list of the usual length costs more than a short send does without.
            written = if source.left() <= SMALL {
                self.push_train::<FEW_PIECES, FEW_FPDUS>(tx, &mut scratch, source, &mut open, more, out)
            } else {
                self.push_train::<PIECES, FPDUS>(tx, &mut scratch, source, &mut open, more, out)
            };
            good = match written {
                // Tried again, up to the page that is not mapped.
                Err(Errno::FAULT) if good.is_none() => Some(source.readable(TRAIN)).filter(|good| *good > 0),
                _ => None,
            };
            if good.is_some() {
                written = Ok(true);
            }
        }
        if let Some(message) = open {
            close(tx, source, message);
            tx.set_moving(false);
            if written == Err(Errno::FAULT) {
                self.pay_octets(tx, 0)?;
            }
        }
        written
    }

    /// Sends one train of the octets within reach; returns whether TCP took all of it. `EFAULT`,
    /// and nothing has happened: there are octets in it that cannot be read. `source` and `open`
    /// move on behind the last FPDU that TCP has begun to take, whose rest is owed.
    #[inline]
    fn push_train<const PIECES: usize, const FPDUS: usize>(
        &self,
        tx: &mut Tx,
        arena: &mut [u8],
        source: &mut Source<'_>,
        open: &mut Option<Message>,
        more: bool,
        out: &mut impl Outbound,
    ) -> Result<bool, Errno> {
        let emss = self.emss(tx, source.left());
        let mulpdu = mulpdu(emss, tx.out.markers);
        let limits = Limits { mulpdu, max_send: self.max_send(tx, mulpdu, source.left()) };
        let mut list = [IoSlice::new(&[]); PIECES];
        let mut train = Train::new(&mut list, arena, out.copies_up_to(self));
        let mut records = [Record::default(); FPDUS];
        let reach = source.within_reach();
        let mut load = tx.out.load(TRAIN, &mut records);
        out.load(&mut load, &mut train, limits, reach, *open)?;
        let records = load.records();
        let mut segments = Segments::new(emss, 0);
        segments.add(train.len());
        let end_of_record = !more && segments.end_record(train.len());
        tx.set_moving(true);
        let octets = match self.write(&train, more, end_of_record) {
            Err(Errno::WOULD_BLOCK) => 0,
            Err(error) => {
                tx.set_moving(open.is_some());
                return Err(error);
            }
            Ok(octets) => octets,
        };
        let taken = tx.out.took(records, octets);
        if taken.begun.is_some() {
            self.owe_rest(tx, &train, taken.owed())?;
            tx.unaligned = if more { 0 } else { taken.end() as u32 };
        }
        if let Some(After { payload, message, .. }) = taken.last().map(|record| record.after) {
            source.skip(payload);
            *open = message;
        }
        out.taken(self, records, taken.fpdus);
        // Only this call knows that a message is open.
        tx.set_moving(open.is_some());
        Ok(octets == train.len())
    }

    /// Adds the rest of the FPDU that TCP has begun to take to what is owed: octets `rest` of the
    /// train.
    pub(super) fn owe_rest(
        &self,
        tx: &mut Tx,
        train: &Train<'_, '_>,
        rest: Range<usize>,
    ) -> Result<(), Errno> {
        tx.emss_asked = 0;
        let mut copy = [0; CLOSING];
        for octets in train.range(rest).flat_map(|piece| piece.chunks(CLOSING)) {
            // The memory was there when it was summed, and TCP has begun the FPDU.
            if lent::read(octets, &mut copy) < octets.len() {
                return Err(self.memory_gone());
            }
            let room = tx.owe(&copy[..octets.len()]);
            debug_assert!(room, "there is room for the rest of an FPDU");
        }
        Ok(())
    }

    /// Returns the length of the longest Send. The rest of one FPDU that TCP does not take, and the
    /// FPDU that then ends its message, are owed, for which a block is reserved. Without a block
    /// each Send is one FPDU, so short that it can be owed in the state.
    fn max_send(&self, tx: &mut Tx, mulpdu: usize, left: usize) -> u32 {
        let max_send = self.state.asked.max_send;
        let little = mulpdu.saturating_sub(UntaggedRepr::LEN).clamp(1, LITTLE_SEND);
        let fits = left <= little || (max_send as usize) <= little;
        if !fits && tx.prepare_to_owe(BLOCK) { max_send } else { max_send.min(little as u32) }
    }

    /// Writes the train; returns how many of its octets TCP took.
    pub(super) fn write(
        &self,
        train: &Train<'_, '_>,
        more: bool,
        end_of_record: bool,
    ) -> Result<usize, Errno> {
        if train.is_apart() {
            return write_each(&self.kernel, train.pieces());
        }
        let more = if more { libc::MSG_MORE } else { 0 };
        let end = if end_of_record { libc::MSG_EOR } else { 0 };
        self.kernel.send(train.pieces(), more | end)
    }

    /// Returns how many of the next `octets`, which are not the last, fill their segments, each
    /// behind so many octets of `headers`.
    pub(super) fn in_full_segments(&self, octets: usize, headers: usize) -> Result<usize, Errno> {
        let mut tx = self.lock_tx()?;
        if tx.emss == 0 {
            self.emss(&mut tx, octets);
        }
        let mulpdu = mulpdu((tx.emss as usize).max(SAFE_EMSS), tx.out.markers);
        let full = mulpdu.saturating_sub(UntaggedRepr::LEN + headers).max(1);
        Ok(if full > octets { octets } else { octets - octets % full })
    }

    /// Returns the EMSS to cut by, for a train of so many octets. It can change, so TCP is asked
    /// for each train that is longer than a segment, and for the first one behind that, behind one
    /// of which TCP took a part, or after a second; not for octets that fit any EMSS.
    pub(super) fn emss(&self, tx: &mut Tx, octets: usize) -> usize {
        if octets <= SMALL {
            return SAFE_EMSS;
        }
        let is_long = octets > tx.emss as usize;
        if (is_long || is_confined() || now().wrapping_sub(tx.emss_asked) >= EMSS_HOLDS)
            && let Some(emss) = self.kernel.emss()
        {
            tx.emss = emss as u32;
            tx.emss_asked = if octets > emss { 0 } else { now() };
        }
        (tx.emss as usize).max(SAFE_EMSS)
    }
}

/// Ends a message with some more of its octets; if they cannot be read, with none.
fn close(tx: &mut Tx, source: &mut Source<'_>, message: Message) {
    let mut octets = [0; CLOSING];
    let count = source.copy_some(&mut octets[..message.left().min(CLOSING)]);
    owe_end(tx, message, &octets[..count]);
}

/// Most pieces of one train: a longer list would have to go on the heap, which a signal handler may
/// have interrupted, or be too large for its stack. An FPDU of more pieces is copied.
pub(super) const PIECES: usize = 160;
/// FPDUs in one train.
pub(super) const FPDUS: usize = 64;
/// Both for a send of up to [`SMALL`] octets, which is one FPDU, its payload copied, in the usual
/// case.
const FEW_PIECES: usize = 16;
const FEW_FPDUS: usize = 4;
/// Octets at which a train is full.
pub(super) const TRAIN: usize = 256 * 1024;
/// Payload that fits one segment on any path, so that TCP is not asked for the EMSS.
const SMALL: usize = 480;
/// The EMSS for small messages, and if TCP does not tell it.
const SAFE_EMSS: usize = 536;
/// Nanoseconds for which an EMSS is believed: TCP's search for the path's MTU changes it now and
/// then.
const EMSS_HOLDS: u64 = 1_000_000_000;
/// Most payload of the FPDU that ends a message early.
const CLOSING: usize = 1024;
