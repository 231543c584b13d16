//! FPDUs that are taken alone: the first advert, which needs the block of tables, and Writes behind
//! a gap.
//!
//! A peer may write into a `SinkAvail` in any order. What comes behind a gap is put into a chain at
//! its offset; gaps that are never filled read as zeros. `RdmaWrCompl` makes the chain's octets the
//! next ones of the stream.

use std::io::IoSliceMut;
use std::ops::Range;
use std::time::Duration;

use super::ZeroCopy;
use super::state::{Zcopy, reserve_zcopy, zcopy};
use crate::Errno;
use crate::base::Base;
use crate::duties::Duties;
use crate::kind::Functions;
use crate::rooms::Room;
use crate::rx::{Hold, Next};
use crate::sdp::format::{Apart, Messages};
use crate::sdp::inbound::breaks_sdp;
use crate::sdp::look::Places;
use crate::sdp::{Wrong, live};
use crate::state::Rx;
use crate::sys::{ChainError, Guard, Lease, Scratch, parts};
use rddp_octets::Step;
use rddp_sdp::wire::Mode;

impl ZeroCopy<'_, '_> {
    /// Takes the FPDU in front, which is whole, outside of a batch.
    #[cold]
    pub(crate) fn take_alone(&self, rx: &mut Guard<'_, Rx>, scratch: &mut Scratch) -> Result<Next, Errno> {
        let seen = self.kernel.peek(&mut [IoSliceMut::new(scratch)])?;
        let mut places = Places::default();
        let mut look = Messages::format(rx, &mut places);
        let mut incoming = look.incoming(self, rx);
        let step = match incoming.step(&mut scratch[..seen], &mut look) {
            Ok(Step::Apart { what: Apart::NeedsTables, .. }) => return self.take_advert(rx),
            Ok(Step::Apart { what: Apart::Wrong(wrong), .. }) => return Err(breaks_sdp(self, wrong)),
            Ok(step @ Step::Apart { .. }) => step,
            Err(trouble) => return Err(self.fault(rx, &incoming, &trouble)),
            Ok(_) => return Ok(Next::More),
        };
        let has_room = rx.moving(|rx| {
            let has_room = self.store_behind(rx, &step, scratch, &mut look)?;
            if has_room {
                self.take_behind(rx, step.used(), &mut look)?;
                rx.at = incoming.position();
            }
            Ok(has_room)
        })?;
        if !has_room {
            return self.wait_for_memory(rx);
        }
        self.wake_at(rx, 1)?;
        self.may_send_now(rx);
        Ok(Next::More)
    }

    /// Has tables made for the advert in front, which is looked at again.
    fn take_advert(&self, rx: &mut Guard<'_, Rx>) -> Result<Next, Errno> {
        match () {
            () if self.make_tables(rx) || rx.sdp.queue.starved == 1 => Ok(Next::More),
            // There is no Read to take it by, and in Pipelined no refusal.
            () if rx.terms.ord == 0 => Err(breaks_sdp(self, Wrong::Unsupported)),
            () => self.wait_for_memory(rx),
        }
    }

    /// Leaves the FPDU in front where it is, for want of memory. The sender waits; this end looks
    /// again with the next call, or when more comes.
    fn wait_for_memory(&self, rx: &mut Guard<'_, Rx>) -> Result<Next, Errno> {
        if self.kernel.poll(libc::POLLRDHUP, Some(Duration::ZERO))? != 0 {
            // Behind its FIN the peer answers no Read, and the socket stays readable.
            return Err(self.truncated(rx));
        }
        rx.sdp.queue.hungry = 1;
        let unread = self.kernel.unread()?;
        self.wake_at(rx, unread + 1)?;
        Ok(Next::Nothing(Hold::Partial))
    }

    /// Has the block of tables reserved for adverts. `false`: there is no memory, or no way to use
    /// them; where adverts can be refused they are.
    pub(crate) fn make_tables(&self, rx: &mut Guard<'_, Rx>) -> bool {
        if rx.sdp.has_adverts == 1 {
            return true;
        }
        if rx.terms.ord > 0 && reserve_zcopy(rx).is_some() {
            rx.sdp.has_adverts = 1;
            return true;
        }
        let refuses = live(rx).machine().in_mode() == Mode::Combined;
        rx.sdp.queue.starved = refuses.into();
        false
    }

    /// Gives the block of tables back if nothing needs it any more.
    pub(crate) fn spare_tables(&self, rx: &mut Guard<'_, Rx>) {
        if rx.tables == Lease::NONE {
            return;
        }
        let Some((rx_now, _, zcopy)) = zcopy(rx) else { return };
        rx_now.sdp.has_adverts = (!zcopy.adverts.is_idle()).into();
        if zcopy.is_idle() && rx_now.held.is_empty() {
            let (rx, _, mut table) = parts(rx);
            table.give_back(&mut rx.tables);
        }
    }
}

/// Puts octets of a Write aside, which belong so many behind the next one of the stream.
/// `false`: there is no memory for them.
pub(crate) fn put_aside(
    base: &Base<'_>,
    rx: &mut Guard<'_, Rx>,
    ahead: usize,
    octets: &[u8],
) -> Result<bool, Errno> {
    let Some((rx, mut chains, Zcopy { written, .. })) = zcopy(rx) else { return Err(base.damaged()) };
    rx.set_changing(true);
    let more = (ahead + octets.len()).saturating_sub(written.len());
    let put = chains.extend(written, more).and_then(|()| chains.write_at(written, ahead, octets));
    rx.set_changing(false);
    match put {
        Ok(()) => Ok(true),
        Err(ChainError::NoRoom) => Ok(false),
        Err(ChainError::Damaged) => Err(base.damaged()),
    }
}

/// Puts octets aside that are in the block of kept ones.
pub(crate) fn put_aside_of_kept(
    base: &Base<'_>,
    rx: &mut Guard<'_, Rx>,
    ahead: usize,
    at: Range<usize>,
) -> Result<(), Errno> {
    let mut octets = Scratch::take()?;
    let Some(kept) = rx.kept().get(at) else { return Err(base.damaged()) };
    let octets = &mut octets[..kept.len()];
    octets.copy_from_slice(kept);
    match put_aside(base, rx, ahead, octets)? {
        true => Ok(()),
        // They have left the kernel, and there is no other place.
        false => Err(base.damaged()),
    }
}

/// Makes the first octets of those put aside the next ones of the stream, and drops the others.
pub(crate) fn splice(base: &Base<'_>, rx: &mut Guard<'_, Rx>, octets: usize) -> Result<(), Errno> {
    let Some((rx, mut chains, Zcopy { written, runs, .. })) = zcopy(rx) else {
        return Err(base.damaged());
    };
    rx.set_changing(true);
    let cut = chains.truncate(written, octets);
    let moved = cut.and_then(|()| chains.concat(&mut rx.held, written));
    let noted = octets == 0 || runs.queue(Room::Sinks, octets);
    if moved.is_err() || !noted {
        return Err(base.damaged());
    }
    rx.set_changing(false);
    Ok(())
}
