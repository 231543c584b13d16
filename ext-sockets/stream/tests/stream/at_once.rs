//! Messages of one length, which are taken without a look at them: whatever comes in place of the
//! one that is expected arrives whole and in order.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io::IoSliceMut;
use std::os::fd::AsRawFd;
use std::time::Duration;

use libc::ssize_t;
use rddp_ddp::Stag;
use rddp_mpa::StartupConfig;
use rddp_rdmap::{Opcode, TerminateCode, untagged_header};
use rddp_stream::{Calls, Errno, Options, Stream, Table, Why};
use rddp_test_support::{Peer, Random, random_octets};

use crate::common::{End, by_initiator, by_ready_initiator, initiator, pair, responder};

thread_local! {
    /// Number of looks at octets, and of reads, by [`COUNTED`].
    static MADE: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

// SAFETY: `recv` counts, and does what it stands for.
static COUNTED: Calls = unsafe { Calls::from_table(Table { recv, ..Table::libc() }) };

unsafe extern "C-unwind" fn recv(fd: c_int, at: *mut c_void, len: usize, flags: c_int) -> ssize_t {
    let (looks, reads) = MADE.get();
    let peeks = usize::from(flags & libc::MSG_PEEK != 0);
    MADE.set((looks + peeks, reads + 1 - peeks));
    // SAFETY: the caller's arguments, unchanged.
    unsafe { libc::recv(fd, at, len, flags) }
}

/// Reads once, and returns what came with the number of looks and reads.
fn counted(end: &End, room: usize) -> (Result<Vec<u8>, Errno>, (usize, usize)) {
    let mut octets = vec![0; room];
    MADE.set((0, 0));
    let stream = Stream::new(end.tcp.as_raw_fd(), &end.state, &COUNTED).unwrap();
    let got = stream.recv(&mut [IoSliceMut::new(&mut octets)], libc::MSG_DONTWAIT);
    let got = got.map(|count| octets[..count].to_vec());
    (got, MADE.get())
}

const LEN: usize = 64;

/// Has the end expect one more message of [`LEN`] octets.
fn expecting(peer: &mut Peer, end: &End) {
    for _ in 0..2 {
        peer.send_message(&[7; LEN]);
        assert_eq!(end.read(LEN).unwrap(), [7; LEN]);
    }
}

fn expectant() -> (Peer, End) {
    let (mut peer, end) = by_ready_initiator();
    expecting(&mut peer, &end);
    (peer, end)
}

/// Waits until so many octets are in the kernel.
fn arrived(end: &End, octets: usize) {
    let mut room = vec![0; octets + 1];
    while end.tcp.peek(&mut room).unwrap() < octets {
        std::thread::yield_now();
    }
}

/// Sends octets, and waits until they are in the kernel, alone.
fn comes(peer: &mut Peer, end: &End, octets: &[u8]) {
    peer.octets(octets);
    arrived(end, octets.len());
}

#[test]
fn a_message_as_long_as_the_last_two_takes_one_call() {
    let (mut peer, end) = expectant();
    for number in 0..3 {
        let fpdu = peer.frame_message(&[number; LEN]);
        comes(&mut peer, &end, &fpdu);
        assert_eq!(counted(&end, LEN), (Ok(vec![number; LEN]), (0, 1)));
        assert_eq!(counted(&end, LEN), (Err(Errno::WOULD_BLOCK), (0, 1)));
    }
}

/// Lengths that change are not guessed: each has to come twice.
#[test]
fn a_new_length_is_looked_at_until_it_has_come_twice() {
    let (mut peer, end) = expectant();
    let mut looks_of = |len: usize| {
        let fpdu = peer.frame_message(&vec![5; len]);
        comes(&mut peer, &end, &fpdu);
        let (got, (looks, _)) = counted(&end, len);
        assert_eq!(got, Ok(vec![5; len]));
        looks > 0
    };
    assert_eq!([32, 32, 32, LEN].map(&mut looks_of), [true, true, false, true]);
    assert_eq!([LEN, LEN].map(looks_of), [true, false]);
    // One that is longer than expected.
    let fpdu = peer.frame_message(&[6; 2 * LEN]);
    comes(&mut peer, &end, &fpdu);
    assert_eq!(read_twice(&end), [6; 2 * LEN]);
    let fpdu = peer.frame_message(&[7; LEN]);
    comes(&mut peer, &end, &fpdu);
    let (got, (looks, _)) = counted(&end, LEN);
    assert_eq!((got, looks > 0), (Ok(vec![7; LEN]), true));
}

fn read_twice(end: &End) -> Vec<u8> {
    [end.read(LEN).unwrap(), end.read(LEN).unwrap()].concat()
}

/// A message that comes alone, as the last one did, takes one call of a program that has room for
/// more, too.
#[test]
fn a_message_alone_takes_one_call_where_there_is_room_for_more() {
    for room in [LEN + 4, 1000, 100_000] {
        let (mut peer, end) = expectant();
        for number in 0..3 {
            let fpdu = peer.frame_message(&[number; LEN]);
            comes(&mut peer, &end, &fpdu);
            assert_eq!(counted(&end, room), (Ok(vec![number; LEN]), (0, 1)), "{room}");
            assert_eq!(counted(&end, room), (Err(Errno::WOULD_BLOCK), (0, 1)));
        }
    }
}

/// Messages that come together are taken together, and looked at; the first of them by a read that
/// brings the beginning of the next, if the one before had come alone.
#[test]
fn messages_that_come_together_are_taken_by_one_call() {
    for room in [3 * LEN, 1000, 100_000] {
        let (mut peer, end) = expectant();
        for round in 0..3 {
            let all: Vec<u8> = (0..3 * LEN).map(|at| (at / LEN + round) as u8).collect();
            let fpdus: Vec<u8> = all.chunks(LEN).flat_map(|message| peer.frame_message(message)).collect();
            comes(&mut peer, &end, &fpdus);
            let (got, calls) = counted(&end, room);
            assert_eq!(got, Ok(all), "{room} {round}");
            // The last one before them did not come alone.
            assert!(round == 0 || calls == (1, 1), "{room} {round}: {calls:?}");
        }
        assert_eq!(counted(&end, room).0, Err(Errno::WOULD_BLOCK));
    }
}

/// A message that is longer than was expected, by up to three words, and than there is room for.
#[test]
fn a_message_longer_than_the_room_is_read_by_parts() {
    for (room, longer) in [4, 5, 8].into_iter().flat_map(|room| (0..12).map(move |longer| (room, longer))) {
        let (mut peer, end) = expectant();
        let message: Vec<u8> = (0..(LEN + longer) as u8).collect();
        let fpdu = peer.frame_message(&message);
        comes(&mut peer, &end, &fpdu);
        let (got, _) = counted(&end, LEN + room);
        let got = got.unwrap();
        assert!(got.len() == message.len().min(LEN + room), "{room} {longer}");
        let rest =
            if got.len() < message.len() { end.read(message.len() - got.len()).unwrap() } else { vec![] };
        assert_eq!([got, rest].concat(), message, "{room} {longer}");
    }
}

/// The word more may be of an FPDU whose rest is still to come.
#[test]
fn a_beginning_behind_a_message_waits_for_its_rest() {
    for part in 1..=40 {
        let (mut peer, end) = expectant();
        let fpdus = [peer.frame_message(&[1; LEN]), peer.frame_message(&[2; LEN])].concat();
        comes(&mut peer, &end, &fpdus[..fpdus.len() / 2 + part]);
        assert_eq!(counted(&end, 1000).0, Ok(vec![1; LEN]), "{part}");
        assert_eq!(counted(&end, 1000).0, Err(Errno::WOULD_BLOCK), "{part}");
        peer.octets(&fpdus[fpdus.len() / 2 + part..]);
        assert_eq!(end.read(LEN).unwrap(), [2; LEN], "{part}");
    }
}

// Where there is room for less, or for a part of a word more.
#[test]
fn all_other_reads_look_first() {
    for room in [1, LEN - 1] {
        let (mut peer, end) = expectant();
        let fpdus = [peer.frame_message(&[1; LEN]), peer.frame_message(&[2; LEN])].concat();
        comes(&mut peer, &end, &fpdus);
        let ((got, (looks, _)), both) = (counted(&end, room), [[1; LEN], [2; LEN]].concat());
        assert_eq!((got.as_deref(), looks > 0), (Ok(&both[..room.min(2 * LEN)]), true), "{room}");
        if room < 2 * LEN {
            assert_eq!(end.read(1000).unwrap(), both[room..]);
        }
    }
}

#[test]
fn octets_that_are_looked_at_stay() {
    let (mut peer, end) = expectant();
    let fpdus = [peer.frame_message(&[1; LEN]), peer.frame_message(&[2; LEN])].concat();
    comes(&mut peer, &end, &fpdus);
    let mut seen = [0; LEN];
    assert_eq!(end.recv(&mut seen, libc::MSG_PEEK), Ok(LEN));
    assert_eq!((seen, end.stream().available()), ([1; LEN], Ok(2 * LEN)));
    assert_eq!(end.read(2 * LEN).unwrap(), [[1; LEN], [2; LEN]].concat());
}

/// Marked FPDUs vary in length, and the window of a small buffer may not take a whole one.
#[test]
fn with_markers_and_in_a_narrow_window_all_reads_look_first() {
    let marked = Options { markers: true, ..responder() };
    let (mut peer, end) = by_initiator(&StartupConfig::default(), &marked);
    peer.open();
    (0..30u8).for_each(|number| {
        peer.send_message(&[number; LEN]);
        let (got, (looks, _)) = loop {
            match counted(&end, LEN) {
                (Err(Errno::WOULD_BLOCK), (looks, reads)) => assert_eq!((looks, reads), (1, 0)),
                other => break other,
            }
        };
        assert_eq!((got, looks > 0), (Ok(vec![number; LEN]), true));
    });
    let (tcp, other) = crate::common::tcp_pair();
    socket2::SockRef::from(&other).set_recv_buffer_size(2048).unwrap();
    let (mut peer, end) =
        crate::common::by_initiator_on((tcp, other), &StartupConfig::default(), &responder());
    peer.open();
    expecting(&mut peer, &end);
    assert_eq!(counted(&end, LEN), (Err(Errno::WOULD_BLOCK), (1, 0)));
}

/// FPDUs shorter or longer than the expected one arrive whole, alone and with another behind.
#[test]
fn a_message_of_another_length_comes_whole() {
    for len in (1..2 * LEN + 40).chain([3000, 40_000]) {
        for behind in [false, true] {
            let (mut peer, end) = expectant();
            let (octets, more) = (random_octets(1, len), random_octets(2, LEN));
            let mut fpdus = peer.frame_message(&octets);
            if behind {
                fpdus.extend(peer.frame_message(&more));
            }
            comes(&mut peer, &end, &fpdus);
            let all = if behind { [octets, more].concat() } else { octets };
            let mut got = Vec::new();
            while got.len() < all.len() {
                got.extend(end.read(LEN).unwrap());
            }
            assert!(got == all, "{len} {behind}");
            expecting(&mut peer, &end);
        }
    }
}

/// Sizes that change at each message, read in pieces of all sizes.
#[test]
fn messages_of_changing_lengths_come_in_order() {
    let (a, b) = pair(&initiator(), &responder());
    let (mut random, mut sent, mut got) = (Random::new(5), Vec::<u8>::new(), Vec::<u8>::new());
    for _ in 0..3000 {
        for _ in 0..random.below(4) {
            let octets = random_octets(sent.len() as u64, [4, 63, 64, 64, 64, 65, 68, 128][random.below(8)]);
            a.send_all(&octets);
            sent.extend(octets);
        }
        while got.len() < sent.len() {
            let room = [1, 4, 60, 63, 64, 64, 64, 128, 1000][random.below(9)];
            let left = sent.len() - got.len();
            let mut octets = vec![0; room];
            let all = if random.below(2) == 0 && room <= left { libc::MSG_WAITALL } else { 0 };
            let count = b.recv(&mut octets, all).unwrap();
            got.extend(&octets[..count]);
        }
        assert!(got == sent);
    }
}

/// A part is kept, with only an octet or a few of the CRC missing too, and wakes nobody.
#[test]
fn a_part_of_the_expected_message_waits_for_the_rest() {
    for len in [LEN, LEN + 1, LEN + 4, 500] {
        let (mut peer, end) = expectant();
        let (octets, fpdu_len) = (random_octets(1, len), 24 + len.next_multiple_of(4));
        for cut in (1..fpdu_len).filter(|cut| len == LEN || *cut > fpdu_len - 8 || *cut < 100) {
            let fpdu = peer.frame_message(&octets);
            comes(&mut peer, &end, &fpdu[..cut]);
            assert_eq!(counted(&end, LEN).0, Err(Errno::WOULD_BLOCK), "{cut}");
            assert!(!end.readable(), "{cut}");
            peer.octets(&fpdu[cut..]);
            assert_eq!(end.poll(libc::POLLIN, Duration::from_secs(5)).0, libc::POLLIN, "{cut}");
            let mut got = vec![0; len];
            assert_eq!(end.recv(&mut got, libc::MSG_WAITALL), Ok(len), "{cut}");
            assert!(got == octets, "{cut}");
            expecting(&mut peer, &end);
        }
    }
}

/// Behind a part each octet comes alone.
#[test]
fn a_part_that_trickles_comes_whole() {
    let (mut peer, end) = expectant();
    let fpdu = peer.frame_message(&[9; LEN]);
    for octet in &fpdu[..fpdu.len() - 1] {
        peer.octets(&[*octet]);
        assert_eq!(counted(&end, LEN).0, Err(Errno::WOULD_BLOCK));
    }
    peer.octets(&fpdu[fpdu.len() - 1..]);
    assert_eq!(end.read(LEN).unwrap(), [9; LEN]);
}

#[test]
fn the_end_behind_the_expected_message_is_told_behind_it() {
    let (mut peer, end) = expectant();
    peer.send_message(&[1; LEN]);
    peer.fin();
    assert_eq!((end.read(LEN).unwrap(), end.read(LEN).unwrap()), (vec![1; LEN], vec![]));
    let (peer, end) = expectant();
    peer.fin();
    assert_eq!(end.read(LEN).unwrap(), []);
}

// RFC 5044 §8: an FPDU that the FIN cuts off is not delivered.
#[test]
fn a_fin_inside_the_expected_message_is_a_reset() {
    for cut in [1, 20, 84, 85, 87] {
        let (mut peer, end) = expectant();
        let fpdu = peer.frame_message(&[1; LEN]);
        peer.octets(&fpdu[..cut]);
        peer.fin();
        assert_eq!(end.read(LEN), Err(Errno::RESET), "{cut}");
        assert_eq!(end.state.ended().unwrap().why, Why::Truncated);
    }
}

#[test]
fn a_terminate_behind_or_in_place_of_the_expected_message_is_told() {
    for before in [0, 1] {
        let (mut peer, end) = expectant();
        (0..before).for_each(|_| peer.send_message(&[1; LEN]));
        let header = untagged_header(Opcode::Terminate, Stag(0), rddp_ddp::Msn(1), 0, true);
        peer.send_segment(&header, &[0x12, 0x03, 0, 0]);
        if before > 0 {
            assert_eq!(end.read(LEN).unwrap(), [1; LEN]);
        }
        assert_eq!(end.read(LEN), Err(Errno::RESET));
        let ended = end.state.ended().unwrap();
        assert_eq!((ended.why, ended.code), (Why::Terminated, TerminateCode(0x1203)));
    }
}

// RFC 5044 §4.4: none of its octets is delivered; those of a good one before it in the same read
// are.
#[test]
fn an_expected_message_that_is_damaged_is_not_delivered() {
    for before in [0, 4] {
        let (mut peer, end) = expectant();
        let good = if before > 0 { peer.frame_message(&[2; 4]) } else { Vec::new() };
        let mut bad = peer.frame_message(&[1; LEN - 28]);
        bad[30] ^= 1;
        comes(&mut peer, &end, &[good, bad].concat());
        let mut room = [0; LEN];
        if before > 0 {
            assert_eq!((end.recv(&mut room, 0), &room[..4]), (Ok(4), &[2; 4][..]));
        }
        assert_eq!((end.recv(&mut room, 0), &room[4..]), (Err(Errno::RESET), &[0; LEN - 4][..]));
        assert_eq!(peer.terminate_code(), TerminateCode(0x2002));
    }
}

/// Reads of no octets are answered, more of them too than one batch answers.
#[test]
fn reads_in_place_of_the_expected_message_are_answered() {
    let (mut peer, end) = by_ready_initiator();
    for _ in 0..2 {
        peer.send_message(&[7; 1000]);
        assert_eq!(end.read(1000).unwrap(), [7; 1000]);
    }
    let request =
        rddp_rdmap::ReadRequestRepr { sink_stag: Stag(5), sink_to: 6, size: 0, src_stag: Stag(7), src_to: 8 };
    let mut payload = [0; rddp_rdmap::ReadRequestRepr::LEN];
    request.emit(&mut payload);
    let mut fpdus = Vec::new();
    for msn in 1..=6 {
        let header = untagged_header(Opcode::ReadRequest, Stag(0), rddp_ddp::Msn(msn), 0, true);
        fpdus.extend(peer.frame_segment(&header, &payload));
    }
    fpdus.extend(peer.frame_message(&[8; 300]));
    comes(&mut peer, &end, &fpdus);
    assert_eq!(end.read(1000).unwrap(), [8; 300]);
    (0..6).for_each(|_| drop(peer.expect(Opcode::ReadResponse)));
}

/// Without a page for its octets the message stays where it is.
#[test]
fn a_bad_buffer_costs_no_octets() {
    let (mut peer, end) = expectant();
    let fpdu = peer.frame_message(&[3; LEN]);
    comes(&mut peer, &end, &fpdu);
    // SAFETY: a new mapping, which is used here alone.
    let nowhere = unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(at, libc::MAP_FAILED);
        std::slice::from_raw_parts_mut(at.cast::<u8>(), LEN)
    };
    assert_eq!(end.recv(nowhere, 0), Err(Errno::FAULT));
    assert!(end.readable());
    assert_eq!(end.read(LEN).unwrap(), [3; LEN]);
}
