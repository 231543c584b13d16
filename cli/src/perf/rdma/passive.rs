//! The end that is measured against.

use std::time::Instant;

use rddp_rnic::{Completed, ConnectRequest, PostError, Remote, SendWr};

use super::{Lanes, SINGLE, lane_of, marked_write, next_mark};
use crate::failure::Failure;
use crate::perf::control::{Op, Phase, Places, Setup, Wait};
use crate::perf::spin::Wish;

/// Requests that the passive end has on its way: answers and credits.
const SENDS: usize = 32;

/// How often a spinning end looks at the clock.
const LOOK_EVERY: u64 = 4096;

pub(in crate::perf) struct Passive {
    lanes: Lanes,
    flows: Vec<Flow>,
    mark: u8,
}

struct Flow {
    target: Remote,
    /// Receives that were used up, and posted again.
    consumed: u64,
    /// What of that the active end was told.
    credited: u64,
    ended: bool,
}

impl Passive {
    /// Idle connections towards an active end with this memory.
    pub(in crate::perf) fn new(setup: &Setup, theirs: &[Places]) -> Result<Self, Failure> {
        if theirs.len() != usize::from(setup.qps) {
            return Err(Failure::peer("the client names memory of another number of connections"));
        }
        let lanes = Lanes::new(setup, SENDS, setup.window(), Wish::Clients)?;
        let flow =
            |places: &Places| Flow { target: places.target.into(), consumed: 0, credited: 0, ended: false };
        Ok(Passive { lanes, flows: theirs.iter().map(flow).collect(), mark: 0 })
    }

    pub(in crate::perf) fn places(&self) -> Vec<Places> {
        self.lanes.places()
    }

    /// Connects one of them.
    pub(in crate::perf) fn accept(&self, number: u16, request: ConnectRequest) -> Result<(), Failure> {
        let failed = |why: String| Failure::peer(format!("a data connection: {why}"));
        let lane = self.lanes.list.get(usize::from(number)).ok_or_else(|| failed("no such number".into()))?;
        let accepted = request.accept_with(&lane.qp, &self.lanes.setup.options());
        accepted.map(drop).map_err(|error| failed(error.to_string()))
    }

    /// Does its part until the active end has said on all connections that the slice is over.
    pub(in crate::perf) fn serve(&mut self, phase: Phase, deadline: Instant) -> Result<(), Failure> {
        self.flows.iter_mut().for_each(|flow| flow.ended = false);
        let Setup { op, wait, .. } = self.lanes.setup;
        let on_memory = phase == Phase::Latency && op == Op::Write && wait == Wait::Poll;
        let mut turns = 0;
        while !self.flows.iter().all(|flow| flow.ended && flow.credited == flow.consumed) {
            turns += 1;
            if (turns % LOOK_EVERY == 0 || wait == Wait::Event) && Instant::now() > deadline {
                return Err(Failure::peer("the client has not ended its slice in time"));
            }
            let count = self.lanes.poll()?;
            self.handle(phase)?;
            if on_memory {
                self.answer_marks()?;
            }
            if count == 0 {
                self.lanes.idle()?;
            }
        }
        Ok(())
    }

    fn handle(&mut self, phase: Phase) -> Result<(), Failure> {
        for at in 0..self.lanes.polled.len() {
            let completion = self.lanes.polled[at];
            let number = lane_of(completion.wr_id);
            match completion.completed {
                Completed::Receive | Completed::ReceiveImmediate => self.lanes.list[number].post_receive()?,
                _ => continue,
            }
            let flow = &mut self.flows[number];
            flow.consumed += 1;
            if completion.completed == Completed::ReceiveImmediate {
                flow.ended = true;
            } else if phase == Phase::Latency {
                self.answer(number)?;
            }
        }
        self.give_credits()
    }

    fn give_credits(&mut self) -> Result<(), Failure> {
        let step = self.lanes.setup.window() as u64 / 4;
        for (lane, flow) in self.lanes.list.iter().zip(&mut self.flows) {
            let due = flow.consumed - flow.credited;
            if due >= step || (flow.ended && due > 0) {
                let credit = SendWr::immediate(SINGLE, flow.consumed.to_be_bytes()).unsignaled();
                match lane.qp.post_send(&credit) {
                    Ok(()) => flow.credited = flow.consumed,
                    // The active end is slow to read: later, then.
                    Err(PostError::QueueFull { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// Answers a message with one of the same size.
    fn answer(&mut self, number: usize) -> Result<(), Failure> {
        self.lanes.spin.reset();
        let setup = &self.lanes.setup;
        let lane = &self.lanes.list[number];
        let list = match setup.op {
            Op::Write => {
                self.mark = next_mark(self.mark);
                marked_write(lane.marked(self.mark, setup)?, self.flows[number].target, self.mark, setup.wait)
            }
            _ => vec![SendWr::send(SINGLE, lane.message(setup)).unsignaled()],
        };
        Ok(lane.qp.post_sends(&list).map_err(|(error, _)| error)?)
    }

    /// Answers a Write that memory tells of: its mark comes behind the last one's.
    fn answer_marks(&mut self) -> Result<(), Failure> {
        if self.lanes.list[0].has_mark(next_mark(self.mark), &self.lanes.setup)? {
            self.answer(0)
        } else {
            Ok(())
        }
    }

    pub(in crate::perf) fn close(&self) {
        self.lanes.close();
    }
}
