//! The program, run by the kernel on frames made by hand (`BPF_PROG_TEST_RUN`), in a network
//! namespace that the test makes. Root, or it is skipped.
//!
//! `place_ingress` sees real sockets: it asks TCP for sequence numbers and window.

#[path = "program/awaited.rs"]
mod awaited;
mod common;
#[path = "program/crash.rs"]
mod crash;
#[path = "program/crc.rs"]
mod crc;
#[path = "program/guide.rs"]
mod guide;
#[path = "program/memory.rs"]
mod memory;
#[path = "program/names.rs"]
mod names;
#[path = "program/random.rs"]
mod random;
#[path = "program/seen.rs"]
mod seen;

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use common::frame::{ACK, Frame, IP, TCP, TCP_V6, fpdu, last_fpdu, seal, write_fpdu};
use common::net::{connection, in_namespace, set, tuple};
use common::{is_quick, rounds};
use rddp_ddp::Stag;
use rddp_kernel_patch::kernel::{Memory, Opening, Patch, Placing, Scope};
use rddp_kernel_patch::layout::{Outcome, PLACE_ALL, PLACE_LAST, RECORDS, TRUST_LINK, Tuple};
use rddp_kernel_patch::segment::{self, Front, Kind};
use rddp_test_support::{pattern, segment as ulpdus};

const PD: u64 = 7;
const QP: u32 = 3;
const STAG: Stag = Stag(0x00a1_b2c3);
const BASE: u64 = 0x10_0000;
const LEN: usize = 8192;
/// Octets in front of the region and behind it that nothing may change.
const CANARIES: usize = 4096;
const CANARY: u8 = 0xee;

/// A connection whose segments are placed, and a region.
struct Scene {
    patch: Patch,
    memory: Memory,
    placing: Placing,
    tuple: Tuple,
    /// Acknowledgement of the peer: of all that was sent.
    last_ack: u32,
    /// This end, and the peer if it is of this thread.
    own: TcpStream,
    _peer: Option<TcpStream>,
}

impl Scene {
    fn new(flags: u32) -> Self {
        Self::between("127.0.0.1", flags)
    }

    /// A connection between sockets of this address.
    fn between(addr: &str, flags: u32) -> Self {
        set("ipv4/tcp_timestamps", "0");
        Self::with_memory(addr, flags, LEN + 2 * CANARIES)
    }

    fn with_memory(addr: &str, flags: u32, len: usize) -> Self {
        let (peer, own) = connection(addr);
        Self { _peer: Some(peer), ..Self::of(own, flags, len) }
    }

    /// Places what comes by this connection.
    fn of(own: TcpStream, flags: u32, len: usize) -> Self {
        let patch = Patch::load().unwrap();
        let tuple = tuple(&own);
        let placing = patch.place(&Opening { tuple, pd: PD, qp: QP, flags }).unwrap();
        let memory = patch.pieces().allocate(len).unwrap();
        let last_ack = patch.ask(tuple).unwrap().last_ack;
        let mut scene = Self { patch, memory, placing, tuple, last_ack, own, _peer: None };
        // All of it, but for very large memory.
        let all = vec![CANARY; scene.memory.len().min(4 * LEN)];
        scene.fill(0, &all);
        assert!(scene.patch.stags().open(STAG, &scene.scope()));
        scene
    }

    fn scope(&self) -> Scope {
        let start = self.memory.start() + CANARIES as u64;
        let len = (self.memory.len() - 2 * CANARIES) as u64;
        Scope { base: BASE, len, start, pd: PD, qp: 0, writes: true, own: false }
    }

    fn fill(&mut self, at: usize, octets: &[u8]) {
        assert!(at + octets.len() <= self.memory.len());
        // SAFETY: inside the memory, which only the program changes, and it does not run now.
        unsafe { self.memory.ptr().add(at).as_ptr().copy_from_nonoverlapping(octets.as_ptr(), octets.len()) };
    }

    /// All octets of the memory.
    fn octets(&self) -> Vec<u8> {
        self.part(0, self.memory.len()).to_vec()
    }

    /// A part of the memory.
    fn part(&self, at: usize, len: usize) -> &[u8] {
        assert!(at + len <= self.memory.len());
        // SAFETY: inside the memory; the slice is gone before the program runs again.
        unsafe { std::slice::from_raw_parts(self.memory.ptr().add(at).as_ptr(), len) }
    }

    /// A segment that begins so many octets behind the next one that TCP expects.
    fn frame(&self, behind: u32, payload: Vec<u8>) -> Frame {
        let frame = Frame::new(self.tuple, self.placing.first_seq().wrapping_add(behind), payload);
        Frame { ack: self.last_ack, ..frame }
    }

    fn write(&self, to: u64, payload: &[u8]) -> Frame {
        self.frame(100, write_fpdu(STAG, to, payload))
    }

    fn run(&self, frame: &Frame) {
        self.patch.run(&frame.octets()).unwrap();
    }

    /// Runs the program on octets of which nothing may be placed, for this reason.
    fn refuses(&mut self, octets: &[u8], why: Outcome) {
        let (before, count) = (self.octets(), self.placing.left(why));
        self.patch.run(octets).unwrap();
        assert_eq!(self.placing.left(why), count + 1, "{why:?}");
        assert_eq!(self.placing.take(), None);
        assert!(self.octets() == before, "{why:?}: octets have changed");
    }
}

#[test]
fn a_write_behind_a_hole_is_placed_and_recorded() {
    in_namespace(|| {
        let cases =
            [1, 2, 3, 4, 511, 512, 513, 1448, 3000].map(|len| ["127.0.0.1", "::1"].map(|addr| (addr, len)));
        for (addr, len) in cases.into_iter().flatten() {
            let mut scene = Scene::between(addr, 0);
            let payload = pattern(len, 1);
            scene.run(&scene.write(BASE + 5, &payload));
            let (record, good) = scene.placing.take().unwrap();
            assert!(good);
            assert_eq!(record.seq, scene.placing.first_seq().wrapping_add(100));
            let front = Front { kind: Kind::Write, stag: STAG, to: BASE + 5, len, last: false };
            assert_eq!((Front::parse(&record.front), record.len as usize), (Some(front), len));
            assert_eq!(record.at, scene.scope().start + 5);
            let mut wanted = vec![CANARY; LEN + 2 * CANARIES];
            wanted[CANARIES + 5..CANARIES + 5 + len].copy_from_slice(&payload);
            assert!(scene.octets() == wanted);
            let counts = scene.placing.counts();
            assert_eq!((counts.segments, counts.fpdus, counts.octets_behind), (1, 1, len as u64));
        }
    });
}

#[test]
fn what_is_in_order_is_placed_only_where_all_is() {
    in_namespace(|| {
        let mut scene = Scene::new(0);
        let frame = scene.frame(0, write_fpdu(STAG, BASE, b"in order")).octets();
        scene.refuses(&frame, Outcome::InOrder);
        drop(scene);
        let mut scene = Scene::new(PLACE_ALL);
        scene.patch.run(&scene.frame(0, write_fpdu(STAG, BASE, b"in order")).octets()).unwrap();
        assert!(scene.placing.take().unwrap().1);
        assert_eq!(scene.octets()[CANARIES..CANARIES + 8], *b"in order");
        assert_eq!((scene.placing.counts().octets, scene.placing.counts().octets_behind), (8, 0));
    });
}

/// Octets that come by another interface pass the program by, and TCP has them all the same.
#[test]
fn octets_that_the_program_has_not_seen_are_counted() {
    in_namespace(|| {
        let mut scene = Scene::new(0);
        let first = scene.placing.first_seq();
        let unseen = |scene: &Scene| scene.placing.counts().octets_unseen;
        assert_eq!(scene.placing.counts().interface, 0);
        scene.run(&scene.frame(0, write_fpdu(STAG, BASE, b"eight oc")));
        assert_eq!(scene.placing.counts().interface, 1, "lo");
        scene.placing.note_read(first.wrapping_add(20), 20);
        assert_eq!(unseen(&scene), 0);
        // 28 octets have come, and 40 are read.
        scene.placing.note_read(first.wrapping_add(40), 20);
        assert_eq!(unseen(&scene), 12);
        scene.placing.note_read(first.wrapping_add(50), 10);
        assert_eq!(unseen(&scene), 22);
        scene.run(&scene.frame(50, write_fpdu(STAG, BASE, b"eight oc")));
        scene.placing.note_read(first.wrapping_add(78), 28);
        assert_eq!(unseen(&scene), 22);
    });
}

/// While a program is in a call on the socket, segments wait in a queue of TCP's (here for ever, as
/// TCP does not get them), and there is no hole.
#[test]
fn what_follows_a_segment_that_tcp_has_not_taken_is_in_order() {
    in_namespace(|| {
        let mut scene = Scene::new(0);
        let parts =
            ["first", "second", "third", "fourth"].map(|text| write_fpdu(STAG, BASE, text.as_bytes()));
        let mut behind = 0;
        for part in &parts[..2] {
            let frame = scene.frame(behind, part.clone()).octets();
            scene.refuses(&frame, Outcome::InOrder);
            behind += part.len() as u32;
        }
        // The third is missing, and then comes.
        let fourth = scene.frame(behind + parts[2].len() as u32, parts[3].clone());
        scene.run(&fourth);
        assert!(scene.placing.take().is_some_and(|(_, good)| good));
        let third = scene.frame(behind, parts[2].clone()).octets();
        scene.refuses(&third, Outcome::InOrder);
        scene.refuses(&fourth.octets(), Outcome::InOrder);
    });
}

/// A program that polls the last octets of a Write takes all others to be there (see
/// `rnic/src/mem/octets.rs`), and segments in front may be missing.
#[test]
fn the_last_segment_of_a_write_is_placed_only_where_nobody_polls() {
    in_namespace(|| {
        let mut scene = Scene::new(PLACE_ALL);
        for behind in [0, 100] {
            let frame = scene.frame(behind, last_fpdu(STAG, BASE, b"flag")).octets();
            scene.refuses(&frame, Outcome::LastOfWrite);
        }
        drop(scene);
        let mut scene = Scene::new(PLACE_LAST);
        scene.run(&scene.frame(100, last_fpdu(STAG, BASE, b"flag")));
        assert!(scene.placing.take().unwrap().1);
    });
}

/// RFC 5044 §4.4: several FPDUs in a segment, and those that are no Writes are passed over.
#[test]
fn all_writes_of_a_segment_are_placed() {
    in_namespace(|| {
        let mut scene = Scene::new(0);
        let parts = [
            write_fpdu(STAG, BASE, b"first"),
            fpdu(&ulpdus::send(1, 0, true, b"a Send")),
            fpdu(b""),
            fpdu(&ulpdus::response(STAG, BASE, true, b"a Read Response")),
            write_fpdu(STAG, BASE, b""),
            write_fpdu(STAG, BASE + 100, b"last"),
        ];
        scene.run(&scene.frame(8, parts.concat()));
        let behind = |count: usize| 8 + parts[..count].concat().len() as u32;
        for (which, at) in [(0, 0), (5, 100)] {
            let (record, good) = scene.placing.take().unwrap();
            assert!(good);
            assert_eq!(record.seq, scene.placing.first_seq().wrapping_add(behind(which)));
            assert_eq!(record.at, scene.scope().start + at);
        }
        assert_eq!(scene.placing.take(), None);
        assert_eq!(scene.placing.left(Outcome::NotAwaited), 2);
        assert_eq!(scene.placing.left(Outcome::NoPayload), 2);
        assert_eq!(scene.octets()[CANARIES..CANARIES + 6], *b"first\xee");
        assert_eq!(scene.octets()[CANARIES + 100..CANARIES + 105], *b"last\xee");
    });
}

#[test]
fn nothing_is_placed_of_a_segment_that_is_not_whole_fpdus() {
    in_namespace(|| {
        let mut scene = Scene::new(0);
        let whole = [write_fpdu(STAG, BASE, b"payload"), write_fpdu(STAG, BASE, b"more of it")].concat();
        for cut in (1..whole.len()).filter(|cut| *cut != write_fpdu(STAG, BASE, b"payload").len()) {
            let frame = scene.frame(100, whole[..cut].to_vec()).octets();
            scene.refuses(&frame, Outcome::Unaligned);
        }
        let many = fpdu(b"").repeat(segment::MOST_FPDUS + 1);
        let frame = scene.frame(100, many[8..].to_vec());
        scene.run(&frame);
        assert_eq!(scene.placing.left(Outcome::NoPayload), segment::MOST_FPDUS as u64);
        let frame = scene.frame(100, many).octets();
        scene.refuses(&frame, Outcome::Unaligned);
    });
}

/// A corrupted header would name live octets that nobody repairs.
#[test]
fn nothing_is_placed_when_the_checksum_is_wrong() {
    in_namespace(|| {
        for (addr, tcp) in [("127.0.0.1", TCP), ("::1", TCP_V6)] {
            let mut scene = Scene::between(addr, 0);
            let frame = scene.write(BASE, &pattern(1000, 3)).octets();
            for at in [14, 16, 17, 20, 25, 34, 600, frame.len() - 1 - tcp] {
                let mut frame = frame.clone();
                frame[tcp + at] ^= 0x10;
                // One octet of the length field changes what is in the segment, too.
                let why = if at == 20 { Outcome::Unaligned } else { Outcome::BadChecksum };
                scene.refuses(&frame, why);
            }
        }
        let scene = Scene::new(TRUST_LINK);
        let mut frame = scene.write(BASE, b"partial checksum").octets();
        frame[TCP + 16] ^= 0x10;
        scene.patch.run(&frame).unwrap();
        assert_eq!(scene.placing.counts().fpdus, 1);
    });
}

/// A kernel that joins segments checks them first, and leaves the sum of the pseudo-header in place
/// of their checksums.
#[test]
fn joined_segments_need_no_checksum_of_their_own() {
    in_namespace(|| {
        for (addr, tcp) in [("127.0.0.1", TCP), ("::1", TCP_V6)] {
            let mut scene = Scene::between(addr, 0);
            let mut frame = scene.write(BASE, b"joined").octets();
            let len = (frame.len() - tcp) as u16;
            let mut sum = u32::from(len) + 6;
            let addrs = if tcp == TCP { &frame[IP + 12..TCP] } else { &frame[IP + 8..TCP_V6] };
            for pair in addrs.chunks(2) {
                sum += u32::from(u16::from_be_bytes([pair[0], pair[1]]));
            }
            let sum = ((sum & 0xffff) + (sum >> 16)) as u16;
            frame[tcp + 16..tcp + 18].copy_from_slice(&sum.to_be_bytes());
            for (segments, is_placed) in [(1, false), (2, true), (44, true)] {
                scene.patch.run_joined(&frame, segments).unwrap();
                assert_eq!(scene.placing.take().is_some(), is_placed, "{addr}, {segments}");
            }
            // Neither is one that nobody has joined, nor one with another sum.
            scene.refuses(&frame, Outcome::BadChecksum);
            frame[tcp + 17] ^= 1;
            scene.patch.run_joined(&frame, 2).unwrap();
            assert_eq!((scene.placing.take(), scene.placing.left(Outcome::BadChecksum)), (None, 3));
        }
    });
}

/// RFC 5041 §7.1, RFC 5042 §6.1.1, §6.2.1: bounds, STag, protection domain and QP.
#[test]
fn nothing_is_placed_that_the_stag_does_not_open() {
    in_namespace(|| {
        let mut scene = Scene::new(0);
        let end = BASE + LEN as u64;
        for to in [BASE - 1, BASE - 4, end - 3, end, u64::MAX - 1, u64::MAX - 3, 0] {
            let frame = scene.write(to, b"data").octets();
            scene.refuses(&frame, Outcome::Refused);
        }
        for stag in [STAG.0 ^ 1, STAG.0 ^ 0x100, STAG.0 ^ 0x0100_0000, STAG.0 ^ 0x8000_0000, 0] {
            let frame = scene.frame(100, write_fpdu(Stag(stag), BASE, b"data")).octets();
            scene.refuses(&frame, Outcome::Refused);
        }
        let frame = scene.write(end - 4, b"data").octets();
        for scope in [
            Scope { pd: PD + 1, ..scene.scope() },
            Scope { qp: QP + 1, ..scene.scope() },
            Scope { len: LEN as u64 - 1, ..scene.scope() },
            Scope { base: BASE + 1, len: 0, ..scene.scope() },
        ] {
            scene.patch.stags().close(STAG);
            assert!(scene.patch.stags().open(STAG, &scope));
            scene.refuses(&frame, Outcome::Refused);
        }
        scene.patch.stags().close(STAG);
        scene.refuses(&frame, Outcome::Refused);
        assert!(scene.patch.stags().open(STAG, &Scope { qp: QP, ..scene.scope() }));
        scene.patch.run(&frame).unwrap();
        assert!(scene.placing.take().unwrap().1, "the last octets of the region");
    });
}

#[test]
fn a_length_below_the_header_is_no_write() {
    in_namespace(|| {
        let mut scene = Scene::new(0);
        for len in 0..=14_u16 {
            let mut octets = len.to_be_bytes().to_vec();
            octets.extend(&ulpdus::write(STAG, BASE, false, b"data")[..]);
            octets.truncate((2 + usize::from(len)).next_multiple_of(4));
            octets.extend([0; 4]);
            let frame = scene.frame(100, octets).octets();
            scene.refuses(&frame, Outcome::NoPayload);
        }
        for len in [0xffff_u16, 0x8000, 1461] {
            let mut octets = write_fpdu(STAG, BASE, &pattern(1440, 0));
            octets[..2].copy_from_slice(&len.to_be_bytes());
            let frame = scene.frame(100, octets).octets();
            scene.refuses(&frame, Outcome::Unaligned);
        }
    });
}

/// RFC 9293 §3.10.7.4: TCP takes only what lies in its window.
#[test]
fn nothing_is_placed_that_tcp_would_not_take() {
    in_namespace(|| {
        let mut scene = Scene::new(PLACE_ALL);
        let window = {
            let answer = scene.patch.ask(scene.tuple).unwrap();
            answer.window_end.wrapping_sub(answer.rcv_nxt)
        };
        let octets = write_fpdu(STAG, BASE, b"data");
        let len = octets.len() as u32;
        for behind in
            [0_u32.wrapping_sub(1), 0_u32.wrapping_sub(len), window - len + 1, window, 1 << 30, 1 << 31]
        {
            let frame = scene.frame(behind, octets.clone()).octets();
            scene.refuses(&frame, Outcome::OutOfWindow);
        }
        scene.run(&scene.frame(window - len, octets.clone()));
        assert!(scene.placing.take().unwrap().1, "the last octets of the window");
        for flags in [0, ACK | 1, ACK | 2, ACK | 4, ACK | 0x20] {
            let frame = Frame { flags, ..scene.frame(100, octets.clone()) }.octets();
            scene.refuses(&frame, Outcome::Flags);
        }
        // RFC 5961 §5.2: acknowledgements of what was never sent, and of long ago.
        for ack in [1, 1 << 20, 1 << 31, 0_u32.wrapping_sub(1 << 30)] {
            let ack = scene.last_ack.wrapping_add(ack);
            let frame = Frame { ack, ..scene.frame(100, octets.clone()) }.octets();
            scene.refuses(&frame, Outcome::OutOfWindow);
        }
        // Another connection's name, and one of a connection that is over.
        let mut other = scene.frame(100, octets.clone());
        other.tuple.peer_port = [other.tuple.peer_port[0], other.tuple.peer_port[1] ^ 1];
        scene.run(&other);
        assert_eq!(scene.placing.take(), None);
        scene.own.shutdown(std::net::Shutdown::Write).unwrap();
        let frame = scene.frame(100, octets).octets();
        scene.refuses(&frame, Outcome::NoSocket);
    });
}

/// RFC 7323 §5: a segment older than the last one is of before the sequence numbers wrapped.
#[test]
fn nothing_is_placed_of_a_segment_with_an_old_timestamp() {
    in_namespace(|| {
        set("ipv4/tcp_timestamps", "1");
        let mut scene = Scene::with_memory("127.0.0.1", 0, LEN + 2 * CANARIES);
        let recent = scene.patch.ask(scene.tuple).unwrap().ts_recent;
        assert_ne!(recent, 0);
        let octets = write_fpdu(STAG, BASE, b"data");
        for timestamp in [None, Some(recent.wrapping_sub(1)), Some(recent.wrapping_add(1 << 31))] {
            let frame = Frame { timestamp, ..scene.frame(100, octets.clone()) }.octets();
            scene.refuses(&frame, Outcome::OldTimestamp);
        }
        for timestamp in [recent, recent.wrapping_add(1000)] {
            scene.run(&Frame { timestamp: Some(timestamp), ..scene.frame(100, octets.clone()) });
            assert!(scene.placing.take().unwrap().1);
        }
    });
}

#[test]
fn headers_that_are_not_as_expected_are_left_alone() {
    in_namespace(|| {
        let mut scene = Scene::new(0);
        let right = scene.write(BASE, b"data").octets();
        let changed = |at: usize, to: u8| {
            let mut frame = right.clone();
            frame[at] = to;
            seal(&mut frame);
            frame
        };
        let cases = [
            (changed(IP + 6, 0x20), Some(Outcome::NotWhole)), // a fragment, the first
            (changed(IP + 7, 1), None),                       // and another
            (changed(IP + 3, 39), Some(Outcome::NotWhole)),   // no payload
            (changed(IP + 3, 255), Some(Outcome::NotWhole)),  // more than there is
            (changed(IP + 2, 255), Some(Outcome::NotWhole)),
            (changed(IP, 0x44), None),
            (changed(IP, 0x65), None),
            (changed(IP + 9, 17), None),
            (changed(12, 0x86), None),
            (changed(TCP + 12, 0x40), Some(Outcome::NotWhole)), // a header of 16 octets
            (changed(TCP + 12, 0xf0), Some(Outcome::NotWhole)), // one of 60
        ];
        for (frame, outcome) in cases {
            let seen = scene.placing.counts().segments;
            match outcome {
                Some(outcome) => scene.refuses(&frame, outcome),
                None => scene.patch.run(&frame).unwrap(),
            }
            assert_eq!(scene.placing.counts().segments, seen + u64::from(outcome.is_some()));
            assert_eq!(scene.placing.take(), None);
        }
        // IP drops what is for another host.
        let seen = scene.placing.counts().segments;
        scene.run(&Frame { to: [2; 6], ..scene.write(BASE, b"data") });
        assert_eq!((scene.placing.take(), scene.placing.counts().segments), (None, seen));
        // Ethernet's padding does not belong to the segment.
        let padded = [right, vec![0; 30]].concat();
        scene.patch.run(&padded).unwrap();
        assert!(scene.placing.take().unwrap().1);
    });
}

/// RFC 8200 §4: other headers may stand in front of TCP's.
#[test]
fn headers_of_ipv6_that_are_not_as_expected_are_left_alone() {
    in_namespace(|| {
        let mut scene = Scene::between("::1", 0);
        let right = scene.write(BASE, b"data").octets();
        let len = right[IP + 5];
        let cases = [
            (IP, 0x40, None),
            (IP + 6, 44, None), // a fragment
            (IP + 6, 0, None),  // options
            (IP + 4, 1, Some(Outcome::NotWhole)),
            (IP + 5, len + 1, Some(Outcome::NotWhole)),
            (IP + 5, 20, Some(Outcome::NotWhole)), // no payload
            (IP + 5, 0, Some(Outcome::NotWhole)),
            (IP + 23, 2, None), // another peer
        ];
        for (at, to, outcome) in cases {
            let mut frame = right.clone();
            frame[at] = to;
            match outcome {
                Some(outcome) => scene.refuses(&frame, outcome),
                None => scene.patch.run(&frame).unwrap(),
            }
            assert_eq!(scene.placing.take(), None);
        }
        // Ethernet's padding does not belong to the segment.
        scene.patch.run(&[right, vec![0; 30]].concat()).unwrap();
        assert!(scene.placing.take().unwrap().1);
    });
}

/// The name of a connection over IPv4 has its addresses as IPv6 writes them, which is not how they
/// may come.
#[test]
fn ipv6_with_addresses_of_ipv4_is_no_segment_of_its_connection() {
    in_namespace(|| {
        let mut scene = Scene::new(PLACE_ALL);
        let mut frame = scene.write(BASE, b"data").octets();
        let tcp = frame.split_off(TCP);
        frame.splice(12.., [0x86, 0xdd, 0x60, 0, 0, 0, 0, tcp.len() as u8, 6, 64]);
        frame.extend([scene.tuple.peer_addr, scene.tuple.own_addr].concat());
        frame.extend(tcp);
        seal(&mut frame);
        scene.patch.run(&frame).unwrap();
        assert_eq!((scene.placing.take(), scene.placing.counts().segments), (None, 0));
    });
}

#[test]
fn nothing_is_placed_in_front_of_what_is_delivered() {
    in_namespace(|| {
        let mut scene = Scene::new(0);
        let first = scene.placing.first_seq();
        let frame = scene.write(BASE, b"data").octets();
        scene.placing.pass(first.wrapping_add(101));
        scene.refuses(&frame, Outcome::Stale);
        scene.placing.pass(first.wrapping_add(100));
        scene.patch.run(&frame).unwrap();
        assert!(scene.placing.take().unwrap().1);
    });
}

#[test]
fn records_that_nobody_takes_stop_placement() {
    in_namespace(|| {
        let mut scene = Scene::new(0);
        for round in 0..if is_quick() { 1 } else { 3 } {
            for number in 0..RECORDS {
                scene.run(&scene.frame(100 + 28 * number, write_fpdu(STAG, BASE, b"data")));
            }
            let frame = scene.write(BASE, b"more").octets();
            let before = scene.octets();
            scene.patch.run(&frame).unwrap();
            assert_eq!(scene.placing.left(Outcome::Full), round + 1);
            assert!(scene.octets() == before);
            for number in 0..RECORDS {
                let (record, good) = scene.placing.take().unwrap();
                assert!(good);
                assert_eq!(record.seq, scene.placing.first_seq().wrapping_add(100 + 28 * number));
            }
            assert_eq!(scene.placing.take(), None);
        }
    });
}

#[test]
fn an_stag_whose_place_is_taken_is_not_mirrored() {
    in_namespace(|| {
        let scene = Scene::new(0);
        let stags = scene.patch.stags();
        assert!(!stags.open(Stag(STAG.0 ^ 0xf000_0001), &scene.scope()));
        stags.close(Stag(STAG.0 ^ 0xf000_0001));
        assert!(!stags.open(STAG, &scene.scope()), "still open");
        stags.close(STAG);
        assert!(stags.open(Stag(STAG.0 ^ 0xf000_0001), &scene.scope()));
    });
}

/// RFC 5042 §6.2.2: once an STag is closed, no packet changes the octets any more.
#[test]
fn no_octet_changes_after_an_stag_is_closed() {
    in_namespace(|| {
        let mut scene = Scene::new(0);
        let frame = scene.write(BASE, &pattern(3000, 9)).octets();
        let flood = Flood::of(&mut scene, frame);
        let (mut placed, mut round) = (0, 0);
        while round < rounds(2_000) || placed < rounds(200) {
            while scene.placing.take().is_some() {
                placed += 1;
            }
            flood.patch.stags().close(STAG);
            scene.fill(CANARIES, &[CANARY; 3000]);
            for _ in 0..50 {
                assert!(scene.octets()[CANARIES..][..3000] == [CANARY; 3000]);
            }
            while scene.placing.take().is_some() {
                placed += 1;
            }
            assert!(flood.patch.stags().open(STAG, &scene.scope()));
            std::thread::yield_now();
            round += 1;
        }
        flood.end(&mut scene);
    });
}

/// A frame that comes again and again, in a thread of its own.
struct Flood {
    patch: Arc<Patch>,
    over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Flood {
    /// Begins. The scene's program is another one until the end.
    fn of(scene: &mut Scene, frame: Vec<u8>) -> Self {
        let patch = Arc::new(std::mem::replace(&mut scene.patch, Patch::load().unwrap()));
        let over = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (patch, over) = (patch.clone(), over.clone());
            move || {
                while !over.load(Ordering::Relaxed) {
                    patch.run(&frame).unwrap();
                }
            }
        });
        Self { patch, over, thread }
    }

    fn end(self, scene: &mut Scene) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        scene.patch = Arc::into_inner(self.patch).unwrap();
    }
}
