//! Octets of requests, in memory that programs have registered.

use std::ffi::c_int;

use rddp_verbs_layout::{ibv_sge, wr};

use crate::wire::Request;

/// # Safety
/// The list has as many pieces.
pub(crate) unsafe fn pieces(list: *const ibv_sge, count: c_int) -> Vec<ibv_sge> {
    if count <= 0 {
        return Vec::new();
    }
    // SAFETY: promised by the caller.
    unsafe { std::slice::from_raw_parts(list, count as usize) }.to_vec()
}

fn at(addr: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(addr as usize)
}

pub(crate) fn octets_of(pieces: &[ibv_sge]) -> Vec<u8> {
    let mut octets = Vec::new();
    for piece in pieces {
        // SAFETY: the memory is registered, or inline and there during the call.
        octets
            .extend_from_slice(unsafe { std::slice::from_raw_parts(at(piece.addr), piece.length as usize) });
    }
    octets
}

/// Stores octets in pieces of registered memory, which are as long together at least.
pub(crate) fn scatter(mut octets: &[u8], pieces: &[ibv_sge]) {
    for piece in pieces {
        let (now, rest) = octets.split_at(octets.len().min(piece.length as usize));
        store(piece.addr, now);
        octets = rest;
    }
}

pub(crate) fn store(addr: u64, octets: &[u8]) {
    // SAFETY: the memory is registered.
    unsafe { at(addr).copy_from_nonoverlapping(octets.as_ptr(), octets.len()) };
}

pub(crate) fn atomic(request: &Request) {
    let was = octets_of(&[ibv_sge { addr: request.to, length: 8, lkey: 0 }]);
    let value = u64::from_ne_bytes(was[..].try_into().unwrap_or_default());
    let (first, swap) = request.operands;
    let new = match request.opcode {
        wr::ATOMIC_FETCH_AND_ADD => value.wrapping_add(first),
        _ if value == first => swap,
        _ => value,
    };
    store(request.to, &new.to_ne_bytes());
    scatter(&was, &request.pieces);
}
