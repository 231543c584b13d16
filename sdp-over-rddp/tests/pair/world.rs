//! Two connected sockets, and the octets that go between them.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use rddp_sdp::socket::{Config, Ended, Error, OperationId, Options, Role, Socket, answer, answered, hello};
use rddp_sdp::transport::{Carrier, Transport};

use crate::mock::{Mock, Octets, Wire};

/// Two connected sockets; number 0 is the one that connected.
pub(crate) struct Pair {
    pub(crate) wire: Rc<RefCell<Wire>>,
    pub(crate) ends: [Socket<Mock>; 2],
    pub(crate) now: Duration,
    pub(crate) lent: Vec<(usize, OperationId, Octets)>,
    over: Vec<(usize, Ended)>,
}

impl Pair {
    pub(crate) fn new(seed: u64, config: Config) -> Self {
        Self::with(seed, [config; 2])
    }

    /// Makes a connection of two ends with different settings.
    pub(crate) fn with(seed: u64, configs: [Config; 2]) -> Self {
        let wire = Wire::new(seed);
        let [mut a, mut b] = Mock::pair(&wire);
        for (end, config) in [&mut a, &mut b].into_iter().zip(configs) {
            end.add_buffers(config.buffers, config.buffer_size);
        }
        let (from, to) = ("192.0.2.1:1".parse().unwrap(), "192.0.2.2:2".parse().unwrap());
        let request = hello(&configs[0], from, to, Carrier::Mpa).unwrap();
        let (passive, reply) = answer(&configs[1], &request, to, from, Carrier::Mpa).unwrap();
        let active = answered(&reply, Carrier::Mpa).unwrap();
        assert_eq!((active.role, passive.role), (Role::Active, Role::Passive));
        let ends = [Socket::new(a, configs[0], active), Socket::new(b, configs[1], passive)];
        Pair { wire, ends, now: Duration::ZERO, lent: Vec::new(), over: Vec::new() }
    }

    pub(crate) fn send(&mut self, end: usize, octets: &[u8]) -> OperationId {
        self.send_with(end, octets, Options::default())
    }

    pub(crate) fn send_with(&mut self, end: usize, octets: &[u8], options: Options) -> OperationId {
        let memory = Octets::new(octets.to_vec());
        let id = self.ends[end].send(memory.clone(), options);
        self.lent.push((end, id, memory));
        self.collect();
        id
    }

    pub(crate) fn receive(&mut self, end: usize, len: usize, options: Options) -> (OperationId, Octets) {
        let memory = Octets::new(vec![0; len]);
        let id = self.ends[end].receive(memory.clone(), options);
        self.lent.push((end, id, memory.clone()));
        self.collect();
        (id, memory)
    }

    /// Takes the ends of operations; from then on their memory may not be touched.
    pub(crate) fn collect(&mut self) {
        for end in 0..2 {
            while let Some(ended) = self.ends[end].ended() {
                let at = self.lent.iter().position(|(of, id, _)| (*of, *id) == (end, ended.id)).unwrap();
                let (.., memory) = self.lent.swap_remove(at);
                memory.returned.set(true);
                self.over.push((end, ended));
            }
        }
    }

    /// Lets both ends and the wire go on until nothing moves any more.
    pub(crate) fn run(&mut self) {
        loop {
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

    /// Goes on, with the clock set forward to each deadline, for at most this time.
    pub(crate) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.run();
            let next = self.ends.iter_mut().filter_map(Socket::deadline).min();
            match next.filter(|at| *at <= end) {
                Some(at) => self.now = at.max(self.now + Duration::from_millis(1)),
                None => break,
            }
        }
        self.now = end;
        self.run();
    }

    pub(crate) fn outcome(&self, end: usize, id: OperationId) -> Option<Ended> {
        self.over.iter().find(|(of, ended)| (*of, ended.id) == (end, id)).map(|(_, ended)| *ended)
    }

    /// Receives at an end until its stream is over, or the connection. Returns the octets, and the
    /// error if there was one.
    pub(crate) fn receive_to_end(&mut self, end: usize) -> (Vec<u8>, Option<Error>) {
        let mut got = Vec::new();
        loop {
            let (id, memory) = self.receive(end, 3000, Options::default());
            self.run_for(Duration::from_secs(3));
            let Some(ended) = self.outcome(end, id) else { panic!("neither octets nor the end") };
            got.extend_from_slice(&memory.octets.borrow()[..ended.octets]);
            if ended.octets == 0 {
                return (got, ended.error);
            }
        }
    }

    pub(crate) fn mids(&self, end: usize) -> Vec<u8> {
        self.wire.borrow().mids(end).to_vec()
    }
}

pub(crate) fn pattern(len: usize, salt: u64) -> Vec<u8> {
    (0..len as u64).map(|n| (n.wrapping_mul(0x9e37_79b9).wrapping_add(salt) >> 7) as u8).collect()
}

pub(crate) fn small() -> Config {
    Config { buffers: 8, buffer_size: 1040, longest_advert: 8192, ..Config::default() }
}

pub(crate) fn with_thresholds(source: Option<usize>, sink: Option<usize>) -> Config {
    Config {
        source_threshold: source,
        sink_threshold: sink,
        sink_adverts: false,
        pipelined: false,
        ..small()
    }
}

pub(crate) const DATA: u8 = 0xff;
pub(crate) const SRC_AVAIL: u8 = 0xfe;
pub(crate) const SINK_AVAIL: u8 = 0xfd;
pub(crate) const SEND_SM: u8 = 0x04;
pub(crate) const SRC_AVAIL_CANCEL: u8 = 0x08;
pub(crate) const DIS_CONN: u8 = 0x02;
pub(crate) const ABORT_CONN: u8 = 0x03;
pub(crate) const RDMA_WR_COMPL: u8 = 0x05;
pub(crate) const RDMA_RD_COMPL: u8 = 0x06;
pub(crate) const MODE_CHANGE: u8 = 0x07;
pub(crate) const SINK_AVAIL_CANCEL: u8 = 0x09;
pub(crate) const SINK_CANCEL_ACK: u8 = 0x0a;
pub(crate) const CH_RCV_BUF_ACK: u8 = 0x0c;
