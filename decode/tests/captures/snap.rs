//! Packets that were cut by the snap length.

use rddp_decode::{Event, What};
use rddp_sdp::wire::Body;
use rddp_test_support::segment;

use super::talk::{LINES, Talk, Talker, everything};
use super::tape::Tape;
use super::{events, in_order, lines, problems};

/// Octets in front of TCP's payload, with an Ethernet header.
const HEADERS: usize = 54;

fn cut(talk: &Talk, payload: usize) -> Tape {
    Tape { snap_len: HEADERS + payload, ..in_order(talk) }
}

/// Returns the FPDUs of each end, without what is said of octets that were not captured.
fn fpdus(events: &[Event]) -> [Vec<String>; 2] {
    lines(events).map(|lines| {
        let fpdus = lines.iter().filter(|line| !line.starts_with("MPA") && !line.starts_with("SDP"));
        fpdus.map(|line| line.split(" (").next().unwrap().to_owned()).collect()
    })
}

/// The headers of SDP reach as far as octet 56 of an FPDU, and a marker may be among them.
#[test]
fn headers_are_shown_and_payload_is_not_captured() {
    for markers in [false, true] {
        let talk = everything(true, markers);
        let (whole, _) = events(&in_order(&talk).pcap(1, false, false));
        let long = talk[2..].iter().filter(|(_, fpdu)| fpdu.len() > 60).count();
        for file in [cut(&talk, 60).pcap(1, false, false), cut(&talk, 60).pcapng(1, true, true)] {
            let (events, summary) = events(&file);
            let wrong = problems(&events);
            assert_eq!(wrong, [""; 0], "markers {markers}");
            assert_eq!(fpdus(&events), fpdus(&whole));
            assert_eq!((summary.fpdus, summary.cut_fpdus, summary.problems), (16, long, 1));
            assert_eq!(summary.sdp, 9);
            let [initiator, _] = lines(&events);
            assert!(
                initiator.iter().any(|line| line.ends_with("len=3000 L (2956 octets not captured)"))
                    || markers
            );
        }
    }
}

#[test]
fn headers_that_were_not_captured_are_told() {
    let talk = everything(true, false);
    let (events, summary) = events(&cut(&talk, 24).pcap(1, false, false));
    assert_eq!((summary.fpdus, summary.cut_fpdus), (16, 16));
    let [initiator, responder] = lines(&events);
    assert_eq!(
        initiator[0],
        "MPA Request rev=1 M=0 C=1 private_data=92 \"\\x00\\x00\\x00@\" (88 octets not captured)"
    );
    assert_eq!(initiator[1], "Send qn=0 msn=1 mo=0 len=21 L (17 octets not captured)");
    assert_eq!(initiator[2], "WRONG a message of SDP of 21 octets whose header was not captured");
    assert_eq!(responder[1], "RDMA Read Request qn=1 msn=1 mo=0 len=28 L (24 octets not captured)");
    assert_eq!(
        responder.last().unwrap(),
        "Terminate qn=2 msn=1 mo=0 len=4 L 0x0100 (RDMAP remote protection error: invalid STag) (CRC not captured)"
    );
    let (events, summary) = super::events(&cut(&talk, 20).pcap(1, false, false));
    assert_eq!((summary.startups, summary.fpdus, summary.sdp), (2, 16, 0));
    let last = "Terminate qn=2 msn=1 mo=0 len=4 L (4 octets not captured)";
    assert_eq!((lines(&events)[1].last().unwrap().as_str(), summary.terminates), (last, [(None, 1)].into()));
    assert!(events.last().unwrap().what.is_problem());
    let (events, summary) = super::events(&cut(&talk, 19).pcap(1, false, false));
    assert_eq!((events.len(), summary.problems), (1, 1));
    assert_eq!(
        problems(&events)[0],
        "WRONG 93 octets of this direction were not captured from octet 19 on: the rest is not read"
    );
}

/// The second FPDU of a segment begins where nothing was captured.
#[test]
fn a_direction_is_lost_where_an_fpdu_begins_behind_what_was_captured() {
    let mut talker = Talker::with(true, false, b"", b"");
    for number in 0..3 {
        talker.send(0, &[number; 200], 1000);
    }
    let mut talk = talker.talk;
    let second = talk.remove(3).1;
    talk[2].1.extend(second);
    let (events, _) = events(&cut(&talk, 60).pcap(1, false, false));
    let [initiator, responder] = lines(&events);
    assert_eq!((initiator.len(), responder.len()), (3, 1));
    assert_eq!(initiator[1], "Send qn=0 msn=1 mo=0 len=200 L (160 octets not captured)");
    assert!(
        initiator[2].starts_with("WRONG 224 octets of this direction were not captured from octet 244 on")
    );
}

/// A segment that was captured whole behind one that was not.
#[test]
fn an_fpdu_in_several_segments_is_known_by_its_first() {
    let mut talker = Talker::with(true, false, b"", b"");
    talker.send(0, &[1; 900], 1000);
    talker.ulpdu(0, &segment::write(rddp_ddp::Stag(7), 0, true, b"behind it"));
    let mut talk = talker.talk;
    let rest = talk[2].1.split_off(500);
    talk.insert(3, (0, rest));
    let (events, summary) = events(&cut(&talk, 60).pcap(1, false, false));
    assert_eq!(problems(&events), [""; 0]);
    assert_eq!((summary.fpdus, summary.cut_fpdus), (2, 1));
    assert_eq!(
        lines(&events)[0][1..],
        [
            "Send qn=0 msn=1 mo=0 len=900 L (860 octets not captured)",
            "RDMA Write stag=0x00000007 to=0x0 len=9 L"
        ]
    );
}

/// A marker stands in front of the first FPDU, and one within the first octets of the second.
#[test]
fn markers_among_headers_are_left_out() {
    let mut talker = Talker::with(true, true, b"", b"");
    for _ in 0..2 {
        talker.send(0, &[1; 470], 1000);
    }
    let talk = talker.talk;
    let (whole, _) = events(&in_order(&talk).pcap(1, false, false));
    let (events, summary) = events(&cut(&talk, 60).pcap(1, false, false));
    assert_eq!((fpdus(&events), summary.cut_fpdus), (fpdus(&whole), 2));
}

/// A frame has a checksum behind the packet, which the length of IP leaves out.
#[test]
fn octets_that_are_not_those_of_ip_are_not_missed() {
    let talk = everything(true, false);
    let (wanted, _) = events(&cut(&talk, 60).pcap(1, false, false));
    let mut tape = cut(&talk, 60);
    tape.packets.iter_mut().for_each(|packet| packet.extend([0xfc; 4]));
    let (events, _) = events(&tape.pcap(1, false, false));
    assert_eq!(lines(&events), lines(&wanted));
}

/// The segments behind one that was cut do not continue what was captured of it.
#[test]
fn a_message_of_sdp_is_not_made_of_pieces() {
    let mut talker = Talker::new(true, false);
    talker.say(0, Body::Data, &[0xff; 2500]);
    talker.say(0, Body::Data, b"");
    let (events, summary) = events(&cut(&talker.talk, 36).pcap(1, false, false));
    assert_eq!(summary.sdp, 2, "{events:?}");
    let mut talker = Talker::new(true, false);
    talker.say(0, Body::Data, &[0xff; 2500]);
    let (events, _) = super::events(&cut(&talker.talk, 30).pcap(1, false, false));
    assert_eq!(problems(&events), ["WRONG a message of SDP of 2516 octets whose header was not captured"]);
}

/// A connection is SDP's by the front of its Hello.
#[test]
fn messages_of_sdp_are_read_behind_a_hello_that_was_cut() {
    let mut talker = Talker::new(true, false);
    talker.say(0, Body::Data, &[9; 500]);
    let (events, summary) = events(&cut(&talker.talk, 40).pcap(1, false, false));
    assert_eq!((summary.fpdus, summary.sdp, summary.problems), (1, 1, 0), "{events:?}");
    assert!(matches!(&events[3].what, What::Sdp(_)), "{events:?}");
    assert_eq!(LINES[0].len(), 14);
}

/// A Simple Packet Block says only how long the packet was; behind what was captured it is padded.
#[test]
fn a_simple_block_has_as_much_as_its_interface_captures() {
    let talk = everything(true, false);
    let (wanted, _) = events(&cut(&talk, 61).pcap(1, false, false));
    let word = |number: usize| (number as u32).to_le_bytes();
    let block = |kind: usize, body: &[&[u8]]| {
        let mut body = body.concat();
        body.resize(body.len().next_multiple_of(4), 0);
        let len = word(12 + body.len());
        [&word(kind)[..], &len, &body, &len].concat()
    };
    let mut file = Tape::default().pcapng(1, false, false)[..28].to_vec();
    file.extend(block(1, &[&word(1), &word(HEADERS + 61)]));
    for packet in in_order(&talk).linked(1) {
        let captured = &packet[..packet.len().min(HEADERS + 61)];
        file.extend(block(3, &[&word(packet.len()), captured]));
    }
    assert_eq!(lines(&events(&file).0), lines(&wanted));
}
