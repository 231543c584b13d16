//! FPDUs of which only a part has come.
//!
//! A part of an FPDU is of no use to the program and must not wake it: `SO_RCVLOWAT` is set to the
//! whole. Where the kernel cannot hold as much, its window being too small, the part moves to
//! shared memory as it comes. The last four octets are never moved: until the program has read the
//! payload, they keep the socket readable.
//!
//! A window can be too small long before it is full: a sender whose segments are as large as FPDUs
//! does not use the rest of it until its timer fires.

use std::io::IoSliceMut;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rddp_mpa::CRC_LEN;
use rddp_octets::{Position, Step};

use super::base::Base;
use super::duties::Duties;
use super::kind::Kind;
use super::rx::{Hold, Next};
use super::state::Rx;
use super::sys::{Guard, is_confined};
use super::{Errno, Framed};

// `inline(never)` keeps this code out of the path of whole FPDUs.
impl<K: Kind> Framed<'_, K> {
    /// Waits for the rest of the FPDU in front: the kernel has only `have` of its `need` octets.
    #[inline(never)]
    pub(super) fn hold_back(&self, rx: &mut Guard<'_, Rx>, have: usize, need: usize) -> Result<Next, Errno> {
        if rx.window.narrow && need > SMALL && rx.kept_mut().is_some() {
            return self.absorb(rx);
        }
        match self.missing(rx, have, need)? {
            Missing::Arrived => return Ok(Next::More),
            Missing::Late => return Ok(Next::Nothing(Hold::Partial)),
            Missing::Never => return self.cut_off(rx),
            Missing::NoRoom => {}
        }
        // The socket is readable without having the octets that were asked for: the window is as
        // good as closed.
        if rx.kept_mut().is_some() { self.absorb(rx) } else { self.widen_for(need) }
    }

    /// Moves octets of the FPDU in front to memory, and checks it when it is whole.
    #[inline(never)]
    pub(super) fn absorb(&self, rx: &mut Guard<'_, Rx>) -> Result<Next, Errno> {
        let next = self.absorb_some(rx);
        rx.spare_kept();
        next
    }

    fn absorb_some(&self, rx: &mut Guard<'_, Rx>) -> Result<Next, Errno> {
        loop {
            let have = rx.absorbed as usize;
            // Four octets more than those moved can be looked at.
            let ahead = self.look_ahead(rx, have)?;
            let Some(total) = self.absorbed(rx, have + ahead)? else {
                return Ok(Next::More);
            };
            let movable = total.saturating_sub(CRC_LEN + have);
            let moved = if movable > 0 { self.move_in(rx, have, movable)? } else { 0 };
            if moved == 0 {
                return self.hold_back_rest(rx, total - have);
            }
        }
    }

    /// Moves the FPDU in front, of `len` octets, to memory at once if all of it is there.
    pub(super) fn absorb_whole(&self, rx: &mut Guard<'_, Rx>, len: usize) -> Result<Next, Errno> {
        let kept = rx.kept_mut().and_then(|kept| kept.get_mut(..len)).ok_or(Errno::NO_BUFFERS)?;
        let seen = self.kernel.peek(&mut [IoSliceMut::new(kept)])?;
        let next = if seen < len { self.hold_back(rx, seen, len) } else { self.absorb_seen(rx, len) };
        rx.spare_kept();
        next
    }

    /// Absorbs `len` octets in front that are in memory already, and still in the kernel.
    fn absorb_seen(&self, rx: &mut Guard<'_, Rx>, len: usize) -> Result<Next, Errno> {
        let moved = len - CRC_LEN;
        rx.moving(|rx| {
            self.drop_front(moved)?;
            rx.absorbed = moved as u32;
            Ok(())
        })?;
        match self.absorbed(rx, len)? {
            None => Ok(Next::More),
            Some(_) => self.absorb(rx),
        }
    }

    /// Absorbs without looking ahead, for a process that may only read: all of the FPDU moves to
    /// memory.
    #[inline(never)]
    pub(super) fn absorb_all(&self, rx: &mut Guard<'_, Rx>) -> Result<Next, Errno> {
        loop {
            let have = rx.absorbed as usize;
            let Some(total) = self.absorbed(rx, have)? else {
                return Ok(Next::More);
            };
            if self.kernel.poll(libc::POLLIN, Some(Duration::ZERO))? == 0 {
                return Ok(Next::Nothing(if have == 0 { Hold::Idle } else { Hold::Partial }));
            }
            if self.move_in(rx, have, total - have)? == 0 {
                return self.finished(rx);
            }
        }
    }

    /// Waits for the rest of an FPDU whose beginning is in memory, as
    /// [`hold_back`](Self::hold_back) does.
    fn hold_back_rest(&self, rx: &mut Guard<'_, Rx>, rest: usize) -> Result<Next, Errno> {
        let have = self.kernel.unread()?;
        let need = if rx.window.narrow && rest > SMALL { have + 1 } else { rest };
        match self.missing(rx, have, need)? {
            Missing::Arrived => Ok(Next::More),
            // The octets are the first of the last four, and the kernel has them in a buffer that
            // takes up all the window. One octet at the end is enough for readiness.
            Missing::NoRoom if have > 0 && have < rest => {
                let at = rx.absorbed as usize;
                self.move_in(rx, at, have)?;
                Ok(Next::More)
            }
            Missing::Late | Missing::NoRoom => Ok(Next::Nothing(Hold::Partial)),
            Missing::Never => self.cut_off(rx),
        }
    }

    /// Returns whether what can be read is too little for a wait of the program, which
    /// `SO_RCVLOWAT` then keeps asleep until more comes, or the end: fewer octets than the
    /// program's low-water mark; or the first ones of an advert, while the others are being Read.
    /// Over TCP these would have come together.
    #[inline(never)]
    fn is_too_little(&self) -> Result<bool, Errno> {
        loop {
            let low_water = K::low_water(self)?;
            let have = self.kernel.unread()?;
            let few = low_water > 1 && self.has_fewer_than(low_water);
            let mut rx = self.lock_rx()?;
            if !K::are_too_few(self, &mut rx, few) {
                // The kernel is to tell of them again while they are unread.
                self.wake_at(&mut rx, 1)?;
                return Ok(false);
            }
            // What has come since `have` may be enough.
            if self.kernel.unread()? != have {
                continue;
            }
            match self.missing(&mut rx, have, have + 1)? {
                Missing::Late => return Ok(true),
                Missing::Never | Missing::NoRoom => return Ok(false),
                Missing::Arrived => {}
            }
        }
    }

    /// Returns whether a wait for octets is to go on beside those that can be read. An error is for
    /// the call that reads.
    pub(super) fn waits_for_more(&self) -> bool {
        let may_be = self.state.low_water() > 1 || K::HAS_STARTS;
        may_be && !is_confined() && self.is_too_little() == Ok(true)
    }

    /// Sets the number of octets with which a receive is content, and for which a wait waits
    /// (`SO_RCVLOWAT`).
    pub fn set_low_water(&self, octets: u32) {
        let before = self.state.low_water();
        self.state.set_low_water(octets);
        if self.state.low_water() < before
            && let Ok(mut rx) = self.lock_rx()
        {
            // A wait that sleeps for more is to look again.
            let _ = self.wake_at(&mut rx, 1);
        }
    }

    /// Looks at the first `seen` octets in memory: those that were moved, and perhaps some more.
    /// `Some`: the FPDU has at least so many octets. `None`: it is whole, and has been taken.
    fn absorbed(&self, rx: &mut Guard<'_, Rx>, seen: usize) -> Result<Option<usize>, Errno> {
        K::absorbed(self, rx, seen)
    }

    /// Looks at octets in memory of an FPDU of this kind of stream.
    #[inline]
    pub(super) fn absorbed_octets(
        &self,
        rx: &mut Guard<'_, Rx>,
        seen: usize,
    ) -> Result<Option<usize>, Errno> {
        let mut place = K::Place::default();
        let mut format = K::format(rx, &mut place);
        let mut incoming = format.incoming(self, rx);
        let octets = rx.kept_mut().and_then(|kept| kept.get_mut(..seen)).unwrap_or_default();
        let step = match incoming.step(octets, &mut format) {
            Ok(Step::Need { total }) => return Ok(Some(total)),
            Ok(step) => step,
            Err(trouble) => return Err(self.fault(rx, &incoming, &trouble)),
        };
        if let Step::Apart { what, .. } = &step
            && let Some(error) = K::Format::refusal(self, what, false)
        {
            return Err(error);
        }
        rx.moving(|rx| self.take_absorbed(rx, step, incoming.position(), &mut format)).map(|()| None)
    }

    /// Takes the FPDU in memory, which is whole.
    fn take_absorbed<F: Duties>(
        &self,
        rx: &mut Guard<'_, Rx>,
        step: Step<F::Apart>,
        at: Position,
        format: &mut F,
    ) -> Result<(), Errno> {
        let behind = step.used().saturating_sub(rx.absorbed as usize);
        rx.absorbed = 0;
        rx.at = at;
        format.before_drop(self);
        format.store(self, rx, 0);
        self.wake_at(rx, 1)?;
        self.may_send_now(rx);
        if let Step::Data { payload, .. } = step {
            (rx.left, rx.left_is_kept) = (payload.len() as u32, true);
            (rx.kept.at, rx.trailer) = (payload.start as u32, behind as u32);
            self.state.flow.holding.store(behind == 0, Ordering::Release);
            return Ok(());
        }
        if behind > 0 {
            self.drop_front(behind)?;
        }
        match step {
            Step::Terminated { code, .. } => Err(self.terminated(rx, code)),
            Step::Silent { reply, .. } => self.reply(&reply),
            Step::Apart { what, payload, .. } => F::take_kept(self, rx, what, payload),
            Step::Need { .. } | Step::Data { .. } => Ok(()),
        }
    }
}

impl Base<'_> {
    /// Has the kernel hold all of an FPDU for which there is no memory, whatever receive buffer the
    /// program has asked for.
    fn widen_for(&self, need: usize) -> Result<Next, Errno> {
        let room = self.kernel.widen_by_force()?;
        if room < 2 * need { Err(Errno::NO_BUFFERS) } else { Ok(Next::Nothing(Hold::Partial)) }
    }

    fn look_ahead(&self, rx: &mut Rx, have: usize) -> Result<usize, Errno> {
        let ahead =
            rx.kept_mut().and_then(|kept| kept.get_mut(have..have + CRC_LEN)).ok_or(Errno::NO_BUFFERS)?;
        match self.kernel.peek(&mut [IoSliceMut::new(ahead)]) {
            Err(Errno::WOULD_BLOCK) => Ok(0),
            other => other,
        }
    }

    fn move_in(&self, rx: &mut Guard<'_, Rx>, have: usize, count: usize) -> Result<usize, Errno> {
        rx.moving(|rx| {
            let moved = match rx.kept_mut().and_then(|kept| kept.get_mut(have..have + count)) {
                Some(kept) => self.kernel.take(&mut [IoSliceMut::new(kept)]),
                None => Err(Errno::NO_BUFFERS),
            };
            let moved = match moved {
                Err(Errno::WOULD_BLOCK) => 0,
                other => other?,
            };
            rx.absorbed += moved as u32;
            Ok(moved)
        })
    }

    /// Asks to be woken when `need` octets are in the kernel, and finds out why those beyond the
    /// `have` seen ones are missing.
    fn missing(&self, rx: &mut Rx, have: usize, need: usize) -> Result<Missing, Errno> {
        self.wake_at(rx, need)?;
        let ready = self.kernel.poll(libc::POLLIN | libc::POLLRDHUP, Some(Duration::ZERO))?;
        if ready == 0 {
            return Ok(Missing::Late);
        }
        // A FIN comes behind all octets, so they are counted after it was seen.
        let unread = self.kernel.unread()?;
        let over = ready & (libc::POLLRDHUP | libc::POLLERR | libc::POLLHUP) != 0;
        Ok(match () {
            () if unread >= need || (unread > have && !over) => Missing::Arrived,
            () if over => Missing::Never,
            () => Missing::NoRoom,
        })
    }

    fn cut_off(&self, rx: &mut Guard<'_, Rx>) -> Result<Next, Errno> {
        if self.state.flow.shut_receive.load(Ordering::Acquire) {
            return Ok(Next::End);
        }
        Err(self.truncated(rx))
    }
}

/// Reasons why octets are missing.
enum Missing {
    /// More octets are there now.
    Arrived,
    /// The octets are on their way.
    Late,
    /// The peer has closed: they will not come.
    Never,
    /// The window is too small for the octets.
    NoRoom,
}

/// Octets that leave room in every window.
const SMALL: usize = 4096;
