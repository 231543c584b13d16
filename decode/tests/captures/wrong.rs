//! Faults of senders, and captures with less than was sent.

use rddp_decode::What;
use rddp_sdp::wire::Body;
use rddp_test_support::segment;

use super::talk::{Talker, everything};
use super::tape::{ACK, ISN, Tape};
use super::{events, in_order, lines, problems};

#[test]
fn an_fpdu_with_a_bad_crc_is_told_and_those_behind_it_are_read() {
    let mut talk = everything(true, false);
    // The payload of the first Data.
    let at = talk[2].1.len() - 8;
    talk[2].1[at] ^= 1;
    let (events, summary) = events(&in_order(&talk).pcap(1, false, false));
    assert_eq!((summary.fpdus, summary.sdp, summary.problems), (16, 9, 2));
    assert!(problems(&events)[0].starts_with("WRONG the FPDU's CRC field says"), "{:?}", problems(&events));
    // Without CRCs nobody minds.
    let mut talk = everything(false, false);
    talk[2].1[at] ^= 1;
    assert_eq!(super::events(&in_order(&talk).pcap(1, false, false)).1.problems, 1);
}

#[test]
fn nothing_behind_a_bad_marker_is_guessed() {
    let mut talk = everything(false, true);
    // The marker in front of the first FPDU points at itself.
    talk[2].1[3] = 4;
    let (events, _) = events(&in_order(&talk).pcap(1, false, false));
    let found = problems(&events);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("marker") && found[0].ends_with("the rest of this direction is not read"));
    assert_eq!(lines(&events)[0].len(), 2, "the Request and the fault");
    assert_eq!(lines(&events)[1].len(), 13, "the other direction is not concerned");
}

#[test]
fn octets_that_are_missing_end_their_direction_alone() {
    let talk = everything(true, false);
    let mut tape = in_order(&talk);
    // Three packets open the connection, two begin it; the second message of the initiator.
    let lost = 20 + 20;
    let octets = tape.packets[6].len() - lost;
    tape.packets.remove(6);
    let (events, _) = events(&tape.pcap(1, false, false));
    let at = talk[0].1.len() + talk[2].1.len();
    let says = format!(
        "WRONG {octets} octets of this direction are missing from octet {at} on: the rest is not read"
    );
    assert_eq!(problems(&events), [says]);
    let [initiator, responder] = lines(&events);
    assert_eq!((initiator.len(), responder.len()), (4, 13));
}

#[test]
fn a_connection_without_its_beginning_is_said_to_have_none() {
    let talk = everything(true, false);
    let whole = in_order(&talk);
    let mut tape = Tape { packets: whole.packets[5..].to_vec(), ..whole };
    let (found, _) = events(&tape.pcap(1, false, false));
    assert_eq!(
        problems(&found),
        ["WRONG the beginning of this connection is not in the capture: it cannot be read"]
    );
    assert_eq!(found.len(), 1);
    // The frames of the startup are enough, without SYNs.
    tape.packets = in_order(&talk).packets[3..].to_vec();
    let (found, summary) = events(&tape.pcap(1, false, false));
    assert_eq!((summary.fpdus, summary.problems), (16, 1), "{:?}", problems(&found));
}

#[test]
fn one_direction_alone_cannot_be_read() {
    let mut tape = in_order(&everything(true, false));
    // The last octet of the source address.
    tape.packets.retain(|packet| packet[15] == 1);
    let (events, _) = events(&tape.pcap(1, false, false));
    assert_eq!(
        problems(&events),
        ["WRONG only one direction of this connection is in the capture: it cannot be read"]
    );
}

#[test]
fn another_protocol_is_no_mpa() {
    let mut tape = Tape::default();
    tape.open();
    tape.octets(0, 0, b"GET / HTTP/1.0\r\n\r\n");
    tape.octets(1, 0, b"HTTP/1.0 200 OK\r\n\r\n");
    let (events, summary) = events(&tape.pcap(1, false, false));
    assert_eq!((events.len(), summary.problems), (1, 1));
    assert!(problems(&events)[0].starts_with("WRONG no MPA: "), "{:?}", problems(&events));
}

#[test]
fn a_frame_of_the_startup_that_is_cut_off_by_the_end_is_told() {
    let mut talk = everything(true, false);
    talk.truncate(2);
    talk[1].1.truncate(30);
    let (events, summary) = events(&in_order(&talk).pcap(1, false, false));
    assert_eq!(problems(&events), ["WRONG the stream ended 30 octets into a frame of MPA's startup"]);
    assert_eq!((summary.startups, summary.problems), (1, 1));
}

#[test]
fn an_fpdu_that_is_cut_off_by_the_end_is_told() {
    let mut talk = everything(true, false);
    let last = talk.last_mut().unwrap();
    last.1.truncate(9);
    let (events, _) = events(&in_order(&talk).pcap(1, false, false));
    assert_eq!(problems(&events), ["WRONG the stream ended 9 octets into an FPDU"]);
}

#[test]
fn messages_of_sdp_with_a_bad_length_or_number_are_told() {
    let mut talker = Talker::new(true, false);
    talker.say(0, Body::Data, b"one");
    // Len 22 in a message of 21 octets: MSeq 2.
    talker.send(0, b"\xff\0\0\x08\0\0\0\x16\0\0\0\x02\0\0\0\0hello", 1000);
    talker.mseq[0] = 2;
    talker.say(0, Body::Data, b"three");
    talker.mseq[0] = 8;
    talker.say(0, Body::Data, b"nine");
    talker.say(0, Body::Data, b"ten");
    talker.send(0, b"\x0f\0\0\x08\0\0\0\x10\0\0\0\x0b\0\0\0\0", 1000);
    talker.send(0, b"short", 1000);
    let (events, summary) = events(&in_order(&talker.talk).pcap(1, false, false));
    assert_eq!(summary.sdp, 4);
    assert_eq!(
        problems(&events),
        [
            "WRONG a message says that it has 22 octets, and has 21 (len-mismatch)",
            "WRONG MSeq 9 where 4 comes next",
            "WRONG there is no message with the MID 0x0f (unknown-mid)",
            "WRONG a message of 5 octets is shorter than its header (short-bsdh)",
        ]
    );
}

#[test]
fn a_hello_that_is_malformed_is_told_and_its_connection_is_no_sdp() {
    let mut hello = [0; 92];
    hello[7] = 92;
    let mut talker = Talker::with(true, false, &hello, b"");
    talker.send(0, b"anything", 1000);
    let (events, summary) = events(&in_order(&talker.talk).pcap(1, false, false));
    assert_eq!((summary.fpdus, summary.sdp), (1, 0));
    let found = problems(&events);
    assert!(found.len() == 1 && found[0].contains("(hello-ipv)"), "{found:?}");
}

#[test]
fn a_rejected_connection_has_no_fpdus() {
    let mut talker = Talker::new(true, false);
    talker.talk[1].1[16] |= 0x20;
    talker.talk.push((0, b"plain octets".to_vec()));
    let (events, summary) = events(&in_order(&talker.talk).pcap(1, false, false));
    assert_eq!((events.len(), summary.problems), (2, 0));
    assert!(events[1].what.to_string().contains(" rejected "), "{}", events[1].what);
}

#[test]
fn segments_that_ddp_and_rdmap_do_not_know_are_told() {
    let mut talker = Talker::with(true, false, b"", b"");
    talker.ulpdu(0, b"\x41\x43");
    talker.ulpdu(0, &segment::write(rddp_ddp::Stag(7), 0, true, b"behind it"));
    let mut read = segment::send(1, 0, true, &[0; 20]);
    read[1] = 0x41;
    talker.ulpdu(0, &read);
    let mut unknown = segment::send(1, 0, true, b"");
    unknown[1] = 0x4e;
    talker.ulpdu(0, &unknown);
    let (events, summary) = events(&in_order(&talker.talk).pcap(1, false, false));
    assert_eq!((summary.fpdus, summary.problems), (3, 2), "{:?}", problems(&events));
    assert!(events.iter().any(|event| event.what.to_string().starts_with("opcode 0xe qn=0")));
}

/// A keep-alive repeats the octet before the next.
#[test]
fn keep_alives_and_empty_segments_change_nothing() {
    let mut tape = in_order(&everything(true, false));
    tape.segment(0, ISN[0].wrapping_add(50), ACK, b"x");
    tape.segment(1, ISN[1].wrapping_add(1), ACK, b"");
    let (events, summary) = events(&tape.pcap(1, false, false));
    assert_eq!((summary.fpdus, summary.problems), (16, 1));
    assert!(!events.iter().any(|event| matches!(event.what, What::Problem(_))));
}

/// Decoding ends whatever a file has, and what it tells fits its summary.
#[test]
fn files_that_were_spoiled_are_decoded_to_their_end() {
    let tape = in_order(&everything(true, true));
    let files = [tape.pcap(1, false, false), tape.pcapng(113, true, true)];
    let mut random = rddp_test_support::Random::new(0xdec);
    let mut refused = 0;
    for round in 0..4000 {
        let mut file = files[round % 2].clone();
        for _ in 0..1 + random.below(8) {
            let at = random.below(file.len());
            match random.below(3) {
                0 => file[at] = random.number() as u8,
                1 => file[at] ^= 1 << random.below(8),
                _ => file.truncate(at.max(30)),
            }
        }
        let mut told = 0;
        match rddp_decode::decode(&file, |event| {
            assert!(!event.what.to_string().is_empty());
            told += 1;
        }) {
            Ok(summary) => {
                let terminates: usize = summary.terminates.values().sum();
                assert!(
                    summary.startups + summary.fpdus + summary.sdp + summary.problems == told + terminates
                );
                refused += usize::from(summary.stopped.is_some());
            }
            Err(_) => refused += 1,
        }
    }
    assert!((100..3900).contains(&refused), "{refused} files were refused");
}
