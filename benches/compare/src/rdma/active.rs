//! The end that posts.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rddp_rnic::{Completed, Counters, Gather, Negotiated, Operation, SendWr};

use super::{BATCH, END, SINGLE, Side, connection_of, is_in_memory, kind_of, next_mark, remote};
use crate::Outcome;
use crate::control::Control;
use crate::host::now_ns;
use crate::spec::{Kind, Latency, Message, Op, Spec, Wait};

/// Receives for credits and answers: there are never more on their way.
const RECEIVES: usize = 8;

pub(crate) struct Active {
    side: Side,
    flows: Vec<Flow>,
    theirs: Message,
    answers: u64,
    mark: u8,
}

/// What is on its way on one connection.
#[derive(Default)]
struct Flow {
    /// Posted again and again; one completion tells of all.
    batch: Vec<SendWr>,
    outstanding: usize,
    /// Messages that took a receive at the passive end, and those of them whose receive is posted again.
    sent: u64,
    credited: u64,
}

impl Active {
    pub(crate) fn new(spec: &Spec) -> Outcome<Self> {
        let side = Side::new(spec, spec.depth + 8, RECEIVES)?;
        let flows = (0..spec.active()).map(|_| Flow::default()).collect();
        Ok(Active { theirs: side.memory(), side, flows, answers: 0, mark: 0 })
    }

    /// Connects all; what was agreed on.
    pub(crate) fn connect(&mut self, addr: SocketAddr) -> Outcome<Negotiated> {
        let options = self.side.spec.options();
        let mut agreed = None;
        for qp in &self.side.qps {
            agreed = Some(qp.connect(addr, &options)?.negotiated);
        }
        agreed.ok_or_else(|| "no connections".into())
    }

    pub(crate) fn memory(&self) -> Message {
        self.side.memory()
    }

    /// Takes the passive end's memory, and prepares the batches.
    pub(crate) fn aim(&mut self, theirs: Message) -> Outcome<()> {
        self.theirs = theirs;
        for at in 0..self.flows.len() {
            let wr = SendWr::new(BATCH | at as u64, self.operation(at)?).unsignaled();
            let mut batch = vec![wr; self.side.spec.batch];
            if let Some(last) = batch.last_mut() {
                last.signaled = true;
            }
            self.flows[at].batch = batch;
        }
        Ok(())
    }

    fn operation(&self, at: usize) -> Outcome<Operation> {
        let side = &self.side;
        Ok(match side.spec.op {
            Op::Send => Operation::Send { gather: side.message(at), invalidate: None },
            Op::Write => {
                Operation::Write { gather: side.message(at), remote: remote(&self.theirs, side.target(at))? }
            }
            Op::Read => Operation::Read {
                sink: side.region.sge(side.target(at)..side.target(at) + side.spec.size),
                remote: remote(&self.theirs, side.source(at))?,
                invalidate_sink: false,
            },
            Op::Tcp | Op::Ddp => return Err("a stream is no RDMA operation".into()),
        })
    }

    pub(crate) fn counters(&self) -> Counters {
        self.side.counters()
    }

    /// Posts for that long; how many messages.
    pub(crate) fn bandwidth(&mut self, time: Duration) -> Outcome<u64> {
        let end = Instant::now() + time;
        let mut messages = 0;
        while Instant::now() < end {
            let posted = self.post_batches()?;
            messages += posted;
            if self.reap()? == 0 && posted == 0 {
                self.side.idle()?;
            }
        }
        self.finish()?;
        Ok(messages)
    }

    /// A batch on each connection that has room; how many messages.
    fn post_batches(&mut self) -> Outcome<u64> {
        let spec = &self.side.spec;
        let takes_receives = spec.op == Op::Send;
        let mut posted = 0;
        for (at, flow) in self.flows.iter_mut().enumerate() {
            let count = flow.batch.len() as u64;
            // One receive stays for the end of the slice.
            let has_receives = !takes_receives || flow.sent - flow.credited + count < spec.window as u64;
            if flow.outstanding + flow.batch.len() <= spec.depth && has_receives {
                self.side.post(at, &flow.batch)?;
                flow.outstanding += flow.batch.len();
                flow.sent += if takes_receives { count } else { 0 };
                posted += count;
            }
        }
        Ok(posted)
    }

    /// Waits for everything that is on its way, and tells the passive end that this was all.
    fn finish(&mut self) -> Outcome<()> {
        for (at, flow) in self.flows.iter_mut().enumerate() {
            self.side.post(at, &[SendWr::immediate(SINGLE | at as u64, [0; 8])])?;
            flow.sent += 1;
            flow.outstanding += 1;
        }
        self.until(|active| active.flows.iter().all(|flow| flow.outstanding == 0))
    }

    fn until(&mut self, mut done: impl FnMut(&mut Self) -> bool) -> Outcome<()> {
        while !done(self) {
            if self.reap()? == 0 && !done(self) {
                self.side.idle()?;
            }
        }
        Ok(())
    }

    /// Takes completions; how many.
    fn reap(&mut self) -> Outcome<usize> {
        let count = self.side.poll()?;
        for completion in &self.side.polled {
            let at = connection_of(completion.wr_id);
            match completion.completed {
                Completed::ReceiveImmediate => {
                    let flow = &mut self.flows[at];
                    let credited = u64::from_be_bytes(completion.immediate.unwrap_or_default());
                    flow.credited = credited.clamp(flow.credited, flow.sent);
                    self.side.post_receive(at)?;
                }
                Completed::Receive => {
                    self.answers += 1;
                    self.side.post_receive(at)?;
                }
                _ if kind_of(completion.wr_id) == BATCH => {
                    self.flows[at].outstanding -= self.flows[at].batch.len();
                }
                _ => self.flows[at].outstanding -= 1,
            }
        }
        Ok(count)
    }

    /// One message at a time, on the first connection.
    pub(crate) fn latency(&mut self, time: Duration) -> Outcome<Option<Latency>> {
        let ways = if self.side.spec.op == Op::Read { 1 } else { 2 };
        let single = SendWr::new(SINGLE, self.operation(0)?);
        let mut times = Vec::new();
        let mut begun = Instant::now();
        let end = begun + time;
        while begun < end {
            self.round(&single)?;
            let now = Instant::now();
            times.push((now - begun).as_nanos() as u64 / ways);
            begun = now;
        }
        self.finish()?;
        Ok(Latency::of(times))
    }

    fn round(&mut self, single: &SendWr) -> Outcome<()> {
        match self.side.spec.op {
            Op::Write => return self.round_in_memory(),
            Op::Send => self.flows[0].sent += 1,
            Op::Read | Op::Tcp | Op::Ddp => {}
        }
        let before = self.answers;
        let is_answered_by_send = self.side.spec.op == Op::Send;
        self.flows[0].outstanding += 1;
        self.side.post(0, std::slice::from_ref(single))?;
        self.until(|active| {
            active.flows[0].outstanding == 0 && (!is_answered_by_send || active.answers != before)
        })
    }

    /// A marked Write, answered by one: nothing but memory tells of it.
    fn round_in_memory(&mut self) -> Outcome<()> {
        self.mark = next_mark(self.mark);
        let (mark, size) = (self.mark, self.side.spec.size);
        self.side.region.write(size - 1, &[mark])?;
        self.post_write(self.side.registered_message(0))?;
        let mut last = [0];
        loop {
            self.side.region.read_into(2 * size - 1, &mut last)?;
            if last == [mark] {
                return Ok(());
            }
            if self.reap()? == 0 {
                self.side.turns.spin()?;
            }
        }
    }

    /// Marked Writes there and back; whoever has posted one polls for that one alone,
    /// or (`Silent`) never.
    pub(crate) fn watch(&mut self, time: Duration, kind: Kind) -> Outcome<Option<Latency>> {
        let mut times = Vec::new();
        let mut begun = Instant::now();
        let (end, size) = (begun + time, self.side.spec.size);
        while begun < end {
            self.mark = next_mark(self.mark);
            self.side.region.write(size - 1, &[self.mark])?;
            self.side.write(&self.theirs, kind)?;
            while self.side.marked()? != self.mark {
                self.side.turns.spin()?;
            }
            self.side.turns.reset();
            let now = Instant::now();
            times.push((now - begun).as_nanos() as u64 / 2);
            begun = now;
        }
        self.side.region.write(size - 1, &[END])?;
        self.side.write(&self.theirs, kind)?;
        Ok(Latency::of(times))
    }

    fn post_write(&self, gather: Gather) -> Outcome<()> {
        let target = remote(&self.theirs, self.side.target(0))?;
        self.side.post(0, &[SendWr::write(SINGLE, gather, target).unsignaled()])
    }

    /// One Write at a time that says when it was posted; the passive end, which looks at memory alone, measures and nods.
    pub(crate) fn notice(&mut self, time: Duration, control: &mut Control) -> Outcome<()> {
        let end = Instant::now() + time;
        let stamp = self.side.spec.size.checked_sub(8).ok_or("a message has no room for the time")?;
        while Instant::now() < end {
            self.side.region.write(stamp, &now_ns()?.to_be_bytes())?;
            self.post_write(self.side.registered_message(0))?;
            control.await_nod()?;
        }
        self.side.region.write(stamp, &u64::MAX.to_be_bytes())?;
        self.post_write(self.side.registered_message(0))
    }

    /// Whether such a slice can be had on this lane.
    pub(crate) fn can(spec: &Spec, kind: Kind) -> Result<(), &'static str> {
        match kind {
            Kind::Window => Err("windows are for streams"),
            Kind::Notice | Kind::Watch | Kind::Silent if spec.op != Op::Write => {
                Err("only a Write is noticed in memory")
            }
            Kind::Latency if is_in_memory(spec, kind) && spec.wait != Wait::Poll => {
                Err("only an end that spins sees a Write in memory")
            }
            _ => Ok(()),
        }
    }
}
