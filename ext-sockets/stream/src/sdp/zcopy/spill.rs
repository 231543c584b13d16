//! Adverts of this end that stand in memory of the stream: the call whose memory it was has
//! returned, and the peer reads on. What comes back of them is the head of the send queue.

use std::io::IoSlice;
use std::sync::atomic::Ordering;

use rddp_ddp::UntaggedRepr;
use rddp_iwarp::Record;
use rddp_mpa::mulpdu;
use rddp_rdmap::Opcode;
use rddp_sdp::machine::{Blocked, Machine, SourceId, SourceState};
use rddp_sdp::wire::HEADER_LEN;

use super::ZeroCopy;
use super::behind::may_queue;
use super::serve::{Ends, Tagged};
use super::state::{Backing, Requests, Zcopy, zcopy};
use crate::Errno;
use crate::buffers::LITTLE_SEND;
use crate::kept::Kept;
use crate::rooms::{QUEUED, Room};
use crate::sdp::outbound::copies_up_to;
use crate::sink::Source;
use crate::state::{Rx, Tx};
use crate::sys::{BLOCK, Chain, ChainError, Chains, Guard, Scratch, Tried, parts};
use crate::train::Train;
use crate::tx::{PIECES, TRAIN};

impl ZeroCopy<'_, '_> {
    /// Gives up the adverts of the stream's own memory: nobody can read them any more.
    pub(super) fn drop_spilled(&self, rx: &mut Guard<'_, Rx>) {
        let Some((_, _, all)) = zcopy(rx) else { return };
        for backing in &mut all.sources {
            if backing.kind == Backing::CHAIN {
                backing.kind = Backing::DROPPED;
            }
        }
        // Its Reads are not answered, and are no faults.
        all.adverts.requests = Requests::default();
        self.note_spilled(rx);
    }

    /// Copies the memory of an advert into the stream's, and points the advert there: all of it, as
    /// a peer may read octets again. Returns whether there was room.
    pub(super) fn spill(
        &self,
        rx: &mut Guard<'_, Rx>,
        place: usize,
        mut memory: Source<'_>,
    ) -> Result<bool, Errno> {
        rx.set_changing(true);
        let spilled = spill(rx, place, &mut memory);
        rx.set_changing(false);
        self.note_spilled(rx);
        spilled.map_err(|error| error.unwrap_or_else(|| self.damaged()))
    }

    /// Notes how many adverts stand in the stream's memory, and what that means for sends.
    pub(super) fn note_spilled(&self, rx: &mut Guard<'_, Rx>) {
        let Some((state, _, all)) = zcopy(rx) else { return };
        let spilled = all.sources.iter().filter(|backing| backing.kind == Backing::CHAIN).count();
        let was_any = self.state.sdp.spilled.load(Ordering::Acquire) > 0;
        let left = if spilled == 0 && was_any { LAST_IS_OWED } else { spilled as u64 };
        self.state.sdp.spilled.store(left, Ordering::Release);
        self.note_kept(Kept::Spilled, spilled > 0);
        state.sdp.behind.queues = may_queue(&all.sources).into();
        state.sdp.behind.is_full = (state.rooms.free(Room::Queued) < QUEUED / 3).into();
    }

    /// Gives up adverts of the stream's own memory that are over, and the block of tables with the
    /// last of all. The caller has marked the state as changing.
    pub(crate) fn settle_adverts(&self, rx: &mut Guard<'_, Rx>) {
        let Some((state, mut chains, all)) = zcopy(rx) else { return };
        let Zcopy { adverts, sources, .. } = &mut *all;
        for (place, backing) in sources.iter_mut().enumerate() {
            let id = SourceId::at(place);
            let mut machine = Machine::new(&mut state.sdp.core, Some(&mut adverts.tables));
            let source = machine.source(id);
            let is_over = match (backing.kind, source.state) {
                (Backing::CHAIN | Backing::DROPPED, SourceState::Done | SourceState::Free)
                | (Backing::DROPPED, SourceState::Returned) => true,
                _ => machine.aborted() && backing.kind != Backing::NONE,
            };
            if is_over {
                let _ = machine.release_source(id);
                state.rooms.release(backing.room(), backing.len as usize);
                let _ = chains.clear(&mut backing.chain);
                *backing = Backing::default();
            }
        }
        state.sdp.has_adverts = (!adverts.is_idle()).into();
        self.note_spilled(rx);
        let Some((state, _, all)) = zcopy(rx) else { return };
        if all.is_idle() && state.held.is_empty() {
            let (rx, _, mut table) = parts(rx);
            table.give_back(&mut rx.tables);
        }
    }

    /// Takes back the adverts of a call whose thread has died: over TCP its octets would not have
    /// been accepted.
    pub(crate) fn drop_what_the_dead_lent(&self, rx: &mut Guard<'_, Rx>) {
        let Some((_, _, all)) = zcopy(rx) else { return };
        if all.sources.iter().all(|backing| backing.kind != Backing::CALL) {
            return;
        }
        let _lock = match self.state.sdp.lender.try_lock() {
            Tried::Taken => return,
            Tried::Free(lock) | Tried::OfTheDead(lock) => lock,
        };
        let Some((rx, _, all)) = zcopy(rx) else { return };
        for backing in &mut all.sources {
            if backing.kind == Backing::CALL {
                backing.kind = Backing::DROPPED;
            }
        }
        // Refused where they have come back already.
        let _ = Machine::new(&mut rx.sdp.core, Some(&mut all.adverts.tables)).cancel_sources();
    }

    /// Sends what came back of adverts, as far as credits and TCP allow. Returns whether nothing of
    /// that is left.
    pub(crate) fn push_returned(&self, rx: &mut Guard<'_, Rx>, tx: &mut Tx) -> Result<bool, Errno> {
        while tx.owed().is_empty() {
            let Some((state, chains, all)) = zcopy(rx) else { return Ok(true) };
            // What TCP does not take does not count.
            let (mut sdp, mut adverts) = (state.sdp, all.adverts);
            let mut machine = Machine::new(&mut sdp.core, Some(&mut adverts.tables));
            let Some(id) = machine.returned() else { return Ok(true) };
            let backing = &all.sources[id.place()];
            let source = machine.source(id);
            let at = source.done.saturating_sub(backing.from) as usize;
            let rest = source.len.saturating_sub(source.done) as usize;
            if backing.kind != Backing::CHAIN {
                // The call that lends it sends it.
                return Ok(backing.kind != Backing::CALL);
            }
            let sent = if let Some(sink) = machine.peer_sink() {
                let message = Tagged { op: Opcode::Write, stag: sink.stag, to: sink.to, ends: Ends::Each };
                let len = rest.min(sink.left as usize);
                let pushed = chains.look_at(&backing.chain, at, len, |pieces| {
                    self.push_tagged(tx, message, Source::new(pieces))
                });
                let sent = pushed.unwrap_or_else(|_| Err(self.damaged()))?;
                let is_written = sent > 0 && machine.resend_written(id, sent as u32).is_ok();
                // Their call has returned: nobody else would report them.
                if machine.returned().is_none() {
                    machine.complete_peer_sink();
                }
                is_written
            } else {
                let room = match machine.resend_room() {
                    Ok(room) => room,
                    Err(blocked) => {
                        if blocked == Blocked::Credits {
                            state.sdp.wait_for_credits();
                        }
                        return Ok(false);
                    }
                };
                let len = rest.min(room).min(self.longest_in_fpdu(tx, rest));
                let Ok(front) = machine.resend(id, len) else { return Ok(false) };
                let pushed = chains.look_at(&backing.chain, at, len, |pieces| {
                    self.push_one_message(tx, &front, Source::new(pieces))
                });
                pushed.unwrap_or_else(|_| Err(self.damaged()))?
            };
            if !sent {
                return Ok(false);
            }
            rx.set_changing(true);
            let Some((state, mut chains, all)) = zcopy(rx) else { return Err(self.damaged()) };
            all.adverts = adverts;
            sdp.changing = 1;
            state.sdp = sdp;
            // Nobody reads what came back.
            let done = Machine::new(&mut state.sdp.core, Some(&mut all.adverts.tables)).source(id).done;
            let backing = &mut all.sources[id.place()];
            let gone = done.saturating_sub(backing.from);
            if chains.drop_front(&mut backing.chain, gone as usize).is_err() {
                return Err(self.damaged());
            }
            state.sdp.note_sent(1, gone as usize);
            state.rooms.release(backing.room(), gone as usize);
            (backing.from, backing.len) = (done, backing.len.saturating_sub(gone));
            self.settle_adverts(rx);
            rx.set_changing(false);
        }
        Ok(false)
    }

    /// Returns the octets of a Data that fills one FPDU.
    fn longest_in_fpdu(&self, tx: &mut Tx, octets: usize) -> usize {
        let emss = self.emss(tx, octets);
        let longest = mulpdu(emss, tx.out.markers).saturating_sub(UntaggedRepr::LEN + HEADER_LEN).max(1);
        if tx.prepare_to_owe(BLOCK) { longest } else { longest.min(LITTLE_SEND) }
    }

    /// Gives TCP a message of one FPDU. `false`: it has taken nothing of it.
    fn push_one_message(&self, tx: &mut Tx, front: &[u8], source: Source<'_>) -> Result<bool, Errno> {
        let len = source.left();
        let mut arena = Scratch::take()?;
        let mut source: Source<'_> = source;
        let mut list = [IoSlice::new(&[]); PIECES];
        let mut train = Train::new(&mut list, &mut arena, copies_up_to(self));
        let mut records = [Record::default()];
        let mut load = tx.out.load(TRAIN, &mut records);
        if !load.send(&mut train, front, &mut source, len).map_err(|_| Errno::FAULT)? {
            return Ok(false);
        }
        tx.set_moving(true);
        let octets = match self.write(&train, false, false) {
            Err(Errno::WOULD_BLOCK) => 0,
            Err(error) => {
                tx.set_moving(false);
                return Err(error);
            }
            Ok(octets) => octets,
        };
        let taken = tx.out.took(load.records(), octets);
        if taken.begun.is_some() {
            self.owe_rest(tx, &train, taken.owed())?;
        }
        tx.set_moving(false);
        Ok(taken.fpdus > 0)
    }
}

/// In place of the number of adverts in memory of the stream: there are none, but TCP has not taken
/// all of the last message.
pub(super) const LAST_IS_OWED: u64 = u64::MAX;

/// Copies the memory behind an advert. `Err(None)`: the numbers are damaged.
fn spill(rx: &mut Guard<'_, Rx>, place: usize, memory: &mut Source<'_>) -> Result<bool, Option<Errno>> {
    let (_, mut chains, all) = zcopy(rx).ok_or(None)?;
    let backing = &mut all.sources[place];
    while memory.left() > 0 {
        let error = match copy_in(&mut chains, &mut backing.chain, memory) {
            Ok(Ok(_)) => continue,
            // Memory that is gone has nothing that could be read.
            Ok(Err(_)) | Err(ChainError::NoRoom) => Ok(false),
            Err(ChainError::Damaged) => Err(None),
        };
        chains.clear(&mut backing.chain).map_err(|_| None)?;
        return error;
    }
    (backing.kind, backing.from) = (Backing::CHAIN, 0);
    Ok(true)
}

/// Copies some of the next octets to the end of a chain, and passes them. The inner error is
/// `EFAULT`: the first one is not mapped.
pub(super) fn copy_in(
    chains: &mut Chains<'_>,
    chain: &mut Chain,
    memory: &mut Source<'_>,
) -> Result<Result<usize, Errno>, ChainError> {
    chains.fill(chain, memory.left(), |pieces| {
        let mut count = 0;
        for piece in pieces {
            let now = memory.copy_some(piece);
            count += now;
            if now < piece.len() {
                break;
            }
        }
        if count == 0 { Err(Errno::FAULT) } else { Ok(count) }
    })
}
