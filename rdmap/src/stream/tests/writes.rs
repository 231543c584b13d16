use super::*;

#[test]
fn a_write_goes_where_it_says_and_is_not_delivered() {
    // RFC 5040 §5.1
    let header = tagged_header(Opcode::Write, Stag(1), 0x1000, true);
    let mut stream = stream();
    assert_eq!(accept(&mut stream, header, 5), Ok(Place::Write { stag: Stag(1), to: 0x1000 }));
    assert_eq!(take(&mut stream, header, 5), Event::WriteDone);
}

#[test]
fn a_write_without_octets_has_nothing_to_check() {
    // RFC 5041 §5.2; also what siw sends as its ready-to-receive message
    let header = tagged_header(Opcode::Write, Stag(u32::MAX), u64::MAX, true);
    let mut stream = stream();
    assert_eq!(accept(&mut stream, header, 0), Ok(Place::Nothing));
    assert_eq!(take(&mut stream, header, 0), Event::WriteDone);
}
