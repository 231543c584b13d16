//! One read in place of a look and a read, where a message as long as the last ones is expected.
//!
//! A look costs as much as a read. It may be left out where all that the read can bring has a
//! place: whole FPDUs in the program's buffer, a part of one in the block of kept octets. So as
//! many octets are taken as the last FPDU had, and only if whole FPDUs in them have no more payload
//! than there is room for. Where the program has room for more than the message, the call has to
//! learn whether more is there: it asks for a word more, which comes only if there is. That is done
//! where the last FPDU came alone, so that streams of short messages are taken many at a time. The
//! octets go to memory of our own first: a message that is shorter than expected would leave the
//! octets of the next one in the program's buffer, and no CRC is known yet.
//!
//! There is no such read with markers, for SDP, with a narrow window, and for a look. Memory of the
//! program that cannot be written is found before it.

use std::io::IoSliceMut;

use rddp_ddp::UntaggedRepr;
use rddp_mpa::fpdu_len;
use rddp_octets::{Batch, Plain, Stop};

use super::duties::Duties;
use super::kind::Kind;
use super::rx::{Hold, Next};
use super::sink::Sink;
use super::state::Rx;
use super::sys::Guard;
use super::{Errno, Framed};

impl<K: Kind> Framed<'_, K> {
    /// Takes octets that are there, as many as `octets` has room for, and delivers the FPDUs in
    /// them. `None`: there is no place for all that may come, and nothing was taken.
    #[inline]
    pub(super) fn fetch_at_once(
        &self,
        rx: &mut Guard<'_, Rx>,
        octets: &mut [u8],
        sink: &mut Sink<'_, '_>,
    ) -> Result<Option<Next>, Errno> {
        if !sink.can_fill(octets.len() - EMPTY_SEND) || rx.kept_mut().is_none() {
            return Ok(None);
        }
        let taken = rx.moving(|rx| self.take_at_once(rx, octets, sink));
        rx.spare_kept();
        taken.map(Some)
    }

    fn take_at_once(
        &self,
        rx: &mut Guard<'_, Rx>,
        octets: &mut [u8],
        sink: &mut Sink<'_, '_>,
    ) -> Result<Next, Errno> {
        let got = match self.kernel.take(&mut [IoSliceMut::new(octets)]) {
            Ok(0) => return self.finished(rx),
            Ok(got) => got,
            Err(Errno::WOULD_BLOCK) => return Ok(Next::Nothing(Hold::Idle)),
            Err(error) => return Err(error),
        };
        let is_all = got < octets.len();
        let mut incoming = Plain.incoming(self, rx);
        let mut rest = &mut octets[..got];
        loop {
            let batch = Batch::of(&mut incoming, rest, sink, 0, &mut Plain);
            if let Some(at) = batch.at {
                rx.at = at;
                rx.note_fpdu(batch.last);
                self.wake_at(rx, 1)?;
                // This end may send: good FPDUs have come, by which the length is known.
                self.reply(batch.replies.headers())?;
            }
            rest = &mut rest[batch.used..];
            match batch.stop {
                // There was memory for the payload before it was taken.
                _ if batch.left.is_some() => return Err(self.memory_gone()),
                Stop::Full if !rest.is_empty() => {}
                Stop::Full | Stop::Need(_) => break,
                Stop::Terminated(code) => return Err(self.terminated(rx, code)),
                Stop::Trouble(trouble) => return Err(self.fault(rx, &incoming, &trouble)),
                Stop::Apart(never) => match never {},
            }
        }
        rx.guess.alone = is_all && rest.is_empty() && got == rx.guess.last_fpdu as usize;
        keep_part(rx, rest)?;
        Ok(if is_all && rest.is_empty() { Next::Drained } else { Next::More })
    }
}

/// Returns how many octets to take without a look at them: none where the next FPDU may have
/// octets for which there is no place, or where the call would have to look for more anyway.
#[inline]
pub(super) fn expected(rx: &Rx, sink: &Sink<'_, '_>) -> Option<usize> {
    let len = rx.guess.expected_fpdu as usize;
    // Markers vary an FPDU's length, and where the window is narrow a part may close it.
    if len <= EMPTY_SEND || rx.terms.markers || rx.window.narrow {
        return None;
    }
    // The payload and its pad are a multiple of four.
    match (sink.room() & !3).checked_sub(len - EMPTY_SEND)? {
        0 => Some(len),
        WORD.. if rx.guess.alone => Some(len + WORD),
        _ => None,
    }
}

/// Keeps the first octets of an FPDU, of which the kernel has the rest, or will have it. The next
/// step absorbs that, or waits for it.
fn keep_part(rx: &mut Guard<'_, Rx>, part: &[u8]) -> Result<(), Errno> {
    if !part.is_empty() {
        let kept = rx.kept_mut().and_then(|kept| kept.get_mut(..part.len())).ok_or(Errno::NO_BUFFERS)?;
        kept.copy_from_slice(part);
        rx.absorbed = part.len() as u32;
        // Lengths vary.
        rx.note_fpdu(0);
    }
    Ok(())
}

impl Rx {
    /// Notes the length of an FPDU that was taken. Two in a row of one length are expected to be
    /// followed by a third.
    #[inline]
    pub(super) fn note_fpdu(&mut self, len: usize) {
        let len = len as u32;
        self.guess.expected_fpdu = if len == self.guess.last_fpdu { len } else { 0 };
        self.guess.last_fpdu = len;
    }
}

/// Octets that are asked for beside an FPDU, to learn whether more are there.
const WORD: usize = 4;

/// Octets of the FPDU of a Send without payload.
const EMPTY_SEND: usize = fpdu_len(UntaggedRepr::LEN);
