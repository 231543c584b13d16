//! The active end, which measures.

use std::net::SocketAddr;
use std::time::Instant;

use rddp_command::endpoint::Agreed;
use rddp_command::failure::Failure;
use rddp_load::Extent;
use rddp_load::rdma::{self, Limits, single_id};
use rddp_rnic::{ConnectRequest, Operation, Remote, Rnic, SendWr};

use super::{Lanes, marked_write, next_mark};
use crate::perf::control::{Buffers, Placed, Setup};
use crate::perf::measure::Latencies;
use crate::perf::op::Op;
use crate::perf::spin::Wish;

/// Number of receives for credits and answers: there are never more outstanding.
const RECEIVES: usize = 8;

pub(in crate::perf) struct Active {
    lanes: Lanes,
    load: rdma::Active,
    /// The first connection's memory at the passive end.
    first: Option<Buffers>,
    mark: u8,
}

impl Active {
    /// Makes idle connections, for the party that asks to measure.
    pub(in crate::perf) fn new(setup: &Setup, rnic: &Rnic, wish: Wish) -> Result<Self, Failure> {
        let lanes = Lanes::new(setup, rnic, setup.depth() + 8, RECEIVES, wish)?;
        let (depth, window) = (setup.depth(), setup.window());
        let limits = Limits { depth, window, takes_receives: setup.op == Op::Send };
        let mut load = rdma::Active::new(lanes.list.len(), limits);
        load.set_by_sends(setup.sends);
        Ok(Active { lanes, load, first: None, mark: 0 })
    }

    /// Has slices end, and credits come, by Sends.
    pub(in crate::perf) fn use_sends(&mut self) {
        self.lanes.setup.sends = true;
        self.load.set_by_sends(true);
    }

    /// Returns the memory that the passive end may use.
    pub(in crate::perf) fn buffers(&self) -> Vec<Buffers> {
        self.lanes.buffers()
    }

    pub(in crate::perf) fn connect(&self, addr: SocketAddr, session: u64) -> Result<Agreed, Failure> {
        self.lanes.connect(addr, session)
    }

    pub(in crate::perf) fn accept(&self, number: u16, request: ConnectRequest) -> Result<(), Failure> {
        self.lanes.accept(number, request)
    }

    /// Limits the slice that begins, where a client has asked for it.
    pub(in crate::perf) fn end_by(&mut self, deadline: Instant) {
        self.lanes.spin.serve_until(deadline);
    }

    /// Takes the passive end's memory, and prepares the batches.
    pub(in crate::perf) fn aim(&mut self, buffers: &[Buffers]) -> Result<(), Failure> {
        if buffers.len() != self.load.connections() {
            return Err(Failure::peer("the other end has another number of connections"));
        }
        for (at, buffers) in buffers.iter().enumerate() {
            self.load.aim(at, self.operation(at, *buffers), self.lanes.setup.batch());
        }
        self.first = buffers.first().copied();
        Ok(())
    }

    fn operation(&self, at: usize, buffers: Buffers) -> Operation {
        let (lane, setup) = (&self.lanes.list[at], &self.lanes.setup);
        match setup.op {
            Op::Read => {
                let (sink, remote) = (lane.target.sge(0..setup.size()), buffers.source.into());
                Operation::Read { sink, remote, invalidate_sink: false }
            }
            // The sum and the comparison do not matter: each reads, and may write, eight octets.
            Op::FetchAdd => Operation::FetchAdd {
                sink: lane.target.sge(0..setup.size()),
                remote: buffers.target.into(),
                add: 1,
                mask: 0,
            },
            Op::CmpSwap => Operation::CmpSwap {
                sink: lane.target.sge(0..setup.size()),
                remote: buffers.target.into(),
                compare: 0,
                compare_mask: if self.lanes.has_masks() { 0 } else { u64::MAX },
                swap: 1,
                swap_mask: u64::MAX,
            },
            Op::Send => Operation::Send { gather: lane.message(setup), invalidate: None },
            // The others have no session of iWARP.
            Op::Write | Op::Tcp | Op::Udp | Op::QpRaw | Op::QpRecord | Op::QpUdp => {
                Operation::Write { gather: lane.message(setup), remote: buffers.target.into() }
            }
        }
    }

    /// Posts within the limits; returns the number of messages.
    pub(in crate::perf) fn bandwidth(&mut self, extent: Extent) -> Result<u64, Failure> {
        self.load.bandwidth(&mut self.lanes, extent)
    }

    /// Measures one message at a time, within the limits.
    pub(in crate::perf) fn latency(
        &mut self,
        extent: Extent,
        latencies: &mut Latencies,
    ) -> Result<(), Failure> {
        let Some(first) = self.first else { return Ok(()) };
        let op = self.lanes.setup.op;
        let single = SendWr::new(single_id(0), self.operation(0, first));
        // What the peer answers ends with its own completion, a Send with the answer.
        let single = [if op.is_answered() { single } else { single.unsignaled() }];
        let round_trips = if op.is_answered() { 1 } else { 2 };
        let mark = &mut self.mark;
        self.load.latency(
            &mut self.lanes,
            extent,
            |load, lanes| match op {
                Op::Read | Op::FetchAdd | Op::CmpSwap => load.complete(lanes, &single),
                Op::Send => load.ask(lanes, &single),
                _ => write_once(load, lanes, first.target.into(), mark),
            },
            |time| latencies.record(time / round_trips),
        )
    }

    /// Returns what the kernel has placed at this end.
    pub(in crate::perf) fn placed(&self) -> Placed {
        self.lanes.placed()
    }

    pub(in crate::perf) fn close(&self) {
        self.lanes.close();
    }
}

/// Posts a marked Write, and waits for one in return.
fn write_once(
    load: &mut rdma::Active,
    lanes: &mut Lanes,
    target: Remote,
    mark: &mut u8,
) -> Result<(), Failure> {
    *mark = next_mark(*mark);
    let mark = *mark;
    let list = marked_write(lanes.list[0].marked(mark, &lanes.setup)?, target, mark, &lanes.setup);
    if !lanes.setup.looks_at_memory() {
        return load.ask(lanes, &list);
    }
    rdma::post(lanes, 0, &list)?;
    lanes.awaited = Some(mark);
    load.until(lanes, |_, lanes| lanes.list[0].has_mark(mark, &lanes.setup))?;
    lanes.awaited = None;
    Ok(())
}
