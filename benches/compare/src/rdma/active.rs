//! The active end, which posts.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rddp_load::rdma::{self, Limits, single_id};
use rddp_rnic::{Counters, Negotiated, Operation, SendWr};

use super::{END, Side, is_in_memory, next_mark, remote, requests};
use crate::Outcome;
use crate::control::Control;
use crate::host::now_ns;
use crate::spec::{ControlMessage, Latency, Op, SliceKind, Spec, Wait};

/// Number of receives for credits and answers: there are never more outstanding.
const RECEIVES: usize = 8;

pub(crate) struct Active {
    addr: SocketAddr,
    side: Side,
    load: rdma::Active,
    theirs: ControlMessage,
    mark: u8,
}

impl Active {
    pub(crate) fn new(spec: &Spec, addr: SocketAddr) -> Outcome<Self> {
        let side = Side::new(spec, spec.depth + 8, RECEIVES)?;
        let Spec { depth, window, op, .. } = *spec;
        let limits = Limits { depth, window, takes_receives: op == Op::Send };
        let load = rdma::Active::new(spec.active(), limits);
        Ok(Active { addr, theirs: side.memory(), side, load, mark: 0 })
    }

    /// Connects all connections; returns the outcome of the startup.
    pub(crate) fn connect(&mut self) -> Outcome<Negotiated> {
        let options = self.side.spec.options();
        let mut agreed = None;
        for qp in &self.side.qps {
            agreed = qp.connect(self.addr, &options)?.negotiated;
            self.side.agree(qp);
        }
        agreed.ok_or_else(|| "no connections".into())
    }

    pub(crate) fn memory(&self) -> ControlMessage {
        self.side.memory()
    }

    /// Takes the passive end's memory, and prepares the batches.
    pub(crate) fn aim(&mut self, theirs: ControlMessage) -> Outcome<()> {
        self.theirs = theirs;
        for at in 0..self.load.connections() {
            let sizes = self.side.spec.sizes();
            let round: Vec<_> = sizes.iter().map(|&size| self.operation(at, size)).collect::<Outcome<_>>()?;
            let batch = round.iter().cycle().take(self.side.spec.batch * sizes.len()).cloned();
            self.load.aim_at_all(at, batch.collect());
        }
        Ok(())
    }

    fn operation(&self, at: usize, size: usize) -> Outcome<Operation> {
        let side = &self.side;
        Ok(match side.spec.op {
            Op::Send => Operation::Send { gather: side.message(at, size), invalidate: None },
            Op::Write => {
                let gather = side.message(at, size);
                Operation::Write { gather, remote: remote(&self.theirs, side.target(at))? }
            }
            Op::Read => Operation::Read {
                sink: side.region.sge(side.target(at)..side.target(at) + size),
                remote: remote(&self.theirs, side.source(at))?,
                invalidate_sink: false,
            },
            Op::Tcp | Op::Ddp | Op::Sdp => return Err("a stream is no RDMA operation".into()),
        })
    }

    pub(crate) fn counters(&self) -> Counters {
        self.side.counters()
    }

    /// Posts for `time`; returns the number of messages.
    pub(crate) fn bandwidth(&mut self, time: Duration) -> Outcome<u64> {
        self.load.bandwidth(&mut self.side, time)
    }

    /// Measures one message at a time, on the first connection.
    pub(crate) fn latency(&mut self, time: Duration) -> Outcome<Option<Latency>> {
        let op = self.side.spec.op;
        let ways = if op == Op::Read { 1 } else { 2 };
        let single = [SendWr::new(single_id(0), self.operation(0, self.side.spec.size)?)];
        let (theirs, mark) = (&self.theirs, &mut self.mark);
        let mut times = Vec::new();
        self.load.latency(
            &mut self.side,
            time,
            |load, side| match op {
                Op::Write => round_in_memory(load, side, theirs, mark),
                Op::Send => load.ask(side, &single),
                Op::Read | Op::Tcp | Op::Ddp | Op::Sdp => load.complete(side, &single),
            },
            |time| times.push(time.as_nanos() as u64 / ways),
        )?;
        Ok(Latency::of(times))
    }

    /// Measures marked Writes there and back. An end that has posted one polls for that one alone,
    /// or (`Silent`) never.
    pub(crate) fn watch(&mut self, time: Duration, kind: SliceKind) -> Outcome<Option<Latency>> {
        let mut times = Vec::new();
        let mut begun = Instant::now();
        let end = begun + time;
        while begun < end {
            self.mark = next_mark(self.mark);
            self.side.mark(self.mark)?;
            self.side.write(&self.theirs, kind)?;
            while self.side.marked()? != self.mark {
                self.side.turns.spin()?;
            }
            self.side.turns.reset();
            let now = Instant::now();
            times.push((now - begun).as_nanos() as u64 / 2);
            begun = now;
        }
        self.side.mark(END)?;
        self.side.write(&self.theirs, kind)?;
        Ok(Latency::of(times))
    }

    /// Posts one Write at a time that carries the time of its posting; the passive end, which looks
    /// at memory alone, measures and nods.
    pub(crate) fn notice(&mut self, time: Duration, control: &mut Control) -> Outcome<()> {
        let end = Instant::now() + time;
        let place = self.side.spec.size.checked_sub(8).ok_or("a message has no room for the time")?;
        let stamp = self.side.source(0) + place;
        while Instant::now() < end {
            self.side.region.write(stamp, &now_ns()?.to_be_bytes())?;
            post_write(&self.side, &self.theirs)?;
            control.await_nod()?;
        }
        self.side.region.write(stamp, &u64::MAX.to_be_bytes())?;
        post_write(&self.side, &self.theirs)
    }

    /// Measures one message there and back on a connection of its own, from its opening to its end.
    pub(crate) fn requests(&mut self, time: Duration) -> Outcome<Option<Latency>> {
        requests::ask(&self.side, self.addr, time)
    }

    /// Returns an error if this lane cannot run slices of this kind.
    pub(crate) fn can(spec: &Spec, kind: SliceKind) -> Result<(), &'static str> {
        match kind {
            SliceKind::Window => Err("windows are for streams"),
            SliceKind::Notice | SliceKind::Watch | SliceKind::Silent if spec.op != Op::Write => {
                Err("only a Write is noticed in memory")
            }
            SliceKind::Request if spec.op != Op::Send => Err("a request is a Send"),
            SliceKind::Latency if is_in_memory(spec, kind) && spec.wait != Wait::Poll => {
                Err("only an end that spins sees a Write in memory")
            }
            _ => Ok(()),
        }
    }
}

/// Posts a marked Write and waits for one in return, which only memory shows.
fn round_in_memory(
    load: &mut rdma::Active,
    side: &mut Side,
    theirs: &ControlMessage,
    mark: &mut u8,
) -> Outcome<()> {
    *mark = next_mark(*mark);
    side.mark(*mark)?;
    post_write(side, theirs)?;
    load.until(side, |_, side| Ok(side.marked()? == *mark))
}

/// Writes the first connection's message to the other end, without a completion.
fn post_write(side: &Side, theirs: &ControlMessage) -> Outcome<()> {
    let target = remote(theirs, side.target(0))?;
    let message = side.registered_message(0, side.spec.size);
    rdma::post(side, 0, &[SendWr::write(single_id(0), message, target).unsignaled()])
}
