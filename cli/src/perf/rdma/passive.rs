//! The passive end, which answers.

use std::net::SocketAddr;
use std::time::Instant;

use rddp_command::endpoint::Agreed;
use rddp_command::failure::Failure;
use rddp_load::rdma::{self, End, single_id};
use rddp_rnic::{ConnectRequest, Gather, Operation, Remote, Rnic, SendWr, Stag};

use super::{Lanes, marked_write, next_mark};
use crate::perf::control::{Buffers, Phase, Placed, Setup};
use crate::perf::op::Op;
use crate::perf::spin::Wish;

/// Limit on outstanding requests of the passive end: answers and credits.
const SENDS: usize = 32;

pub(in crate::perf) struct Passive {
    lanes: Lanes,
    load: rdma::Passive,
    answers: Answers,
}

/// The answers of the passive end, beside credits.
struct Answers {
    phase: Phase,
    /// Memory at the active end.
    targets: Vec<Remote>,
    mark: u8,
}

impl Passive {
    /// Makes idle connections, for the party that asks to measure.
    pub(in crate::perf) fn new(setup: &Setup, rnic: &Rnic, wish: Wish) -> Result<Self, Failure> {
        let lanes = Lanes::new(setup, rnic, SENDS, setup.window(), wish)?;
        let mut load = rdma::Passive::new(lanes.list.len(), setup.window());
        load.set_by_sends(setup.sends);
        let answers = Answers { phase: Phase::Bandwidth, targets: Vec::new(), mark: 0 };
        Ok(Passive { lanes, load, answers })
    }

    /// Has slices end, and credits be given, by Sends.
    pub(in crate::perf) fn use_sends(&mut self) {
        self.lanes.setup.sends = true;
        self.load.set_by_sends(true);
    }

    pub(in crate::perf) fn buffers(&self) -> Vec<Buffers> {
        self.lanes.buffers()
    }

    /// Connects all connections. RFC 5044 §7.1.2: the end that accepts sends no FPDU before it has
    /// received one, so this end sends Immediate Data, which give no credit, or an empty Write.
    pub(in crate::perf) fn connect(&self, addr: SocketAddr, session: u64) -> Result<Agreed, Failure> {
        let agreed = self.lanes.connect(addr, session)?;
        for at in 0..self.lanes.list.len() {
            let (gather, remote) = (Gather::Inline(Vec::new()), Remote { stag: Stag(0), to: 0 });
            let first = match self.lanes.setup.sends {
                true => SendWr::new(single_id(at), Operation::Write { gather, remote }),
                false => SendWr::immediate(single_id(at), [0; 8]),
            };
            rdma::post(&self.lanes, at, &[first.unsignaled()])?;
        }
        Ok(agreed)
    }

    pub(in crate::perf) fn accept(&self, number: u16, request: ConnectRequest) -> Result<(), Failure> {
        self.lanes.accept(number, request)
    }

    /// Takes the active end's memory.
    pub(in crate::perf) fn aim(&mut self, theirs: &[Buffers]) -> Result<(), Failure> {
        if theirs.len() != self.lanes.list.len() {
            return Err(Failure::peer("the other end names memory of another number of connections"));
        }
        self.answers.targets = theirs.iter().map(|buffers| buffers.target.into()).collect();
        Ok(())
    }

    /// Answers until the active end has ended the slice on all connections.
    pub(in crate::perf) fn serve(&mut self, phase: Phase, deadline: Option<Instant>) -> Result<(), Failure> {
        self.answers.phase = phase;
        if let Some(deadline) = deadline {
            self.lanes.spin.serve_until(deadline);
        }
        self.load.serve(&mut self.lanes, &mut self.answers)
    }

    /// Returns what the kernel has placed at this end.
    pub(in crate::perf) fn placed(&self) -> Placed {
        self.lanes.placed()
    }

    pub(in crate::perf) fn close(&self) {
        self.lanes.close();
    }
}

impl rdma::Answers<Lanes> for Answers {
    fn message(&mut self, lanes: &mut Lanes, at: usize) -> Result<(), Failure> {
        match self.phase {
            Phase::Bandwidth => Ok(()),
            Phase::Latency => self.answer(lanes, at),
        }
    }

    /// Answers a Write that only memory shows: its mark is the one after the last.
    fn poll_memory(&mut self, lanes: &mut Lanes) -> Result<bool, Failure> {
        let looks = lanes.setup.looks_at_memory();
        let on_memory = self.phase == Phase::Latency && lanes.setup.op == Op::Write && looks;
        let mark = next_mark(self.mark);
        lanes.awaited = on_memory.then_some(mark);
        if !on_memory || !lanes.list[0].has_mark(mark, &lanes.setup)? {
            return Ok(false);
        }
        self.answer(lanes, 0).map(|()| true)
    }
}

impl Answers {
    /// Answers a message with one of the same size.
    fn answer(&mut self, lanes: &mut Lanes, at: usize) -> Result<(), Failure> {
        lanes.progressed();
        let (lane, setup) = (&lanes.list[at], &lanes.setup);
        let list = match setup.op {
            Op::Write => {
                self.mark = next_mark(self.mark);
                marked_write(lane.marked(self.mark, setup)?, self.targets[at], self.mark, setup)
            }
            _ => vec![SendWr::send(single_id(at), lane.message(setup)).unsignaled()],
        };
        rdma::post(lanes, at, &list)
    }
}
