//! ULPDUs made by hand: a DDP header, RDMAP's fields in it and a payload (RFC 5041 §4,
//! RFC 5040 §4).

use rddp_ddp::{Header, Msn, Stag};
use rddp_rdmap::{
    AtomicRequestRepr, AtomicResponseRepr, Opcode, ReadRequestRepr, TerminateCode, TerminateRepr,
    tagged_header, untagged_header,
};

/// Returns a header with its payload behind it.
#[must_use]
pub fn ulpdu(header: &Header, payload: &[u8]) -> Vec<u8> {
    [header.octets().as_ref(), payload].concat()
}

/// Makes a segment of a Send.
#[must_use]
pub fn send(msn: u32, mo: u32, last: bool, payload: &[u8]) -> Vec<u8> {
    ulpdu(&untagged_header(Opcode::Send, Stag(0), Msn(msn), mo, last), payload)
}

/// Makes a Send with Invalidate in one segment.
#[must_use]
pub fn send_invalidate(msn: u32, stag: Stag, payload: &[u8]) -> Vec<u8> {
    ulpdu(&untagged_header(Opcode::SendInvalidate, stag, Msn(msn), 0, true), payload)
}

/// Makes a segment of a Write.
#[must_use]
pub fn write(stag: Stag, to: u64, last: bool, payload: &[u8]) -> Vec<u8> {
    ulpdu(&tagged_header(Opcode::Write, stag, to, last), payload)
}

/// Makes a segment of a Read Response.
#[must_use]
pub fn response(stag: Stag, to: u64, last: bool, payload: &[u8]) -> Vec<u8> {
    ulpdu(&tagged_header(Opcode::ReadResponse, stag, to, last), payload)
}

/// Makes a Read Request.
#[must_use]
pub fn read(msn: u32, request: &ReadRequestRepr) -> Vec<u8> {
    ulpdu(&untagged_header(Opcode::ReadRequest, Stag(0), Msn(msn), 0, true), &request.octets())
}

/// Makes an Atomic Request (RFC 7306 §5.2.1).
#[must_use]
pub fn atomic(msn: u32, request: &AtomicRequestRepr) -> Vec<u8> {
    ulpdu(&untagged_header(Opcode::AtomicRequest, Stag(0), Msn(msn), 0, true), &request.octets())
}

/// Makes an Atomic Response (RFC 7306 §5.2.2).
#[must_use]
pub fn atomic_response(msn: u32, request_id: u32, original: u64) -> Vec<u8> {
    let response = AtomicResponseRepr { request_id, original };
    ulpdu(&untagged_header(Opcode::AtomicResponse, Stag(0), Msn(msn), 0, true), &response.octets())
}

/// Makes a Terminate with nothing but a code.
#[must_use]
pub fn terminate(code: TerminateCode) -> Vec<u8> {
    terminate_with(&TerminateRepr::bare(code))
}

/// Makes a Terminate.
#[must_use]
pub fn terminate_with(terminate: &TerminateRepr) -> Vec<u8> {
    let header = untagged_header(Opcode::Terminate, Stag(0), Msn::FIRST, 0, true);
    ulpdu(&header, terminate.octets().as_ref())
}
