//! Octets to feed a layer with.

use rddp_ddp::{Header, Msn, Stag};
use rddp_mpa::Framer;
use rddp_rdmap::{Opcode, tagged_header, untagged_header};

/// Returns octets that are not all alike.
#[must_use]
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 256) as u8).collect()
}

/// Returns a Send of one segment.
#[must_use]
pub fn send_segment(msn: Msn, payload_len: usize) -> Vec<u8> {
    segment(&untagged_header(Opcode::Send, Stag(0), msn, 0, true), payload_len)
}

/// Returns one segment of a Write.
#[must_use]
pub fn write_segment(stag: Stag, to: u64, last: bool, payload_len: usize) -> Vec<u8> {
    segment(&tagged_header(Opcode::Write, stag, to, last), payload_len)
}

fn segment(header: &Header, payload_len: usize) -> Vec<u8> {
    [header.octets().as_ref(), &pattern(payload_len)].concat()
}

/// Appends an FPDU for each ULPDU to `stream`.
pub fn fpdus<'a>(framer: &mut Framer, ulpdus: impl IntoIterator<Item = &'a [u8]>, stream: &mut Vec<u8>) {
    for ulpdu in ulpdus {
        let fill = |at: usize, out: &mut [u8]| out.copy_from_slice(&ulpdu[at..at + out.len()]);
        framer.emit(&[], ulpdu.len(), fill, stream);
    }
}
