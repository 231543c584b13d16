//! The end that answers.

use rddp_rnic::{Completed, Counters, Listener, PostError, SendWr};

use super::{END, FILL, SINGLE, Side, connection_of, is_in_memory, next_mark, remote};
use crate::Outcome;
use crate::control::Control;
use crate::host::now_ns;
use crate::spec::{Kind, Latency, Message, Spec};

/// Requests that it has on its way on a connection: answers and credits.
const SENDS: usize = 32;

/// In place of a time, before there is one.
const NO_TIME: [u8; 8] = [0; 8];

pub(crate) struct Passive {
    side: Side,
    listener: Listener,
    flows: Vec<Flow>,
    theirs: Message,
    answer: SendWr,
    mark: u8,
}

#[derive(Clone, Default)]
struct Flow {
    /// Receives that were used up, and posted again.
    consumed: u64,
    /// What of that the active end was told.
    credited: u64,
    ended: bool,
}

impl Passive {
    pub(crate) fn listen(spec: &Spec, addr: std::net::IpAddr) -> Outcome<Self> {
        let side = Side::new(spec, SENDS, spec.window)?;
        let listener = side.rnic.listen((addr, 0).into(), &spec.options())?;
        let answer = SendWr::send(SINGLE, side.message(0)).unsignaled();
        let flows = vec![Flow::default(); spec.active()];
        Ok(Passive { theirs: side.memory(), side, listener, flows, answer, mark: 0 })
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
        }
        Ok(())
    }

    pub(crate) fn memory(&self) -> Message {
        self.side.memory()
    }

    pub(crate) fn aim(&mut self, theirs: Message) {
        self.theirs = theirs;
    }

    pub(crate) fn counters(&self) -> Counters {
        self.side.counters()
    }

    /// Before the active end begins a slice.
    pub(crate) fn prepare(&self, kind: Kind) -> Outcome<()> {
        if kind == Kind::Notice {
            self.side.region.write(self.stamp(), &NO_TIME)?;
        }
        if matches!(kind, Kind::Watch | Kind::Silent) {
            // There may be the end of the slice before.
            self.side.region.write(2 * self.side.spec.size - 1, &[FILL])?;
        }
        Ok(())
    }

    /// Where a message says when it was posted.
    fn stamp(&self) -> usize {
        2 * self.side.spec.size - NO_TIME.len()
    }

    /// Does its part until the active end has ended the slice on every connection.
    pub(crate) fn serve(&mut self, kind: Kind, control: &mut Control) -> Outcome<Option<Latency>> {
        if kind == Kind::Notice {
            return self.notice(control);
        }
        if matches!(kind, Kind::Watch | Kind::Silent) {
            return self.watch(kind).map(|()| None);
        }
        let in_memory = is_in_memory(&self.side.spec, kind);
        self.flows.iter_mut().for_each(|flow| flow.ended = false);
        while !self.flows.iter().all(|flow| flow.ended && flow.credited == flow.consumed) {
            let count = self.side.poll()?;
            self.handle(kind)?;
            let answered = in_memory && self.answer_mark()?;
            if count == 0 && !answered {
                self.side.idle()?;
            }
        }
        Ok(None)
    }

    fn handle(&mut self, kind: Kind) -> Outcome<()> {
        for completion in &self.side.polled {
            let at = connection_of(completion.wr_id);
            match completion.completed {
                Completed::Receive | Completed::ReceiveImmediate => self.side.post_receive(at)?,
                _ => continue,
            }
            let flow = &mut self.flows[at];
            flow.consumed += 1;
            if completion.completed == Completed::ReceiveImmediate {
                flow.ended = true;
            } else if kind == Kind::Latency {
                self.side.post(at, std::slice::from_ref(&self.answer))?;
            }
            give_credit(&self.side, at, flow)?;
        }
        Ok(())
    }

    /// Answers a marked Write, if there is a new one, by a marked Write.
    fn answer_mark(&mut self) -> Outcome<bool> {
        let (mark, size) = (next_mark(self.mark), self.side.spec.size);
        let mut last = [0];
        self.side.region.read_into(2 * size - 1, &mut last)?;
        if last != [mark] {
            return Ok(false);
        }
        self.mark = mark;
        self.side.region.write(size - 1, &last)?;
        let target = remote(&self.theirs, self.side.target(0))?;
        let answer = SendWr::write(SINGLE, self.side.registered_message(0), target);
        self.side.post(0, &[answer.unsignaled()])?;
        Ok(true)
    }

    /// Answers marked Writes until the one that ends the slice; polls for its own alone,
    /// or (`Silent`) never.
    fn watch(&mut self, kind: Kind) -> Outcome<()> {
        loop {
            let due = next_mark(self.mark);
            match self.side.marked()? {
                END => return Ok(()),
                mark if mark == due => {
                    self.mark = mark;
                    self.side.turns.reset();
                    self.side.region.write(self.side.spec.size - 1, &[mark])?;
                    self.side.write(&self.theirs, kind)?;
                }
                _ => self.side.turns.spin()?,
            }
        }
    }

    /// Looks at memory and makes no other call of rddp's. Gives way at every look, as the background thread may have no
    /// other processor.
    fn notice(&mut self, control: &mut Control) -> Outcome<Option<Latency>> {
        let (mut times, mut seen, mut octets) = (Vec::new(), NO_TIME, NO_TIME);
        loop {
            self.side.region.read_into(self.stamp(), &mut octets)?;
            if octets == seen {
                std::thread::yield_now();
                self.side.turns.look()?;
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

/// Tells the active end of receives that are posted again: a quarter of the window at a time.
fn give_credit(side: &Side, at: usize, flow: &mut Flow) -> Outcome<()> {
    let due = flow.consumed - flow.credited;
    if due < side.spec.window as u64 / 4 && !flow.ended {
        return Ok(());
    }
    let credit = SendWr::immediate(SINGLE | at as u64, flow.consumed.to_be_bytes()).unsignaled();
    match side.qps[at].post_send(&credit) {
        Ok(()) => flow.credited = flow.consumed,
        // The active end is slow to read: with the next message, then.
        Err(PostError::QueueFull { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
