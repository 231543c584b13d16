//! `SrcAvail`s of a peer: what a program gets of them, and when.

use std::io::IoSliceMut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rddp_rdmap::{Opcode, ReadRequestRepr, TerminateCode};
use rddp_stream::{Errno, SdpMode, SdpOptions};
use rddp_test_support::random_octets;

use crate::advertising::{Came, DATA, RD_COMPL, SEND_SM, SRC_AVAIL, SRC_CANCEL, STAG, TO};
use crate::common::{End, initiator, kernel_poll, responder};
use crate::peer::{Sdp, number};
use crate::{pair, with};

const INLINE: usize = 10;
const LONG: Duration = Duration::from_secs(20);
/// Length of the header that every message begins with.
const BSDH: usize = 16;

fn receive(end: &End, count: usize, room: usize, flags: i32) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < count {
        let mut part = vec![0; room.min(count - all.len())];
        let got = end.recv(&mut part, flags).unwrap();
        assert!(got > 0, "the end, after {} of {count}", all.len());
        all.extend_from_slice(&part[..got]);
    }
    all
}

#[test]
fn an_advert_of_each_size_is_read_by_calls_of_each_size() {
    for (len, room) in [
        (INLINE + 1, 1),
        (300, 1),
        (5_000, 7),
        (70_000, 1_000),
        (200_000, 16_383),
        (200_000, 16_384),
        (1 << 20, 100_000),
        (3 << 20, 4 << 20),
    ] {
        for flags in [0, libc::MSG_WAITALL] {
            for cut in [1_400, 60_000] {
                let (mut peer, end) = Sdp::connected();
                let octets = random_octets(len as u64, len);
                thread::scope(|scope| {
                    scope.spawn(|| {
                        peer.advertise(len, &octets[..INLINE]);
                        peer.serve(&octets, INLINE, cut);
                        peer.data(b"behind");
                    });
                    assert!(receive(&end, len, room, flags) == octets, "{len} by {room}, cut by {cut}");
                });
                assert_eq!((end.read(9), end.state.ended()), (Ok(b"behind".to_vec()), None));
            }
        }
    }
}

#[test]
fn a_call_reads_as_much_as_it_has_room_for() {
    let (mut peer, end) = Sdp::connected();
    let octets = random_octets(1, 2 << 20);
    peer.advertise(octets.len(), &octets[..INLINE]);
    // A little, which is Read for all calls.
    assert_eq!(end.read(100).unwrap(), octets[..INLINE]);
    let first = peer.read();
    assert_eq!((first.size, first.src_to), (256 << 10, TO + INLINE as u64));
    assert!(peer.peer.is_silent(Duration::from_millis(20)), "the room is full");
    peer.answer(&first, &octets[INLINE..INLINE + first.size as usize], 50_000);
    // With a large buffer more is outstanding, up to 1 MiB.
    let mut rest = vec![0; octets.len() - INLINE];
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut reads: Vec<ReadRequestRepr> = Vec::new();
            let mut reported = 0;
            while reads.iter().map(|read| read.size).sum::<u32>() < 1 << 20 {
                match peer.came() {
                    Came::Read(read) => reads.push(read),
                    Came::Message(message) if message[0] == RD_COMPL => reported += number(&message, 16),
                    Came::Message(_) => {}
                }
            }
            assert!(reported <= 256 << 10 && reads[0].sink_stag != reads[1].sink_stag);
            for read in reads {
                let at = (read.src_to - TO) as usize;
                peer.answer(&read, &octets[at..at + read.size as usize], 60_000);
            }
            let from = INLINE + reported as usize;
            peer.serve(&octets, from, 60_000);
        });
        assert_eq!(end.recv(&mut rest, libc::MSG_WAITALL), Ok(rest.len()));
    });
    assert!(rest == octets[INLINE..]);
}

#[test]
fn a_report_comes_when_all_of_a_read_is_here() {
    let (mut peer, end) = Sdp::connected();
    let octets = random_octets(2, 50_000);
    peer.advertise(octets.len(), &octets[..INLINE]);
    assert_eq!(end.read(100).unwrap(), octets[..INLINE]);
    let read = peer.read();
    let half = 20_000;
    peer.respond(read.sink_stag, 0, false, &octets[INLINE..INLINE + half]);
    assert!(receive(&end, half, 1 << 20, 0) == octets[INLINE..INLINE + half]);
    assert!(peer.peer.is_silent(Duration::from_millis(20)), "no report of a part (RFC 5040 §5.5)");
    peer.respond(read.sink_stag, half as u64, true, &octets[INLINE + half..]);
    assert!(receive(&end, octets.len() - INLINE - half, 9_000, 0) == octets[INLINE + half..]);
    let report = peer.told();
    assert_eq!((report[0], number(&report, 16) as usize), (RD_COMPL, octets.len() - INLINE));
}

#[test]
fn a_read_begins_when_the_message_of_its_advert_is_whole() {
    let (mut peer, end) = Sdp::connected();
    let octets = random_octets(4, 1000);
    let advert = [&(octets.len() as u32).to_be_bytes()[..], &STAG.to_be_bytes(), &TO.to_be_bytes()].concat();
    let message = [&peer.front(SRC_AVAIL, advert.len() + 100)[..], &advert, &octets[..100]].concat();
    peer.begin(&message[..80]);
    let come = 80 - (message.len() - 100);
    assert_eq!(receive(&end, come, 500, 0), octets[..come]);
    assert!(peer.peer.is_silent(Duration::from_millis(50)));
    peer.go_on(80, &message[80..]);
    assert!(receive(&end, 100 - come, 500, 0) == octets[come..100]);
    thread::scope(|scope| {
        let reading = scope.spawn(|| receive(&end, 900, 500, 0));
        peer.serve(&octets, 100, 900);
        assert!(reading.join().unwrap() == octets[100..]);
    });
}

#[test]
fn several_adverts_are_read_in_their_order() {
    let (mut peer, end) = Sdp::connected();
    let octets = random_octets(3, 8 * 30_000);
    peer.pipelined();
    for _ in 0..8 {
        peer.advertise(30_000, b"");
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..8 {
                let read = peer.read_between_reports();
                assert_eq!((read.src_to, read.size), (TO, 30_000));
                peer.answer(&read, &octets[number * 30_000..][..30_000], 7_000);
            }
        });
        assert!(receive(&end, octets.len(), 25_000, 0) == octets);
    });
    assert_eq!(end.state.ended(), None);
}

impl Sdp {
    /// Returns the next Read, whatever is reported before it.
    fn read_between_reports(&mut self) -> rddp_rdmap::ReadRequestRepr {
        loop {
            if let Came::Read(read) = self.came() {
                return read;
            }
        }
    }
}

#[test]
fn a_look_shows_what_is_read_and_takes_nothing() {
    let (mut peer, end) = Sdp::connected();
    let octets = random_octets(4, 90_000);
    peer.pipelined();
    peer.advertise(octets.len(), b"");
    assert_eq!(end.recv(&mut [0; 9], libc::MSG_PEEK | libc::MSG_DONTWAIT), Err(Errno::WOULD_BLOCK));
    let read = peer.read();
    peer.answer(&read, &octets, 30_000);
    let mut look = vec![0; 1_000];
    for _ in 0..3 {
        assert_eq!(end.recv(&mut look, libc::MSG_PEEK), Ok(1_000));
        assert!(look == octets[..1_000]);
    }
    assert!(peer.peer.is_silent(Duration::from_millis(20)), "what is only shown is not reported");
    assert!(receive(&end, octets.len(), 100_000, 0) == octets);
    assert_eq!(number(&peer.told(), 16) as usize, octets.len());
}

#[test]
fn a_call_that_does_not_wait_begins_the_read_and_the_response_is_an_event() {
    let (mut peer, end) = Sdp::connected();
    let octets = random_octets(5, 40_000);
    for inline in [0, INLINE] {
        if inline == 0 {
            peer.pipelined();
        } else {
            peer.message(7, &[0x10, 0, 0, 0], b"");
        }
        peer.advertise(octets.len(), &octets[..inline]);
        if inline > 0 {
            assert_eq!(end.read(100).unwrap(), octets[..inline]);
        } else {
            assert_eq!(end.poll(libc::POLLIN, Duration::from_millis(50)).0, 0, "nothing to read yet");
        }
        assert_eq!(end.recv(&mut [0; 9], libc::MSG_DONTWAIT), Err(Errno::WOULD_BLOCK));
        let read = peer.read_between_reports();
        let (told, swallowed) = end.poll(libc::POLLIN, Duration::from_millis(50));
        assert_eq!((told, swallowed), (0, 0), "a wait for the Response sleeps");
        peer.answer(&read, &octets[inline..], 9_000);
        let (told, swallowed) = end.poll(libc::POLLIN, Duration::from_secs(20));
        assert!(told == libc::POLLIN && swallowed <= 1, "{swallowed} wake-ups for nothing");
        let mut got = Vec::new();
        while got.len() < octets.len() - inline {
            match end.recv(&mut [0; 3_000], libc::MSG_DONTWAIT | libc::MSG_PEEK) {
                Ok(count) => got.extend(end.read(count).unwrap()),
                Err(error) => assert_eq!(error, Errno::WOULD_BLOCK),
            }
        }
        assert!(got == octets[inline..]);
    }
}

#[test]
fn a_call_returns_with_what_its_low_water_mark_asks_for() {
    let (mut peer, end) = Sdp::connected();
    let octets = random_octets(6, 60_000);
    peer.advertise(octets.len(), &octets[..INLINE]);
    end.state.set_low_water(30_000);
    let (mut one, mut two) = (vec![0; 20_000], vec![0; 40_000]);
    thread::scope(|scope| {
        scope.spawn(|| {
            let read = peer.read();
            peer.respond(read.sink_stag, 0, false, &octets[INLINE..35_000]);
            assert!(peer.peer.is_silent(Duration::from_millis(20)));
            peer.respond(read.sink_stag, 35_000 - INLINE as u64, true, &octets[35_000..]);
        });
        let mut pieces = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
        let got = end.stream().recv(&mut pieces, 0).unwrap();
        assert!((30_000..=60_000).contains(&got), "{got}");
        assert!(one == octets[..20_000] && two[..got - 20_000] == octets[20_000..got]);
        assert!(receive(&end, 60_000 - got, 60_000, 0) == octets[got..]);
    });
}

/// An answer to a Read of 50,000 octets that is wrong, and the code of the Terminate for it.
type Lie = (&'static str, fn(&mut Sdp, &rddp_rdmap::ReadRequestRepr, &[u8]), TerminateCode);

#[test]
fn a_peer_that_lies_about_a_read_is_cut_off() {
    let lies: [Lie; 7] = [
        (
            "too short",
            |peer, read, octets| peer.respond(read.sink_stag, 0, true, &octets[..900]),
            UNSPECIFIED,
        ),
        ("too long", |peer, read, octets| peer.answer(read, &[octets, b"x"].concat(), 20_000), UNSPECIFIED),
        ("beyond", |peer, read, octets| peer.respond(read.sink_stag, 1, false, &octets[..90]), UNSPECIFIED),
        ("far beyond", |peer, read, _| peer.respond(read.sink_stag, u64::MAX, true, b"x"), UNSPECIFIED),
        (
            "wrong STag",
            |peer, _, octets| peer.respond(rddp_ddp::Stag(77), 0, false, &octets[..90]),
            UNSPECIFIED,
        ),
        (
            "twice",
            |peer, read, octets| {
                peer.answer(read, octets, 20_000);
                peer.answer(read, octets, 20_000);
            },
            UNSPECIFIED,
        ),
        (
            "a Write into the sink",
            |peer, read, octets| peer.write(read.sink_stag.0, 0, true, &octets[..90]),
            TerminateCode(0x1100),
        ),
    ];
    for (name, lie, code) in lies {
        let (mut peer, end) = Sdp::connected();
        let octets = random_octets(7, 50_000);
        peer.advertise(octets.len() + INLINE, &[9; INLINE]);
        assert_eq!(end.read(100).unwrap(), [9; INLINE]);
        let read = peer.read();
        lie(&mut peer, &read, &octets);
        let mut got = Vec::new();
        let error = loop {
            let mut part = vec![0; 20_000];
            match end.recv(&mut part, 0) {
                Ok(0) => panic!("{name}: the end"),
                Ok(count) => got.extend_from_slice(&part[..count]),
                Err(error) => break error,
            }
        };
        assert_eq!(error, Errno::RESET, "{name}");
        assert!(octets.starts_with(&got), "{name}: {} octets", got.len());
        let terminate = loop {
            let (header, payload) = peer.peer.segment().expect("a Terminate");
            if header.control() & 0xf == Opcode::Terminate as u8 {
                break rddp_rdmap::TerminateRepr::parse(&payload).unwrap();
            }
        };
        if code != UNSPECIFIED {
            assert_eq!(terminate.code, code, "{name}");
        }
    }
}

/// The code is that of the stack's own tests.
const UNSPECIFIED: TerminateCode = TerminateCode(0xffff);

#[test]
fn an_advert_that_is_taken_back_ends_as_far_as_it_was_read() {
    // Before a Read, while one is under way, behind the report.
    for step in 0..3 {
        let (mut peer, end) = Sdp::connected();
        let octets = random_octets(8, 1_400_000);
        peer.advertise(octets.len(), &octets[..INLINE]);
        let mut at = INLINE;
        if step == 0 {
            peer.message(SRC_CANCEL, &[], b"");
            assert_eq!(end.read(100).unwrap(), octets[..INLINE]);
            // The call that took the advert may have met the cancel, or begun to Read.
        } else {
            assert_eq!(end.read(100).unwrap(), octets[..INLINE]);
        }
        let cancel_first = step == 1;
        if cancel_first {
            peer.message(SRC_CANCEL, &[], b"");
        }
        let end_of_reads = thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let mut got = Vec::new();
                while !got.ends_with(b"all") {
                    got.extend(end.read(5_000).unwrap());
                }
                got
            });
            let mut has_cancelled = step < 2;
            loop {
                match peer.came() {
                    Came::Read(read) => {
                        let from = (read.src_to - TO) as usize;
                        peer.answer(&read, &octets[from..from + read.size as usize], 30_000);
                    }
                    Came::Message(message) if message[0] == RD_COMPL => {
                        at += number(&message, 16) as usize;
                        if !has_cancelled {
                            peer.message(SRC_CANCEL, &[], b"");
                            has_cancelled = true;
                        }
                    }
                    Came::Message(message) if message[0] == SEND_SM => break,
                    Came::Message(message) => assert_eq!((message[0], message.len()), (DATA, 16)),
                }
            }
            for part in [&octets[at..], b"all"].concat().chunks(3_000) {
                peer.data(part);
            }
            assert!(reading.join().unwrap() == [&octets[INLINE..], b"all"].concat(), "step {step}");
            at
        });
        assert!(end_of_reads < octets.len());
        assert_eq!(end.state.ended(), None);
    }
}

#[test]
fn what_comes_after_a_call_has_returned_goes_to_the_next_one() {
    let (mut peer, end) = Sdp::connected();
    let octets = random_octets(9, 100_000);
    peer.advertise(octets.len(), &octets[..INLINE]);
    let mut buffer = vec![0; 1 << 20];
    end.state.set_receive_timeout(Some(Duration::from_millis(30)));
    assert_eq!(end.recv(&mut buffer, libc::MSG_WAITALL), Ok(INLINE));
    let read = peer.read();
    peer.respond(read.sink_stag, 0, false, &octets[INLINE..40_000]);
    assert_eq!(end.recv(&mut buffer, libc::MSG_WAITALL), Ok(40_000 - INLINE));
    assert!(buffer[..40_000 - INLINE] == octets[INLINE..40_000]);
    assert_eq!(end.recv(&mut buffer, 0), Err(Errno::WOULD_BLOCK));
    buffer.fill(0xa5);
    peer.respond(read.sink_stag, 40_000 - INLINE as u64, true, &octets[40_000..]);
    assert_eq!(end.poll(libc::POLLIN, Duration::from_secs(20)).0, libc::POLLIN);
    assert!(buffer.iter().all(|octet| *octet == 0xa5), "the memory of a call that has returned");
    assert!(receive(&end, 60_000, 7_777, 0) == octets[40_000..]);
    assert_eq!(number(&peer.told(), 16) as usize, octets.len() - INLINE);
}

#[test]
fn a_call_whose_memory_is_gone_loses_no_octets() {
    let (mut peer, end) = Sdp::connected();
    let octets = random_octets(10, 150_000);
    peer.advertise(octets.len(), &octets[..INLINE]);
    assert_eq!(end.read(100).unwrap(), octets[..INLINE]);
    let read = peer.read();
    peer.answer(&read, &octets[INLINE..][..read.size as usize], 60_000);
    // SAFETY: a new mapping.
    let place = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            1 << 20,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(place, libc::MAP_FAILED);
    // SAFETY: the mapping, whose second half is not accessible: as a program's bad buffer.
    let buffer = unsafe {
        assert_eq!(libc::mprotect(place.byte_add(20 << 10), (1 << 20) - (20 << 10), libc::PROT_NONE), 0);
        std::slice::from_raw_parts_mut(place.cast::<u8>(), 1 << 20)
    };
    let got = end.recv(buffer, 0).unwrap();
    assert_eq!(got, 20 << 10);
    assert!(buffer[..got] == octets[INLINE..INLINE + got]);
    assert_eq!(end.recv(&mut buffer[got..], 0), Err(Errno::FAULT));
    thread::scope(|scope| {
        scope.spawn(|| peer.serve(&octets, INLINE, 40_000));
        assert!(receive(&end, octets.len() - INLINE - got, 50_000, 0) == octets[INLINE + got..]);
    });
}

#[test]
fn a_sender_without_credits_reads_what_the_peer_offers() {
    let (mut peer, end) = Sdp::connected();
    // One report: there are two credits for control.
    let octets = random_octets(11, 120_000);
    thread::scope(|scope| {
        let sending = scope.spawn(|| end.send(&vec![7; 4 << 20]));
        // The end sends as many messages as it has credits for, of which none comes back. Two of
        // the peer's 64 are for control.
        let acknowledged = peer.ack;
        let mut arrived = 0;
        for _ in 0..64 - 2 {
            let message = peer.next();
            assert_eq!(message[0], DATA);
            arrived += message.len() - BSDH;
        }
        let newest = std::mem::replace(&mut peer.ack, acknowledged);
        peer.advertise(octets.len(), &octets[..INLINE]);
        let mut reported = INLINE;
        while reported < octets.len() {
            match peer.peer.segment() {
                Some((header, payload)) if header.control() & 0xf == Opcode::ReadRequest as u8 => {
                    let read = rddp_rdmap::ReadRequestRepr::parse(&payload).unwrap();
                    let at = (read.src_to - TO) as usize;
                    peer.answer(&read, &octets[at..at + read.size as usize], 30_000);
                }
                Some((_, payload)) if payload[0] == RD_COMPL => reported += number(&payload, 16) as usize,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(reported, octets.len(), "all of it, without a receive");
        peer.ack = newest;
        peer.data(b"");
        // The thread may end long behind its last octet, so the octets say when it is done.
        while arrived < 4 << 20 {
            let message = peer.next();
            if message[0] == DATA {
                arrived += message.len() - BSDH;
            }
            peer.data(b"");
        }
        assert_eq!(sending.join().unwrap(), Ok(4 << 20));
    });
    assert!(receive(&end, octets.len(), 33_333, 0) == octets);
}

#[test]
fn an_advert_behind_a_closed_receiving_direction_is_read() {
    let (mut peer, end) = Sdp::connected();
    end.stream().shutdown(libc::SHUT_RD).unwrap();
    let octets = random_octets(12, 30_000);
    peer.pipelined();
    peer.advertise(octets.len(), b"");
    thread::scope(|scope| {
        scope.spawn(|| peer.serve(&octets, 0, 9_000));
        assert!(receive(&end, octets.len(), 7_000, 0) == octets, "not the end, before them");
    });
    assert_eq!(end.read(9), Ok(vec![]));
}

/// The send of the octets has returned: they are in memory of the peer's stream.
#[test]
fn a_call_that_does_not_wait_finds_octets_that_were_sent() {
    for (threshold, mode) in [(0, None), (0, Some(SdpMode::Pipelined))] {
        let options = SdpOptions { threshold, mode, ..SdpOptions::DEFAULT };
        let (a, b) = pair(&with(initiator(), options), &with(responder(), options));
        a.state.set_send_timeout(Some(Duration::from_millis(10)));
        a.send_all(b"first octets");
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    a.stream().meet_obligation();
                }
            });
            assert!(matches!(b.stream().available(), Ok(1..=12)));
            assert_eq!(receive(&b, 12, 100, libc::MSG_DONTWAIT), b"first octets");
            is_over.store(true, Ordering::Release);
        });
    }
}

#[test]
fn a_low_water_mark_holds_behind_an_advert() {
    let (mut peer, end) = Sdp::connected();
    end.state.set_low_water(9);
    thread::scope(|scope| {
        let reading = scope.spawn(|| end.read(100));
        peer.advertise(6, b"o");
        peer.serve(b"octets", 1, 9_000);
        peer.data(b"more");
        assert_eq!(reading.join().unwrap(), Ok(b"octetsmore".to_vec()));
    });
}

#[test]
fn a_close_under_an_advert_resets() {
    let (mut peer, end) = Sdp::connected();
    peer.pipelined();
    peer.advertise(1000, b"");
    assert_eq!(end.poll(libc::POLLIN, Duration::from_millis(30)).0, 0);
    assert!(end.stream().finish(Duration::ZERO));
    while peer.peer.segment().is_some() {}
    assert!(end.stream().recv(&mut [IoSliceMut::new(&mut [0; 9])], 0).is_err());
}

#[test]
fn a_peer_that_dies_at_any_step_is_an_end_or_a_reset() {
    let octets = random_octets(13, 50_000);
    for step in 0..4 {
        for resets in [false, true] {
            let (mut peer, end) = Sdp::connected();
            peer.advertise(octets.len(), &octets[..INLINE]);
            assert_eq!(end.read(100).unwrap(), octets[..INLINE]);
            let read = peer.read();
            let mut expected = 0;
            if step > 0 {
                peer.respond(read.sink_stag, 0, false, &octets[INLINE..9_000]);
                expected = 9_000 - INLINE;
            }
            if step > 1 {
                peer.respond(read.sink_stag, 9_000 - INLINE as u64, true, &octets[9_000..]);
                expected = octets.len() - INLINE;
            }
            if step > 2 {
                assert!(receive(&end, expected, 60_000, 0) == octets[INLINE..]);
                assert_eq!(peer.told()[0], RD_COMPL);
                expected = 0;
            }
            if resets {
                peer.peer.reset();
            } else {
                drop(peer);
            }
            let mut got = 0;
            let last = loop {
                match end.read(60_000) {
                    Ok(part) if !part.is_empty() => got += part.len(),
                    last => break last,
                }
            };
            assert!(got <= expected && (resets || got == expected), "step {step}: {got} of {expected}");
            assert!(last == Err(Errno::RESET) || last == Ok(vec![]), "step {step}: {last:?}");
        }
    }
}

#[test]
fn adverts_cross_with_markers_and_without_crc() {
    for (crc, markers) in [(false, false), (true, true)] {
        let options = rddp_stream::Options { crc, markers, ..responder() };
        let (mut peer, end) =
            Sdp::connected_to(&with(options, SdpOptions { size: 4000, ..Default::default() }));
        let octets = random_octets(14, 300_000);
        thread::scope(|scope| {
            scope.spawn(|| {
                peer.advertise(octets.len(), &octets[..INLINE]);
                peer.serve(&octets, INLINE, 3_000);
                peer.data(b"behind");
            });
            for (from, room) in [(0, 1_000), (1_000, 9), (1_009, 298_991)] {
                assert!(receive(&end, room, room, libc::MSG_WAITALL) == octets[from..from + room]);
            }
        });
        assert_eq!(end.read(9), Ok(b"behind".to_vec()));
        assert_eq!(STAG, 0x1234_5678);
    }
}

#[test]
fn octets_that_are_moved_out_of_the_way_stay_in_their_room() {
    let (mut peer, end) = Sdp::connected();
    let octets = random_octets(15, 900_000);
    thread::scope(|scope| {
        scope.spawn(|| end.send(&vec![7; 4 << 20]));
        let acknowledged = peer.ack;
        while !peer.peer.is_silent(Duration::from_millis(50)) {
            assert_eq!(peer.next()[0], DATA);
        }
        peer.ack = acknowledged;
        peer.advertise(octets.len(), &octets[..INLINE]);
        let mut asked = 0;
        while !peer.peer.is_silent(Duration::from_millis(100)) {
            let (header, payload) = peer.peer.segment().expect("something");
            if header.control() & 0xf == Opcode::ReadRequest as u8 {
                let read = rddp_rdmap::ReadRequestRepr::parse(&payload).unwrap();
                let at = (read.src_to - TO) as usize;
                peer.answer(&read, &octets[at..at + read.size as usize], 30_000);
                asked += read.size;
            }
        }
        // The sender ends with an error.
        peer.peer.reset();
        assert_eq!(asked, 256 << 10, "nobody receives");
    });
}

#[test]
fn an_advert_that_no_read_can_take_ends_a_pipelined_connection() {
    let (mut peer, end) = Sdp::connected_to(&with(
        rddp_stream::Options { ord: 0, ..responder() },
        SdpOptions { size: 4000, bufs: 256, ..Default::default() },
    ));
    peer.pipelined();
    peer.advertise(1000, b"");
    assert_eq!(end.read(100), Err(Errno::PROTOCOL));
}

#[test]
fn an_end_within_a_response_is_a_reset() {
    for answered in [0, 100] {
        let (mut peer, end) = Sdp::connected();
        let octets = random_octets(15, 1000);
        peer.advertise(octets.len(), &octets[..INLINE]);
        assert_eq!(end.read(100).unwrap(), octets[..INLINE]);
        let read = peer.read();
        if answered > 0 {
            peer.respond(read.sink_stag, 0, false, &octets[INLINE..INLINE + answered]);
            assert!(receive(&end, answered, 1000, 0) == octets[INLINE..INLINE + answered]);
        }
        drop(peer);
        assert_eq!((end.read(100), end.read(100)), (Err(Errno::RESET), Ok(vec![])), "behind {answered}");
    }
}

/// The octets of an advert die with its source; what has come otherwise is read, as over TCP.
#[test]
fn a_reset_over_an_advert_is_told_once_behind_what_has_come() {
    for pipelined in [false, true] {
        for waits in [false, true] {
            let (mut peer, end) = Sdp::connected();
            let inline = if pipelined { 0 } else { INLINE };
            if pipelined {
                peer.pipelined();
            }
            peer.data(b"data");
            peer.advertise(1000, &[b'i'; INLINE][..inline]);
            peer.peer.reset();
            if waits {
                assert_ne!(end.poll(libc::POLLIN, LONG).0 & libc::POLLIN, 0);
            }
            let mut got = Vec::new();
            let error = loop {
                match end.read(1000) {
                    Ok(octets) if !octets.is_empty() => got.extend(octets),
                    end => break end,
                }
            };
            assert_eq!(got, [b"data", &[b'i'; INLINE][..inline]].concat(), "{pipelined}, {waits}");
            let next = (error, end.read(9), end.read(9), end.send(b"x"));
            assert_eq!(next, (Err(Errno::RESET), Ok(vec![]), Ok(vec![]), Err(Errno::BROKEN_PIPE)));
        }
    }
}

/// Over TCP the first octets of a send are there with the others.
#[test]
fn a_look_at_the_first_octets_of_an_advert_shows_the_others() {
    let octets = random_octets(16, 5000);
    for peeks in [false, true] {
        let (mut peer, end) = Sdp::connected();
        peer.advertise(octets.len(), &octets[..1]);
        let looking = || {
            let mut look = vec![0; 9000];
            let count = if peeks { end.recv(&mut look, libc::MSG_PEEK) } else { end.stream().available() };
            if let (true, Ok(count)) = (peeks, count) {
                assert!(look[..count] == octets[..count]);
            }
            count
        };
        // The look begins the Read, and waits no longer than a moment for the Response.
        assert_eq!(looking(), Ok(1), "{peeks}");
        thread::scope(|scope| {
            let shown = scope.spawn(|| {
                while looking() == Ok(1) {}
                looking()
            });
            let read = peer.read();
            peer.answer(&read, &octets[1..], 9_000);
            assert_eq!(shown.join().unwrap(), Ok(octets.len()), "{peeks}");
        });
        assert!(receive(&end, octets.len(), 9_000, libc::MSG_DONTWAIT) == octets);
    }
}

#[test]
fn a_wait_without_time_finds_an_advert_that_the_peer_serves() {
    for mode in [SdpMode::Combined, SdpMode::Pipelined] {
        let options = SdpOptions { threshold: 0, mode: Some(mode), ..SdpOptions::DEFAULT };
        let (a, b) = pair(&with(initiator(), options), &with(responder(), options));
        // The peer's thread may be late for once.
        let finds = (0..100).any(|_| {
            thread::scope(|scope| {
                scope.spawn(|| a.send_all(b"some octets"));
                while kernel_poll(&b.tcp, libc::POLLIN, LONG) == 0 {}
                let told = b.poll(libc::POLLIN, Duration::ZERO).0;
                assert_eq!(receive(&b, 11, 11, 0), b"some octets");
                told == libc::POLLIN
            })
        });
        assert!(finds, "{mode:?}");
    }
}

#[test]
fn the_first_octets_of_an_advert_are_an_event_with_the_others() {
    let octets = random_octets(17, 5000);
    for left in [false, true] {
        let (mut peer, end) = Sdp::connected();
        peer.advertise(octets.len(), &octets[..INLINE]);
        let (told, swallowed) = end.poll(libc::POLLIN, Duration::from_millis(50));
        assert!(told == 0 && swallowed <= 2, "{swallowed} wake-ups for nothing");
        let read = peer.read();
        if left {
            drop(peer);
            assert_eq!(end.poll(libc::POLLIN, LONG).0 & libc::POLLIN, libc::POLLIN);
            assert_eq!(end.recv(&mut [0; 9000], libc::MSG_DONTWAIT), Ok(INLINE));
            continue;
        }
        peer.answer(&read, &octets[INLINE..], 9_000);
        assert_eq!(end.poll(libc::POLLIN, LONG).0, libc::POLLIN);
        let mut got = vec![0; 9_000];
        assert_eq!(end.recv(&mut got, libc::MSG_DONTWAIT), Ok(octets.len()));
        peer.data(b"x");
        assert_eq!(end.poll(libc::POLLIN, LONG).0, libc::POLLIN);
    }
}
