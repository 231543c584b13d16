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

use rddp_ddp::Header;
use rddp_mpa::{CRC_LEN, LENGTH_LEN, crc32c, crc32c_append, pad_len};
use rddp_rdmap::{Fault, Place};
use smallvec::SmallVec;

use super::link::Link;
use super::place::{Unplaceable, is_polled, place_from, targets};
use crate::mem::{Faulted, Grant, POLLED, PieceMut, is_fault, recv_vectored};
use crate::qp::context::Context;
use crate::qp::memory::Grants;
use crate::wire::LinkEvent;

/// Payload still to come below which the staging buffer is as good.
const WORTH_IT: usize = 4096;

/// An FPDU whose payload is being received straight into registered memory.
#[derive(Debug)]
pub(super) struct Direct {
    pub(super) header: Header,
    pub(super) ulpdu_len: usize,
    pub(super) place: Place,
    /// Payload octets that are there.
    pub(super) got: usize,
    /// Payload octets at the end that are staged, and placed when all is here.
    pub(super) staged: usize,
    /// CRC over the length field, the header and those.
    pub(super) crc: u32,
}

impl Direct {
    pub(super) fn payload_len(&self) -> usize {
        self.ulpdu_len - self.header.len()
    }

    /// Payload octets that are received into their place.
    pub(super) fn direct_len(&self) -> usize {
        self.payload_len() - self.staged
    }
}

impl Link {
    /// The FPDU at the front of `stage`, which needs `total` octets, is not all here. Begins direct
    /// placement if that is allowed and worth it, and then has taken all of `stage`.
    ///
    /// Nothing is concluded from a header whose CRC is not known yet: whatever is wrong, the FPDU
    /// is staged instead.
    pub(super) fn begin_direct(&mut self, cx: &mut Context<'_>, stage: &[u8], total: usize) -> bool {
        if total.saturating_sub(stage.len()) < WORTH_IT {
            return false;
        }
        let Some(peek) = self.deframer.peek(stage) else { return false };
        let Ok(header) = Header::parse(&stage[LENGTH_LEN..]) else { return false };
        let begin = LENGTH_LEN + header.len();
        if !self.may_send || stage.len() < begin || peek.ulpdu_len < header.len() {
            return false;
        }
        let payload_len = peek.ulpdu_len - header.len();
        let Ok(place) = self.classify(cx, &header, payload_len) else { return false };
        if !self.may_place_directly(place) {
            return false;
        }
        let here = &stage[begin..];
        let mut grants = Grants::new();
        // RFC 5041 §7.1: a segment that is not all inside is not placed at all, so all of it is
        // checked now.
        if targets(cx, place, 0, payload_len, &mut grants).is_err() {
            return false;
        }
        let mut crc = if self.negotiated.crc { crc32c(&stage[..begin]) } else { 0 };
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
        let staged = if is_polled(place, &header) { POLLED } else { 0 };
        self.direct = Some(Direct { header, ulpdu_len: peek.ulpdu_len, place, got: here.len(), staged, crc });
        true
    }

    /// Reads the rest of the payload into its place and what follows into `stage`: octets in all,
    /// and in `stage`.
    ///
    /// # Errors
    /// The memory has gone bad: the kernel found that before it took another octet, or we do.
    pub(super) fn receive_direct(
        &mut self,
        cx: &mut Context<'_>,
        stage: &mut [u8],
    ) -> Result<io::Result<(usize, usize)>, LinkEvent> {
        let fd = self.socket.as_fd();
        let Some(direct) = &mut self.direct else { return Ok(Ok((0, 0))) };
        let left = direct.direct_len() - direct.got;
        let mut grants = Grants::new();
        if left > 0
            && let Err(why) = targets(cx, direct.place, direct.got, left, &mut grants)
        {
            // The memory went away between two reads.
            grants.clear();
            return Err(why.refuse(cx, &direct.header, direct.payload_len()));
        }
        let mut pieces: SmallVec<[PieceMut<'_>; 2]> =
            grants.iter().map(|grant| PieceMut::Granted(grant, 0..grant.len())).collect();
        pieces.push(PieceMut::Own(stage));
        let received = recv_vectored(fd, &mut pieces);
        drop(pieces);
        let placed = received.as_ref().map_or(0, |total| left.min(*total));
        let sum = if self.negotiated.crc { crc_of(&grants, placed, direct.crc) } else { Ok(0) };
        let (Ok(crc), false) = (sum, received.as_ref().is_err_and(is_fault)) else {
            grants.clear();
            return Err(Unplaceable::gone_bad(direct.place).refuse(cx, &direct.header, direct.payload_len()));
        };
        cx.counters.octets_placed_directly += placed as u64;
        direct.got += placed;
        direct.crc = crc;
        Ok(received.map(|total| (total, total - placed)))
    }

    /// Ends the direct placement when its payload and, at the front of `stage`, its last octets and
    /// trailer are here. Returns whether none is going on any more.
    pub(super) fn finish_direct(
        &mut self,
        cx: &mut Context<'_>,
        stage: &[u8],
        used: &mut usize,
    ) -> Result<bool, LinkEvent> {
        let Some(direct) = self.direct.take() else { return Ok(true) };
        let payload_len = direct.payload_len();
        let pad = pad_len(direct.ulpdu_len);
        let whole = direct.got == direct.direct_len();
        let Some((behind, _)) = stage.split_at_checked(direct.staged + pad + CRC_LEN).filter(|_| whole)
        else {
            self.direct = Some(direct);
            return Ok(false);
        };
        let (covered, field) = behind.split_at(direct.staged + pad);
        let mut octets = [0; CRC_LEN];
        octets.copy_from_slice(field);
        *used = behind.len();
        let crc = if self.negotiated.crc { crc32c_append(direct.crc, covered) } else { 0 };
        self.deframer
            .accept_external(direct.ulpdu_len, crc, octets)
            .map_err(|error| Fault::mpa(error.code()))?;
        self.note_size(true);
        cx.counters.fpdus_received += 1;
        if direct.staged > 0 {
            let last = &covered[..direct.staged];
            place_from(cx, &direct.header, direct.place, direct.got, last)?;
        }
        self.commit(cx, &direct.header, payload_len, &[])?;
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
