//! Captures made by hand, right and wrong, and what is read in them.

#![allow(clippy::unwrap_used, reason = "a test")]

mod fragments;
mod headers;
mod snap;
mod talk;
mod tape;
mod wrong;

use rddp_decode::{CaptureError, Event, Summary, What, decode};
use rddp_test_support::Random;

use talk::{LINES, Talk, everything};
use tape::{FIN, ISN, Tape};

/// Returns the events of a file, and their numbers.
fn events(file: &[u8]) -> (Vec<Event>, Summary) {
    let mut events = Vec::new();
    let summary = decode(file, |event| events.push(event)).unwrap();
    (events, summary)
}

/// Returns the lines of each end.
fn lines(events: &[Event]) -> [Vec<String>; 2] {
    let of = |port| {
        events.iter().filter(move |event| event.from.port() == port).map(|event| event.what.to_string())
    };
    [of(40_000).collect(), of(7174).collect()]
}

/// Returns what a file has that is wrong.
fn problems(events: &[Event]) -> Vec<String> {
    let is_problem = |event: &&Event| matches!(event.what, What::Problem(_));
    events.iter().filter(is_problem).map(|event| event.what.to_string()).collect()
}

/// A segment for each octet string of a talk, in order.
fn in_order(talk: &Talk) -> Tape {
    let mut tape = Tape::default();
    tape.open();
    let mut at = [0; 2];
    for (from, octets) in talk {
        tape.octets(*from, at[*from], octets);
        at[*from] += octets.len();
    }
    for from in 0..2 {
        tape.segment(from, ISN[from].wrapping_add(1 + at[from] as u32), FIN | tape::ACK, b"");
    }
    tape
}

/// The talk in segments of any size, out of order, and some of them twice.
fn shuffled(talk: &Talk, seed: u64) -> Tape {
    let mut random = Random::new(seed);
    let mut streams = [Vec::new(), Vec::new()];
    talk.iter().for_each(|(from, octets)| streams[*from].extend(octets));
    let mut pieces = Vec::new();
    for (from, stream) in streams.iter().enumerate() {
        let mut at = 0;
        while at < stream.len() {
            let len = (1 + random.below(700)).min(stream.len() - at);
            pieces.push((from, at, len));
            at += len;
            // Some come twice, and some lie across those before them.
            if random.below(4) == 0 {
                let back = random.below(at.min(300));
                pieces.push((from, at - back, (len + back).min(stream.len() - at + back)));
            }
        }
    }
    for at in (1..pieces.len()).rev() {
        pieces.swap(at, random.below(at + 1));
    }
    let mut tape = Tape::default();
    tape.open();
    for (from, at, len) in pieces {
        tape.octets(from, at, &streams[from][at..at + len]);
    }
    tape
}

#[test]
fn every_kind_of_message_is_a_line() {
    let (events, summary) = events(&in_order(&everything(true, false)).pcap(1, false, false));
    assert_eq!(lines(&events), LINES.map(<[&str]>::to_vec));
    let wanted = Summary {
        packets: 23,
        connections: 1,
        startups: 2,
        fpdus: 16,
        sdp: 9,
        // A Terminate is an end's word that something is wrong.
        problems: 1,
        terminates: [(Some(0x0100), 1)].into(),
        ..Summary::default()
    };
    assert_eq!(summary, wanted);
}

/// A queue pair over plain TCP, which begins with no startup, is no fault.
#[test]
fn plain_tcp_is_told_by_the_name_of_the_interface() {
    let mut tape = in_order(&vec![(0, b"GET / HTTP/1.1\r\n\r\n".to_vec()), (1, b"HTTP/1.1 200".to_vec())]);
    let (found, summary) = events(&tape.pcapng(101, false, false));
    assert!(summary.plain == 0 && summary.problems == 1, "{found:?}");
    for big in [false, true] {
        tape.interface = "rddp-tcp";
        let (found, summary) = events(&tape.pcapng(101, big, false));
        assert_eq!(lines(&found), [vec!["plain TCP: its octets are not read".to_owned()], vec![]]);
        let wanted = Summary { packets: tape.packets.len(), connections: 1, plain: 1, ..Summary::default() };
        assert_eq!(summary, wanted);
        tape.interface = "rddp";
        assert_eq!(events(&tape.pcapng(101, big, false)).1.plain, 0);
    }
}

#[test]
fn markers_and_crcs_are_those_that_were_agreed_on() {
    for (crc, markers) in [(false, false), (false, true), (true, true)] {
        let (events, summary) = events(&in_order(&everything(crc, markers)).pcap(1, false, false));
        let mut wanted = LINES.map(|lines| lines.iter().map(ToString::to_string).collect::<Vec<_>>());
        if !crc {
            wanted[0][0] = wanted[0][0].replace("C=1", "C=0");
        }
        if markers {
            wanted[1][0] = wanted[1][0].replace("M=0", "M=1");
        }
        assert_eq!((lines(&events), summary.problems), (wanted, 1), "crc {crc}, markers {markers}");
    }
}

#[test]
fn segments_may_come_in_any_order_and_more_than_once() {
    for seed in 0..40 {
        let (events, summary) =
            events(&shuffled(&everything(true, seed % 2 == 1), seed).pcap(1, false, false));
        assert_eq!(summary.problems, 1, "seed {seed}: {:?}", problems(&events));
        for (got, wanted) in lines(&events).iter().zip(LINES) {
            assert_eq!(got[1..], wanted[1..], "seed {seed}");
        }
    }
}

/// The longer one of two early segments that begin at the same octet counts, in either order.
#[test]
fn a_segment_may_come_again_with_more_or_fewer_octets() {
    let talk = everything(true, false);
    let stream: Vec<u8> =
        talk.iter().filter(|(from, _)| *from == 0).flat_map(|(_, octets)| octets.clone()).collect();
    let reply = &talk[1].1;
    for lens in [[stream.len() - 30, 9], [9, stream.len() - 30]] {
        let mut tape = Tape::default();
        tape.open();
        tape.octets(1, 0, reply);
        for len in lens {
            tape.octets(0, 30, &stream[30..30 + len]);
        }
        tape.octets(0, 0, &stream[..30]);
        let (events, summary) = events(&tape.pcap(1, false, false));
        assert_eq!((lines(&events)[0].len(), summary.problems), (14, 0), "{lens:?}");
    }
}

#[test]
fn files_of_every_kind_have_the_same_events() {
    let tape = in_order(&everything(true, false));
    let (wanted, _) = events(&tape.pcap(1, false, false));
    assert_eq!(wanted[0].time.as_micros(), 7_000_003);
    for link in [0, 1, 12, 101, 113, 228, 276] {
        for (big, nanoseconds) in [(false, false), (false, true), (true, false), (true, true)] {
            for file in [tape.pcap(link, big, nanoseconds), tape.pcapng(link, big, nanoseconds)] {
                let (mut got, _) = events(&file);
                for (got, wanted) in got.iter_mut().zip(&wanted) {
                    assert_eq!(got.time.as_micros(), wanted.time.as_micros(), "link {link}");
                    got.time = wanted.time;
                }
                assert_eq!(got, wanted, "link {link} big {big} nanoseconds {nanoseconds}");
            }
        }
    }
}

/// Records of Kuznetzov's libpcap have the interface and the protocol, too. Packet Blocks are older
/// than Enhanced ones, and Simple ones have no time, and their captured length from the interface.
#[test]
fn older_kinds_of_records_and_blocks_are_read() {
    let tape = in_order(&everything(true, false));
    let (wanted, _) = events(&tape.pcap(101, false, false));
    for big in [false, true] {
        let number = |number: u32| if big { number.to_be_bytes() } else { number.to_le_bytes() };
        let len = |packet: &[u8]| number(packet.len() as u32);
        let mut file = tape.pcap(101, big, false)[..24].to_vec();
        file[..4].copy_from_slice(&number(0xa1b2_cd34));
        for packet in &tape.packets {
            file.extend([&[0; 8][..], &len(packet), &len(packet), &[1; 8], packet].concat());
        }
        assert_eq!(lines(&events(&file).0), lines(&wanted), "big {big}");

        let block = |kind: u32, body: &[u8]| {
            let mut body = body.to_vec();
            body.resize(body.len().next_multiple_of(4), 0);
            let len = number(12 + body.len() as u32);
            [&number(kind)[..], &len, &body, &len].concat()
        };
        let mut file = Tape::default().pcapng(101, big, false);
        for (at, packet) in tape.packets.iter().enumerate() {
            let front = [&[0; 12][..], &len(packet), &len(packet)].concat();
            file.extend(match at % 2 {
                0 => block(2, &[&front[..], packet].concat()),
                _ => block(3, &[&len(packet)[..], packet].concat()),
            });
        }
        assert_eq!(lines(&events(&file).0), lines(&wanted), "big {big}");
    }
}

#[test]
fn addresses_may_be_those_of_ipv6() {
    let talk = everything(true, false);
    let mut tape = Tape { is_v6: true, ..Tape::default() };
    tape.open();
    let mut at = [0; 2];
    for (from, octets) in &talk {
        tape.octets(*from, at[*from], octets);
        at[*from] += octets.len();
    }
    let (events, summary) = events(&tape.pcap(1, false, false));
    assert_eq!(events[0].from, "[2001:db8::1]:40000".parse().unwrap());
    assert_eq!(
        (lines(&events), summary.problems),
        (LINES.map(|lines| lines.iter().map(ToString::to_string).collect()), 1)
    );
}

#[test]
fn ports_that_are_used_again_are_another_connection() {
    let tape = in_order(&everything(true, false));
    let mut again = tape.clone();
    let mut later = in_order(&everything(true, false));
    // Other sequence numbers tell the connections apart.
    for packet in &mut later.packets {
        let seq = u32::from_be_bytes(packet[24..28].try_into().unwrap());
        packet[24..28].copy_from_slice(&seq.wrapping_add(1 << 22).to_be_bytes());
    }
    again.packets.extend(later.packets);
    let (events, summary) = events(&again.pcap(101, false, false));
    assert_eq!((summary.connections, summary.problems), (2, 2), "{:?}", problems(&events));
    assert_eq!(events.iter().filter(|event| event.connection == 1).count() * 2, events.len());
}

#[test]
fn a_file_that_is_cut_short_tells_what_it_has() {
    let whole = in_order(&everything(true, false));
    for file in [whole.pcap(1, false, false), whole.pcapng(1, false, false)] {
        let mut seen = 0;
        let cut = decode(&file[..file.len() - 1], |_| seen += 1).unwrap();
        assert!(matches!(cut.stopped, Some(CaptureError::Truncated(_))), "{cut:?}");
        assert_eq!((cut.packets, cut.fpdus), (22, 16));
        assert!(seen >= 27, "{seen} events");
    }
    for file in [&b""[..], b"\xd4", b"MZ not a capture"] {
        assert_eq!(decode(file, |_| panic!("no events")), Err(CaptureError::Format));
    }
}
