//! Order in which messages go out and requests complete (RFC 5040 §5.5,
//! draft-hilland-rddp-verbs §8.2).

use std::time::{Duration, Instant};

use rddp_rdmap::Opcode;
use rddp_rnic::{Completion, MemoryRegion, Remote, SendWr, Stag, Status};
use rddp_test_support::{Peer, plain, segment};

use crate::common::raw::{BOTH, Role, client_server, connect_raw, open_for, with_plain_raw};
use crate::common::{ALL, End, PATIENCE};

const REMOTE: Remote = Remote { stag: Stag(1), to: 0 };

/// draft-hilland-rddp-verbs §8.2.2: a locally fenced request is begun when all before it are done,
/// not when they have been sent.
#[test]
fn a_local_fence_waits_for_all_that_was_posted_before() {
    for role in BOTH {
        let (end, mut raw) = with_plain_raw(role);
        let sink = end.region(8, ALL);
        let list = [
            SendWr::send_inline(0, b"not fenced"),
            SendWr::read(1, sink.whole(), REMOTE),
            SendWr::write_inline(2, b"not fenced", REMOTE),
            SendWr::send_inline(3, b"fenced").local_fence(),
            SendWr::send_inline(4, b"behind it"),
        ];
        end.qp.post_sends(&list).unwrap();
        raw.expect(Opcode::Send);
        let request = raw.read_request();
        raw.expect(Opcode::Write);
        assert!(raw.is_silent(Duration::from_millis(100)), "sent before the Read was done");
        raw.send(&segment::response(request.sink_stag, request.sink_to, true, b"12345678"));
        let done = [0, 1, 2, 3, 4].map(|_| end.success().wr_id);
        assert_eq!(done, [0, 1, 2, 3, 4]);
        assert_eq!(raw.expect(Opcode::Send).1, b"fenced");
        assert_eq!(raw.expect(Opcode::Send).1, b"behind it");
    }
}

/// Octets of a Send that is one FPDU on loopback.
const SEND: usize = 30_001;

/// Length of the FPDU of such a Send: header, payload, pad and CRC.
const FPDU: u64 = 30_028;

/// An end whose peer does not read, and whose last Send TCP has begun to take and not taken whole.
struct HalfSent {
    end: End,
    raw: Peer,
    source: MemoryRegion,
    sends: u64,
    /// Number of Sends that the peer has read.
    read: u64,
    posted: u64,
    /// Number of requests before the last Send.
    before: u64,
    done: Vec<Completion>,
}

impl HalfSent {
    /// `behind` posts what shall stand behind that Send,
    /// and may have to be called for more than one of them.
    fn new(mut behind: impl FnMut(&End, u64) -> u64) -> Self {
        let end = End::with(|config| config.max_send = 4096);
        let mut raw = connect_raw(Role::Passive, &end, &client_server(), &plain());
        open_for(&mut raw, &end);
        let source = end.region(SEND, ALL);
        let mut half =
            HalfSent { end, raw, source, sends: 0, read: 0, posted: 0, before: 0, done: Vec::new() };
        while !half.is_half() {
            if half.unsent() > 0 {
                // TCP has not begun it. With a little more room it will.
                half.read_one();
                half.settle();
                continue;
            }
            half.before = half.posted;
            half.end.qp.post_send(&SendWr::send(half.posted, half.source.whole())).unwrap();
            (half.sends, half.posted) = (half.sends + 1, half.posted + 1);
            half.settle();
            if half.is_half() {
                // TCP may take a little more meanwhile, and then all of it.
                half.posted += behind(&half.end, half.posted);
                half.settle();
            }
        }
        half
    }

    fn read_one(&mut self) {
        assert_eq!(self.raw.expect(Opcode::Send).1.len(), SEND);
        self.read += 1;
    }

    /// Returns the octets of the posted Sends that TCP has not taken.
    fn unsent(&self) -> u64 {
        self.sends * FPDU - self.end.qp.counters().octets_sent
    }

    fn is_half(&self) -> bool {
        (1..FPDU).contains(&self.unsent())
    }

    /// Polls until TCP takes no more and no completion is left.
    fn settle(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        let mut quiet = 0;
        // Once all has been taken, nothing is left to happen.
        while quiet < if self.unsent() == 0 { 2 } else { 50 } {
            assert!(Instant::now() < deadline, "TCP takes more and more");
            let before = (self.unsent(), self.done.len());
            std::thread::sleep(Duration::from_millis(u64::from(quiet > 1)));
            self.done.extend(self.end.cq.completions());
            quiet = if before == (self.unsent(), self.done.len()) { quiet + 1 } else { 0 };
        }
    }

    /// Only what stands before the Send has completed; once the peer reads again,
    /// all does, in order.
    fn completes_when_the_peer_reads(mut self) {
        assert_eq!(self.done.len() as u64, self.before, "{} octets are not sent", self.unsent());
        while self.read < self.sends {
            self.read_one();
        }
        while self.done.len() < self.posted as usize {
            let next = self.end.next();
            self.done.push(next);
        }
        assert!(self.done.iter().all(|done| done.status == Status::Success), "{:?}", self.done.last());
        assert!(self.done.iter().map(|done| done.wr_id).eq(0..self.posted));
    }
}

/// RFC 5040 §5.5: a Send completes when TCP has its last octet,
/// so that its memory may be used again: not before.
#[test]
fn a_send_whose_fpdu_is_half_taken_has_not_completed() {
    HalfSent::new(|_, _| 0).completes_when_the_peer_reads();
}

/// RFC 5040 §5.5: nor by a request behind it that is done already, since it needs no socket.
#[test]
fn a_local_request_behind_a_send_that_is_half_taken_waits_for_it() {
    let invalidate = |end: &End, id: u64| {
        let gone = end.region(8, ALL);
        end.qp.post_send(&SendWr::invalidate(id, gone.stag())).unwrap();
        assert!(!gone.is_valid(), "it waits for octets that it does not need");
        1
    };
    HalfSent::new(invalidate).completes_when_the_peer_reads();
}
