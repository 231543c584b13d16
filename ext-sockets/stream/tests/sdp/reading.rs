//! A hand-made peer that reads from the memory that a send of ours lends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rddp_ddp::{Header, Msn, Stag};
use rddp_rdmap::{AccessError, Fault, Opcode, ReadRequestRepr, untagged_header};
use rddp_stream::{Errno, SdpOptions, Why};
use rddp_test_support::random_octets;

use crate::advertising::{DATA, MODE_CHANGE, RD_COMPL, SEND_SM, SINK_AVAIL, SRC_AVAIL, WR_COMPL};
use crate::common::{End, responder};
use crate::peer::{Sdp, number};
use crate::with;

/// A `SrcAvail` of ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Advert {
    pub(crate) len: u32,
    pub(crate) stag: u32,
    pub(crate) to: u64,
    pub(crate) inline: usize,
}

/// The memory of the peer that a Response goes to.
const SINK: u32 = 0xabcd;

impl Sdp {
    pub(crate) fn advert(&mut self) -> (Advert, Vec<u8>) {
        let message = self.told();
        assert_eq!(message[0], SRC_AVAIL, "{message:x?}");
        let to = u64::from_be_bytes(message[24..32].try_into().unwrap());
        let advert =
            Advert { len: number(&message, 16), stag: number(&message, 20), to, inline: message.len() - 32 };
        (advert, message[32..].to_vec())
    }

    /// Sends the Read Request with this MSN.
    pub(crate) fn ask(&mut self, msn: u32, stag: u32, to: u64, size: u32) {
        self.ask_into(to, msn, stag, to, size);
    }

    /// Sends the Read Request with this MSN, whose Response goes to `sink_to`.
    fn ask_into(&mut self, sink_to: u64, msn: u32, stag: u32, src_to: u64, size: u32) {
        let request = ReadRequestRepr { sink_stag: Stag(SINK), sink_to, size, src_stag: Stag(stag), src_to };
        let header = untagged_header(Opcode::ReadRequest, Stag(0), Msn(msn), 0, true);
        self.peer.send_segment(&header, &request.octets());
    }

    /// Returns the octets of the next Response, which is for the range from `to` on.
    pub(crate) fn response(&mut self, to: u64) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let (header, payload) = self.peer.segment().expect("a segment");
            let Header::Tagged(header) = header else {
                self.ack = number(&payload, 8);
                assert_eq!((payload[0], payload.len()), (DATA, 16), "an update of credits");
                continue;
            };
            assert_eq!((header.stag, header.to), (Stag(SINK), to.wrapping_add(all.len() as u64)));
            all.extend(payload);
            if header.last {
                return all;
            }
        }
    }

    pub(crate) fn report(&mut self, octets: u32) {
        self.message(RD_COMPL, &octets.to_be_bytes(), &[]);
    }

    /// Returns the octets of `count` octets of Data.
    pub(crate) fn copied(&mut self, count: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < count {
            let message = self.told();
            assert_eq!(message[0], DATA);
            all.extend(&message[16..]);
        }
        all
    }
}

pub(crate) fn connected(threshold: u64) -> (Sdp, End) {
    Sdp::connected_to(&with(responder(), SdpOptions { threshold, ..SdpOptions::DEFAULT }))
}

#[test]
fn a_send_advertises_from_the_threshold_on() {
    let (mut peer, end) = connected(1000);
    let octets = random_octets(1, 1000);
    assert_eq!(end.send(&octets[..999]), Ok(999));
    assert_eq!(peer.copied(999), octets[..999]);
    thread::scope(|scope| {
        let sent = scope.spawn(|| end.send(&octets));
        let (advert, inline) = peer.advert();
        assert_eq!((advert.len, advert.to, advert.inline), (1000, 0, 1));
        assert_eq!(inline, octets[..1]);
        peer.ask(1, advert.stag, 1, 999);
        assert_eq!(peer.response(1), octets[1..]);
        assert!(!sent.is_finished(), "the Read is not reported");
        peer.report(999);
        assert_eq!(sent.join().unwrap(), Ok(1000));
    });
    // A call that may not wait copies, and so does one from infinity on.
    assert_eq!(end.stream().send(&[std::io::IoSlice::new(&octets)], libc::MSG_DONTWAIT), Ok(1000));
    assert_eq!(peer.copied(1000), octets);
    end.state.set_threshold(u64::MAX);
    assert_eq!(end.send(&octets), Ok(1000));
    assert_eq!(peer.copied(1000), octets);
}

#[test]
fn a_peer_reads_in_any_pieces_and_again() {
    let (mut peer, end) = connected(0);
    let octets = random_octets(2, 100_000);
    thread::scope(|scope| {
        let sent = scope.spawn(|| end.send(&octets));
        let (advert, _) = peer.advert();
        let pieces = [(50_000, 10_000), (1, 50_000), (20_000, 10_000), (0, 1), (60_000, 40_000), (99_999, 1)];
        for (at, (to, size)) in pieces.into_iter().enumerate() {
            peer.ask(at as u32 + 1, advert.stag, to, size);
        }
        for (to, size) in pieces {
            let range = to as usize..(to as usize + size as usize);
            assert!(peer.response(to) == octets[range], "{size} octets from {to}");
        }
        peer.report(40_000);
        peer.report(59_999);
        assert_eq!(sent.join().unwrap(), Ok(octets.len()));
    });
    assert_eq!(end.state.ended(), None);
}

#[test]
fn a_response_goes_where_the_peer_wants_it_though_its_memory_has_no_such_range() {
    let (mut peer, end) = connected(0);
    let octets = random_octets(3, 400_000);
    thread::scope(|scope| {
        let sent = scope.spawn(|| end.send(&octets));
        let (advert, _) = peer.advert();
        peer.ask_into(u64::MAX - 99, 1, advert.stag, 0, 400_000);
        assert!(peer.response(u64::MAX - 99) == octets);
        peer.report(399_999);
        assert_eq!(sent.join().unwrap(), Ok(octets.len()));
    });
    assert_eq!(end.state.ended(), None);
}

#[test]
fn a_read_of_what_is_not_advertised_ends_the_connection() {
    let stag = Fault::read_source(AccessError::Stag).code();
    let bounds = Fault::read_source(AccessError::Bounds).code();
    let wrap = Fault::read_source(AccessError::Wrap).code();
    for (other, to, size, code) in [
        (1, 0, 1, stag),
        (0, 0, 5001, bounds),
        (0, 5000, 1, bounds),
        (0, 1 << 40, 1, bounds),
        (0, 4999, u32::MAX, bounds),
        (0, u64::MAX, 2, wrap),
    ] {
        let (mut peer, end) = connected(0);
        let octets = random_octets(3, 5000);
        thread::scope(|scope| {
            let sent = scope.spawn(|| end.send(&octets));
            let (advert, _) = peer.advert();
            peer.ask(1, advert.stag ^ other, to, size);
            assert_eq!(peer.peer.terminate_code(), code, "{size} octets from {to:#x}");
            assert_eq!(sent.join().unwrap(), Err(Errno::RESET));
        });
        assert_eq!(end.state.ended().map(|end| end.why), Some(Why::Fault));
    }
}

#[test]
fn a_read_of_an_advert_that_is_over_ends_the_connection() {
    let (mut peer, end) = connected(0);
    let octets = random_octets(3, 5000);
    thread::scope(|scope| {
        let sent = scope.spawn(|| end.send(&octets));
        let (advert, _) = peer.advert();
        peer.ask(1, advert.stag, 1, 4999);
        peer.response(1);
        peer.report(4999);
        assert_eq!(sent.join().unwrap(), Ok(5000));
        peer.ask(2, advert.stag, 1, 1);
        assert_eq!(end.recv(&mut [0], 0), Err(Errno::RESET));
        let code = peer.peer.terminate_code();
        assert_eq!(code, Fault::read_source(AccessError::Stag).code());
    });
}

/// The send takes both messages, and is over; the call that reads sleeps until something comes.
#[test]
fn an_advert_that_comes_with_the_last_report_is_read() {
    let (mut peer, end) = connected(0);
    let (octets, back) = (random_octets(3, 5000), random_octets(4, 30_000));
    peer.pipelined();
    thread::scope(|scope| {
        let sent = scope.spawn(|| end.send(&octets));
        let (advert, _) = peer.advert();
        peer.ask(1, advert.stag, 1, 4999);
        peer.response(1);
        let socket = socket2::SockRef::from(&peer.peer.socket).try_clone().unwrap();
        socket.set_tcp_cork(true).unwrap();
        peer.report(4999);
        peer.advertise(back.len(), b"");
        socket.set_tcp_cork(false).unwrap();
        assert_eq!(sent.join().unwrap(), Ok(5000));
    });
    let read = peer.read();
    peer.answer(&read, &back, 10_000);
    let mut got = vec![0; back.len()];
    assert_eq!(end.recv(&mut got, libc::MSG_WAITALL), Ok(back.len()));
    assert!(got == back);
}

#[test]
fn what_a_peer_refuses_goes_as_data() {
    for read in [0, 1, 3000] {
        let (mut peer, end) = connected(0);
        let octets = random_octets(4, 70_000);
        thread::scope(|scope| {
            let sent = scope.spawn(|| end.send(&octets));
            let (advert, _) = peer.advert();
            if read > 0 {
                peer.ask(1, advert.stag, 1, read);
                assert_eq!(peer.response(1), octets[1..=read as usize]);
                peer.report(read);
            }
            peer.message(SEND_SM, &[], &[]);
            let rest = 1 + read as usize;
            assert!(peer.copied(octets.len() - rest) == octets[rest..], "behind {rest}");
            assert_eq!(sent.join().unwrap(), Ok(octets.len()));
        });
        assert_eq!(end.state.ended(), None);
    }
}

/// Does what the helper thread does.
pub(crate) fn help(end: &End, until: &AtomicBool) {
    while !until.load(Ordering::Relaxed) {
        end.stream().meet_obligation();
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn octets_are_those_of_the_call_however_late_they_are_read() {
    for refuses in [false, true] {
        let (mut peer, end) = connected(0);
        let octets = random_octets(5, 300_000);
        let mut lent = octets.clone();
        end.state.set_send_timeout(Some(Duration::from_millis(30)));
        assert_eq!(end.send(&lent), Ok(octets.len()));
        lent.fill(0xee);
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| help(&end, &over));
            let (advert, _) = peer.advert();
            peer.ask(1, advert.stag, 1, 200_000);
            assert!(peer.response(1) == octets[1..200_001]);
            peer.report(200_000);
            if refuses {
                peer.message(SEND_SM, &[], &[]);
                assert!(peer.copied(99_999) == octets[200_001..]);
            } else {
                peer.ask(2, advert.stag, 200_001, 99_999);
                assert!(peer.response(200_001) == octets[200_001..]);
                peer.report(99_999);
            }
            over.store(true, Ordering::Relaxed);
        });
        // What came back is no advert any more, and the next send finds its way.
        end.stream().meet_obligation();
        end.state.set_threshold(u64::MAX);
        end.state.set_send_timeout(None);
        assert_eq!(end.send(b"behind"), Ok(6));
        assert_eq!(peer.copied(6), b"behind");
        assert_eq!((end.state.ended(), end.stream().has_obligation()), (None, false));
    }
}

#[test]
fn a_send_returns_when_the_peer_dies_at_any_step() {
    for step in 0..3 {
        let (mut peer, end) = connected(0);
        let octets = random_octets(6, 200_000);
        thread::scope(|scope| {
            let sent = scope.spawn(|| end.send(&octets));
            let (advert, _) = peer.advert();
            if step > 0 {
                peer.ask(1, advert.stag, 1, 199_999);
            }
            if step > 1 {
                peer.response(1);
            }
            drop(peer);
            let error = sent.join().unwrap().unwrap_err();
            assert!([Errno::RESET, Errno::BROKEN_PIPE].contains(&error), "{error:?} in step {step}");
        });
    }
}

#[test]
fn octets_are_written_where_the_peer_gives_room() {
    let (mut peer, end) = connected(0);
    let octets = random_octets(7, 3 << 20);
    thread::scope(|scope| {
        let sent = scope.spawn(|| end.send(&octets));
        let change = peer.told();
        assert_eq!((change[0], change[16]), (MODE_CHANGE, 0x20), "to Pipelined: {change:x?}");
        let (advert, _) = peer.advert();
        assert_eq!((advert.len, advert.inline), (1 << 20, 0));
        // The sink wins, whose advert crosses.
        let room = octets.len() as u32 + 40_000;
        let sink = [&room.to_be_bytes()[..], &SINK.to_be_bytes(), &7_u64.to_be_bytes(), &[0; 4]].concat();
        peer.message(SINK_AVAIL, &sink, &[]);
        let mut got = Vec::new();
        let reported = loop {
            let (header, payload) = peer.peer.segment().expect("a segment");
            if let Header::Tagged(header) = header {
                assert_eq!((header.stag, header.to), (Stag(SINK), 7 + got.len() as u64));
                got.extend(payload);
                continue;
            }
            peer.ack = number(&payload, 8);
            match payload[0] {
                WR_COMPL => break number(&payload, 16) as usize,
                other => assert_eq!((other, payload.len()), (DATA, 16)),
            }
        };
        // Nothing more is queued, so that the peer need not wait for the rest of its room.
        assert!(reported == octets.len() && got == octets);
        assert_eq!(sent.join().unwrap(), Ok(octets.len()));
    });
    assert_eq!(end.state.ended(), None);
}

/// A Read without octets is answered whatever it names (RFC 5040 §5.2.1).
#[test]
fn a_read_of_nothing_is_answered_behind_octets_that_nobody_reads() {
    let (mut peer, end) = connected(0);
    for msn in 1..3 {
        peer.data(b"unread");
        peer.ask(msn, 0, 0, 0);
        assert_eq!(end.poll(libc::POLLRDHUP, Duration::from_millis(20)).0, 0);
        assert_eq!(peer.response(0), b"");
    }
    assert_eq!(end.read(20), Ok(b"unreadunread".to_vec()));
}
