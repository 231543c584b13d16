//! Rules for the sender, and the edges of its interface.

use rddp_mpa::{Framer, Framing, MAX_ULPDU};

use crate::{ALL, MARKED, MARKED_NO_CRC, NO_CRC, PLAIN, emit, emitted, naive, octets};

// RFC 5044 §4.3, §7.1.2 rule 7: the first octets in a marked direction are the marker 0.
#[test]
fn a_marked_stream_begins_with_a_zero_marker() {
    let wire = emitted(MARKED, 0, &octets(40, 0));
    assert_eq!(wire[..6], [0, 0, 0, 0, 0, 40]);
}

// RFC 5044 §7.1.1: no markers unless the peer asked for them.
#[test]
fn an_unmarked_stream_has_no_markers() {
    let ulpdu = octets(4000, 0);
    let wire = emitted(PLAIN, 0, &ulpdu);
    assert_eq!(wire[..2], 4000_u16.to_be_bytes());
    assert_eq!(wire[2..4002], ulpdu);
    assert_eq!(wire.len(), 4008);
}

// RFC 5044 §4.3: markers stand 512 octets apart however the FPDUs fall, each pointing at the length
// field of its FPDU. Among these are FPDUs that end where a marker is due, four octets before and
// four after.
#[test]
fn markers_stand_at_every_512th_octet_whatever_the_sizes() {
    for start in (0..512).step_by(4) {
        for len in 470..530 {
            let (mut framer, mut wire) = (Framer::at(MARKED_NO_CRC, start), Vec::new());
            for len in [len, 1, len] {
                emit(&mut framer, &octets(len, 0xff), &mut wire);
            }
            let found = naive::parse(&wire, start, true);
            let markers: Vec<_> = found.iter().flat_map(|fpdu| &fpdu.markers).collect();
            let first = (512 - start % 512) % 512;
            assert_eq!(markers.len(), (first as usize..wire.len()).step_by(512).count());
            assert!(markers.iter().all(|(pointer, due)| pointer == due), "at {start}, {len}: {markers:?}");
        }
    }
}

// RFC 5044 §4.1: the pad is zero, also in a buffer that held other octets before.
#[test]
fn pad_is_sent_as_zero() {
    for framing in ALL {
        for len in 0..40 {
            let mut out = vec![0xff; 64];
            out.truncate(1);
            emit(&mut Framer::new(framing), &octets(len, 0x55), &mut out);
            let pad = (2 + len).wrapping_neg() % 4;
            assert!(out[out.len() - 4 - pad..out.len() - 4].iter().all(|&octet| octet == 0));
        }
    }
}

// RFC 5044 §4.4: the field is present when CRCs are off.
#[test]
fn the_crc_field_is_zero_when_crcs_are_off() {
    for framing in [NO_CRC, MARKED_NO_CRC] {
        let wire = emitted(framing, 0, &octets(600, 3));
        assert_eq!(wire[wire.len() - 4..], [0; 4]);
    }
    assert_eq!(Framer::new(NO_CRC).trailer(21, 0xdead_beef).as_ref(), [0; 5]);
}

#[test]
fn an_fpdu_is_appended_to_what_is_there() {
    for framing in ALL {
        let mut out = b"before".to_vec();
        let ulpdu = octets(700, 9);
        emit(&mut Framer::new(framing), &ulpdu, &mut out);
        assert_eq!(out[..6], *b"before");
        assert_eq!(out[6..], emitted(framing, 0, &ulpdu));
    }
}

// The pieces given to `fill` follow one another and are not empty; without markers there is only
// one.
#[test]
fn payload_is_asked_for_in_order() {
    for framing in ALL {
        for (header_len, payload_len) in [(0, 0), (18, 0), (14, 1), (506, 1), (505, 600), (18, 3000)] {
            let (mut pieces, mut next) = (0, 0);
            let fill = |at: usize, dst: &mut [u8]| {
                assert_eq!(at, next);
                assert!(!dst.is_empty());
                next += dst.len();
                pieces += 1;
            };
            Framer::new(framing).emit(&octets(header_len, 0), payload_len, fill, &mut Vec::new());
            assert_eq!(next, payload_len);
            if !framing.markers {
                assert_eq!(pieces, usize::from(payload_len > 0));
            }
        }
    }
}

// RFC 5044 §4.1, §4.2, §4.4: pad, the reserved half of a marker and a CRC that is off are zero,
// whatever the buffer held.
#[test]
fn stale_octets_of_the_buffer_are_not_sent() {
    for framing in ALL {
        for len in [18, 19, 20, 21, 600, 2000] {
            let ulpdu = octets(len, 0x33);
            let mut framer = Framer::at(framing, 500);
            let mut room = vec![0xa5; framer.fpdu_len(len)];
            let payload = &ulpdu[18..];
            let fill = |at: usize, dst: &mut [u8]| dst.copy_from_slice(&payload[at..at + dst.len()]);
            framer.emit_into(&ulpdu[..18], payload.len(), fill, &mut room);
            assert_eq!(room, emitted(framing, 500, &ulpdu), "{framing:?}, {len}");
        }
    }
}

#[test]
#[should_panic(expected = "just its length")]
fn a_buffer_of_another_length_is_the_callers_mistake() {
    Framer::new(PLAIN).emit_into(&[0; 14], 6, |_, _| {}, &mut [0; 27]);
}

#[test]
fn a_clone_takes_an_fpdu_back() {
    let (mut framer, mut out) = (Framer::new(MARKED), Vec::new());
    emit(&mut framer, &octets(100, 0), &mut out);
    let (before, kept) = (framer.clone(), out.len());
    emit(&mut framer, &octets(1000, 1), &mut out);
    out.truncate(kept);
    framer = before;
    emit(&mut framer, &octets(900, 2), &mut out);
    let found = naive::parse(&out, 0, true);
    assert_eq!(found[1].ulpdu, octets(900, 2));
    assert!(found.iter().flat_map(|fpdu| &fpdu.markers).all(|(pointer, due)| pointer == due));
}

// RFC 5044 §3: the largest ULPDU a sender may form, whose markers still point all the way back.
#[test]
fn the_largest_ulpdu_keeps_its_markers_true() {
    for start in [0, 4, 492, 508] {
        let wire = emitted(MARKED, start, &octets(MAX_ULPDU, 1));
        let found = naive::parse(&wire, start, true);
        assert!(found[0].markers.len() >= 127);
        assert!(found[0].markers.iter().all(|(pointer, due)| pointer == due));
    }
}

#[test]
fn the_position_may_pass_the_end_of_its_range() {
    let start = u64::MAX - 255;
    let mut framer = Framer::at(MARKED, start);
    let mut wire = Vec::new();
    emit(&mut framer, &octets(600, 1), &mut wire);
    assert_eq!(wire[256..260], [0, 0, 1, 0]);
    assert_eq!(framer.position(), wire.len() as u64 - 256);
}

#[test]
#[should_panic(expected = "at most 65535 octets")]
fn a_ulpdu_beyond_its_length_field_is_the_callers_mistake() {
    Framer::new(PLAIN).emit(&[0; 14], 65_522, |_, _| {}, &mut Vec::new());
}

#[test]
#[should_panic(expected = "multiples of four")]
fn no_fpdu_begins_off_a_multiple_of_four() {
    let _ = Framer::at(Framing { crc: true, markers: true }, 6);
}
