//! `sdp_pair`: two sockets of SDP over the transport in memory, with calls and a schedule by the
//! input.
//!
//! The transport panics where memory is touched whose call has returned, where a message finds no
//! buffer, and where a registration ends under a Read. At the end everything is sent and received
//! that the calls have left: each stream then is what the sends have put into it.

#[path = "../../sdp-over-rddp/tests/pair/mock.rs"]
#[allow(dead_code, reason = "the crate's own tests use more of it")]
mod mock;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use rddp_sdp::socket::{Config, Error, OperationId, Options, Socket, answer, answered, hello};
use rddp_sdp::transport::{Carrier, Transport};

use mock::{Faults, Mock, Octets, Wire};

/// An operation that was begun.
struct Begun {
    end: usize,
    id: OperationId,
    memory: Octets,
    is_send: bool,
    peeks: bool,
    outcome: Option<(usize, Option<Error>)>,
}

struct Pair {
    wire: Rc<RefCell<Wire>>,
    ends: [Socket<Mock>; 2],
    now: Duration,
    begun: Vec<Begun>,
    /// Salts of the octets of sends.
    salt: u64,
    /// Ends that drop what comes.
    drops: [bool; 2],
}

/// Runs one input: two octets of policy, then calls of two octets each.
pub fn run(octets: &[u8]) {
    let [policy, sizes, calls @ ..] = octets else { return };
    let mut pair = Pair::new(config(*policy, *sizes));
    for call in calls.chunks_exact(2).take(400) {
        pair.call(call[0], call[1]);
        pair.collect();
    }
    pair.finish();
    pair.check();
}

fn config(policy: u8, sizes: u8) -> Config {
    let threshold = |bits: u8| [None, Some(0), Some(700), Some(3000)][usize::from(bits & 3)];
    Config {
        buffers: [3, 4, 8, 16][usize::from(sizes & 3)],
        buffer_size: [36, 100, 1040, 2000][usize::from(sizes >> 2 & 3)],
        send_size: if sizes & 0x10 != 0 { 3000 } else { 0 },
        largest_buffer: if sizes & 0x20 != 0 { 2500 } else { 0 },
        max_adverts: if sizes & 0x40 != 0 { 1 } else { 8 },
        read_ahead: if sizes & 0x80 != 0 { 500 } else { 8192 },
        source_threshold: threshold(policy),
        sink_threshold: threshold(policy >> 2),
        sink_adverts: policy & 0x10 != 0,
        pipelined: policy & 0x20 != 0,
        returns_to_combined: policy & 0x40 != 0,
        buffered: policy & 0x80 != 0,
        longest_advert: 4096,
        ..Config::default()
    }
}

impl Pair {
    fn new(config: Config) -> Self {
        let wire = Wire::new(1);
        let [mut a, mut b] = Mock::pair(&wire);
        for end in [&mut a, &mut b] {
            end.add_buffers(config.buffers, config.buffer_size);
        }
        let (from, to) = ("192.0.2.1:1".parse().unwrap(), "192.0.2.2:2".parse().unwrap());
        let request = hello(&config, from, to, Carrier::Mpa).unwrap();
        let (passive, reply) = answer(&config, &request, to, from, Carrier::Mpa).unwrap();
        let active = answered(&reply, Carrier::Mpa).unwrap();
        let mut ends = [Socket::new(a, config, active), Socket::new(b, config, passive)];
        ends.iter_mut().for_each(|end| end.set_urgent_inline(true));
        Pair { wire, ends, now: Duration::ZERO, begun: Vec::new(), salt: 0, drops: [false; 2] }
    }

    fn call(&mut self, kind: u8, value: u8) {
        let end = usize::from(kind >> 7);
        let len = [1, 7, 36, 699, 700, 2999, 3000, 9000][usize::from(value & 7)] + usize::from(value >> 3);
        let non_blocking = kind & 0x40 != 0;
        match kind & 0xf {
            0..=2 => self.send(end, len, Options { non_blocking, ..Options::default() }),
            3 => self.send(end, 1, Options { urgent: true, ..Options::default() }),
            4..=6 => self.receive(end, len, Options { non_blocking, ..Options::default() }),
            7 => self.receive(end, len, Options { wait_all: true, ..Options::default() }),
            8 => self.receive(end, len, Options { peek: true, non_blocking: true, ..Options::default() }),
            9 => self.cancel(end, value),
            10 | 11 => drop((0..=value & 15).map(|n| self.step(n ^ value >> 4)).count()),
            12 => drop(self.ends[end].progress(self.now)),
            13 => self.now += Duration::from_millis(u64::from(value) * 10),
            14 => self.set(end, value),
            _ => self.close(end, value),
        }
    }

    fn step(&mut self, choice: u8) {
        self.wire.borrow_mut().step_by(choice.into());
    }

    fn send(&mut self, end: usize, len: usize, options: Options) {
        self.salt += 1;
        let salt = self.salt;
        let octets = (0..len as u64).map(|n| (n.wrapping_mul(0x9e37_79b9).wrapping_add(salt) >> 5) as u8);
        let memory = Octets::new(octets.collect());
        let id = self.ends[end].send(memory.clone(), options);
        self.begun.push(Begun { end, id, memory, is_send: true, peeks: false, outcome: None });
    }

    fn receive(&mut self, end: usize, len: usize, options: Options) {
        let memory = Octets::new(vec![0; len]);
        let id = self.ends[end].receive(memory.clone(), options);
        self.begun.push(Begun { end, id, memory, is_send: false, peeks: options.peek, outcome: None });
    }

    fn cancel(&mut self, end: usize, value: u8) {
        let open = self.begun.iter().filter(|op| op.end == end && op.outcome.is_none());
        let open: Vec<OperationId> = open.map(|op| op.id).collect();
        if let Some(id) = open.get(usize::from(value) % open.len().max(1)) {
            self.ends[end].cancel(*id);
        }
    }

    fn set(&mut self, end: usize, value: u8) {
        match value & 3 {
            0 => self.ends[end].set_low_water(usize::from(value) * 8),
            1 => self.ends[end].set_source_threshold((value & 4 == 0).then_some(usize::from(value))),
            2 => {
                let faults = Faults { no_registration: value & 4 != 0, read_fails: value & 0xf8 == 0xf8 };
                self.wire.borrow_mut().order(end, faults);
            }
            _ => {
                let _ = (self.ends[end].urgent(), self.ends[end].is_readable(), self.ends[end].deadline());
            }
        }
    }

    fn close(&mut self, end: usize, value: u8) {
        self.drops[end] |= value & 7 == 1 || value & 7 == 2;
        match value & 7 {
            0 => self.ends[end].shutdown_send(),
            1 => self.ends[end].shutdown_receive(),
            2 => self.ends[end].close(),
            3 => self.ends[end].abort(),
            _ => {}
        }
    }

    /// Takes the ends of operations; from then on their memory may not be touched.
    fn collect(&mut self) {
        for end in 0..2 {
            while let Some(ended) = self.ends[end].ended() {
                let op = self.begun.iter_mut().find(|op| op.end == end && op.id == ended.id).unwrap();
                assert!(op.outcome.is_none(), "an operation ended twice");
                assert!(ended.octets <= op.memory.octets.borrow().len());
                op.memory.returned.set(true);
                op.outcome = Some((ended.octets, ended.error));
            }
        }
    }

    /// Lets both ends and the wire go on until nothing moves any more.
    fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 100_000, "two ends keep each other busy for ever");
            for end in &mut self.ends {
                end.progress(self.now);
            }
            self.collect();
            let moved = self.wire.borrow_mut().step();
            if !moved {
                for end in &mut self.ends {
                    end.progress(self.now);
                }
                self.collect();
                if self.wire.borrow().is_quiet() {
                    return;
                }
            }
        }
    }

    /// Shuts both halves down, and receives until both streams are over, or the connection is.
    fn finish(&mut self) {
        for end in 0..2 {
            self.wire.borrow_mut().order(end, Faults::default());
            self.ends[end].set_low_water(1);
            self.ends[end].shutdown_send();
        }
        for round in 0.. {
            self.settle();
            if self.ends.iter().any(Socket::is_over) {
                break;
            }
            assert!(round < 200_000, "a stream does not end: {:?}", self.left());
            for end in 0..2 {
                let open = |op: &&Begun| op.end == end && !op.is_send && op.outcome.is_none();
                if !self.begun.iter().any(|op| open(&op)) {
                    self.receive(end, 9000, Options::default());
                }
            }
            self.settle();
            let next = self.ends.iter_mut().filter_map(Socket::deadline).min();
            self.now = next.map_or(self.now, |at| at.max(self.now) + Duration::from_millis(1));
        }
        for end in 0..2 {
            self.ends[end].abort();
            self.now += Duration::from_secs(1);
            self.ends[end].progress(self.now);
        }
        self.settle();
        assert!(self.begun.iter().all(|op| op.outcome.is_some()), "an operation never ended");
    }

    fn left(&self) -> Vec<(usize, bool, usize)> {
        let open = self.begun.iter().filter(|op| op.outcome.is_none());
        open.map(|op| (op.end, op.is_send, op.memory.octets.borrow().len())).collect()
    }

    /// Compares what each end has received with what the other has sent.
    fn check(&self) {
        for end in (0..2).filter(|end| !self.drops[*end]) {
            let mut sent = Vec::new();
            for op in self.begun.iter().filter(|op| op.is_send && op.end != end) {
                let (octets, error) = op.outcome.unwrap();
                let all = op.memory.octets.borrow();
                // Of a send that the end of the connection has ended, the peer may have had more.
                let is_own = matches!(
                    error,
                    None | Some(Error::WouldBlock | Error::Cancelled | Error::Closed | Error::Address)
                );
                let len = if is_own { octets } else { all.len() };
                sent.extend_from_slice(&all[..len]);
            }
            let mut got = Vec::new();
            for op in self.begun.iter().filter(|op| !op.is_send && op.end == end && !op.peeks) {
                got.extend_from_slice(&op.memory.octets.borrow()[..op.outcome.unwrap().0]);
            }
            assert!(sent.starts_with(&got), "end {end} has received {} octets that were not sent", got.len());
            let in_order = self.ends.iter().all(|end| end.error() == Some(Error::Closed));
            assert!(!in_order || got.len() <= sent.len());
        }
    }
}
