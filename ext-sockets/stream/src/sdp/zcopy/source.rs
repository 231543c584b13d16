//! Sends whose octets the peer reads from the program's memory.
//!
//! The call lends its memory for as long as it runs: it sleeps by edges, answers Reads from its own
//! slices, and takes what the peer sends. It returns when the peer has read all, or when what is
//! behind the adverts is no longer the program's memory (`spill.rs`). A thread that lends for
//! operations (`operations.rs`) does the same, and they may become more meanwhile.

use std::time::Duration;

use rddp_sdp::machine::{Half, Machine, SourceState};
use rddp_sdp::wire::{LONGEST_CONTROL, Mode};

use super::ZeroCopy;
use super::lent::{Call, Lent, Owner};
use super::state::{Backing, Zcopy, reserve_zcopy, zcopy};
use crate::Errno;
use crate::owed::owe_send;
use crate::patience::Patience;
use crate::rooms::{ONE_SPILL, Room};
use crate::sdp::live;
use crate::sink::Source;
use crate::sleepers::Note;
use crate::state::{Rx, Tx};
use crate::sys::{Guard, HeldBack, Tried, is_confined, now, random};

/// The result of lending a send's octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lending {
    /// Octets from the front on that the peer has, or will have from the stream's memory.
    pub(crate) accepted: usize,
    /// The reason to end the call.
    pub(crate) error: Option<Errno>,
    /// The rest goes by copies.
    pub(crate) copies: bool,
}

impl Lending {
    const COPIES: Self = Self { accepted: 0, error: None, copies: true };
}

impl ZeroCopy<'_, '_> {
    /// Has the peer read octets of `source`, as far as sends of so many lend their memory. `Err`:
    /// the call is over, with all octets sent, or by this error.
    #[cold]
    pub(crate) fn send_lent(
        &self,
        source: &mut Source<'_>,
        patience: &Patience,
    ) -> Result<(), Option<Errno>> {
        while source.left() as u64 >= self.state.threshold() {
            let lending = self.lend(source, patience).map_err(Some)?;
            source.skip(lending.accepted);
            match lending.error {
                _ if source.left() == 0 => return Err(None),
                Some(error) => return Err(Some(error)),
                None if lending.copies => break,
                None => {}
            }
        }
        Ok(())
    }

    /// Has the peer read octets of `source` from there, if that can be, and waits until it has.
    ///
    /// # Errors
    /// Nothing was advertised, and the connection has an error.
    fn lend(&self, source: &Source<'_>, patience: &Patience) -> Result<Lending, Errno> {
        let may = !patience.is_none() && !is_confined() && source.left() > 1;
        if !may || !self.may_lend() || self.is_nonblocking()? {
            return Ok(Lending::COPIES);
        }
        let signals = HeldBack::here(self.kernel.calls);
        // One call lends at a time; another one's octets go when they may (they are copied).
        let mut lender = match self.state.sdp.lender.try_lock() {
            Tried::Taken => return Ok(Lending::COPIES),
            Tried::Free(lender) | Tried::OfTheDead(lender) => lender,
        };
        *lender = lender.wrapping_add(1);
        let threshold = usize::try_from(self.state.threshold()).unwrap_or(usize::MAX);
        let mut lent = Lent::new(threshold.max(2), false);
        let mut call = Call { source: Some(*source), patience, signals };
        match self.serve_until_read(&mut lent, &mut call) {
            Ok(lending) => Ok(lending),
            Err(error) => {
                self.drop_lent(&mut lent);
                if lent.read == 0 {
                    return Err(error);
                }
                Ok(Lending { accepted: lent.read, error: Some(error), copies: true })
            }
        }
    }

    /// Returns whether there is a connection on which memory may be lent, as this process alone
    /// holds it. An error is met by the copying send.
    pub(super) fn may_lend(&self) -> bool {
        self.establish() == Ok(true)
            && self.has_leave_to_send() == Ok(true)
            && !self.state.is_held_by_others()
    }

    /// Lends what the owner has, and serves the peer until it has read that. The calling thread
    /// holds the lender's lock.
    pub(super) fn serve_until_read<'a>(
        &self,
        lent: &mut Lent<'a>,
        owner: &mut dyn Owner<'a>,
    ) -> Result<Lending, Errno> {
        let mut turn = self.step_lent(lent, owner)?.0;
        loop {
            if !lent.is_out() {
                let copies = turn == Turn::Returned || lent.read == 0;
                return Ok(Lending { accepted: lent.read, error: None, copies });
            }
            let error = owner.reason();
            let crosses = turn == Turn::Crosses && lent.age() >= CROSSING;
            if error.is_some() || crosses || lent.age() >= LONGEST_LOAN {
                let withdrawn = self.withdraw(lent, crosses)?;
                if withdrawn {
                    return Ok(Lending { accepted: lent.read, error, copies: crosses });
                }
                // Without memory to spill into, the peer's leave is waited for.
                if lent.age() >= LONGEST_CANCEL || owner.cannot_wait() {
                    return Err(self.cancel_is_late());
                }
            }
            let limit = if turn == Turn::Crosses { CROSSING } else { LONGEST_LOAN };
            let left = limit.saturating_sub(lent.age()).max(Duration::from_millis(1));
            let slept = self.kernel.sleep_with_signals_held(RECHECK, || {
                let (next, note) = self.step_lent(lent, owner)?;
                turn = next;
                let longest = [Some(left), owner.left()].into_iter().flatten().min();
                Ok(note.map(|note| (note, longest, owner.descriptor())))
            });
            match slept {
                Ok(()) | Err(Errno::INTERRUPTED) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes a [turn](Self::take_turn), with what the owner lends besides, and tells it how far the
    /// peer is.
    fn step_lent<'a>(
        &self,
        lent: &mut Lent<'a>,
        owner: &mut dyn Owner<'a>,
    ) -> Result<(Turn, Option<Note<'_>>), Errno> {
        lent.refill(owner);
        let taken = self.take_turn(lent)?;
        owner.told(lent.read);
        Ok(taken)
    }

    /// Takes what came, answers, advertises more. Returns a note of this sleeper while something is
    /// out.
    fn take_turn(&self, lent: &mut Lent<'_>) -> Result<(Turn, Option<Note<'_>>), Errno> {
        let mut rx = self.lock_rx()?;
        // Behind `shutdown` no send waits for the peer, which reads what is out all the same.
        self.take_until(&mut rx, |rx| !live(rx).machine().sources_out())?;
        self.take_credits(&mut rx)?;
        let asked = asked_for(&mut rx);
        let mut turn = self.collect_read(&mut rx, lent)?;
        {
            let mut tx = self.lock_tx()?;
            let paid = self.pay_messages(&mut rx, &mut tx)?;
            if paid && turn == Turn::Goes && !lent.is_full {
                rx.set_changing(true);
                let more = self.advertise(&mut rx, &mut tx, lent);
                rx.set_changing(false);
                more?;
                self.pay_octets(&mut tx, 0)?;
            }
            self.serve(&mut rx, &mut tx, Some(lent))?;
            self.state.note_owed(&tx);
        }
        self.note_blocked(&mut rx);
        if asked > 0 || asked_for(&mut rx) > 0 {
            lent.since = now();
        }
        if !lent.is_out() {
            self.kick();
            return Ok((turn, None));
        }
        if turn == Turn::Goes && self.meets_advert(&mut rx) {
            turn = Turn::Crosses;
        }
        if rx.sdp.ended_by_fin() {
            return Err(Errno::RESET);
        }
        let mut wake_at = rx.window.wake_at;
        let note = self.note_sleeper(&mut wake_at);
        rx.window.wake_at = wake_at;
        Ok((turn, Some(note)))
    }

    /// Returns whether an advert of the peer waits here, too.
    fn meets_advert(&self, rx: &mut Guard<'_, Rx>) -> bool {
        let Some((rx, _, all)) = zcopy(rx) else { return false };
        all.adverts.requests.count == 0
            && Machine::new(&mut rx.sdp.core, Some(&mut all.adverts.tables)).peer_sources_pending()
    }

    /// Advertises as much of the memory as there is room for.
    fn advertise(&self, rx: &mut Guard<'_, Rx>, tx: &mut Tx, lent: &mut Lent<'_>) -> Result<(), Errno> {
        if tx.fin_due {
            // What is out is read to its end; `DisConn` goes behind that.
            lent.is_full = true;
            return if lent.is_out() { Ok(()) } else { Err(Errno::BROKEN_PIPE) };
        }
        while let Some(waiting) = lent.waiting() {
            let left = waiting.left();
            let Some((state, _, all)) = reserve_zcopy(rx) else {
                lent.is_full = true;
                return Ok(());
            };
            let len = left.min(state.rooms.free(Room::Spill));
            if left < lent.least || len < 2 || !tx.prepare_to_owe(ROOM) {
                // With something out, more room comes when that is read.
                lent.is_full = left < lent.least || !lent.is_out();
                break;
            }
            if len < left.min(ONE_SPILL) && lent.is_out() {
                // An advert for each send, but for the longest ones.
                break;
            }
            let Zcopy { adverts, sources, .. } = all;
            let mut machine = Machine::new(&mut state.sdp.core, Some(&mut adverts.tables));
            if self.wants_pipelined(&machine, left > len || lent.pipelines)
                && let Ok(front) = machine.change_mode(Half::Out, Mode::Pipelined)
            {
                state.sdp.has_adverts = 1;
                owe_send(tx, &front);
                continue;
            }
            let Ok(room) = machine.source_room() else {
                lent.is_full = !lent.is_out();
                break;
            };
            let inline = room.min(1);
            let good = waiting.first(len).readable(len);
            if good < 2 {
                // The copying send meets the page that is not mapped.
                lent.is_full = true;
                break;
            }
            let mut message = [0; LONGEST_CONTROL + 1];
            let stag = random().ok_or(Errno::NO_BUFFERS)?;
            let is_known = sources.iter().any(|backing| backing.stag == stag);
            let made = machine.advertise_source(good as u32, inline, stag, 0).ok().filter(|_| !is_known);
            let Some((id, front)) = made else { break };
            message[..front.len()].copy_from_slice(&front);
            let mut memory = waiting;
            if memory.copy_some(&mut message[front.len()..front.len() + inline]) < inline {
                return Err(self.memory_gone());
            }
            let backing = &mut sources[id.place()];
            *backing = Backing { stag, kind: Backing::CALL, len: good as u32, ..Backing::default() };
            let _ = state.rooms.charge(Room::Spill, good);
            state.sdp.has_adverts = 1;
            owe_send(tx, &message[..front.len() + inline]);
            lent.pass(id, waiting.first(good));
        }
        rx.set_changing(true);
        self.settle_adverts(rx);
        Ok(())
    }

    /// Returns whether Pipelined is wanted: for a second advert of one call, or by the peer's hint,
    /// unless the settings ask for another mode.
    fn wants_pipelined(&self, machine: &Machine<'_>, has_more: bool) -> bool {
        let is_wanted = has_more || machine.peer_prefers() == Mode::Pipelined;
        machine.out_mode() == Mode::Combined && is_wanted && self.state.mode().is_none()
    }

    /// Gives up adverts that are over. What came back is sent by copies.
    fn collect_read(&self, rx: &mut Guard<'_, Rx>, lent: &mut Lent<'_>) -> Result<Turn, Errno> {
        let mut turn = Turn::Goes;
        let Some((state, _, all)) = zcopy(rx) else {
            return if lent.is_out() { Err(self.damaged()) } else { Ok(turn) };
        };
        let mut end = None;
        for place in &mut lent.parts {
            let Some(part) = *place else { continue };
            let mut machine = Machine::new(&mut state.sdp.core, Some(&mut all.adverts.tables));
            let source = machine.source(part.id);
            match source.state {
                SourceState::Out => continue,
                SourceState::Done => lent.read = lent.read.max(part.end()),
                // The octets behind it have come back as well, and none of them was read.
                _ => {
                    let back = part.at + source.done as usize;
                    end = Some(end.map_or(back, |end: usize| end.min(back)));
                    turn = Turn::Returned;
                }
            }
            lent.since = now();
            let _ = machine.release_source(part.id);
            state.rooms.release(Room::Spill, part.memory.left());
            all.sources[part.id.place()] = Backing::default();
            *place = None;
        }
        lent.read = end.unwrap_or(lent.read);
        rx.set_changing(true);
        self.settle_adverts(rx);
        rx.set_changing(false);
        Ok(turn)
    }

    /// Takes the program's memory from behind the adverts. Returns whether that was possible
    /// without the peer's leave: with `cancels` the adverts are taken back as well.
    fn withdraw(&self, lent: &mut Lent<'_>, cancels: bool) -> Result<bool, Errno> {
        let mut rx = self.lock_rx()?;
        self.collect_read(&mut rx, lent)?;
        let mut all_spilled = true;
        // From front to back: what comes back of the others is sent behind what was spilled.
        while let Some(place) = lent.oldest()
            && let Some(part) = *place
        {
            if !self.spill(&mut rx, part.id.place(), part.memory)? {
                all_spilled = false;
                break;
            }
            *place = None;
            lent.read = lent.read.max(part.end());
        }
        if (cancels || !all_spilled)
            && let Some((state, _, all)) = zcopy(&mut rx)
        {
            let _ = Machine::new(&mut state.sdp.core, Some(&mut all.adverts.tables)).cancel_sources();
        }
        let mut tx = self.lock_tx()?;
        self.pay_messages(&mut rx, &mut tx)?;
        drop(tx);
        self.note_blocked(&mut rx);
        self.kick();
        Ok(all_spilled)
    }

    /// Takes the program's memory from behind the adverts, and puts nothing there: the call fails.
    pub(super) fn drop_lent(&self, lent: &mut Lent<'_>) {
        let Ok(mut rx) = self.lock_rx() else { return };
        let parts = std::mem::take(&mut lent.parts);
        if let Some((state, _, all)) = zcopy(&mut rx) {
            for part in parts.iter().flatten() {
                all.sources[part.id.place()].kind = Backing::DROPPED;
            }
            // Refused where they have come back already.
            let _ = Machine::new(&mut state.sdp.core, Some(&mut all.adverts.tables)).cancel_sources();
        }
        self.answer_peer(&mut rx, 0);
    }

    /// Ends the connection: the peer has not answered a cancel, and may still read.
    fn cancel_is_late(&self) -> Errno {
        self.state.end.set(crate::Ended {
            why: crate::Why::SdpFault,
            errno: Errno::TIMED_OUT,
            code: rddp_rdmap::TerminateCode(0),
        });
        self.kernel.reset();
        Errno::TIMED_OUT
    }
}

/// The next step of the call that lends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Goes,
    /// Both ends have adverts out.
    Crosses,
    /// The peer reads no more.
    Returned,
}

fn asked_for(rx: &mut Guard<'_, Rx>) -> u32 {
    zcopy(rx).map_or(0, |(_, _, all)| all.adverts.requests.count)
}

/// Room for the FPDU of a `SrcAvail`.
const ROOM: usize = 256;
/// The time for which memory is lent to a peer that asks for nothing.
const LONGEST_LOAN: Duration = Duration::from_secs(1);
/// That time while an advert of the peer waits here: it may wait for this end as well.
const CROSSING: Duration = Duration::from_millis(20);
/// The time for which the answer to a cancel is waited for.
const LONGEST_CANCEL: Duration = Duration::from_secs(60);
const RECHECK: Duration = Duration::from_millis(10);
