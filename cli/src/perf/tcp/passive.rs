//! The end that is measured against.

use std::net::TcpStream;
use std::time::Instant;

use nix::poll::PollFlags;

use super::{CHUNK, LAST, MORE, Sockets};
use crate::failure::Failure;
use crate::perf::control::{Phase, Setup, Wait};
use crate::perf::spin::Wish;

/// How often a spinning end looks at the clock.
const LOOK_EVERY: u64 = 4096;

pub(in crate::perf) struct Passive {
    sockets: Sockets,
    flows: Vec<Flow>,
    /// Where messages go.
    room: Vec<u8>,
    answer: Vec<u8>,
}

#[derive(Default)]
struct Flow {
    /// How much of the present message is here.
    position: usize,
    ended: bool,
}

impl Passive {
    pub(in crate::perf) fn new(setup: &Setup, list: Vec<TcpStream>) -> Result<Self, Failure> {
        let flows = list.iter().map(|_| Flow::default()).collect();
        let sockets = Sockets::new(setup, list, Wish::Clients)?;
        Ok(Passive {
            sockets,
            flows,
            room: vec![1; setup.size().max(CHUNK)],
            answer: vec![MORE; setup.size()],
        })
    }

    /// Does its part until the last message has come on all connections.
    pub(in crate::perf) fn serve(&mut self, phase: Phase, deadline: Instant) -> Result<(), Failure> {
        self.flows.iter_mut().for_each(|flow| flow.ended = false);
        let mut turns = 0;
        while !self.flows.iter().all(|flow| flow.ended) {
            turns += 1;
            if turns % LOOK_EVERY == 0 || self.sockets.setup.wait == Wait::Event {
                check(deadline)?;
            }
            if self.receive_round(phase, deadline)? == 0 {
                // One that has ended may have more to say, or be closed: nobody waits for that.
                self.sockets.idle(PollFlags::POLLIN, |at| !self.flows[at].ended)?;
            }
        }
        Ok(())
    }

    /// One receive on each connection; how many octets.
    fn receive_round(&mut self, phase: Phase, deadline: Instant) -> Result<usize, Failure> {
        let size = self.sockets.setup.size();
        let mut octets = 0;
        for at in 0..self.flows.len() {
            if self.flows[at].ended {
                continue;
            }
            // Long messages go to their place, short ones many at a time.
            let from = if size >= CHUNK { self.flows[at].position } else { 0 };
            let until = if size >= CHUNK { size } else { CHUNK };
            let count = self.sockets.receive(at, &mut self.room[from..until])?;
            if count == 0 {
                continue;
            }
            octets += count;
            let flow = &mut self.flows[at];
            flow.position = (flow.position + count) % size;
            if flow.position == 0 {
                // Nothing follows the last message of a slice, so it is the last of what was received.
                flow.ended = self.room[from + count - 1] == LAST;
                if phase == Phase::Latency && !flow.ended {
                    self.reply(at, deadline)?;
                }
            }
        }
        Ok(octets)
    }

    fn reply(&mut self, at: usize, deadline: Instant) -> Result<(), Failure> {
        let mut position = 0;
        while position < self.answer.len() {
            match self.sockets.send(at, &self.answer[position..])? {
                0 => {
                    self.sockets.idle(PollFlags::POLLOUT, |other| other == at)?;
                    check(deadline)?;
                }
                count => position += count,
            }
        }
        Ok(())
    }
}

fn check(deadline: Instant) -> Result<(), Failure> {
    if Instant::now() <= deadline {
        return Ok(());
    }
    Err(Failure::peer("the client has not ended its slice in time"))
}
