use super::*;

#[test]
fn a_read_without_octets_is_queued_with_no_source_to_check() {
    // RFC 5040 §5.2.1
    let zero = ReadRequestRepr { sink_stag: Stag(0), sink_to: 0, size: 0, src_stag: Stag(1), src_to: 0 };
    let mut stream = stream();
    assert_eq!(take_control(&mut stream, read_request(1), &zero.octets()), Ok(Event::InboundRequest));
    let Some(Response::Read(read)) = stream.next_response() else { unreachable!() };
    let segment = read.segment(1500);
    assert_eq!((segment.header, segment.len, segment.last), (response(0, 0, true), 0, true));
}
