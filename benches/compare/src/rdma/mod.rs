//! Lanes over rddp: the loops of `rddp_load::rdma`, and those in which ends look at memory alone.

mod active;
mod passive;
mod requests;

pub(crate) use self::active::Active;
pub(crate) use self::passive::Passive;

use std::time::Duration;

use rddp_load::FILL;
use rddp_load::rdma::{self, End, receive_id, single_id};
use rddp_rnic::{
    Access, Completed, Completion, CompletionChannel, CompletionQueue, Counters, Gather, MemoryRegion,
    QpConfig, QueuePair, RecvWr, Remote, Rnic, SendWr, Stag, Status,
};

use crate::spec::{ControlMessage, Op, PLACE_IN_PAGE, SliceKind, Spec, Wait};
use crate::turns::Turns;
use crate::{Fault, Outcome};

/// Completions taken at once.
const POLLED: usize = 64;

/// Time that an end sleeps before it checks for errors.
const NAP: Duration = Duration::from_millis(200);

/// One end of all connections of a lane. Its memory is, for each connection, a source and a target
/// of one message, from [`PLACE_IN_PAGE`] on.
struct Side {
    /// The lane's spec, with the size of its longest message.
    spec: Spec,
    rnic: Rnic,
    channel: Option<CompletionChannel>,
    cq: CompletionQueue,
    region: MemoryRegion,
    /// Sources in place of those in `region`, for a spec that is `stable`.
    stable: Option<MemoryRegion>,
    qps: Vec<QueuePair>,
    polled: Vec<Completion>,
    turns: Turns,
}

impl Side {
    /// Makes idle QPs that hold `sends` requests, each with `receives` posted.
    fn new(spec: &Spec, sends: usize, receives: usize) -> Outcome<Self> {
        let spec = Spec { size: spec.longest(), ..spec.clone() };
        let rnic = Rnic::open()?;
        let channel = (spec.wait == Wait::Channel).then(|| rnic.create_channel()).transpose()?;
        let capacity = spec.connections * (sends + receives);
        let cq = match &channel {
            Some(channel) => rnic.create_cq_on(channel, capacity)?,
            None => rnic.create_cq(capacity)?,
        };
        let pd = rnic.alloc_pd();
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let octets = PLACE_IN_PAGE + 2 * spec.size * spec.connections;
        let region = pd.allocate(octets, rights)?;
        rdma::fill(&region)?;
        let stable = Access::STABLE | Access::REMOTE_READ;
        let stable = spec.stable.then(|| pd.allocate(octets, stable)).transpose()?;
        stable.iter().try_for_each(rdma::fill)?;
        let config = QpConfig { max_send: sends, max_recv: receives, ..QpConfig::new(&cq) };
        let qps: Result<_, _> = (0..spec.connections).map(|_| pd.create_qp(&config)).collect();
        let (polled, turns) = (Vec::with_capacity(POLLED), Turns::default());
        let side = Side { spec, rnic, channel, cq, region, stable, qps: qps?, polled, turns };
        for at in 0..side.qps.len() {
            (0..receives).try_for_each(|_| side.post_receive(at))?;
        }
        Ok(side)
    }

    /// Has a connection send large FPDUs if the spec, which both ends have, says so.
    fn agree(&self, qp: &QueuePair) {
        if self.spec.large {
            qp.send_large_fpdus();
        }
    }

    fn source(&self, at: usize) -> usize {
        PLACE_IN_PAGE + 2 * at * self.spec.size
    }

    fn target(&self, at: usize) -> usize {
        self.source(at) + self.spec.size
    }

    /// Returns the memory that the other end may use.
    fn memory(&self) -> ControlMessage {
        let region = if self.spec.op == Op::Read { self.sources() } else { &self.region };
        let Remote { stag, to } = region.remote(0);
        ControlMessage::Memory { stag: stag.0, to }
    }

    fn sources(&self) -> &MemoryRegion {
        self.stable.as_ref().unwrap_or(&self.region)
    }

    /// Returns a message of that size, which is sent again and again.
    fn message(&self, at: usize, size: usize) -> Gather {
        if self.spec.is_inline() {
            return Gather::Inline(vec![FILL; size]);
        }
        self.registered_message(at, size)
    }

    fn registered_message(&self, at: usize, size: usize) -> Gather {
        let source = self.source(at);
        Gather::from(self.sources().sge(source..source + size))
    }

    /// Writes the first connection's message to the other end; polls until that has completed,
    /// unless it is `Silent`.
    fn write(&mut self, theirs: &ControlMessage, kind: SliceKind) -> Outcome<()> {
        let message = self.registered_message(0, self.spec.size);
        let wr = SendWr::write(single_id(0), message, remote(theirs, self.target(0))?);
        if kind == SliceKind::Silent {
            return rdma::post(self, 0, &[wr.unsignaled()]);
        }
        rdma::post(self, 0, &[wr])?;
        while !self.has_written()? {
            self.turns.spin()?;
        }
        Ok(())
    }

    /// Polls, and returns whether a Write has completed. A credit that the slice before left behind
    /// gets its receive back; the next credit says all that it said.
    fn has_written(&mut self) -> Outcome<bool> {
        let count = self.poll()?;
        let is_credit = |completion: &&Completion| completion.completed == Completed::ReceiveImmediate;
        let credits = self.polled.iter().filter(is_credit).count();
        (0..credits).try_for_each(|_| self.post_receive(0))?;
        Ok(count > credits)
    }

    /// Returns the last octet that the other end has written.
    fn marked(&self) -> Outcome<u8> {
        let mut last = [0];
        self.region.read_into(self.target(0) + self.spec.size - 1, &mut last)?;
        Ok(last[0])
    }

    /// Marks the first connection's message by its last octet.
    fn mark(&self, mark: u8) -> Outcome<()> {
        Ok(self.region.write(self.target(0) - 1, &[mark])?)
    }

    fn why(&self, failed: &Completion) -> String {
        let events: Vec<String> = self.rnic.async_events().map(|event| format!("{event:?}")).collect();
        format!("{}: {:?}: {}; {}", failed.qp, failed.completed, failed.status, events.join(", "))
    }

    fn counters(&self) -> Counters {
        self.rnic.counters()
    }
}

impl End for Side {
    type Failure = Fault;

    fn qp(&self, at: usize) -> &QueuePair {
        &self.qps[at]
    }

    fn post_receive(&self, at: usize) -> Outcome<()> {
        let target = self.target(at);
        let sge = self.region.sge(target..target + self.spec.size);
        Ok(self.qps[at].post_recv(RecvWr::one(receive_id(at), sge))?)
    }

    fn poll(&mut self) -> Outcome<usize> {
        self.polled.clear();
        if self.spec.wait == Wait::First {
            self.cq.wait(Some(NAP))?;
        }
        let count = self.cq.poll(POLLED, &mut self.polled);
        if count > 0 {
            self.turns.reset();
        }
        match self.polled.iter().find(|completion| completion.status != Status::Success) {
            None => Ok(count),
            Some(failed) => Err(self.why(failed).into()),
        }
    }

    fn polled(&self) -> &[Completion] {
        &self.polled
    }

    fn idle(&mut self) -> Outcome<()> {
        match (&self.channel, self.spec.wait) {
            (Some(channel), _) => {
                self.cq.arm(false);
                channel.wait(Some(NAP))?;
            }
            (None, Wait::Poll) => return self.turns.spin(),
            (None, Wait::First) => {}
            (None, _) => {
                self.cq.wait(Some(NAP))?;
            }
        }
        self.turns.check()
    }

    fn progressed(&mut self) {
        self.turns.reset();
    }
}

/// Returns a place in the other end's memory.
fn remote(memory: &ControlMessage, offset: usize) -> Outcome<Remote> {
    match *memory {
        ControlMessage::Memory { stag, to } => Ok(Remote { stag: Stag(stag), to: to + offset as u64 }),
        _ => Err("the other end has not said where its memory is".into()),
    }
}

/// Returns whether both ends notice messages by looking at memory.
fn is_in_memory(spec: &Spec, kind: SliceKind) -> bool {
    spec.op == Op::Write && kind == SliceKind::Latency
}

/// Returns the mark behind the next message of the ping-pong in memory. It is never the octet that
/// buffers hold at the beginning, and never [`END`].
fn next_mark(mark: u8) -> u8 {
    match mark.wrapping_add(1) {
        FILL => FILL + 1,
        END => END + 1,
        next => next,
    }
}

/// The mark of the Write that ends a slice.
const END: u8 = 0;
