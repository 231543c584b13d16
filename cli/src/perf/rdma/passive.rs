//! The passive end, which answers.

use std::time::Instant;

use rddp_load::rdma::{self, End, single_id};
use rddp_rnic::{ConnectRequest, Remote, SendWr};

use super::{Lanes, marked_write, next_mark};
use crate::failure::Failure;
use crate::perf::control::{Op, Phase, Places, Setup, Wait};
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
    /// Makes idle connections towards an active end with this memory.
    pub(in crate::perf) fn new(setup: &Setup, theirs: &[Places]) -> Result<Self, Failure> {
        if theirs.len() != usize::from(setup.qps) {
            return Err(Failure::peer("the client names memory of another number of connections"));
        }
        let lanes = Lanes::new(setup, SENDS, setup.window(), Wish::Clients)?;
        let load = rdma::Passive::new(theirs.len(), setup.window());
        let targets = theirs.iter().map(|places| places.target.into()).collect();
        Ok(Passive { lanes, load, answers: Answers { phase: Phase::Bandwidth, targets, mark: 0 } })
    }

    pub(in crate::perf) fn places(&self) -> Vec<Places> {
        self.lanes.places()
    }

    /// Connects one of the connections.
    pub(in crate::perf) fn accept(&self, number: u16, request: ConnectRequest) -> Result<(), Failure> {
        let failed = |why: String| Failure::peer(format!("a data connection: {why}"));
        let lane = self.lanes.list.get(usize::from(number)).ok_or_else(|| failed("no such number".into()))?;
        let accepted = request.accept_with(&lane.qp, &self.lanes.setup.options());
        accepted.map(drop).map_err(|error| failed(error.to_string()))
    }

    /// Answers until the active end has ended the slice on all connections.
    pub(in crate::perf) fn serve(&mut self, phase: Phase, deadline: Instant) -> Result<(), Failure> {
        self.answers.phase = phase;
        self.lanes.spin.serve_until(deadline);
        self.load.serve(&mut self.lanes, &mut self.answers)
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
    fn look(&mut self, lanes: &mut Lanes) -> Result<bool, Failure> {
        let Setup { op, wait, .. } = lanes.setup;
        let on_memory = self.phase == Phase::Latency && op == Op::Write && wait == Wait::Poll;
        if !on_memory || !lanes.list[0].has_mark(next_mark(self.mark), &lanes.setup)? {
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
                marked_write(lane.marked(self.mark, setup)?, self.targets[at], self.mark, setup.wait)
            }
            _ => vec![SendWr::send(single_id(at), lane.message(setup)).unsignaled()],
        };
        rdma::post(lanes, at, &list)
    }
}
