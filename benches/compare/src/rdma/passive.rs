//! The passive end, which answers.

use rddp_load::FILL;
use rddp_load::rdma::{self, single_id};
use rddp_rnic::{Counters, Listener, SendWr};

use super::{END, Side, is_in_memory, next_mark, remote, requests};
use crate::Outcome;
use crate::control::Control;
use crate::host::now_ns;
use crate::spec::{ControlMessage, Latency, SliceKind, Spec};

/// Limit on outstanding requests of a connection: answers and credits.
const SENDS: usize = 32;

/// Octets in place of a time, before there is one.
const NO_TIME: [u8; 8] = [0; 8];

pub(crate) struct Passive {
    side: Side,
    listener: Listener,
    load: rdma::Passive,
    answers: Answers,
}

/// The answers of the passive end, beside credits.
struct Answers {
    theirs: ControlMessage,
    answer: SendWr,
    kind: SliceKind,
    mark: u8,
}

impl Passive {
    pub(crate) fn listen(spec: &Spec, addr: std::net::IpAddr) -> Outcome<Self> {
        let side = Side::new(spec, SENDS, spec.window)?;
        let listener = side.rnic.listen((addr, 0).into(), &spec.options())?;
        let answer = SendWr::send(single_id(0), side.message(0, side.spec.size)).unsignaled();
        let answers = Answers { theirs: side.memory(), answer, kind: SliceKind::Bandwidth, mark: 0 };
        Ok(Passive { side, listener, load: rdma::Passive::new(spec.active(), spec.window), answers })
    }

    pub(crate) fn port(&self) -> Outcome<u16> {
        Ok(self.listener.local_addr()?.port())
    }

    /// Takes all connections of the lane.
    pub(crate) fn accept(&self) -> Outcome<()> {
        let options = self.side.spec.options();
        for qp in &self.side.qps {
            let request = self.listener.accept(Some(options.timeout))?.ok_or("a connection is missing")?;
            request.accept_with(qp, &options)?;
            self.side.agree(qp);
        }
        Ok(())
    }

    pub(crate) fn memory(&self) -> ControlMessage {
        self.side.memory()
    }

    pub(crate) fn aim(&mut self, theirs: ControlMessage) {
        self.answers.theirs = theirs;
    }

    pub(crate) fn counters(&self) -> Counters {
        self.side.counters()
    }

    /// Prepares memory before the active end begins a slice.
    pub(crate) fn prepare(&self, kind: SliceKind) -> Outcome<()> {
        if kind == SliceKind::Notice {
            self.side.region.write(self.stamp(), &NO_TIME)?;
        }
        if matches!(kind, SliceKind::Watch | SliceKind::Silent) {
            // The end of the slice before may still be there.
            self.side.region.write(self.side.target(0) + self.side.spec.size - 1, &[FILL])?;
        }
        Ok(())
    }

    /// Returns the offset at which a message carries the time of its posting.
    fn stamp(&self) -> usize {
        self.side.target(0) + self.side.spec.size - NO_TIME.len()
    }

    /// Answers until the active end has ended the slice on every connection.
    pub(crate) fn serve(&mut self, kind: SliceKind, control: &mut Control) -> Outcome<Option<Latency>> {
        if kind == SliceKind::Notice {
            return self.notice(control);
        }
        match kind {
            SliceKind::Watch | SliceKind::Silent => return self.watch(kind).map(|()| None),
            SliceKind::Request => return requests::answer(&self.side, &self.listener).map(|()| None),
            _ => {}
        }
        self.answers.kind = kind;
        self.load.serve(&mut self.side, &mut self.answers)?;
        Ok(None)
    }

    /// Answers marked Writes until the one that ends the slice; polls for its own Writes
    /// alone, or (`Silent`) never.
    fn watch(&mut self, kind: SliceKind) -> Outcome<()> {
        loop {
            let due = next_mark(self.answers.mark);
            match self.side.marked()? {
                END => return Ok(()),
                mark if mark == due => {
                    self.answers.mark = mark;
                    self.side.turns.reset();
                    self.side.mark(mark)?;
                    self.side.write(&self.answers.theirs, kind)?;
                }
                _ => self.side.turns.spin()?,
            }
        }
    }

    /// Looks at memory and makes no other call of rddp's. Offers the processor to others at every
    /// look, as the background thread may have no other.
    fn notice(&mut self, control: &mut Control) -> Outcome<Option<Latency>> {
        let (mut times, mut seen, mut octets) = (Vec::new(), NO_TIME, NO_TIME);
        loop {
            self.side.region.read_into(self.stamp(), &mut octets)?;
            if octets == seen {
                std::thread::yield_now();
                self.side.turns.check()?;
                continue;
            }
            self.side.turns.reset();
            let (now, sent) = (now_ns()?, u64::from_be_bytes(octets));
            if sent == u64::MAX {
                return Ok(Latency::of(times));
            }
            times.push(now.saturating_sub(sent));
            seen = octets;
            control.nod()?;
        }
    }
}

impl rdma::Answers<Side> for Answers {
    fn message(&mut self, side: &mut Side, at: usize) -> Outcome<()> {
        if self.kind == SliceKind::Latency {
            rdma::post(side, at, std::slice::from_ref(&self.answer))?;
        }
        Ok(())
    }

    /// Answers a marked Write, if there is a new one, by a marked Write.
    fn poll_memory(&mut self, side: &mut Side) -> Outcome<bool> {
        let mark = next_mark(self.mark);
        if !is_in_memory(&side.spec, self.kind) || side.marked()? != mark {
            return Ok(false);
        }
        self.mark = mark;
        side.mark(mark)?;
        let target = remote(&self.theirs, side.target(0))?;
        let message = side.registered_message(0, side.spec.size);
        let answer = SendWr::write(single_id(0), message, target);
        rdma::post(side, 0, &[answer.unsignaled()])?;
        Ok(true)
    }
}
