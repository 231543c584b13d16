//! FPDUs of which only a part has come.
//!
//! A part is of no use to the program and must not wake it: `SO_RCVLOWAT` is set to the whole. Where the kernel will not
//! hold as much, its window being too small, the part moves to shared memory, and the rest is awaited likewise. The last
//! four octets are never moved: while the program has not read the payload, they keep the socket readable.

use std::io::IoSliceMut;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rddp_mpa::CRC_LEN;

use super::inbound::{Inbound, Step};
use super::raw::Guard;
use super::rx::{Hold, Next};
use super::state::Rx;
use super::{Errno, Stream};

impl Stream<'_> {
    /// Of `need` octets of the FPDU in front only `have` are in the kernel.
    pub(super) fn hold_back(&self, rx: &mut Guard<'_, Rx>, have: usize, need: usize) -> Result<Next, Errno> {
        self.wake_at(rx, need)?;
        let ready = self.kernel.poll(libc::POLLIN | libc::POLLRDHUP, Some(Duration::ZERO))?;
        if ready == 0 {
            return Ok(Next::Nothing(Hold::Partial));
        }
        if self.kernel.unread()? > have {
            return Ok(Next::More);
        }
        if ready & (libc::POLLRDHUP | libc::POLLERR | libc::POLLHUP) != 0 {
            return self.cut_off(rx);
        }
        // It is readable, though it has not what was asked for: the window is as good as closed.
        self.absorb(rx)
    }

    /// Moves what there is of the FPDU in front to memory, and checks it when it is whole.
    pub(super) fn absorb(&self, rx: &mut Guard<'_, Rx>) -> Result<Next, Errno> {
        loop {
            let have = rx.absorbed as usize;
            let mut inbound = Inbound::new(rx, self.state.options.max_send);
            // Four octets more than were moved can be looked at.
            let ahead = self.look_ahead(rx, have)?;
            let step = match inbound.step(&mut rx.kept[..have + ahead]) {
                Ok(step) => step,
                Err(trouble) => return Err(self.fault(rx, &trouble)),
            };
            let Step::Need { total } = step else {
                return self.absorbed(rx, &inbound, step, ahead);
            };
            let movable = total - CRC_LEN - have;
            let moved = if movable > 0 { self.move_in(rx, have, movable)? } else { 0 };
            if moved == 0 {
                return self.hold_back_rest(rx, total - have);
            }
        }
    }

    fn look_ahead(&self, rx: &mut Rx, have: usize) -> Result<usize, Errno> {
        match self.kernel.peek(&mut [IoSliceMut::new(&mut rx.kept[have..have + CRC_LEN])]) {
            Err(Errno::WOULD_BLOCK) => Ok(0),
            other => other,
        }
    }

    fn move_in(&self, rx: &mut Guard<'_, Rx>, have: usize, count: usize) -> Result<usize, Errno> {
        rx.moving = true;
        let moved = self.kernel.take(&mut [IoSliceMut::new(&mut rx.kept[have..have + count])]);
        let moved = match moved {
            Err(Errno::WOULD_BLOCK) => Ok(0),
            other => other,
        };
        rx.absorbed += *moved.as_ref().unwrap_or(&0) as u32;
        rx.moving = false;
        moved
    }

    /// As [`hold_back`](Self::hold_back), of an FPDU whose beginning is in memory.
    fn hold_back_rest(&self, rx: &mut Guard<'_, Rx>, need: usize) -> Result<Next, Errno> {
        let have = self.kernel.unread()?;
        self.wake_at(rx, need)?;
        let ready = self.kernel.poll(libc::POLLIN | libc::POLLRDHUP, Some(Duration::ZERO))?;
        if self.kernel.unread()? > have {
            return Ok(Next::More);
        }
        if ready & (libc::POLLRDHUP | libc::POLLERR | libc::POLLHUP) != 0 {
            return self.cut_off(rx);
        }
        Ok(Next::Nothing(Hold::Partial))
    }

    /// The FPDU is whole: `ahead` octets of it are still in the kernel too.
    fn absorbed(
        &self,
        rx: &mut Guard<'_, Rx>,
        inbound: &Inbound,
        step: Step,
        ahead: usize,
    ) -> Result<Next, Errno> {
        rx.absorbed = 0;
        inbound.mark().apply(rx);
        self.wake_at(rx, 1)?;
        self.state.may_send.store(true, Ordering::Release);
        if let Step::Data { payload, .. } = step {
            (rx.left, rx.left_is_kept) = (payload.len() as u32, true);
            (rx.kept_at, rx.trailer) = (payload.start as u32, ahead as u32);
            return Ok(Next::More);
        }
        self.moving(rx, ahead, |kernel| kernel.discard(ahead))?;
        match step {
            Step::Terminated { code, .. } => Err(self.terminated(rx, code)),
            Step::Silent { reply, .. } => self.reply(reply.as_slice()).map(|()| Next::More),
            Step::Need { .. } | Step::Data { .. } => Ok(Next::More),
        }
    }

    fn cut_off(&self, rx: &mut Guard<'_, Rx>) -> Result<Next, Errno> {
        if self.state.shut_receive.load(Ordering::Acquire) {
            return Ok(Next::End);
        }
        Err(self.truncated(rx))
    }

    /// Sets `SO_RCVLOWAT`, if it is not that already.
    pub(super) fn wake_at(&self, rx: &mut Rx, count: usize) -> Result<(), Errno> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        if rx.wake_at.max(1) != count {
            rx.wake_at = count;
            self.kernel.wake_at(count)?;
        }
        Ok(())
    }
}
