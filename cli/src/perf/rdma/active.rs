//! The end that measures.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rddp_rnic::{Completed, Operation, Remote, SendWr};

use super::{BATCH, Lanes, SINGLE, kind_of, lane_of, marked_write, next_mark};
use crate::endpoint::Agreed;
use crate::failure::Failure;
use crate::perf::control::{Op, Places, Setup, Wait};
use crate::perf::measure::Latencies;
use crate::perf::spin::Wish;

/// Receives for credits and answers: there are never more on their way.
const RECEIVES: usize = 8;

/// How long nothing may happen.
const PATIENCE: Duration = Duration::from_secs(20);

pub(in crate::perf) struct Active {
    lanes: Lanes,
    flows: Vec<Flow>,
    answers: u64,
    mark: u8,
}

/// What is on its way on one connection.
#[derive(Default)]
struct Flow {
    /// One batch, to be posted again and again.
    batch: Vec<SendWr>,
    remote: Option<(Remote, Remote)>,
    outstanding: usize,
    /// Messages that took a receive at the passive end, and those of them whose receive is posted again.
    sent: u64,
    credited: u64,
    /// A request that is waited for.
    single: bool,
}

impl Active {
    pub(in crate::perf) fn new(setup: &Setup) -> Result<Self, Failure> {
        let lanes = Lanes::new(setup, setup.depth() + 8, RECEIVES, Wish::Own)?;
        let flows = lanes.list.iter().map(|_| Flow::default()).collect();
        Ok(Active { lanes, flows, answers: 0, mark: 0 })
    }

    /// Memory for the passive end.
    pub(in crate::perf) fn places(&self) -> Vec<Places> {
        self.lanes.places()
    }

    /// Connects all; what was agreed on.
    pub(in crate::perf) fn connect(&self, addr: SocketAddr, session: u64) -> Result<Agreed, Failure> {
        let mut agreed = None;
        for (number, lane) in (0u16..).zip(&self.lanes.list) {
            let mut options = self.lanes.setup.options();
            options.private_data = [&session.to_be_bytes()[..], &number.to_be_bytes()].concat();
            let connected = lane.qp.connect(addr, &options);
            let connected = connected
                .map_err(|error| Failure::connecting(addr, &error, "the RDMA port of rddp perf server"))?;
            agreed = Some(Agreed::from(&connected.negotiated));
        }
        agreed.ok_or_else(|| Failure::usage("no connections"))
    }

    /// Takes the passive end's memory, and prepares the batches.
    pub(in crate::perf) fn aim(&mut self, places: &[Places]) -> Result<(), Failure> {
        if places.len() != self.flows.len() {
            return Err(Failure::peer("the server has another number of connections"));
        }
        let setup = &self.lanes.setup;
        for ((number, flow), place) in (0u64..).zip(&mut self.flows).zip(places) {
            let lane = &self.lanes.list[lane_of(number)];
            let (source, target) = (Remote::from(place.source), Remote::from(place.target));
            let operation = match setup.op {
                Op::Read => {
                    let sink = lane.target.sge(0..setup.size());
                    Operation::Read { sink, remote: source, invalidate_sink: false }
                }
                Op::Send => Operation::Send { gather: lane.message(setup), invalidate: None },
                Op::Write | Op::Tcp => Operation::Write { gather: lane.message(setup), remote: target },
            };
            flow.batch = vec![SendWr::new(BATCH | number, operation).unsignaled(); setup.batch()];
            // One completion tells of them all: they complete in order.
            if let Some(last) = flow.batch.last_mut() {
                last.signaled = true;
            }
            flow.remote = Some((source, target));
        }
        Ok(())
    }

    /// Posts for `time`, then says so; the messages of which all is at the other end once that has answered.
    pub(in crate::perf) fn bandwidth(&mut self, time: Duration) -> Result<u64, Failure> {
        let end = Instant::now() + time;
        let mut messages = 0;
        while Instant::now() < end {
            let posted = self.post_batches()?;
            messages += posted;
            if self.reap()? == 0 && posted == 0 {
                self.lanes.idle()?;
            }
        }
        self.finish()?;
        Ok(messages)
    }

    /// A batch on each connection that has room; how many messages.
    fn post_batches(&mut self) -> Result<u64, Failure> {
        let setup = &self.lanes.setup;
        let (depth, window) = (setup.depth(), setup.window() as u64);
        let mut posted = 0;
        for (lane, flow) in self.lanes.list.iter().zip(&mut self.flows) {
            let count = flow.batch.len();
            let on_receives = setup.op == Op::Send;
            // One receive stays for the end of the slice.
            let has_receives = !on_receives || flow.sent - flow.credited + (count as u64) < window;
            if flow.outstanding + count <= depth && has_receives {
                lane.qp.post_sends(&flow.batch).map_err(|(error, _)| error)?;
                flow.outstanding += count;
                flow.sent += if on_receives { count as u64 } else { 0 };
                posted += count as u64;
            }
        }
        Ok(posted)
    }

    /// Tells the passive end that this was all, and waits for everything that is on its way.
    fn finish(&mut self) -> Result<(), Failure> {
        for (lane, flow) in self.lanes.list.iter().zip(&mut self.flows) {
            lane.qp.post_send(&SendWr::immediate(SINGLE, [0; 8]).unsignaled())?;
            flow.sent += 1;
        }
        self.until(|active| active.flows.iter().all(|flow| flow.outstanding == 0))
    }

    /// Goes on until `done`.
    fn until(&mut self, mut done: impl FnMut(&mut Self) -> bool) -> Result<(), Failure> {
        let mut deadline = None;
        self.lanes.spin.reset();
        while !done(self) {
            if self.reap()? > 0 {
                deadline = None;
                continue;
            }
            self.lanes.idle()?;
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
            if Instant::now() > deadline {
                return Err(Failure::peer("the server has stopped answering on the data connections"));
            }
        }
        Ok(())
    }

    fn reap(&mut self) -> Result<usize, Failure> {
        let count = self.lanes.poll()?;
        for completion in &self.lanes.polled {
            let number = lane_of(completion.wr_id);
            let (lane, flow) = (&self.lanes.list[number], &mut self.flows[number]);
            match completion.completed {
                Completed::ReceiveImmediate => {
                    // What a server claims beyond what it was sent counts as nothing.
                    let credited = u64::from_be_bytes(completion.immediate.unwrap_or_default());
                    flow.credited = credited.clamp(flow.credited, flow.sent);
                    lane.post_receive()?;
                }
                Completed::Receive => {
                    self.answers += 1;
                    lane.post_receive()?;
                }
                _ if kind_of(completion.wr_id) == BATCH => {
                    flow.outstanding -= flow.batch.len();
                }
                _ => flow.single = true,
            }
        }
        Ok(count)
    }

    /// One message at a time, for `time`.
    pub(in crate::perf) fn latency(
        &mut self,
        time: Duration,
        latencies: &mut Latencies,
    ) -> Result<(), Failure> {
        let mut begun = Instant::now();
        let end = begun + time;
        let round_trips = if self.lanes.setup.op == Op::Read { 1 } else { 2 };
        while begun < end {
            self.round()?;
            let now = Instant::now();
            latencies.record((now - begun) / round_trips);
            begun = now;
        }
        self.finish()
    }

    fn round(&mut self) -> Result<(), Failure> {
        match self.lanes.setup.op {
            Op::Read => self.read_once(),
            Op::Send => {
                let ping = SendWr::send(SINGLE, self.lanes.list[0].message(&self.lanes.setup)).unsignaled();
                self.flows[0].sent += 1;
                self.ask(&[ping])
            }
            Op::Write | Op::Tcp => self.write_once(),
        }
    }

    fn read_once(&mut self) -> Result<(), Failure> {
        let mut read = self.flows[0].batch[0].clone();
        (read.wr_id, read.signaled) = (SINGLE, true);
        self.flows[0].single = false;
        self.lanes.list[0].qp.post_send(&read)?;
        self.until(|active| active.flows[0].single)
    }

    /// Posts, and waits for an answer in a receive.
    fn ask(&mut self, list: &[SendWr]) -> Result<(), Failure> {
        let before = self.answers;
        self.lanes.list[0].qp.post_sends(list).map_err(|(error, _)| error)?;
        self.until(|active| active.answers != before)
    }

    fn write_once(&mut self) -> Result<(), Failure> {
        self.mark = next_mark(self.mark);
        let (mark, wait) = (self.mark, self.lanes.setup.wait);
        let gather = self.lanes.list[0].marked(mark, &self.lanes.setup)?;
        let Some((_, target)) = self.flows[0].remote else { return Ok(()) };
        let list = marked_write(gather, target, mark, wait);
        if wait == Wait::Event {
            self.flows[0].sent += 1;
            return self.ask(&list);
        }
        self.lanes.list[0].qp.post_sends(&list).map_err(|(error, _)| error)?;
        let mut broken = None;
        self.until(|active| {
            active.lanes.list[0].has_mark(mark, &active.lanes.setup).unwrap_or_else(|failure| {
                broken = Some(failure);
                true
            })
        })?;
        broken.map_or(Ok(()), Err)
    }

    pub(in crate::perf) fn close(&self) {
        self.lanes.close();
    }
}
