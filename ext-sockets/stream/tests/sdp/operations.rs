//! Sends that are under way between calls: several adverts at a time, and memory that is wanted
//! back.

use std::collections::VecDeque;
use std::io::{IoSlice, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use rddp_ddp::{Msn, Stag};
use rddp_rdmap::{Opcode, ReadRequestRepr, untagged_header};
use rddp_stream::{Errno, Recall, SdpOptions, Sends};
use rddp_test_support::{Random, random_octets};

use crate::advertising::{Came, DATA, MODE_CHANGE, RD_COMPL, SINK_AVAIL, SRC_AVAIL};
use crate::common::{End, initiator, responder};
use crate::peer::{Sdp, hello, number};
use crate::{pair, with};

/// Sends that a test posts, from any thread.
struct Posted<'m> {
    now: Mutex<Now<'m>>,
    changed: Condvar,
    bell: (UnixStream, UnixStream),
}

#[derive(Default)]
struct Now<'m> {
    posted: VecDeque<&'m [IoSlice<'m>]>,
    accepted: usize,
    recall: Recall,
    left: Option<Duration>,
}

impl<'m> Posted<'m> {
    fn new() -> Self {
        let bell = UnixStream::pair().unwrap();
        bell.1.set_nonblocking(true).unwrap();
        Self { now: Mutex::default(), changed: Condvar::new(), bell }
    }

    fn now(&self) -> MutexGuard<'_, Now<'m>> {
        self.now.lock().unwrap()
    }

    fn post(&self, sends: &'m [[IoSlice<'m>; 1]]) {
        self.now().posted.extend(sends.iter().map(|send| &send[..]));
        self.ring();
    }

    fn recall(&self, recall: Recall) {
        self.now().recall = recall;
        self.ring();
    }

    fn ring(&self) {
        (&self.bell.0).write_all(&[0]).unwrap();
    }

    /// Waits until so many octets are accepted, and returns their number.
    fn accepted(&self, least: usize) -> usize {
        let less = |now: &mut Now<'_>| now.accepted < least;
        let (now, _) = self.changed.wait_timeout_while(self.now(), Duration::from_secs(20), less).unwrap();
        now.accepted
    }
}

impl<'m> Sends<'m> for &Posted<'m> {
    fn next(&mut self) -> Option<&'m [IoSlice<'m>]> {
        self.now().posted.pop_front()
    }

    fn accepted(&mut self, octets: usize) {
        let mut now = self.now();
        assert!(octets >= now.accepted, "what was accepted stays so");
        now.accepted = octets;
        self.changed.notify_all();
    }

    fn recall(&mut self) -> Recall {
        while std::io::Read::read(&mut &self.bell.1, &mut [0; 8]).is_ok() {}
        self.now().recall
    }

    fn descriptor(&self) -> RawFd {
        self.bell.1.as_raw_fd()
    }

    fn left(&self) -> Option<Duration> {
        self.now().left
    }
}

fn sends_of<'m>(parts: &'m [Vec<u8>]) -> Vec<[IoSlice<'m>; 1]> {
    parts.iter().map(|part| [IoSlice::new(part)]).collect()
}

fn parts(count: u64, len: usize) -> Vec<Vec<u8>> {
    (0..count).map(|seed| random_octets(seed, len)).collect()
}

/// Returns a peer that takes so many adverts, and an end of ours that lends.
fn connected(adverts: u8) -> (Sdp, End) {
    let options = with(responder(), SdpOptions { threshold: 0, ..SdpOptions::DEFAULT });
    Sdp::connected_by(&hello(|hello| hello[19] = adverts), &options)
}

impl Sdp {
    /// Takes a `SrcAvail` without inline octets; returns its length and `STag`.
    fn advertised(&mut self) -> (usize, u32) {
        let message = self.told();
        assert_eq!((message[0], message.len()), (SRC_AVAIL, 32), "{message:?}");
        (number(&message, 16) as usize, number(&message, 20))
    }

    fn goes_pipelined(&mut self) {
        assert_eq!(self.told()[0], MODE_CHANGE);
    }

    /// Reads `len` octets of an advert: this is Read `number`, counted from 1.
    fn fetch(&mut self, number: u32, (len, stag): (usize, u32)) -> Vec<u8> {
        let request = ReadRequestRepr {
            sink_stag: Stag(number),
            sink_to: 0,
            size: len as u32,
            src_stag: Stag(stag),
            src_to: 0,
        };
        let header = untagged_header(Opcode::ReadRequest, Stag(0), Msn(number), 0, true);
        self.peer.send_segment(&header, &request.octets());
        let mut octets = Vec::new();
        while octets.len() < len {
            let (header, payload) = self.peer.segment().expect("a Response");
            if header.control() & 0xf == Opcode::ReadResponse as u8 {
                octets.extend(payload);
            }
        }
        octets
    }

    fn has_read(&mut self, octets: usize) {
        self.message(RD_COMPL, &(octets as u32).to_be_bytes(), &[]);
    }
}

#[test]
fn sends_are_out_together_and_are_accepted_one_by_one() {
    let (mut peer, end) = connected(8);
    let parts = parts(3, 20_000);
    let (sends, posted) = (sends_of(&parts), Posted::new());
    posted.post(&sends);
    thread::scope(|scope| {
        let lending = scope.spawn(|| end.stream().lend_sends(&mut &posted));
        peer.goes_pipelined();
        let adverts: Vec<_> = (0..3).map(|_| peer.advertised()).collect();
        assert!(peer.peer.is_silent(Duration::from_millis(20)));
        // Read in any order; the reports are of the oldest.
        for (nth, at) in [2, 0, 1].into_iter().enumerate() {
            assert!(peer.fetch(nth as u32 + 1, adverts[at]) == parts[at], "advert {at}");
        }
        assert_eq!(posted.accepted(0), 0);
        peer.has_read(20_000);
        assert_eq!(posted.accepted(1), 20_000);
        peer.has_read(10_000);
        peer.has_read(10_000);
        assert_eq!(posted.accepted(20_001), 40_000);
        assert!(!lending.is_finished());
        peer.has_read(20_000);
        assert_eq!(lending.join().unwrap(), Ok(false));
    });
    assert_eq!((posted.accepted(0), end.state.ended()), (60_000, None));
    assert_eq!(end.stream().sdp_info().unwrap().counters[6], 60_000, "all by Reads");
}

#[test]
fn no_more_adverts_are_out_than_either_end_bounds() {
    for (said, bound) in [(1, 1), (3, 3), (200, 8)] {
        let (mut peer, end) = connected(said);
        let parts = parts(12, 5_000);
        let (sends, posted) = (sends_of(&parts), Posted::new());
        posted.post(&sends);
        thread::scope(|scope| {
            let lending = scope.spawn(|| end.stream().lend_sends(&mut &posted));
            peer.goes_pipelined();
            let mut out: VecDeque<_> = (0..bound).map(|_| peer.advertised()).collect();
            for (nth, part) in parts.iter().enumerate() {
                assert!(peer.peer.is_silent(Duration::from_millis(5)), "{bound} adverts");
                assert!(&peer.fetch(nth as u32 + 1, out.pop_front().unwrap()) == part);
                peer.has_read(5_000);
                if nth + bound < 12 {
                    out.push_back(peer.advertised());
                }
            }
            assert_eq!(lending.join().unwrap(), Ok(false));
        });
        assert_eq!(posted.accepted(0), 60_000);
    }
}

#[test]
fn a_send_that_comes_later_is_advertised_beside_the_others() {
    let (mut peer, end) = connected(8);
    let parts = parts(2, 300_000);
    let (sends, posted) = (sends_of(&parts), Posted::new());
    posted.post(&sends[..1]);
    thread::scope(|scope| {
        let lending = scope.spawn(|| end.stream().lend_sends(&mut &posted));
        peer.goes_pipelined();
        let first = peer.advertised();
        posted.post(&sends[1..]);
        let second = peer.advertised();
        assert!(peer.fetch(1, second) == parts[1] && peer.fetch(2, first) == parts[0]);
        peer.has_read(300_000);
        peer.has_read(300_000);
        assert_eq!(lending.join().unwrap(), Ok(false));
    });
    assert_eq!(posted.accepted(0), 600_000);
}

#[test]
fn memory_that_is_wanted_back_is_copied_and_read_from_there() {
    for recall in [Recall::Asked, Recall::AtOnce] {
        let (mut peer, end) = connected(3);
        let mut parts = parts(4, 50_000);
        let was = parts.clone();
        let adverts: Vec<_> = {
            let (sends, posted) = (sends_of(&parts), Posted::new());
            posted.post(&sends);
            thread::scope(|scope| {
                let lending = scope.spawn(|| end.stream().lend_sends(&mut &posted));
                peer.goes_pipelined();
                let adverts = (0..3).map(|_| peer.advertised()).collect::<Vec<_>>();
                assert!(peer.fetch(1, adverts[0]) == was[0]);
                posted.recall(recall);
                assert_eq!(lending.join().unwrap(), Ok(false));
                assert_eq!(posted.accepted(0), 150_000, "what was advertised, and no more");
                adverts
            })
        };
        parts.iter_mut().for_each(|part| part.fill(0xee));
        thread::scope(|scope| {
            scope.spawn(|| {
                while end.stream().has_obligation() {
                    end.stream().meet_obligation();
                    thread::sleep(Duration::from_millis(1));
                }
            });
            // The first once more: no report of it has gone.
            for (nth, at) in [0, 2, 1].into_iter().enumerate() {
                assert!(peer.fetch(nth as u32 + 2, adverts[at]) == was[at], "advert {at}");
            }
            peer.has_read(50_000);
            peer.has_read(50_000);
            peer.has_read(50_000);
        });
        assert_eq!(end.state.ended(), None);
    }
}

#[test]
fn a_time_limit_wants_the_memory_back() {
    let (mut peer, end) = connected(8);
    let parts = parts(2, 50_000);
    let (sends, posted) = (sends_of(&parts), Posted::new());
    posted.post(&sends);
    posted.now().left = Some(Duration::ZERO);
    assert_eq!(end.stream().lend_sends(&mut &posted), Ok(false));
    assert_eq!(posted.accepted(0), 100_000);
    peer.goes_pipelined();
    assert!(end.stream().has_obligation());
}

#[test]
fn adverts_that_meet_an_offer_come_back_and_nothing_of_them_is_accepted() {
    let (mut peer, end) = connected(8);
    let parts = parts(2, 50_000);
    let (sends, posted) = (sends_of(&parts), Posted::new());
    posted.post(&sends);
    thread::scope(|scope| {
        let lending = scope.spawn(|| end.stream().lend_sends(&mut &posted));
        peer.goes_pipelined();
        let acknowledged = peer.ack;
        let _ = (peer.advertised(), peer.advertised());
        // The offer was made when the adverts had not come.
        peer.ack = acknowledged;
        let advert = [&100_000_u32.to_be_bytes()[..], &9_u32.to_be_bytes(), &[0; 8], &[0; 4]].concat();
        peer.message(SINK_AVAIL, &advert, &[]);
        assert_eq!(lending.join().unwrap(), Ok(true), "{:?}", end.state.ended());
    });
    assert_eq!(posted.accepted(0), 0);
    assert_eq!(end.send(&parts[0]), Ok(50_000));
    let mut written = Vec::new();
    while written.len() < 50_000 {
        let (header, payload) = peer.peer.segment().expect("a Write");
        assert_eq!(header.control() & 0xf, Opcode::Write as u8);
        written.extend(payload);
    }
    assert!(written == parts[0]);
}

#[test]
fn a_connection_that_ends_fails_what_is_not_accepted() {
    let (mut peer, end) = connected(8);
    let parts = parts(3, 20_000);
    let (sends, posted) = (sends_of(&parts), Posted::new());
    posted.post(&sends);
    thread::scope(|scope| {
        let lending = scope.spawn(|| end.stream().lend_sends(&mut &posted));
        peer.goes_pipelined();
        let first = peer.advertised();
        assert!(peer.fetch(1, first) == parts[0]);
        peer.has_read(20_000);
        assert_eq!(posted.accepted(1), 20_000);
        peer.peer.reset();
        assert_eq!(lending.join().unwrap(), Err(Errno::RESET));
    });
    assert_eq!(posted.accepted(0), 20_000);
}

/// Returns an end whose advert, which the peer has seen, is of memory of the stream.
fn with_a_spill() -> (Sdp, End) {
    let (mut peer, end) = connected(8);
    let parts = parts(1, 20_000);
    let (sends, posted) = (sends_of(&parts), Posted::new());
    posted.post(&sends);
    posted.recall(Recall::Asked);
    assert_eq!(end.stream().lend_sends(&mut &posted), Ok(false));
    peer.goes_pipelined();
    peer.advertised();
    (peer, end)
}

#[test]
fn a_close_does_not_wait_for_a_peer_that_is_gone_with_adverts_unread() {
    let (peer, end) = with_a_spill();
    peer.peer.reset();
    assert_eq!(end.read(1), Err(Errno::RESET));
    assert_eq!(end.stream().leave(), None);
}

/// A peer without `DisConn` in front of its FIN can ask for nothing more.
#[test]
fn what_a_peer_that_has_left_could_read_is_no_obligation() {
    let (peer, end) = with_a_spill();
    end.stream().meet_obligation();
    assert!(end.stream().has_obligation());
    peer.peer.socket.shutdown(Shutdown::Write).unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while end.stream().has_obligation() && Instant::now() < until {
        end.stream().meet_obligation();
    }
    assert!(!end.stream().has_obligation());
    assert_eq!(end.read(1), Err(Errno::RESET), "octets of a send that has returned are lost");
}

#[test]
fn a_call_sends_by_copies_while_a_thread_lends() {
    let (mut peer, end) = connected(8);
    let parts = parts(1, 20_000);
    let (sends, posted) = (sends_of(&parts), Posted::new());
    posted.post(&sends);
    thread::scope(|scope| {
        let lending = scope.spawn(|| end.stream().lend_sends(&mut &posted));
        peer.goes_pipelined();
        let first = peer.advertised();
        let behind = scope.spawn(|| end.send(b"behind"));
        assert!(peer.fetch(1, first) == parts[0]);
        peer.has_read(20_000);
        assert_eq!(lending.join().unwrap(), Ok(false));
        loop {
            let Came::Message(message) = peer.came() else { continue };
            if message[0] == DATA && message.len() > 16 {
                assert_eq!(&message[16..], b"behind");
                break;
            }
            if message[0] == SRC_AVAIL {
                // The call has begun when nobody was lending any more.
                let advert = (number(&message, 16) as usize, number(&message, 20));
                assert!(peer.fetch(2, advert) == b"behind");
                peer.has_read(6);
                break;
            }
        }
        assert_eq!(behind.join().unwrap(), Ok(6));
    });
}

/// Posts sends of any length, and wants them back at times; sends the rest by calls, as whoever
/// drives operations does.
fn drive(end: &End, data: &[u8], seed: u64) {
    let mut random = Random::new(seed);
    let mut rest = data;
    while !rest.is_empty() {
        let mut parts = Vec::new();
        for _ in 0..=random.below(11) {
            let limit = [20, 5_000, 300_000, 3 << 20][random.below(4)];
            let (now, later) = rest.split_at((2 + random.below(limit)).min(rest.len()));
            rest = later;
            if now.len() > 1 {
                parts.push(now.to_vec());
            } else {
                parts.extend((!now.is_empty()).then(|| now.to_vec()));
            }
        }
        // What comes back is lent anew, or sent by copies.
        let all = parts.concat();
        let mut done = 0;
        while done < all.len() {
            if all.len() - done == 1 || random.below(4) == 0 {
                done += end.send(&all[done..]).unwrap();
                continue;
            }
            let (mut left, mut now) = (Vec::new(), 0);
            for part in &parts {
                let end = now + part.len();
                if end > done + 1 {
                    left.push(part[done.saturating_sub(now)..].to_vec());
                } else if end > done {
                    break;
                }
                now = end;
            }
            let accepted = {
                let (sends, posted) = (sends_of(&left), Posted::new());
                posted.post(&sends);
                let limit = [None, None, Some(Duration::from_millis(2))][random.below(3)];
                posted.now().left = limit.filter(|_| !left.is_empty());
                end.stream().lend_sends(&mut &posted).unwrap();
                posted.accepted(0)
            };
            left.iter_mut().for_each(|part| part.fill(0xee));
            done += accepted;
            if accepted == 0 {
                done += end.send(&all[done..]).unwrap();
            }
        }
    }
    end.stream().shutdown(libc::SHUT_WR).unwrap();
}

#[test]
fn octets_of_many_sends_cross_both_ways() {
    for seed in 0..4 {
        let lending = |options| with(options, SdpOptions { threshold: 0, ..SdpOptions::DEFAULT });
        let (a, b) = pair(&lending(initiator()), &lending(responder()));
        let (to_b, to_a) = (random_octets(2 * seed, 6 << 20), random_octets(2 * seed + 1, 6 << 20));
        let over = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| crate::lending::help(&a, &over));
            scope.spawn(|| crate::lending::help(&b, &over));
            scope.spawn(|| drive(&a, &to_b, seed + 10));
            scope.spawn(|| drive(&b, &to_a, seed + 20));
            let at_b = scope.spawn(|| crate::lending::receive_in_pieces(&b, seed + 30));
            let at_a = scope.spawn(|| crate::lending::receive_in_pieces(&a, seed + 40));
            let (at_b, at_a) = (at_b.join(), at_a.join());
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(at_b.unwrap() == to_b && at_a.unwrap() == to_a);
        });
        assert_eq!((a.state.ended(), b.state.ended()), (None, None));
    }
}
