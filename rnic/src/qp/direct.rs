//! Direct placement: the payload of a large FPDU is received straight into registered memory, with no copy in user
//! space; the trailer and what follows go to staging in the same read.
//!
//! Only where nobody may look before delivery (a posted receive, the sink of an own Read), with CRC off, or if the user
//! chose `place_before_crc`: a Write is otherwise placed only after its CRC was checked (RFC 5044 §6), since a header
//! corrupted on the way would overwrite other live octets. Memory is checked again at every read.
//!
//! The last octets of a Write, which programs poll, are staged with the trailer and placed behind
//! all others.

use std::io;

use rddp_ddp::Header;
use rddp_mpa::{CRC_LEN, LENGTH_LEN, crc32c, crc32c_append, pad_len};
use rddp_rdmap::Fault;
use smallvec::SmallVec;

use super::QpInner;
use super::core::Core;
use super::link::Direct;
use super::rx::{Faulty, Grants, Unplaceable, is_polled};
use super::state::QpState;
use crate::mem::{Faulted, Grant, POLLED, PieceMut, is_fault, recv_vectored};

/// Payload still to come below which the staging buffer is as good.
const WORTH_IT: usize = 4096;

impl QpInner {
    /// The FPDU at the front of `stage`, which needs `total` octets, is not all here. Begins direct placement if that
    /// is allowed and worth it, and then has taken all of `stage`.
    ///
    /// Nothing is concluded from a header whose CRC is not known yet: whatever is wrong, the FPDU is staged instead.
    pub(super) fn begin_direct(&self, core: &mut Core, stage: &[u8], total: usize) -> bool {
        if core.state != QpState::ReadyToSend || total.saturating_sub(stage.len()) < WORTH_IT {
            return false;
        }
        let Some(link) = &mut core.link else { return false };
        let Some(peek) = link.deframer.peek(stage) else { return false };
        let Ok(header) = Header::parse(&stage[LENGTH_LEN..]) else { return false };
        let begin = LENGTH_LEN + header.len();
        if !link.may_send || stage.len() < begin || peek.ulpdu_len < header.len() {
            return false;
        }
        let payload_len = peek.ulpdu_len - header.len();
        let Ok(place) = self.classify(core, &header, payload_len) else { return false };
        if core.link.as_ref().is_none_or(|link| !link.may_place_directly(place)) {
            return false;
        }
        let here = &stage[begin..];
        let mut grants = Grants::new();
        // RFC 5041 §7.1: a segment that is not all inside is not placed at all, so all of it is checked now.
        if self.targets(core, place, 0, payload_len, &mut grants).is_err() {
            return false;
        }
        let Some(link) = &mut core.link else { return false };
        let mut crc = if link.negotiated.crc { crc32c(&stage[..begin]) } else { 0 };
        let mut rest = here;
        for grant in &grants {
            let (now, later) = rest.split_at(grant.len().min(rest.len()));
            let placed = if link.negotiated.crc {
                grant.place_with_crc(0, now, crc)
            } else {
                grant.place(0, now).map(|()| crc)
            };
            let Ok(sum) = placed else { return false };
            (crc, rest) = (sum, later);
        }
        // There is more to come than that.
        let staged = if is_polled(place, &header) { POLLED } else { 0 };
        link.direct = Some(Direct { header, ulpdu_len: peek.ulpdu_len, place, got: here.len(), staged, crc });
        true
    }

    /// Reads the rest of the payload into its place and what follows into `stage`: octets in all, and in `stage`.
    pub(super) fn receive_direct(&self, core: &mut Core, stage: &mut [u8]) -> io::Result<(usize, usize)> {
        let Some(direct) = core.link.as_ref().and_then(|link| link.direct.as_ref()) else {
            return Ok((0, 0));
        };
        let (header, place, payload_len) = (direct.header, direct.place, direct.payload_len());
        let (got, left) = (direct.got, direct.direct_len() - direct.got);
        let mut grants = Grants::new();
        if left > 0
            && let Err(why) = self.targets(core, place, got, left, &mut grants)
        {
            // The memory went away between two reads.
            grants.clear();
            return Err(self.refuse_direct(core, why, &header, payload_len));
        }
        let Some(link) = &mut core.link else { return Ok((0, 0)) };
        let mut pieces: SmallVec<[PieceMut<'_>; 2]> =
            grants.iter().map(|grant| PieceMut::Granted(grant, 0..grant.len())).collect();
        pieces.push(PieceMut::Own(stage));
        let received = recv_vectored(link.fd(), &mut pieces);
        drop(pieces);
        let placed = received.as_ref().map_or(0, |total| left.min(*total));
        let sum = match &link.direct {
            Some(direct) if link.negotiated.crc => crc_of(&grants, placed, direct.crc),
            _ => Ok(0),
        };
        let (Ok(crc), false) = (sum, received.as_ref().is_err_and(is_fault)) else {
            // It has gone bad: the kernel found that before it took another octet, or we do.
            grants.clear();
            return Err(self.refuse_direct(core, Unplaceable::gone_bad(place), &header, payload_len));
        };
        core.counters.octets_placed_directly += placed as u64;
        if let Some(direct) = &mut link.direct {
            direct.got += placed;
            direct.crc = crc;
        }
        let total = received?;
        Ok((total, total - placed))
    }

    /// Ends the connection because of the memory of a direct placement.
    fn refuse_direct(
        &self,
        core: &mut Core,
        why: Unplaceable,
        header: &Header,
        payload_len: usize,
    ) -> io::Error {
        let (fault, offending) = self.refuse(core, why, header, payload_len);
        self.terminate(core, fault, offending.as_ref());
        io::ErrorKind::Interrupted.into()
    }

    /// Ends the direct placement when its payload and, at the front of `stage`, its last octets and
    /// trailer are here.
    pub(super) fn finish_direct(
        &self,
        core: &mut Core,
        stage: &[u8],
        used: &mut usize,
    ) -> Result<(), Faulty> {
        let Some(link) = &mut core.link else { return Ok(()) };
        let Some(direct) = link.direct.take() else { return Ok(()) };
        let payload_len = direct.payload_len();
        let pad = pad_len(direct.ulpdu_len);
        let whole = direct.got == direct.direct_len();
        let Some((behind, _)) = stage.split_at_checked(direct.staged + pad + CRC_LEN).filter(|_| whole)
        else {
            link.direct = Some(direct);
            return Ok(());
        };
        let (covered, field) = behind.split_at(direct.staged + pad);
        let mut octets = [0; CRC_LEN];
        octets.copy_from_slice(field);
        *used = behind.len();
        let crc = if link.negotiated.crc { crc32c_append(direct.crc, covered) } else { 0 };
        link.deframer
            .accept_external(direct.ulpdu_len, crc, octets)
            .map_err(|error| (Fault::mpa(error.code()), None))?;
        link.note_size(true);
        core.counters.fpdus_received += 1;
        if direct.staged > 0 {
            let last = &covered[..direct.staged];
            self.place_from(core, &direct.header, direct.place, direct.got, last)?;
        }
        self.commit(core, &direct.header, payload_len, &[])
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
