//! Sends whose octets the peer reads from the program's memory.
//!
//! The call lends its memory for as long as it runs: it sleeps by edges, answers Reads from its own
//! slices, and takes what the peer sends. It returns when the peer has read all, or when what is
//! behind the adverts is no longer the program's memory (`spill.rs`).

use std::time::Duration;

use rddp_ddp::{Msn, Stag};
use rddp_rdmap::{Opcode, untagged_header};
use rddp_sdp::machine::{ADVERTS, Half, Machine, SourceId, SourceState};
use rddp_sdp::wire::{LONGEST_CONTROL, Mode};

use super::state::{Backing, Zcopy, reserve_zcopy, zcopy};
use crate::owed::owe_fpdu;
use crate::rooms::Room;
use crate::sink::Source;
use crate::sleepers::Note;
use crate::state::{Rx, Tx};
use crate::sys::{Guard, HeldBack, Tried, is_confined, now, random};
use crate::wait::Patience;
use crate::{Errno, Stream};

/// The result of lending a send's octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lending {
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

/// Memory of the calling thread behind adverts of this end.
pub(crate) struct Lent<'a> {
    source: Source<'a>,
    parts: [Option<Part>; ADVERTS],
    /// Octets that are advertised.
    advertised: usize,
    /// Octets from the front that the peer has.
    read: usize,
    /// The time at which the peer last asked for something, by [`now`].
    since: u64,
    /// Set if no more is to be advertised.
    is_full: bool,
}

#[derive(Clone, Copy)]
struct Part {
    id: SourceId,
    at: usize,
    len: usize,
}

impl<'a> Lent<'a> {
    fn new(source: Source<'a>) -> Self {
        Self { source, parts: [None; ADVERTS], advertised: 0, read: 0, since: now(), is_full: false }
    }

    /// Returns the memory of the advert at a place.
    pub(super) fn memory(&self, place: usize) -> Option<Source<'a>> {
        let part = self.parts.iter().flatten().find(|part| part.id.place() == place)?;
        Some(self.of(*part))
    }

    fn of(&self, part: Part) -> Source<'a> {
        let mut source = self.source;
        source.skip(part.at);
        source.first(part.len)
    }

    fn is_out(&self) -> bool {
        self.parts.iter().any(Option::is_some)
    }

    fn age(&self) -> Duration {
        Duration::from_nanos(now().saturating_sub(self.since))
    }
}

impl Stream<'_> {
    /// Has the peer read octets of `source` from there, if that can be, and waits until it has.
    ///
    /// # Errors
    /// Nothing was advertised, and the connection has an error.
    #[cold]
    pub(crate) fn lend(&self, source: &Source<'_>, patience: &Patience) -> Result<Lending, Errno> {
        let may = !patience.is_none() && !is_confined() && source.left() > 1;
        // An error is met by the copying send.
        let frames = may && self.establish() == Ok(true) && self.has_leave_to_send() == Ok(true);
        if !frames || self.is_nonblocking()? || self.state.is_held_by_others() {
            return Ok(Lending::COPIES);
        }
        let mut signals = HeldBack::here(self.kernel.calls);
        // One call lends at a time; another one's octets go when they may (they are copied).
        let mut lender = match self.state.lender.try_lock() {
            Tried::Taken => return Ok(Lending::COPIES),
            Tried::Free(lender) | Tried::OfTheDead(lender) => lender,
        };
        *lender = lender.wrapping_add(1);
        let mut lent = Lent::new(*source);
        let lending = self.serve_until_read(&mut lent, patience, &mut signals);
        match lending {
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

    fn serve_until_read(
        &self,
        lent: &mut Lent<'_>,
        patience: &Patience,
        signals: &mut HeldBack,
    ) -> Result<Lending, Errno> {
        let mut turn = self.step_lent(lent)?.0;
        loop {
            if !lent.is_out() {
                let copies = turn == Turn::Returned || lent.read == 0;
                return Ok(Lending { accepted: lent.read, error: None, copies });
            }
            let error = match () {
                () if signals.is_waiting() => Some(Errno::INTERRUPTED),
                () if patience.is_over() => Some(Errno::WOULD_BLOCK),
                () => None,
            };
            let crosses = turn == Turn::Crosses && lent.age() >= CROSSING;
            if error.is_some() || crosses || lent.age() >= LONGEST_LOAN {
                let withdrawn = self.withdraw(lent, crosses)?;
                if withdrawn {
                    return Ok(Lending { accepted: lent.read, error, copies: crosses });
                }
                // Without memory to spill into, the peer's leave is waited for.
                if lent.age() >= LONGEST_CANCEL {
                    return Err(self.cancel_is_late());
                }
            }
            let limit = if turn == Turn::Crosses { CROSSING } else { LONGEST_LOAN };
            let left = limit.saturating_sub(lent.age()).max(Duration::from_millis(1));
            let longest = [Some(left), patience.left()].into_iter().flatten().min();
            let slept = self.kernel.sleep_with_signals_held(signals, RECHECK, || {
                let (next, note) = self.step_lent(lent)?;
                turn = next;
                Ok(note.map(|note| (note, longest)))
            });
            match slept {
                Ok(()) | Err(Errno::INTERRUPTED) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes what came, answers, advertises more. Returns a note of this sleeper while something is
    /// out.
    fn step_lent(&self, lent: &mut Lent<'_>) -> Result<(Turn, Option<Note<'_>>), Errno> {
        let mut rx = self.lock_rx()?;
        self.take_credits(&mut rx)?;
        let asked = asked_for(&mut rx);
        let mut turn = self.collect_read(&mut rx, lent)?;
        {
            let mut tx = self.lock_tx()?;
            let paid = self.pay_messages(&mut rx, &mut tx)?;
            if paid && turn == Turn::Goes && !lent.is_full {
                rx.sdp.changing = 1;
                let more = self.advertise(&mut rx, &mut tx, lent);
                rx.sdp.changing = 0;
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
        let mut wake_at = rx.wake_at;
        let note = self.note_sleeper(&mut wake_at);
        rx.wake_at = wake_at;
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
            return Err(Errno::BROKEN_PIPE);
        }
        let threshold = usize::try_from(self.state.threshold()).unwrap_or(usize::MAX).max(2);
        loop {
            let left = lent.source.left() - lent.advertised;
            let Some((state, _, all)) = reserve_zcopy(rx) else {
                lent.is_full = true;
                return Ok(());
            };
            let len = left.min(state.rooms.free(Room::Spill));
            if left < threshold || len < 2 || !tx.prepare_to_owe(ROOM) {
                // With something out, more room comes when that is read.
                lent.is_full = left < threshold || !lent.is_out();
                break;
            }
            let Zcopy { adverts, sources, .. } = all;
            let mut machine = Machine::new(&mut state.sdp.core, Some(&mut adverts.tables));
            if self.wants_pipelined(&machine, left > len)
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
            let mut memory = lent.source;
            memory.skip(lent.advertised);
            let good = memory.first(len).readable(len);
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
            if memory.copy_some(&mut message[front.len()..front.len() + inline]) < inline {
                return Err(self.memory_gone());
            }
            let backing = &mut sources[id.place()];
            *backing = Backing { stag, kind: Backing::CALL, len: good as u32, ..Backing::default() };
            let _ = state.rooms.charge(Room::Spill, good);
            state.sdp.has_adverts = 1;
            owe_send(tx, &message[..front.len() + inline]);
            let part = Part { id, at: lent.advertised, len: good };
            lent.advertised += good;
            lent.since = now();
            if let Some(place) = lent.parts.iter_mut().find(|part| part.is_none()) {
                *place = Some(part);
            }
        }
        rx.sdp.changing = 1;
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
            return if lent.is_out() { Err(self.owner_died()) } else { Ok(turn) };
        };
        let mut end = None;
        for place in &mut lent.parts {
            let Some(part) = *place else { continue };
            let mut machine = Machine::new(&mut state.sdp.core, Some(&mut all.adverts.tables));
            let source = machine.source(part.id);
            match source.state {
                SourceState::Out => continue,
                SourceState::Done => lent.read = lent.read.max(part.at + part.len),
                // The octets behind it have come back as well, and none of them was read.
                _ => {
                    let back = part.at + source.done as usize;
                    end = Some(end.map_or(back, |end: usize| end.min(back)));
                    turn = Turn::Returned;
                }
            }
            lent.since = now();
            let _ = machine.release_source(part.id);
            state.rooms.release(Room::Spill, part.len);
            all.sources[part.id.place()] = Backing::default();
            *place = None;
        }
        lent.read = end.unwrap_or(lent.read);
        rx.sdp.changing = 1;
        self.settle_adverts(rx);
        rx.sdp.changing = 0;
        Ok(turn)
    }

    /// Takes the program's memory from behind the adverts. Returns whether that was possible
    /// without the peer's leave: with `cancels` the adverts are taken back as well.
    fn withdraw(&self, lent: &mut Lent<'_>, cancels: bool) -> Result<bool, Errno> {
        let mut rx = self.lock_rx()?;
        self.collect_read(&mut rx, lent)?;
        let mut all_spilled = true;
        for at in 0..ADVERTS {
            let Some(part) = lent.parts[at] else { continue };
            if self.spill(&mut rx, part.id.place(), lent.of(part))? {
                lent.read = lent.read.max(part.at + part.len);
                lent.parts[at] = None;
            } else {
                all_spilled = false;
            }
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
    fn drop_lent(&self, lent: &mut Lent<'_>) {
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

fn owe_send(tx: &mut Tx, message: &[u8]) {
    let header = untagged_header(Opcode::Send, Stag(0), Msn(tx.msn), 0, true);
    let room = owe_fpdu(tx, &header, message);
    debug_assert!(room, "there is room for a control message");
    tx.msn = Msn(tx.msn).next().0;
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
