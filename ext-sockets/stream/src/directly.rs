//! A large FPDU that is received by one call into the program's buffer, and checked there.
//!
//! Such an FPDU is readable when all of it has come, though its CRC is not checked yet: a wait
//! looks at its header alone. A bad CRC is reported by the read that receives it. A responder that
//! may not send yet (RFC 5044 §7.1.2 r4) checks the CRC at once.

use std::io::IoSliceMut;

use rddp_fault_guard::Faulted;
use rddp_iwarp::Segment;
use rddp_mpa::{CRC_LEN, LENGTH_LEN, crc32c_append, fpdu_len, pad_len};
use rddp_octets::Incoming;

use super::Errno;
use super::base::Base;
use super::duties::{Duties, LONGEST_HEADERS};
use super::rx::{HEAD, MAX_TRAILER, PIECES};
use super::sink::Sink;
use super::state::Rx;
use super::sys::{Guard, Scratch, lent};

impl Base<'_> {
    /// Receives a large FPDU directly into the program's buffer, if it fits: the program does not
    /// read there before the call returns, when the CRC has been checked.
    pub(super) fn take_directly<F: Duties>(
        &self,
        rx: &mut Guard<'_, Rx>,
        (incoming, format): (&mut Incoming, &mut F),
        (segment, front): (Segment, usize),
        scratch: &mut Scratch,
        sink: &mut Sink<'_, '_>,
    ) -> Result<bool, Errno> {
        let (payload_len, ulpdu_len) = (segment.payload_len - front, segment.ulpdu_len());
        let head = LENGTH_LEN + segment.header.len();
        let head_len = head + front;
        if sink.drops || sink.room() < payload_len {
            return Ok(false);
        }
        let (mut heads, mut behind) = ([0; HEAD + LONGEST_HEADERS], [0; MAX_TRAILER]);
        let trailer = pad_len(ulpdu_len) + CRC_LEN;
        let mut list: [IoSliceMut<'_>; PIECES + 2] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
        let (count, used) = sink.lend(payload_len, &mut list[1..=PIECES]);
        if count < payload_len {
            return Ok(false);
        }
        list[0] = IoSliceMut::new(&mut heads[..head_len]);
        list[used + 1] = IoSliceMut::new(&mut behind[..trailer]);
        let whole = fpdu_len(ulpdu_len);
        let took = self.take_front(&mut list[..used + 2])?;
        if took == 0 {
            // The first page of the buffer is not mapped.
            return Ok(false);
        }
        let summed = if rx.terms.crc { sum_first(&list[..=used], took) } else { Ok(0) };
        let crc = summed.map_err(|_| self.memory_gone())?;
        // At a page that is not mapped the kernel stops: the octets that it has kept are looked at
        // elsewhere.
        let rest = if took < whole {
            let rest = self.look_at_rest(scratch, whole - took)?;
            if took < head_len {
                heads[took..head_len].copy_from_slice(&rest[..head_len - took]);
            }
            rest
        } else {
            &behind[..trailer]
        };
        let (covered, field) = rest.split_last_chunk().unwrap_or((&[], &[0; CRC_LEN]));
        let delivered = match incoming.received(segment, crc32c_append(crc, covered), *field, format) {
            Ok(delivered) => delivered,
            Err(trouble) => return Err(self.fault(rx, incoming, &trouble)),
        };
        format.count_in(self, &delivered, incoming.open_tagged(), &heads[head..head_len])?;
        if took < whole {
            self.leave_rest(rx, took, head_len, (head_len + payload_len, trailer))?;
        }
        sink.filled(payload_len - rx.left as usize);
        if rx.left == 0 {
            format.consumed();
        }
        format.store(self, rx, 0);
        rx.at = incoming.position();
        self.wake_at(rx, 1)?;
        Ok(true)
    }

    /// Looks at the last `count` octets of the FPDU in front, which stay in the kernel.
    #[cold]
    fn look_at_rest<'s>(&self, scratch: &'s mut Scratch, count: usize) -> Result<&'s [u8], Errno> {
        let rest = scratch.get_mut(..count).ok_or(Errno::NO_BUFFERS)?;
        let seen = self.kernel.peek(&mut [IoSliceMut::new(rest)])?;
        if seen == count { Ok(rest) } else { Err(self.damaged()) }
    }

    /// Notes the part that stays in the kernel of a good FPDU, whose payload begins at `begin` and
    /// ends at `end`, and of which `took` octets were taken.
    #[cold]
    fn leave_rest(
        &self,
        rx: &mut Rx,
        took: usize,
        begin: usize,
        (end, trailer): (usize, usize),
    ) -> Result<(), Errno> {
        let head = begin.saturating_sub(took);
        if head > 0 {
            self.drop_front(head)?;
        }
        if took + head >= end {
            // All pages for the payload were mapped: the kernel had no reason to stop there.
            return Err(self.damaged());
        }
        (rx.left, rx.trailer, rx.left_is_kept) = ((end - took - head) as u32, trailer as u32, false);
        Ok(())
    }
}

/// Returns the CRC of the first `count` octets of some pieces, or of all if they are fewer.
fn sum_first(pieces: &[IoSliceMut<'_>], count: usize) -> Result<u32, Faulted> {
    let mut left = count;
    pieces.iter().try_fold(0, |crc, piece| {
        let now = piece.len().min(left);
        left -= now;
        lent::sum(crc, &piece[..now])
    })
}
