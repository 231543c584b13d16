//! RDMAP (RFC 5040): parsing of headers, and a stream's checks for each kind of segment.
#![forbid(unsafe_code)]

use divan::{Bencher, black_box};
use rddp_benches::{send_segment, write_segment};
use rddp_ddp::{Header, Msn, Stag, UntaggedRepr};
use rddp_rdmap::{Opcode, ReadRequestRepr, Stream, StreamConfig, parse_header, untagged_header};

fn main() {
    divan::main();
}

fn stream() -> Stream {
    Stream::new(StreamConfig { ird: 32, ord: 32, extensions: true })
}

/// Gives an untagged header the MSN that is due, and counts on.
fn renumber(header: &mut Header, msn: &mut Msn) {
    if let Header::Untagged(UntaggedRepr { msn: due, .. }) = header {
        *due = *msn;
        *msn = msn.next();
    }
}

#[divan::bench]
fn parse_send(bencher: Bencher<'_, '_>) {
    let segment = send_segment(Msn::FIRST, 64);
    bencher.bench_local(|| parse_header(black_box(&segment)).is_ok());
}

#[divan::bench]
fn parse_read_request() -> bool {
    ReadRequestRepr::parse(black_box(&[7; ReadRequestRepr::LEN])).is_ok()
}

#[divan::bench]
fn write_segment_accepted(bencher: Bencher<'_, '_>) {
    let mut stream = stream();
    let header = parse_header(&write_segment(Stag(7), 0x1000, true, 64)).expect("a Write");
    bencher.bench_local(|| {
        stream.accept(&header, 64, &mut || None).expect("a Write is always due");
        stream.commit(&header, 64, &[]).is_ok()
    });
}

#[divan::bench]
fn send_accepted(bencher: Bencher<'_, '_>) {
    let (mut stream, mut msn) = (stream(), Msn::FIRST);
    let mut header = parse_header(&send_segment(msn, 64)).expect("a Send");
    bencher.bench_local(|| {
        renumber(&mut header, &mut msn);
        stream.accept(&header, 64, &mut || Some(4096)).expect("it is due");
        stream.commit(&header, 64, &[]).is_ok()
    });
}

/// Handles a Read Request until its answer is done, without the octets.
#[divan::bench]
fn read_request_answered(bencher: Bencher<'_, '_>) {
    let (mut stream, mut msn) = (stream(), Msn::FIRST);
    let (sink_stag, src_stag) = (Stag(7), Stag(8));
    let request = ReadRequestRepr { sink_stag, sink_to: 0, size: 4096, src_stag, src_to: 0x1000 }.octets();
    let mut header = untagged_header(Opcode::ReadRequest, Stag(0), msn, 0, true);
    bencher.bench_local(|| {
        renumber(&mut header, &mut msn);
        stream.accept(&header, request.len(), &mut || None).expect("it is due");
        stream.commit(&header, request.len(), &request).expect("there is room for it");
        black_box(stream.next_response().is_some());
        stream.response_done();
    });
}
