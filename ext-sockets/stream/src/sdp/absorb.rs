//! Octets that the program has not read, moved out of the kernel: only while a call needs what lies
//! behind them, as a sender without credits does.
//!
//! They stand in one queue ([`Chain`](crate::sys::Chain)), and are read from there before anything
//! else. Meanwhile the CRC field of the newest FPDU that was taken stays in the kernel, so that the
//! socket is readable for as long as octets are there.

use std::io::IoSliceMut;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rddp_mpa::CRC_LEN;
use rddp_octets::Step;

use super::counters::{ABSORBED, COPIED};
use super::end::keep_end_readable;
use super::format::{Apart, Messages};
use super::inbound::breaks_sdp;
use super::look::{Look, Places};
use super::zcopy::{put_aside, splice};
use super::{Wrong, Zcopy, live};
use crate::Errno;
use crate::duties::Duties;
use crate::kind::Functions;
use crate::rooms::Room;
use crate::rx::{Hold, Next, STEPS};
use crate::sdp::Stream;
use crate::sink::Sink;
use crate::state::{Phase, Rx};
use crate::sys::{Chain, ChainError, Chains, Guard, Scratch, is_confined, parts};

/// Octets that come to the queue.
enum Octets<'a> {
    /// Number of octets at the front of the kernel's queue.
    InKernel(usize),
    Here(&'a [u8]),
}

impl Octets<'_> {
    fn len(&self) -> usize {
        match self {
            Self::InKernel(count) => *count,
            Self::Here(octets) => octets.len(),
        }
    }
}

impl Stream<'_> {
    /// Takes messages until there are credits for a send, or none has come; octets of the program
    /// in front of them are moved out of their way.
    pub(crate) fn take_credits(&self, rx: &mut Guard<'_, Rx>) -> Result<(), Errno> {
        self.take_until(rx, |rx| !live(rx).waits_for_peer())?;
        if live(rx).waits_for_peer() { self.meet_end_in_kernel(rx) } else { Ok(()) }
    }

    /// Takes messages until an end that is owed has credits: a program that sends no more may never
    /// read what stands in front of them, and TCP's FIN would go.
    pub(crate) fn take_credits_for_end(&self, rx: &mut Guard<'_, Rx>) -> Result<(), Errno> {
        let is_owed = self.state.flow.shut_send.load(Ordering::Acquire)
            && self.state.phase() == Phase::Framed
            && !rx.sdp.is_closed();
        if is_owed { self.take_until(rx, |rx| !live(rx).end_waits_for_credits()) } else { Ok(()) }
    }

    /// Returns the error of a send that waits for a peer that is gone. Octets in the kernel are in
    /// front of the reset, or of the FIN, and keep a look at them from meeting it.
    fn meet_end_in_kernel(&self, rx: &mut Guard<'_, Rx>) -> Result<(), Errno> {
        let ready = self.kernel.poll(0, Some(Duration::ZERO))?;
        if ready & libc::POLLHUP != 0 {
            return Err(self.kernel.take_error().unwrap_or(Errno::BROKEN_PIPE));
        }
        let is_last = || rx.left == 0 && self.kernel.unread() == Ok(rx.sdp.end.stub as usize);
        if self.peer_has_left(rx.sdp.end.is_shut == 1) && !is_confined() && is_last() {
            return Err(Errno::RESET);
        }
        Ok(())
    }

    /// Takes messages until what they bring is enough, or none has come; octets of the program in
    /// front of them are moved out of their way.
    pub(super) fn take_until(
        &self,
        rx: &mut Guard<'_, Rx>,
        is_enough: impl Fn(&mut Guard<'_, Rx>) -> bool,
    ) -> Result<(), Errno> {
        self.take_until_enough(rx, is_enough)?;
        // The last message may be an advert, for which a call sleeps at the kernel's queue.
        self.read_what_is_offered(rx)
    }

    /// A sender that waits reads what the peer offers, so that both go on.
    fn read_what_is_offered(&self, rx: &mut Guard<'_, Rx>) -> Result<(), Errno> {
        let reads = rx.left == 0 && rx.sdp.has_adverts == 1 && self.zero_copy().begin_reads(rx, 0);
        if reads { self.pay_reads(rx) } else { Ok(()) }
    }

    fn take_until_enough(
        &self,
        rx: &mut Guard<'_, Rx>,
        is_enough: impl Fn(&mut Guard<'_, Rx>) -> bool,
    ) -> Result<(), Errno> {
        for _ in 0..STEPS {
            if is_enough(rx) {
                return Ok(());
            }
            let unread = rx.left > 0;
            if unread && !self.absorb_front(rx)? {
                return Ok(());
            }
            if unread {
                continue;
            }
            self.read_what_is_offered(rx)?;
            let next = if rx.sdp.has_stub() || !rx.held.is_empty() {
                self.fetch_behind(rx)?
            } else {
                // A large message in front is not looked at else, and hides more.
                rx.sdp.queue.seeks = 1;
                let next = Messages::advance(self, rx, &mut Sink::new(&mut [], false));
                rx.sdp.queue.seeks = 0;
                next?
            };
            match next {
                Next::More | Next::Drained => {}
                Next::Full if rx.left > 0 => {}
                _ => return Ok(()),
            }
        }
        // What is left may be all that ever comes: a wait by edges is to look again.
        self.kernel.kick();
        Ok(())
    }

    /// Moves the rest of the FPDU in front to the queue. `false`: there is no room.
    pub(crate) fn absorb_front(&self, rx: &mut Guard<'_, Rx>) -> Result<bool, Errno> {
        let (left, trailer) = (rx.left as usize, rx.trailer as usize);
        let ends = rx.sdp.is_whole();
        // A confined process can leave nothing in the kernel that it has looked at.
        let stays = if is_confined() { 0 } else { CRC_LEN };
        if rx.shown > 0 || trailer < stays {
            return Ok(false);
        }
        let mut kept = Scratch::take()?;
        let octets = if rx.left_is_kept {
            let at = rx.kept.at as usize;
            let Some(from) = rx.kept().get(at..at + left) else { return Err(self.damaged()) };
            kept[..left].copy_from_slice(from);
            Octets::Here(&kept[..left])
        } else {
            Octets::InKernel(left)
        };
        rx.set_changing(true);
        let queued = self.queue(rx, &octets, None);
        if queued == Ok(true) {
            rx.sdp.queue.bufs += u32::from(ends);
            let data = rx.rooms.charged(Room::Data);
            rx.sdp.give_back_bufs(data);
            let pad = trailer - stays;
            if pad > 0 {
                self.drop_front(pad)?;
            }
            (rx.left, rx.trailer, rx.left_is_kept) = (0, 0, false);
            rx.spare_kept();
            rx.sdp.end.stub = stays as u32;
            // The stub is to keep the socket readable.
            let _ = self.wake_at(rx, 1);
            self.state.flow.holding.store(stays == 0, Ordering::Release);
        }
        rx.set_changing(false);
        queued
    }

    /// Adds octets to the queue. `false`, and nothing has changed: there is no room. The caller has
    /// marked the state as changing.
    ///
    /// `charged` is the room to which they are charged already.
    fn queue(
        &self,
        rx: &mut Guard<'_, Rx>,
        octets: &Octets<'_>,
        charged: Option<Room>,
    ) -> Result<bool, Errno> {
        let len = octets.len();
        let (rx, mut chains, mut table) = parts(rx);
        let has_room = charged.is_some() || rx.rooms.free(Room::Data) >= len;
        if !has_room || !table.reserve(&mut rx.tables) {
            rx.sdp.queue.cramped = 1;
            return Ok(false);
        }
        let Some(Zcopy { runs, .. }) = table.get(rx.tables) else { return Err(self.damaged()) };
        if !runs.has_place() {
            rx.sdp.queue.cramped = 1;
            return Ok(false);
        }
        let came = match octets {
            Octets::Here(octets) => chains.append(&mut rx.held, octets).map(|()| Ok(octets.len())),
            Octets::InKernel(count) => chains.fill(&mut rx.held, *count, |pieces| self.kernel.take(pieces)),
        };
        match came {
            Ok(Ok(count)) if count == len => {}
            Err(ChainError::NoRoom) => {
                rx.sdp.queue.cramped = 1;
                return Ok(false);
            }
            _ => return Err(self.damaged()),
        }
        let copied = if let Octets::Here(_) = octets { len } else { 0 };
        self.state.sdp.count(ABSORBED, len);
        self.state.sdp.count(COPIED, copied);
        let is_charged = charged.is_some() || rx.rooms.charge(Room::Data, len);
        let counted = is_charged && runs.queue(charged.unwrap_or(Room::Data), len);
        if counted { Ok(true) } else { Err(self.damaged()) }
    }

    /// Returns whether the queue takes the octets of one message more.
    pub(super) fn has_room_for_one(&self, rx: &Rx) -> bool {
        rx.held.is_empty() || rx.rooms.free(Room::Data) >= rx.sdp.size as usize
    }

    /// Makes a step of receiving where octets lie in the queue, or are to. `None`: they go as those
    /// of a plain stream.
    #[inline]
    pub(super) fn advance_queue(
        &self,
        rx: &mut Guard<'_, Rx>,
        sink: &mut Sink<'_, '_>,
    ) -> Result<Option<Next>, Errno> {
        if self.state.asked.format.has_private_copies() && sink.room() > 0 {
            return self.advance_by_copies(rx, sink).map(Some);
        }
        if rx.sdp.has_mark() && rx.left > 0 {
            if self.absorb_front(rx)? {
                return Ok(Some(Next::More));
            }
            // There is no place for them: the urgent octet is one like others.
            rx.sdp.forget_mark();
        }
        if rx.held.is_empty() && (rx.left > 0 || !rx.sdp.has_stub()) {
            return Ok(None);
        }
        let next = if rx.held.is_empty() { self.fetch_behind(rx) } else { self.unload_held(rx, sink) };
        next.map(Some)
    }

    /// Moves octets to the program by way of the queue, as the papers' private receive buffers.
    fn advance_by_copies(&self, rx: &mut Guard<'_, Rx>, sink: &mut Sink<'_, '_>) -> Result<Next, Errno> {
        if rx.held.is_empty() && rx.left == 0 {
            let next = Messages::advance(self, rx, &mut Sink::new(&mut [], false))?;
            if rx.left == 0 {
                return Ok(next);
            }
        }
        if rx.left > 0 && !self.absorb_front(rx)? {
            return self.unload::<Messages>(rx, sink);
        }
        // More that has come goes the same way.
        if rx.held.len() < sink.room() && rx.sdp.has_stub() {
            self.fetch_behind(rx)?;
        }
        self.unload_held(rx, sink)
    }

    /// Moves octets of the queue to the program.
    pub(crate) fn unload_held(&self, rx: &mut Guard<'_, Rx>, sink: &mut Sink<'_, '_>) -> Result<Next, Errno> {
        if sink.room() == 0 {
            return self.look_at_mark(rx);
        }
        let most = match self.up_to_mark(rx, sink)? {
            Ok(most) => most,
            Err(next) => return Ok(next),
        };
        let before = sink.done();
        self.shorten_queue(rx, |chains, queue| sink.limited(most, |sink| chains.take(queue, sink)).ok())?;
        self.state.sdp.count(COPIED, sink.done() - before);
        // At a page that is not mapped the sink has lost its room.
        Ok(if sink.room() == 0 { Next::Full } else { Next::More })
    }

    /// Drops octets of the queue.
    pub(super) fn drop_from_queue(&self, rx: &mut Guard<'_, Rx>, count: usize) -> Result<(), Errno> {
        self.shorten_queue(rx, |chains, queue| chains.drop_front(queue, count).ok().map(|()| count))
    }

    /// Counts out octets that `take` takes from the front of the queue.
    fn shorten_queue(
        &self,
        rx: &mut Guard<'_, Rx>,
        take: impl FnOnce(&mut Chains<'_>, &mut Chain) -> Option<usize>,
    ) -> Result<(), Errno> {
        rx.set_changing(true);
        let counted = {
            let (rx, mut chains, mut table) = parts(rx);
            let taken = take(&mut chains, &mut rx.held);
            let runs = table.get::<Zcopy>(rx.tables).map(|zcopy| &mut zcopy.runs);
            rx.sdp.taken_before_mark(taken.unwrap_or_default());
            taken.zip(runs).and_then(|(count, runs)| runs.take(&mut rx.rooms, count))
        };
        counted.ok_or_else(|| self.damaged())?;
        let data = rx.rooms.charged(Room::Data);
        rx.sdp.give_back_bufs(data);
        if rx.held.is_empty() && !rx.sdp.is_over() {
            // Nothing is left for which the socket would have to be readable.
            let dropped = self.drop_stub(rx);
            let is_held = rx.left > 0 && rx.left_is_kept && rx.trailer == 0;
            self.state.flow.holding.store(is_held, Ordering::Release);
            let (rx, _, mut table) = parts(rx);
            // Nor for the block, unless there are adverts.
            if rx.sdp.has_adverts == 0 {
                table.give_back(&mut rx.tables);
            }
            rx.set_changing(false);
            return dropped;
        }
        rx.set_changing(false);
        Ok(())
    }

    /// Shows octets of the queue, which stay there. `false`: there are none.
    pub(crate) fn show_held(&self, rx: &mut Guard<'_, Rx>, sink: &mut Sink<'_, '_>) -> Result<bool, Errno> {
        if rx.held.is_empty() {
            return Ok(false);
        }
        let (from, most) = match rx.sdp.ahead_of_mark().filter(|_| rx.sdp.has_mark()) {
            Some(0) if self.is_urgent_inline() => (0, usize::MAX),
            Some(0) if rx.held.len() == 1 => return Ok(false),
            Some(0) => (1, usize::MAX),
            Some(ahead) => (0, ahead as usize),
            None => (0, usize::MAX),
        };
        let (rx, chains, _) = parts(rx);
        let shown = sink.limited(most, |sink| chains.peek(&rx.held, from, sink));
        if shown.is_err() { Err(self.damaged()) } else { Ok(true) }
    }

    fn drop_stub(&self, rx: &mut Guard<'_, Rx>) -> Result<(), Errno> {
        let stub = rx.sdp.end.stub as usize;
        if stub == 0 {
            return Ok(());
        }
        let dropped = rx.moving(|rx| {
            let dropped = self.kernel.discard(stub);
            rx.sdp.end.stub = 0;
            dropped
        });
        match dropped {
            Ok(count) if count == stub => Ok(()),
            // A reset took the octets away; nothing of the stream's was among them.
            Ok(0) => Err(rx.sdp.note_fin().err().unwrap_or(Errno::RESET)),
            Err(error) if error != Errno::WOULD_BLOCK => Err(error),
            _ => Err(self.damaged()),
        }
    }

    /// Takes a message behind the queue in a process that may only read: the flag `holding` tells
    /// of the octets, which the kernel does not know.
    #[cold]
    fn fetch_by_reading(&self, rx: &mut Guard<'_, Rx>) -> Result<Next, Errno> {
        if rx.left > 0 {
            return Ok(Next::Full);
        }
        if rx.sdp.has_stub() && !rx.sdp.is_over() {
            self.state.flow.holding.store(!rx.held.is_empty(), Ordering::Release);
            self.drop_stub(rx)?;
        }
        let next = self.absorb_all(rx)?;
        if rx.left > 0 && !self.absorb_front(rx)? {
            return Ok(Next::Full);
        }
        Ok(match next {
            Next::Nothing(_) | Next::End if !rx.held.is_empty() => Next::Full,
            next => next,
        })
    }

    /// Takes messages behind the stub: those of octets to the queue.
    pub(crate) fn fetch_behind(&self, rx: &mut Guard<'_, Rx>) -> Result<Next, Errno> {
        if is_confined() {
            return self.fetch_by_reading(rx);
        }
        let stub = rx.sdp.end.stub as usize;
        let mut scratch = Scratch::take()?;
        let seen = match self.kernel.peek(&mut [IoSliceMut::new(&mut scratch)]) {
            Ok(seen) => seen,
            // Behind the peer's `DisConn` a reset is the end.
            Err(_) if rx.sdp.is_over() => return Ok(Next::End),
            Err(error) => return Err(error),
        };
        if seen < stub && !rx.sdp.is_over() {
            // A reset took the octets away.
            return Err(rx.sdp.note_fin().err().unwrap_or(Errno::RESET));
        }
        let full = seen == scratch.len();
        let mut at = stub;
        while at < seen {
            let before_urgent = self.is_before_urgent(rx);
            let queued = rx.held.len() as u32;
            let mut places = Places::default();
            let mut look = Messages::format(rx, &mut places);
            look.now.queue.ahead = queued;
            let mut incoming = look.incoming(self, rx);
            let step = match incoming.step(&mut scratch[at..seen], &mut look) {
                Ok(Step::Need { .. }) => break,
                Ok(Step::Data { .. }) if look.now.is_over() => {
                    return Err(breaks_sdp(self, Wrong::AfterDisConn));
                }
                Ok(Step::Apart { what: Apart::NeedsTables, .. }) => {
                    let may_go = self.zero_copy().make_tables(rx) || rx.sdp.queue.starved == 1;
                    return Ok(if may_go { Next::More } else { Next::Full });
                }
                Ok(Step::Terminated { code, .. }) => return Err(self.terminated(rx, code)),
                Ok(Step::Apart { what: Apart::Wrong(wrong), .. }) => return Err(breaks_sdp(self, wrong)),
                Err(trouble) => return Err(self.fault(rx, &incoming, &trouble)),
                Ok(step) => step,
            };
            let has_room = rx.moving(|rx| {
                let has_room = self.store_behind(rx, &step, &scratch[at..seen], &mut look)?;
                if has_room {
                    // The CRC field of this FPDU takes the place of the one before.
                    self.take_behind(rx, step.used(), &mut look)?;
                    rx.at = incoming.position();
                }
                Ok(has_room)
            })?;
            if !has_room {
                return Ok(Next::Full);
            }
            if let Step::Silent { reply, .. } = &step {
                self.reply(reply)?;
            }
            if before_urgent && rx.sdp.ahead_of_mark() != Some(0) {
                // TCP drops an urgent octet that is next when another takes its place.
                self.drop_from_queue(rx, 1)?;
            }
            at += step.used();
        }
        Ok(match () {
            () if at > stub && full => Next::More,
            () if !rx.held.is_empty() => Next::Full,
            () if rx.sdp.is_over() => Next::End,
            () => Next::Nothing(Hold::Idle),
        })
    }

    /// Copies the octets of an FPDU, with which `octets` begin, to where they are read from.
    /// `false`: there is no room.
    pub(super) fn store_behind(
        &self,
        rx: &mut Guard<'_, Rx>,
        step: &Step<Apart>,
        octets: &[u8],
        look: &mut Look<'_>,
    ) -> Result<bool, Errno> {
        match step {
            Step::Data { payload, .. } => {
                let octets = Octets::Here(&octets[payload.clone()]);
                let charged = look.keep_charged(octets.len());
                rx.set_changing(true);
                let queued = self.queue(rx, &octets, charged);
                look.now.queue.bufs += u32::from(look.now.is_whole());
                rx.set_changing(false);
                queued
            }
            Step::Apart { what: Apart::Aside { ahead }, payload, .. } => {
                put_aside(self, rx, *ahead, &octets[payload.clone()])
            }
            Step::Apart { what: Apart::Splice { octets }, .. } => splice(self, rx, *octets).map(|()| true),
            _ => Ok(true),
        }
    }

    /// Takes an FPDU behind the stub, of which the CRC field stays while octets are held, and more
    /// may come.
    pub(super) fn take_behind(
        &self,
        rx: &mut Guard<'_, Rx>,
        used: usize,
        look: &mut Look<'_>,
    ) -> Result<(), Errno> {
        rx.set_changing(true);
        let stub = rx.sdp.end.stub as usize;
        keep_end_readable(self, &mut look.now);
        let left = if rx.held.is_empty() || look.now.is_over() { 0 } else { CRC_LEN };
        let count = stub + used - left;
        self.drop_front(count)?;
        look.put(rx);
        let data = rx.rooms.charged(Room::Data);
        rx.sdp.give_back_bufs(data);
        rx.sdp.end.stub = left as u32;
        rx.sdp.queue.ahead = 0;
        Ok(())
    }
}
