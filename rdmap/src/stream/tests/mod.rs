//! Tests of a stream with each kind of segment, rule by rule.

mod atomics_of_ours;
mod death;
mod interleaving;
mod order_of_validation;
mod plain;
mod reads_of_ours;
mod ready_to_receive;
mod requests_of_the_peer;
mod sends;
mod take_over;
mod terminates;
mod writes;

use super::*;
use crate::{AtomicOp, Offending, TerminateCode, tagged_header, terminate_for, untagged_header};

const BUFFER: u64 = 4096;

fn stream() -> Stream {
    Stream::new(StreamConfig { ird: 2, ord: 2, extensions: true })
}

fn plain() -> Stream {
    Stream::new(StreamConfig { ird: 2, ord: 2, extensions: false })
}

fn untagged(op: Opcode, msn: u32, mo: u32, last: bool) -> Header {
    untagged_header(op, Stag(0), Msn(msn), mo, last)
}

fn send(msn: u32) -> Header {
    untagged(Opcode::Send, msn, 0, true)
}

fn response(stag: u32, to: u64, last: bool) -> Header {
    tagged_header(Opcode::ReadResponse, Stag(stag), to, last)
}

fn read_request(msn: u32) -> Header {
    untagged(Opcode::ReadRequest, msn, 0, true)
}

fn with_octet(header: Header, control: u8) -> Header {
    match header {
        Header::Tagged(header) => TaggedRepr { rsvd_ulp: control, ..header }.into(),
        Header::Untagged(header) => {
            let mut rsvd_ulp = header.rsvd_ulp;
            rsvd_ulp[0] = control;
            UntaggedRepr { rsvd_ulp, ..header }.into()
        }
    }
}

fn on_queue(header: Header, qn: u32) -> Header {
    match header {
        Header::Tagged(_) => header,
        Header::Untagged(header) => UntaggedRepr { qn: Qn(qn), ..header }.into(),
    }
}

fn accept(stream: &mut Stream, header: Header, len: usize) -> Result<Place, Fault> {
    stream.accept(&header, len, &mut || Some(BUFFER))
}

fn refused(stream: &mut Stream, header: Header, len: usize) -> TerminateCode {
    accept(stream, header, len).unwrap_err().code()
}

/// Accepts and commits a segment that carries no message to RDMAP itself.
fn take(stream: &mut Stream, header: Header, len: usize) -> Event {
    accept(stream, header, len).unwrap();
    stream.commit(&header, len, &[]).unwrap()
}

fn take_control(stream: &mut Stream, header: Header, control: &[u8]) -> Result<Event, Fault> {
    assert_eq!(accept(stream, header, control.len()), Ok(Place::Control));
    stream.commit(&header, control.len(), control)
}

const READ: ReadRequestRepr =
    ReadRequestRepr { sink_stag: Stag(7), sink_to: 0x2000, size: 1000, src_stag: Stag(9), src_to: 0x100 };

const ATOMIC: AtomicRequestRepr =
    AtomicRequestRepr { op: AtomicOp::FetchAdd { add: 1, mask: 0 }, request_id: 5, stag: Stag(9), to: 0 };
