//! Direct placement: the payload of a large FPDU is received straight into registered memory, with
//! no copy in user space; the trailer and what follows go to staging in the same read.
//!
//! Only where nobody may look before delivery (a posted receive, the sink of an own Read), with CRC
//! off, or if the user chose `place_before_crc`: a Write is otherwise placed only after its CRC was
//! checked (RFC 5044 §6), since a header corrupted on the way would overwrite other live octets.
//! Memory is checked again at every read.
//!
//! The last octets of a Write, which programs poll, are staged with the trailer and placed behind
//! all others.

use std::io;
use std::os::fd::AsFd;

use rddp_iwarp::Segment;
use rddp_mpa::{CRC_LEN, LENGTH_LEN, crc32c, crc32c_append, pad_len};
use rddp_stat::Counter;
use smallvec::SmallVec;

use super::link::Link;
use super::place::{Unplaceable, is_polled, targets};
use crate::mem::{Faulted, Grant, POLLED, PieceMut, is_fault, recv_vectored};
use crate::queues::context::Context;
use crate::queues::memory::Grants;
use crate::trace;
use crate::wire::WireEvent;

/// Payload still to come below which the staging buffer is as good.
const WORTH_IT: usize = 4096;

/// An FPDU whose payload is being received straight into registered memory.
#[derive(Debug)]
pub(super) struct Direct {
    segment: Segment,
    /// Payload octets that are there.
    got: usize,
    /// Payload octets at the end that are staged, and placed when all is here.
    staged: usize,
    /// CRC over the length field, the header and those.
    crc: u32,
}

impl Direct {
    /// Payload octets that are received into their place.
    fn direct_len(&self) -> usize {
        self.segment.payload_len - self.staged
    }
}

impl Link {
    /// Begins direct placement of the FPDU at the front of `staging`, which needs `total` octets
    /// and is not all here, if that is allowed and worth it. Returns whether it has taken all of
    /// `staging`.
    ///
    /// Nothing is concluded from a header whose CRC is not known yet: whatever is wrong, the FPDU
    /// is staged instead.
    pub(super) fn begin_direct(&mut self, cx: &mut Context<'_>, staging: &[u8], total: usize) -> bool {
        if total.saturating_sub(staging.len()) < WORTH_IT || !self.may_send {
            return false;
        }
        let (mut receiver, mut target) = self.receiving(cx);
        let Some(segment) = receiver.announced(staging, &mut target) else { return false };
        if !self.may_place_directly(segment.place) {
            return false;
        }
        let (front, here) = staging.split_at(LENGTH_LEN + segment.header.len());
        let mut grants = Grants::new();
        // RFC 5041 §7.1: a segment that is not all inside is not placed at all, so all of it is
        // checked now.
        if targets(cx, segment.place, 0, segment.payload_len, &mut grants).is_err() {
            return false;
        }
        let mut crc = if self.negotiated.crc { crc32c(front) } else { 0 };
        let mut rest = here;
        for grant in &grants {
            let (now, later) = rest.split_at(grant.len().min(rest.len()));
            let placed = if self.negotiated.crc {
                grant.place_with_crc(0, now, crc)
            } else {
                grant.place(0, now).map(|()| crc)
            };
            let Ok(sum) = placed else { return false };
            (crc, rest) = (sum, later);
        }
        // There is more to come than that.
        let staged = if is_polled(&segment) { POLLED } else { 0 };
        self.direct = Some(Direct { segment, got: here.len(), staged, crc });
        true
    }

    /// Reads the rest of the payload into its place and what follows into `staging`. Returns the
    /// octets read in all, and those in `staging`.
    ///
    /// # Errors
    /// The memory has gone bad: the kernel found that before it took another octet, or we do.
    #[inline]
    pub(super) fn receive_direct(
        &mut self,
        cx: &mut Context<'_>,
        staging: &mut [u8],
    ) -> Result<io::Result<(usize, usize)>, WireEvent> {
        let fd = self.socket.as_fd();
        let Some(direct) = &mut self.direct else { return Ok(Ok((0, 0))) };
        let left = direct.direct_len() - direct.got;
        let mut grants = Grants::new();
        if left > 0
            && let Err(why) = targets(cx, direct.segment.place, direct.got, left, &mut grants)
        {
            // The memory went away between two reads.
            grants.clear();
            return Err(direct.segment.trouble(why.refuse(cx)).into());
        }
        let mut pieces: SmallVec<[PieceMut<'_>; 2]> =
            grants.iter().map(|grant| PieceMut::Granted(grant, 0..grant.len())).collect();
        pieces.push(PieceMut::Own(staging));
        let received = recv_vectored(fd, &mut pieces);
        drop(pieces);
        let placed = received.as_ref().map_or(0, |total| left.min(*total));
        let sum = if self.negotiated.crc { crc_of(&grants, placed, direct.crc) } else { Ok(0) };
        let (Ok(crc), false) = (sum, received.as_ref().is_err_and(is_fault)) else {
            grants.clear();
            let why = Unplaceable::gone_bad(direct.segment.place);
            return Err(direct.segment.trouble(why.refuse(cx)).into());
        };
        cx.tally.add(Counter::OctetsPlacedDirectly, placed as u64);
        direct.got += placed;
        direct.crc = crc;
        Ok(received.map(|total| (total, total - placed)))
    }

    /// Ends the direct placement when its payload and, at the front of `staging`, its last octets
    /// and trailer are here. Returns whether none is going on any more.
    pub(super) fn finish_direct(
        &mut self,
        cx: &mut Context<'_>,
        staging: &[u8],
        used: &mut usize,
    ) -> Result<bool, WireEvent> {
        let Some(direct) = self.direct.take() else { return Ok(true) };
        let pad = pad_len(direct.segment.ulpdu_len());
        let whole = direct.got == direct.direct_len();
        let Some((behind, _)) = staging.split_at_checked(direct.staged + pad + CRC_LEN).filter(|_| whole)
        else {
            self.direct = Some(direct);
            return Ok(false);
        };
        let (covered, field) = behind.split_at(direct.staged + pad);
        let mut octets = [0; CRC_LEN];
        octets.copy_from_slice(field);
        *used = behind.len();
        let crc = if self.negotiated.crc { crc32c_append(direct.crc, covered) } else { 0 };
        let last = &covered[..direct.staged];
        if last.is_empty() {
            trace::placed(cx.attrs.num, &direct.segment);
        }
        let (mut receiver, mut target) = self.receiving(cx);
        let delivered = receiver.received(direct.segment, last, crc, octets, &mut target)?;
        self.note_size(true);
        self.complete(cx, delivered)?;
        Ok(true)
    }
}

fn crc_of(grants: &[Grant], mut len: usize, mut crc: u32) -> Result<u32, Faulted> {
    for grant in grants {
        let count = len.min(grant.len());
        crc = grant.crc32c_append(0, count, crc)?;
        len -= count;
    }
    Ok(crc)
}
