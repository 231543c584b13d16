//! Moving octets of the FPDU in front, which has been checked, to the program.

use std::io::IoSliceMut;
use std::sync::atomic::Ordering;

use super::Errno;
use super::base::Base;
use super::kind::Kind;
use super::rx::{MAX_TRAILER, Next, PIECES};
use super::sink::Sink;
use super::state::Rx;
use super::sys::{Guard, Scratch, is_confined};

impl Base<'_> {
    /// Moves more of the FPDU in front, which has been checked.
    pub(super) fn unload<K: Kind>(
        &self,
        rx: &mut Guard<'_, Rx>,
        sink: &mut Sink<'_, '_>,
    ) -> Result<Next, Errno> {
        // What was too little for a wait may be enough beside less.
        self.wake_at(rx, 1)?;
        if rx.left_is_kept {
            let at = rx.kept.at as usize;
            let count = sink.fill(rx.kept().get(at..at + rx.left as usize).unwrap_or_default());
            return rx.moving(|rx| self.unload_kept::<K>(rx, count)).map(|()| Next::More);
        }
        let want = (rx.left as usize).min(sink.room());
        rx.moving(|rx| {
            if sink.drops { self.unload_nowhere(rx, sink, want) } else { self.unload_into(rx, sink, want) }?;
            if rx.left == 0 {
                K::front_is_read(rx);
            }
            Ok(Next::More)
        })
    }

    /// Counts out octets of the FPDU in front that are in memory.
    fn unload_kept<K: Kind>(&self, rx: &mut Guard<'_, Rx>, count: usize) -> Result<(), Errno> {
        rx.kept.at += count as u32;
        rx.left -= count as u32;
        if rx.left == 0 {
            if rx.trailer > 0 {
                self.drop_front(rx.trailer as usize)?;
            }
            rx.left_is_kept = false;
            rx.spare_kept();
            self.state.flow.holding.store(false, Ordering::Release);
            K::front_is_read(rx);
        }
        Ok(())
    }

    fn unload_nowhere(&self, rx: &mut Rx, sink: &mut Sink<'_, '_>, count: usize) -> Result<(), Errno> {
        let trailer = if count == rx.left as usize { rx.trailer as usize } else { 0 };
        self.drop_front(count + trailer)?;
        sink.dropped(count);
        rx.left -= count as u32;
        Ok(())
    }

    fn unload_into(&self, rx: &mut Rx, sink: &mut Sink<'_, '_>, want: usize) -> Result<(), Errno> {
        let mut behind = [0; MAX_TRAILER];
        let mut list: [IoSliceMut<'_>; PIECES + 1] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
        let (count, mut used) = sink.lend(want, &mut list[..PIECES]);
        let trailer = if count == rx.left as usize { rx.trailer as usize } else { 0 };
        if trailer > 0 {
            list[used] = IoSliceMut::new(&mut behind[..trailer]);
            used += 1;
        }
        let took = self.take_front(&mut list[..used])?;
        let all = took == count + trailer;
        let took = took.min(count);
        sink.filled(took);
        rx.left -= took as u32;
        match count - took {
            _ if all => Ok(()),
            // The trailer leaves the kernel with the last of the payload.
            0 => Err(self.damaged()),
            rest => self.unload_by_copy(rx, sink, rest),
        }
    }

    /// Moves the next `count` octets of the FPDU in front, up to a page that is not mapped.
    #[cold]
    fn unload_by_copy(&self, rx: &mut Rx, sink: &mut Sink<'_, '_>, count: usize) -> Result<(), Errno> {
        if is_confined() {
            sink.ends_here();
            return Ok(());
        }
        let mut scratch = Scratch::take()?;
        let seen = self.kernel.peek(&mut [IoSliceMut::new(&mut scratch[..count])])?;
        if seen < count {
            return Err(self.damaged());
        }
        let count = sink.fill(&scratch[..seen]);
        if count == 0 {
            return Ok(());
        }
        let trailer = if count == rx.left as usize { rx.trailer as usize } else { 0 };
        self.drop_front(count + trailer)?;
        rx.left -= count as u32;
        Ok(())
    }
}
