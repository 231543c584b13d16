//! Receiving: octets go from the kernel to the program when it asks for them, and not before.
//!
//! The kernel's receive queue is the only queue, so its window is the flow control and its
//! readiness counts. Of an FPDU that has been checked and not read to its end, the rest of the
//! payload and the trailer stay in the kernel; a partial FPDU is hidden by `SO_RCVLOWAT`
//! (`partial.rs`). A large one that is read in pieces of at most 8 KiB moves to a block, all but
//! its CRC: the kernel copies it once, and the pieces need no system call.
//!
//! An FPDU is delivered when its CRC has been found good. It may be part of a longer Send; that
//! does not matter to a byte stream, whose octets come in order anyway.

use std::io::IoSliceMut;
use std::sync::atomic::Ordering;

use rddp_ddp::{Header, UntaggedRepr};
use rddp_mpa::{CRC_LEN, LENGTH_LEN};
use rddp_octets::{Batch, Format, Left, Stop};

use super::at_once::expected;
use super::duties::Duties;
use super::ended::{Ended, Why};
use super::kind::Kind;
use super::owed::owe_fpdu;
use super::sink::Sink;
use super::state::Rx;
use super::sys::{Guard, Scratch, is_confined};
use super::{Errno, Framed};

/// Result of a receiving call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pull {
    /// Octets were moved; or, without room for any, octets are there.
    Some,
    /// Octets were moved that came with an advert of the peer, whose next ones are being Read. The
    /// program had so many octets of the stream then.
    Start { received: u64 },
    /// No octets yet.
    Nothing(Hold),
    /// The end: no more octets will come.
    End,
}

/// The condition that a receiving call without octets waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// Any octet.
    Idle,
    /// The rest of an FPDU: `SO_RCVLOWAT` is set to it.
    Partial,
}

/// Result of one step of receiving.
pub(super) enum Next {
    /// There may be more: look again.
    More,
    /// Octets were taken, and those were all.
    Drained,
    /// There is no room for the octets that are there.
    Full,
    Nothing(Hold),
    End,
}

impl<K: Kind> Framed<'_, K> {
    /// Moves octets that are there to the program, without waiting.
    pub(super) fn pull(&self, sink: &mut Sink<'_, '_>) -> Result<Pull, Errno> {
        let before = sink.done();
        let mut rx = self.lock_rx()?;
        let pulled = self.pull_locked(&mut rx, sink);
        K::moved(self, &mut rx, pulled, sink.done() - before, sink.room())
    }

    /// Moves octets as [`pull`](Self::pull) does, for a caller that has the lock.
    #[inline(never)]
    pub(super) fn pull_apart(&self, rx: &mut Guard<'_, Rx>, sink: &mut Sink<'_, '_>) -> Result<Pull, Errno> {
        self.pull_locked(rx, sink)
    }

    #[inline(always)]
    fn pull_locked(&self, rx: &mut Guard<'_, Rx>, sink: &mut Sink<'_, '_>) -> Result<Pull, Errno> {
        let before = sink.done();
        let mut steps = 0;
        loop {
            steps += 1;
            let next = K::advance(self, rx, sink);
            let some = sink.done() > before;
            if steps >= STEPS && matches!(next, Ok(Next::More | Next::Drained)) {
                // A peer that sends nothing for the program must not keep this call, or the lock:
                // the rest is still readable.
                return Ok(if some { Pull::Some } else { Pull::Nothing(Hold::Idle) });
            }
            return match next {
                Ok(Next::More) if !some || sink.room() > 0 => continue,
                Ok(Next::Drained) if !some => continue,
                Ok(Next::More | Next::Drained | Next::Full) => Ok(Pull::Some),
                Err(error) if some => {
                    self.remember(error);
                    Ok(Pull::Some)
                }
                // The next call meets the end again.
                Ok(_) if some => Ok(Pull::Some),
                Ok(Next::Nothing(hold)) => Ok(Pull::Nothing(hold)),
                Ok(Next::End) => Ok(Pull::End),
                Err(error) => Err(error),
            };
        }
    }

    /// Makes a step of receiving.
    #[inline(always)]
    pub(super) fn advance_octets(
        &self,
        rx: &mut Guard<'_, Rx>,
        sink: &mut Sink<'_, '_>,
    ) -> Result<Next, Errno> {
        if rx.left > 0 {
            return if sink.room() == 0 { Ok(Next::Full) } else { self.unload::<K>(rx, sink) };
        }
        if is_confined() {
            return self.absorb_all(rx);
        }
        if rx.absorbed > 0 {
            return self.absorb(rx);
        }
        self.fetch(rx, sink)
    }

    /// Looks at the front of the receive queue, where an FPDU begins.
    fn fetch(&self, rx: &mut Guard<'_, Rx>, sink: &mut Sink<'_, '_>) -> Result<Next, Errno> {
        let mut scratch = Scratch::take()?;
        if K::IS_TAKEN_AT_ONCE
            && let Some(octets) = expected(rx, sink).and_then(|len| scratch.get_mut(..len))
            && let Some(next) = self.fetch_at_once(rx, octets, sink)?
        {
            return Ok(next);
        }
        let glance = if rx.guess.bulk { GLANCE } else { scratch.len() };
        let seen = match self.kernel.peek(&mut [IoSliceMut::new(&mut scratch[..glance])]) {
            Ok(0) => return self.finished(rx),
            Ok(seen) => seen,
            Err(Errno::WOULD_BLOCK) => return Ok(Next::Nothing(Hold::Idle)),
            Err(error) => {
                if [Errno::RESET, Errno::TIMED_OUT].contains(&error) {
                    K::is_cut(rx);
                }
                return Err(error);
            }
        };
        let all = seen < glance;
        let taken = self.take_batch(rx, &mut scratch[..seen], sink)?;
        rx.guess.alone =
            matches!(taken, Taken::Whole) && all && rx.left == 0 && seen == rx.guess.last_fpdu as usize;
        match taken {
            Taken::Left => Ok(Next::Full),
            // Octets that are left although there is room go by another way.
            Taken::Whole if all && rx.left == 0 => Ok(Next::Drained),
            Taken::Whole => Ok(Next::More),
            Taken::Alone => K::fetch_alone(self, rx, &mut scratch),
            Taken::None { need } if all => self.hold_back(rx, seen, need),
            Taken::None { need } => self.fetch_large(rx, &mut scratch, need, sink),
        }
    }

    /// Receives the FPDU in front, which has `len` octets, more than were looked at.
    fn fetch_large(
        &self,
        rx: &mut Guard<'_, Rx>,
        scratch: &mut Scratch,
        len: usize,
        sink: &mut Sink<'_, '_>,
    ) -> Result<Next, Errno> {
        if is_read_by_pieces(rx, sink) && rx.kept_mut().is_some() {
            return self.absorb_whole(rx, len);
        }
        let unread = self.kernel.unread()?;
        if unread < len {
            return self.hold_back(rx, unread, len);
        }
        let mut place = K::Place::default();
        let mut format = K::format(rx, &mut place);
        let mut incoming = format.incoming(self, rx);
        if let Some(segment) = incoming.announced(&scratch[..GLANCE], &format) {
            if self.may_wait(rx, sink) {
                return Ok(Next::Full);
            }
            let front = &scratch[LENGTH_LEN + segment.header.len()..GLANCE];
            if let Some(front) = format.headers(&segment, front) {
                // As `moving` does, whose closure costs more here than the marks.
                rx.set_moving(true);
                let taken =
                    self.take_directly(rx, (&mut incoming, &mut format), (segment, front), scratch, sink);
                if taken == Ok(true) {
                    self.may_send_now(rx);
                }
                rx.set_moving(false);
                if taken? {
                    return Ok(Next::More);
                }
            }
        }
        let seen = self.kernel.peek(&mut [IoSliceMut::new(&mut scratch[..len])])?;
        match self.take_batch(rx, &mut scratch[..seen], sink)? {
            Taken::Left => Ok(Next::Full),
            Taken::Whole => Ok(Next::More),
            Taken::Alone => K::fetch_alone(self, rx, scratch),
            // The length of a marked FPDU is known exactly only when its first octets are there.
            Taken::None { need } if need > len => self.fetch_large(rx, scratch, need, sink),
            Taken::None { need } => self.hold_back(rx, seen, need),
        }
    }

    /// Takes the whole FPDUs at the front of `octets`, which are still in the kernel, as far as the
    /// sink has room.
    fn take_batch(
        &self,
        rx: &mut Guard<'_, Rx>,
        octets: &mut [u8],
        sink: &mut Sink<'_, '_>,
    ) -> Result<Taken, Errno> {
        let mut place = K::Place::default();
        let mut format = K::format(rx, &mut place);
        let mut incoming = format.incoming(self, rx);
        let done_before = sink.done();
        let mut batch = Batch::of(&mut incoming, octets, sink, rx.shown as usize, &mut format);
        let stays = batch.left.is_some() && rx.terms.markers && rx.kept_mut().is_none();
        let mut shown = 0;
        if stays {
            shown = batch.leave_last();
            format.cut_back();
            // The FPDU is good, and lets this end send, though it stays in the kernel.
            self.may_send_now(rx);
        }
        if let Some(at) = batch.at {
            rx.moving(|rx| {
                let kept_back = batch.left.map(|left| keep_back(rx, &left, octets)).transpose()?;
                format.before_drop(self);
                self.drop_front(kept_back.unwrap_or(batch.used))?;
                rx.at = at;
                rx.note_fpdu(batch.last);
                rx.shown = shown;
                format.store(self, rx, sink.done() - done_before);
                rx.guess.bulk = batch.largest >= BULK;
                self.wake_at(rx, 1)?;
                self.may_send_now(rx);
                self.reply(batch.replies.headers())
            })?;
        } else {
            rx.shown = shown;
        }
        match batch.stop {
            Stop::Terminated(code) => Err(self.terminated(rx, code)),
            _ if stays => Ok(Taken::Left),
            _ if batch.at.is_some() => Ok(Taken::Whole),
            Stop::Trouble(trouble) => Err(self.fault(rx, &incoming, &trouble)),
            Stop::Apart(what) => match K::Format::refusal(self, &what, true) {
                Some(error) => Err(error),
                None => Ok(Taken::Alone),
            },
            Stop::Need(need) => Ok(Taken::None { need }),
            Stop::Full => Ok(Taken::Whole),
        }
    }

    /// Returns whether a large FPDU of octets for the program, which is all there, may stay
    /// unchecked until the program reads it. The socket is readable then, even if the read finds
    /// that the FPDU is damaged.
    fn may_wait(&self, rx: &Rx, sink: &Sink<'_, '_>) -> bool {
        // This end may send only after an FPDU that is known to be good (RFC 5044 §7.1.2 r4).
        sink.room() == 0 && self.state.may_send() && !K::needs_what_comes(self, rx)
    }

    /// Answers Reads without octets. A peer that asks for more answers than it reads meets the
    /// limit of owed octets.
    pub(super) fn reply<'h>(&self, headers: impl IntoIterator<Item = &'h Header>) -> Result<(), Errno> {
        let mut headers = headers.into_iter().peekable();
        if headers.peek().is_none() {
            return Ok(());
        }
        let mut tx = self.lock_tx()?;
        for header in headers {
            if !owe_fpdu(&mut tx, header, &[]) {
                self.state.end.set(Ended::new(Why::Fault, Errno::RESET));
                self.kernel.reset();
                return Err(Errno::RESET);
            }
        }
        K::pay(self, &mut tx).map(drop)
    }

    /// Handles the peer's FIN, after everything before it was read.
    pub(super) fn finished(&self, rx: &mut Guard<'_, Rx>) -> Result<Next, Errno> {
        let whole = !rx.at.is_open && rx.absorbed == 0;
        if whole {
            K::fin(self, rx)?;
        }
        if whole || self.state.flow.shut_receive.load(Ordering::Acquire) {
            return Ok(Next::End);
        }
        Err(self.truncated(rx))
    }
}

/// Notes the rest of an FPDU that the sink had no room for; returns up to where the kernel's
/// octets can be dropped.
fn keep_back(rx: &mut Rx, left: &Left, octets: &[u8]) -> Result<usize, Errno> {
    rx.left = (left.to - left.from) as u32;
    rx.left_is_kept = rx.terms.markers;
    if !rx.terms.markers {
        rx.trailer = (left.end - left.to) as u32;
        return Ok(left.from);
    }
    // The payload has gaps where markers stand in the kernel: it moves to memory, and the CRC
    // stays for readiness.
    let kept = rx.kept_mut().ok_or(Errno::NO_BUFFERS)?;
    kept[..left.to - left.from].copy_from_slice(&octets[left.from..left.to]);
    rx.kept.at = 0;
    rx.trailer = CRC_LEN as u32;
    Ok(left.end - CRC_LEN)
}

/// Result of taking octets that were looked at.
enum Taken {
    /// At least one FPDU was whole, and has been taken.
    Whole,
    /// The program has read a part of the FPDU in front, for which there is no other place.
    Left,
    /// The FPDU in front is to be taken alone.
    Alone,
    /// No FPDU is whole: the one in front has `need` octets or more.
    None { need: usize },
}

/// Returns whether the program reads in pieces so small that a large FPDU is better copied to
/// memory once and read from there.
fn is_read_by_pieces(rx: &Rx, sink: &Sink<'_, '_>) -> bool {
    rx.guess.bulk && !rx.terms.markers && !sink.drops && (1..=BULK).contains(&sink.room())
}

/// Looks at the receive queue in one call, each of up to 72 KiB.
pub(super) const STEPS: u32 = 64;
/// Octets looked at when the next FPDU is thought to be a large one.
const GLANCE: usize = 64;
/// Smallest payload that is worth receiving in place.
pub(super) const BULK: usize = 8 * 1024;
/// Most pieces of the program's buffer in one receive.
pub(super) const PIECES: usize = 32;
/// Length field and header of a Send.
pub(super) const HEAD: usize = LENGTH_LEN + UntaggedRepr::LEN;
/// Pad and CRC.
pub(super) const MAX_TRAILER: usize = 3 + CRC_LEN;
