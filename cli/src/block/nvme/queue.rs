//! A queue of an NVMe host: one connection of the server, with its commands under way.
//!
//! A capsule stays in its receive until its command is answered, so that a host has no more
//! commands under way than there are receives, and its data are copied only once there is memory.

mod data;

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use rddp_block::export::{Command as Work, DiskError};
use rddp_block::nvme::IN_CAPSULE;
use rddp_block::nvme::capsule::{Place, SQE_LEN, Sqe};
use rddp_block::nvme::status::Status;
use rddp_block::nvme::step::{Outcome, Step};
use rddp_block::nvme::target::{Address, Queue};
use rddp_command::addr;
use rddp_rnic::{
    Completed, Completion, MemoryRegion, QpConfig, QueuePair, RecvWr, SendWr, Status as Completes,
};

use super::super::buffers::Buffer;
use super::super::disk::{Done, Job};
use super::super::session::{MOST_OCTETS, Means, PATIENCE, Session, Wrong};
use super::super::troubles::Kind;
use super::command::{Command, Phase, needs};

/// Octets of a receive: a command with all data that its capsule may have.
const CAPSULE: usize = SQE_LEN + IN_CAPSULE;

/// A connection.
pub(in crate::block) struct Connection {
    qp: QueuePair,
    peer: String,
    queue: Queue,
    inbox: MemoryRegion,
    commands: HashMap<u64, Command>,
    /// Commands that wait for memory, in order.
    waiting: VecDeque<u64>,
    octets: usize,
    next_id: u64,
    /// Requests that are to be posted by the next call.
    out: Vec<SendWr>,
    /// Answers that TCP has not taken.
    unsent: usize,
    /// Receives that are posted once it has taken some.
    idle: Vec<usize>,
    /// Reads that the host has not answered.
    reads: usize,
    /// The time when an answer was last taken, or a Read answered, or when there was none of both.
    moved: Instant,
    /// The end of the time for a Connect.
    until: Instant,
    has_gone: bool,
}

/// The end of a connection whose host did something wrong.
#[derive(Debug, thiserror::Error)]
pub(in crate::block) enum Fault {
    #[error("a capsule of {0} octets, where a command has 64")]
    Short(u32),
    #[error("no Connect within {} s", PATIENCE.as_secs())]
    Silent,
    #[error("its connection failed: {0}")]
    Failed(Completes),
}

/// Returns the settings of a queue pair for so many commands, and the completions that there can
/// be of it: for each command a receive and a Read, or a Write and an answer, and answers that TCP
/// has not taken.
pub(in crate::block) fn sizes(config: &mut QpConfig, queue: &Queue) -> usize {
    let commands = usize::from(queue.commands());
    (config.max_send, config.max_recv) = (7 * commands, commands);
    8 * commands
}

impl Connection {
    /// Begins a connection, whose queue pair is about to be connected. `inbox` is
    /// [`inbox_len`] octets.
    pub(in crate::block) fn new(
        qp: QueuePair,
        peer: String,
        queue: Queue,
        inbox: MemoryRegion,
    ) -> Result<Self, Wrong> {
        let mut connection = Connection {
            qp,
            peer,
            queue,
            inbox,
            commands: HashMap::new(),
            waiting: VecDeque::new(),
            octets: 0,
            next_id: 0,
            out: Vec::new(),
            unsent: 0,
            reads: 0,
            idle: Vec::new(),
            moved: Instant::now(),
            until: Instant::now() + PATIENCE,
            has_gone: false,
        };
        for slot in 0..usize::from(connection.queue.commands()) {
            connection.receive(slot)?;
        }
        Ok(connection)
    }

    pub(in crate::block) fn qp(&self) -> &QueuePair {
        &self.qp
    }

    /// Notes the address that the host has connected to, which discovery tells.
    pub(in crate::block) fn reached(&mut self) {
        if let Some(at) = self.qp.local_addr().map(addr::plain) {
            let (address, is_ipv6) = (at.ip().to_string(), at.is_ipv6());
            self.queue.reached(Address { address, is_ipv6, port: at.port() });
        }
    }

    fn receive(&mut self, slot: usize) -> Result<(), Wrong> {
        let sge = self.inbox.sge(slot * CAPSULE..(slot + 1) * CAPSULE);
        Ok(self.qp.post_recv(RecvWr::one(slot as u64, sge))?)
    }

    /// Takes a capsule.
    fn received(&mut self, slot: usize, len: u32, means: &mut Means) -> Result<(), Wrong> {
        let data = (len as usize).checked_sub(SQE_LEN).ok_or(Fault::Short(len))?;
        let mut octets = [0; SQE_LEN];
        self.inbox.read_into(slot * CAPSULE, &mut octets)?;
        let sqe = Sqe::parse(&octets);
        let step = means.target.take(&mut self.queue, &sqe, data, means.now());
        if let Step::Answer(Outcome { status, .. }) = step
            && [Status::WRITE_PROTECTED, Status::LBA_RANGE].contains(&status)
        {
            let text = format_args!("{}: a command for a disk: {status}", self.peer);
            means.troubles.warn(Kind::Refused, text);
        }
        let id = self.next_id;
        self.next_id += 1;
        self.commands.insert(id, Command::new(sqe, slot, step));
        // Whoever came first gets memory first.
        if self.waiting.is_empty() { self.begin(id, means).map(drop) } else { self.wait(id, means) }
    }

    /// Has a command wait for memory behind others, unless it needs none.
    fn wait(&mut self, id: u64, means: &mut Means) -> Result<(), Wrong> {
        let Some(command) = self.commands.get(&id) else { return Ok(()) };
        match &command.phase {
            Phase::Begins(step) if needs(step, &command.place()) > 0 => {
                self.waiting.push_back(id);
                Ok(())
            }
            _ => self.begin(id, means).map(drop),
        }
    }

    /// Begins a command, or returns `false` while there is no memory for it.
    fn begin(&mut self, id: u64, means: &mut Means) -> Result<bool, Wrong> {
        let Some(command) = self.commands.get_mut(&id) else { return Ok(true) };
        let place = command.place();
        let Phase::Begins(step) = &command.phase else { return Ok(true) };
        let len = needs(step, &place);
        if len > 0 {
            let has_room = self.octets == 0 || self.octets + len <= MOST_OCTETS;
            let taken = has_room.then(|| match step {
                Step::Disk(disk, _) => means.buffers.take_for(*disk, self.qp.num().0, len),
                _ => means.buffers.take(len),
            });
            let Some(buffer) = taken.flatten() else {
                self.waiting.push_front(id);
                return Ok(false);
            };
            command.octets = buffer.len();
            self.octets += command.octets;
            command.buffer = Some(buffer);
        }
        let Phase::Begins(step) = std::mem::replace(&mut command.phase, Phase::Rests) else {
            return Ok(true);
        };
        self.act(id, step, place, means)?;
        Ok(true)
    }

    /// Does what the target has found that there is to do. Memory is there.
    fn act(&mut self, id: u64, step: Step, place: Place, means: &mut Means) -> Result<(), Wrong> {
        match step {
            Step::Answer(outcome) => self.answer(id, outcome),
            Step::Hold => Ok(()),
            Step::Give(octets) => self.give(id, &octets),
            Step::Fetch(len) => self.fetch(id, len, step, place, means),
            Step::Disk(_, Work::Write { len, .. }) => self.fetch(id, len as usize, step, place, means),
            Step::Disk(disk, work) => self.work(id, disk, work, Vec::new(), means),
            Step::Trim(disk, mut rest) => match rest.pop() {
                Some(first) => self.work(id, disk, first, rest, means),
                None => self.answer(id, Status::SUCCESS.into()),
            },
        }
    }

    /// Has a disk work for a command.
    fn work(
        &mut self,
        id: u64,
        disk: usize,
        work: Work,
        rest: Vec<Work>,
        means: &mut Means,
    ) -> Result<(), Wrong> {
        let Some(command) = self.commands.get_mut(&id) else { return Ok(()) };
        command.phase = Phase::Works { disk, work, rest };
        let job = Job { owner: self.qp.num().0, id, command: work, buffer: command.buffer.take() };
        match means.disks[disk].take(job) {
            Some(done) => self.done(done, means),
            None => Ok(()),
        }
    }

    /// Notes that the host is about to have something to take, or to answer.
    fn owe(&mut self) {
        if self.unsent + self.reads == 0 {
            self.moved = Instant::now();
        }
    }

    /// Answers a command: its receive is posted for the next one first.
    fn answer(&mut self, id: u64, outcome: Outcome) -> Result<(), Wrong> {
        let Some(command) = self.commands.get_mut(&id) else { return Ok(()) };
        command.phase = Phase::Rests;
        let (slot, wr) = (command.slot, command.answer(id, &self.queue.answer(&command.sqe, outcome)));
        self.owe();
        self.unsent += 1;
        self.out.push(wr);
        // A host that takes no answers gets no more receives than it can have commands.
        if self.unsent < 2 * usize::from(self.queue.commands()) {
            return self.receive(slot);
        }
        self.idle.push(slot);
        Ok(())
    }

    /// Notes that TCP has taken an answer.
    fn sent(&mut self, id: u64, means: &mut Means) -> Result<(), Wrong> {
        self.moved = Instant::now();
        self.unsent = self.unsent.saturating_sub(1);
        if let Some(command) = self.commands.remove(&id) {
            self.octets -= command.octets;
            command.buffer.into_iter().for_each(|buffer| means.buffers.give_back(buffer));
        }
        self.idle.pop().map_or(Ok(()), |slot| self.receive(slot))
    }
}

impl Session for Connection {
    fn peer(&self) -> &str {
        &self.peer
    }

    fn completions(&self) -> usize {
        8 * usize::from(self.queue.commands())
    }

    fn take(&mut self, completion: &Completion, means: &mut Means) -> Result<(), Wrong> {
        match (completion.completed, completion.status) {
            // The host has gone, and all that was posted ends so.
            (_, Completes::Flushed) => {
                self.has_gone = true;
                Ok(())
            }
            (Completed::Receive, Completes::Success) => {
                self.received(completion.wr_id as usize, completion.byte_len, means)
            }
            (Completed::Read, Completes::Success) => self.read(completion.wr_id, means),
            (_, Completes::Success) => self.sent(completion.wr_id, means),
            (_, status) => Err(Fault::Failed(status).into()),
        }
    }

    fn done(&mut self, done: Done, means: &mut Means) -> Result<(), Wrong> {
        let Done { id, buffer, result, .. } = done;
        let Some(command) = self.commands.get_mut(&id) else {
            buffer.into_iter().for_each(|buffer| means.buffers.give_back(buffer));
            return Ok(());
        };
        command.buffer = buffer;
        let phase = std::mem::replace(&mut command.phase, Phase::Rests);
        let Phase::Works { disk, work, mut rest } = phase else { return Ok(()) };
        let reads = match work {
            Work::Read { len, .. } => Some(len),
            _ => None,
        };
        if let Err(error) = result {
            let export = &means.disks[disk].export;
            means.troubles.warn_of_disk(&self.peer, (disk, export), &work, error);
            return self.answer(id, Status::of(error, reads.is_some()).into());
        }
        if let Some(next) = rest.pop() {
            return self.work(id, disk, next, rest, means);
        }
        if let Some(len) = reads {
            let (Some(buffer), Some(remote)) = (&command.buffer, command.remote()) else {
                return self.answer(id, Status::of(DiskError::NoMem, true).into());
            };
            let source = buffer.region().sge(Buffer::payload(len));
            self.out.push(SendWr::write(id, source, remote).unsignaled());
        }
        self.answer(id, Status::SUCCESS.into())
    }

    fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn resume(&mut self, means: &mut Means) -> Result<(), Wrong> {
        while let Some(id) = self.waiting.pop_front() {
            if !self.begin(id, means)? {
                break;
            }
        }
        Ok(())
    }

    fn flush(&mut self, means: &mut Means) -> Result<(), Wrong> {
        if self.out.is_empty() || self.has_gone {
            return Ok(());
        }
        means.target.touch(&self.queue, means.now());
        Ok(self.qp.post_sends(&std::mem::take(&mut self.out))?)
    }

    fn is_stalled_for(&self, now: Instant) -> Option<Duration> {
        (self.unsent + self.reads > 0).then(|| now.saturating_duration_since(self.moved))
    }

    fn is_over(&self, now: Instant, means: &Means) -> Result<bool, Wrong> {
        if !self.queue.is_connected() && now >= self.until {
            return Err(Fault::Silent.into());
        }
        Ok(self.has_gone || means.target.is_over(&self.queue))
    }

    fn end(self: Box<Self>, means: &mut Means) {
        means.target.close(&self.queue);
        self.qp.disconnect();
        let Connection { qp, commands, .. } = *self;
        drop(qp);
        let kept = commands.into_values().filter_map(|command| command.buffer);
        kept.for_each(|buffer| means.buffers.give_back(buffer));
    }
}

/// Returns the octets of the memory for a queue's capsules.
pub(in crate::block) fn inbox_len(queue: &Queue) -> usize {
    usize::from(queue.commands()) * CAPSULE
}
