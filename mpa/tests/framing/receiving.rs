//! Rules for the receiver, and the edges of its interface.

use rddp_mpa::{Deframer, FpduError, MpaError, Peek, Step, crc32c};

use crate::{ALL, MARKED, MARKED_NO_CRC, NO_CRC, PLAIN, emitted, octets, ulpdu_in};

// RFC 5044 §3: a sender stops at 64768 octets, but the length field can say more; siw sends up to
// 65474.
#[test]
fn a_ulpdu_as_long_as_its_field_can_say_is_taken() {
    for framing in ALL {
        for start in [0, 4, 508] {
            let ulpdu = octets(65_535, 7);
            assert_eq!(ulpdu_in(framing, start, &emitted(framing, start, &ulpdu)), ulpdu);
        }
    }
}

// RFC 5044 §4.1, §7.1.1: with CRCs off, any CRC field is valid.
#[test]
fn the_crc_field_is_not_looked_at_when_crcs_are_off() {
    for framing in [NO_CRC, MARKED_NO_CRC] {
        let ulpdu = octets(700, 1);
        let mut wire = emitted(framing, 0, &ulpdu);
        let field = wire.len() - 4;
        wire[field..].copy_from_slice(b"junk");
        assert_eq!(ulpdu_in(framing, 0, &wire), ulpdu);
    }
    assert_eq!(Deframer::new(NO_CRC).accept_external(4, 1, [0; 4]), Ok(()));
}

// RFC 5044 §4.4, §8: code 2, with the CRC as received and as computed.
#[test]
fn a_wrong_crc_is_refused() {
    let mut wire = emitted(PLAIN, 0, &octets(20, 0));
    let field = wire.len() - 4;
    let want = crc32c(&wire[..field]);
    wire[field..].copy_from_slice(&7_u32.to_le_bytes());
    let error = Deframer::new(PLAIN).step(&mut wire).unwrap_err();
    assert_eq!(error, FpduError::Crc { got: 7, want });
    assert_eq!(error.code(), MpaError::Crc);
}

/// Returns an FPDU with a marker off by four, and a CRC that covers it.
fn with_wrong_marker(at: usize, crc: bool) -> Vec<u8> {
    let mut wire = emitted(MARKED, 0, &octets(1500, 0));
    wire[at + 3] ^= 4;
    let field = wire.len() - 4;
    let sealed = if crc { crc32c(&wire[..field]).to_le_bytes() } else { [1; 4] };
    wire[field..].copy_from_slice(&sealed);
    wire
}

// RFC 5044 §8: code 3, for each marker of the FPDU. With CRCs off the CRC field counts as valid,
// and markers are checked all the same.
#[test]
fn a_marker_that_points_elsewhere_is_refused() {
    for (framing, crc) in [(MARKED, true), (MARKED_NO_CRC, false)] {
        for (at, want) in [(0, 0), (512, 508), (1024, 1020)] {
            let wire = with_wrong_marker(at, crc);
            let mut stream = wire.clone();
            let error = Deframer::new(framing).step(&mut stream).unwrap_err();
            assert_eq!(error, FpduError::Marker { position: at as u64, got: want ^ 4, want });
            assert_eq!(error.code(), MpaError::Marker);
            assert_eq!(stream, wire, "nothing moves in what is refused");
        }
    }
}

// RFC 5044 §8: code 3 is for an FPDU with a good CRC.
#[test]
fn a_wrong_crc_comes_before_a_wrong_marker() {
    let error = Deframer::new(MARKED).step(&mut with_wrong_marker(512, false)).unwrap_err();
    assert_eq!(error.code(), MpaError::Crc);
}

// RFC 5044 §8: after any error nothing more of this direction is delivered.
#[test]
fn nothing_is_delivered_after_an_error() {
    let good = emitted(PLAIN, 0, &octets(20, 0));
    let mut bad = good.clone();
    bad[8] ^= 1;
    let mut deframer = Deframer::new(PLAIN);
    let error = deframer.step(&mut bad).unwrap_err();
    assert_eq!(deframer.step(&mut good.clone()), Err(error));
    assert_eq!(deframer.step(&mut []), Err(error));
    assert_eq!(deframer.accept_external(20, 0, [0; 4]), Err(error));
    assert_eq!(deframer.peek(&good), None);
    assert_eq!(deframer.finish(&[]), Err(error));
    assert_eq!(deframer.position(), 0);
}

// RFC 5044 §8: code 1 for an FPDU that a FIN cut off; a FIN between two FPDUs is not an error of
// MPA.
#[test]
fn an_fpdu_cut_off_by_the_end_of_the_stream_is_lost() {
    for framing in ALL {
        let deframer = Deframer::new(framing);
        assert_eq!(deframer.finish(&[]), Ok(()));
        let error = deframer.finish(&[0, 0, 0]).unwrap_err();
        assert_eq!((error, error.code()), (FpduError::Truncated { have: 3 }, MpaError::Closed));
    }
}

// `Need` is exact: never fewer octets than help, never more than the FPDU has.
#[test]
fn need_is_the_length_of_the_fpdu() {
    for framing in ALL {
        for start in (0..1024).step_by(4) {
            let wire = emitted(framing, start, &octets(300, 0));
            let lead = if framing.markers && start % 512 == 0 { 4 } else { 0 };
            for have in 0..wire.len() {
                let Ok(Step::Need { total }) = Deframer::at(framing, start).step(&mut wire.clone()[..have])
                else {
                    panic!("{have} octets are not an FPDU");
                };
                if have < lead + 2 {
                    let shortest = emitted(framing, start, &[]).len();
                    assert_eq!(total, shortest);
                } else {
                    assert_eq!(total, wire.len());
                }
            }
        }
    }
}

#[test]
fn peek_sees_the_length_without_markers_only() {
    let deframer = Deframer::new(PLAIN);
    assert_eq!(deframer.peek(&[]), None);
    assert_eq!(deframer.peek(&[0xff]), None);
    assert_eq!(deframer.peek(&[0xff, 0xff]), Some(Peek { ulpdu_len: 65_535, fpdu_len: 65_544 }));
    assert_eq!(deframer.peek(&[0, 21, 1]), Some(Peek { ulpdu_len: 21, fpdu_len: 28 }));
    assert_eq!(Deframer::new(MARKED).peek(&[0; 64]), None);
}

// RFC 5044 §4.3: DDP gets neither markers nor octets left behind by moving, whatever follows the
// FPDU in the buffer.
#[test]
fn octets_behind_the_fpdu_stay_where_they_are() {
    for start in (0..512).step_by(4) {
        let ulpdu = octets(1200, 5);
        let wire = emitted(MARKED, start, &ulpdu);
        let mut stream = [&wire[..], b"the next FPDU's octets"].concat();
        let Ok(Step::Fpdu { ulpdu: found, used }) = Deframer::at(MARKED, start).step(&mut stream) else {
            panic!("all there");
        };
        assert_eq!(stream[found], ulpdu);
        assert_eq!(&stream[used..], b"the next FPDU's octets");
    }
}

#[test]
fn errors_say_what_happened() {
    let crc = FpduError::Crc { got: 1, want: 0xabcd_ef01 };
    assert_eq!(crc.to_string(), "the FPDU's CRC field says 0x00000001, its octets make 0xabcdef01");
    let marker = FpduError::Marker { position: 512, got: 8, want: 20 };
    assert_eq!(
        marker.to_string(),
        "the marker at stream octet 512 points 8 octets back, its FPDU began 20 before it"
    );
    assert_eq!(FpduError::Truncated { have: 3 }.to_string(), "the stream ended 3 octets into an FPDU");
    assert_eq!(MpaError::Marker.to_string(), "octets have come whose markers do not stand where they belong");
}
