//! FPDUs in both directions: properties over random input, and edge cases.
#![allow(clippy::unwrap_used)] // in tests

mod naive;
mod properties;
mod receiving;
mod sending;

use rddp_mpa::{Deframer, Framer, Framing, Step};

const PLAIN: Framing = Framing { crc: true, markers: false };
const MARKED: Framing = Framing { crc: true, markers: true };
const NO_CRC: Framing = Framing { crc: false, markers: false };
const MARKED_NO_CRC: Framing = Framing { crc: false, markers: true };
const ALL: [Framing; 4] = [PLAIN, MARKED, NO_CRC, MARKED_NO_CRC];

/// Returns octets that do not soon repeat, different ones for each seed.
fn octets(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ (at / 251) as u8 ^ seed).collect()
}

/// Emits a ULPDU whose first octets, up to 18, are the header.
fn emit(framer: &mut Framer, ulpdu: &[u8], out: &mut Vec<u8>) {
    let (header, payload) = ulpdu.split_at(ulpdu.len().min(18));
    framer.emit(header, payload.len(), |at, dst| dst.copy_from_slice(&payload[at..at + dst.len()]), out);
}

fn emitted(framing: Framing, position: u64, ulpdu: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    emit(&mut Framer::at(framing, position), ulpdu, &mut out);
    out
}

/// Returns the one ULPDU in `wire`, which is exactly one FPDU.
fn ulpdu_in(framing: Framing, position: u64, wire: &[u8]) -> Vec<u8> {
    let mut stream = wire.to_vec();
    match Deframer::at(framing, position).step(&mut stream) {
        Ok(Step::Fpdu { ulpdu, used }) if used == wire.len() => stream[ulpdu].to_vec(),
        other => panic!("{framing:?} at {position}, {} octets: {other:?}", wire.len()),
    }
}
