//! One connection to an NVMe target: its Connect, and its commands under way.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rddp_block::nvme::PORT;
use rddp_block::nvme::capsule::{CQE_LEN, Cqe, Place, Sqe};
use rddp_block::nvme::host::{Ask, Disk, Failed, MEMORY_LEN, Memory, Next, Opening, private_data};
use rddp_block::nvme::private_data::{Refusal, Reply};
use rddp_command::addr;
use rddp_command::failure::Failure;
use rddp_rnic::{
    Access, Completed, Completion, ConnectError, ConnectOptions, MemoryRegion, QpConfig, QueuePair, RecvWr,
    SendWr, Status,
};

use crate::block::buffers::Buffer;
use crate::block::desk::{Desk, HANDSHAKE, connect_options};
use crate::block::disk::{Answer, Done, Job};
use crate::block::silence::Silence;
use crate::block::uri::Uri;

/// A queue: its number, its entries, and the controller that it is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) qid: u16,
    pub(super) entries: u16,
    pub(super) cntlid: u16,
}

/// A connection.
pub(super) struct Queue {
    qp: QueuePair,
    /// The target, for messages.
    name: String,
    /// A place for each answer.
    inbox: MemoryRegion,
    /// Commands under way, by their numbers.
    under_way: Vec<Option<Job>>,
    free: Vec<u16>,
    out: Vec<SendWr>,
    done: Vec<Done>,
    silence: Silence,
}

/// Memory for the data of a Connect and what follows it.
pub(super) struct Desktop(MemoryRegion);

impl Desktop {
    pub(super) fn new(desk: &Desk) -> Result<Self, Failure> {
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        Ok(Desktop(desk.pd.allocate(MEMORY_LEN, access)?))
    }

    /// Returns the memory as the target has it.
    pub(super) fn memory(&self) -> Memory {
        let remote = self.0.remote(0);
        Memory { address: remote.to, key: remote.stag.0 }
    }
}

impl Queue {
    /// Connects to a target.
    pub(super) fn connect(desk: &Desk, uri: &Uri, shape: Shape, patience: Duration) -> Result<Self, Failure> {
        let addrs = addr::resolve(&uri.host, PORT)?;
        desk.make_room(2 * usize::from(shape.entries) + 2)?;
        addr::first(&addrs, |addr| Self::connect_to(desk, addr, uri, shape, patience))
    }

    fn connect_to(
        desk: &Desk,
        addr: SocketAddr,
        uri: &Uri,
        shape: Shape,
        patience: Duration,
    ) -> Result<Self, Failure> {
        let entries = usize::from(shape.entries);
        let mut config = QpConfig::new(&desk.cq);
        (config.max_send, config.max_recv) = (entries + 1, entries);
        let queue = Queue {
            qp: desk.pd.create_qp(&config)?,
            name: uri.to_string(),
            inbox: desk.pd.allocate(entries * CQE_LEN, Access::LOCAL_WRITE)?,
            under_way: (1..entries).map(|_| None).collect(),
            free: (0..shape.entries - 1).collect(),
            out: Vec::new(),
            done: Vec::new(),
            silence: Silence::new(patience),
        };
        (0..entries).try_for_each(|slot| queue.receive(slot))?;
        let private_data = private_data(shape.qid, shape.entries, shape.cntlid).emit().to_vec();
        let options = ConnectOptions { private_data, ..connect_options(patience) };
        let connected = queue.qp.connect(addr, &options).map_err(|error| not_connected(&error, addr, uri))?;
        match Reply::parse(&connected.private_data) {
            Some(_) => Ok(queue),
            None => Err(no_target(uri)),
        }
    }

    fn receive(&self, slot: usize) -> Result<(), Failure> {
        let at = slot * CQE_LEN;
        Ok(self.qp.post_recv(RecvWr::one(slot as u64, self.inbox.sge(at..at + CQE_LEN)))?)
    }

    /// Returns the answer of a completion, whose place takes another.
    fn answer(&self, completion: &Completion) -> Result<Cqe, Failure> {
        let slot = completion.wr_id as usize;
        let mut octets = [0; CQE_LEN];
        self.inbox.read_into(slot * CQE_LEN, &mut octets)?;
        if completion.byte_len as usize != CQE_LEN {
            return Err(self.broken(&format!("an answer of {} octets", completion.byte_len)));
        }
        self.receive(slot)?;
        Ok(Cqe::parse(&octets))
    }

    /// Has the commands behind a connection to their end.
    pub(super) fn open(
        &self,
        desk: &Desk,
        mut opening: Opening,
        Desktop(memory): &Desktop,
        uri: &Uri,
    ) -> Result<Next, Failure> {
        let patience = self.silence.patience().min(HANDSHAKE);
        let deadline = Instant::now() + patience;
        let Ask { mut sqe, mut octets } = opening.begin();
        loop {
            memory.write(0, &octets)?;
            self.send(&sqe)?;
            let received = desk.received(self.qp.num(), deadline, patience);
            let completion = received.map_err(|failure| failure.of(&format!("{uri}: handshake")))?;
            let mut found = [0; MEMORY_LEN];
            memory.read_into(0, &mut found)?;
            let next = opening.take(&self.answer(&completion)?, &found);
            match next.map_err(|failed| not_opened(&failed, uri))? {
                Next::Ask(ask) => Ask { sqe, octets } = ask,
                next => return Ok(next),
            }
        }
    }

    /// Sends a command whose answer tells nothing that is acted on.
    pub(super) fn send(&self, sqe: &Sqe) -> Result<(), Failure> {
        Ok(self.qp.post_send(&SendWr::send_inline(0, &sqe.emit()))?)
    }

    /// Returns how many commands are under way.
    pub(super) fn load(&self) -> usize {
        self.under_way.len() - self.free.len()
    }

    /// Prepares a command. Returns the job if there is no command for it, or none more for now.
    pub(super) fn begin(&mut self, disk: &Disk, job: Job) -> Option<Job> {
        let Some(cid) = self.free.pop() else { return Some(job) };
        let Some(capsule) = capsule(disk, cid, &job) else {
            self.free.push(cid);
            return Some(job);
        };
        self.out.push(capsule);
        self.under_way[usize::from(cid)] = Some(job);
        None
    }

    /// Acts on a completion, if it is of this queue.
    pub(super) fn take(&mut self, completion: &Completion) -> Result<(), Failure> {
        if completion.qp != self.qp.num() {
            return Ok(());
        }
        match (completion.completed, completion.status) {
            (Completed::Receive, Status::Success) => self.answered(completion),
            (_, Status::Success) => Ok(()),
            _ => Err(self.gone()),
        }
    }

    fn answered(&mut self, completion: &Completion) -> Result<(), Failure> {
        let cqe = self.answer(completion)?;
        self.silence.heard();
        let job = self.under_way.get_mut(usize::from(cqe.cid)).and_then(Option::take);
        let Some(Job { owner, id, buffer, .. }) = job else {
            return Err(self.broken(&format!("an answer to nothing: no command has the number {}", cqe.cid)));
        };
        self.free.push(cqe.cid);
        let result = cqe.status.error().map_or(Ok(Answer::Done), |error| {
            tracing::info!(status = %cqe.status, "a command failed");
            Err(error)
        });
        self.done.push(Done { owner, id, buffer, result });
        Ok(())
    }

    /// Acts on a completion of a queue that has no jobs, if it is of this one.
    pub(super) fn take_note(&self, completion: &Completion) -> Result<(), Failure> {
        match (completion.completed, completion.status) {
            _ if completion.qp != self.qp.num() => Ok(()),
            (Completed::Receive, Status::Success) => self.answer(completion).map(drop),
            (_, Status::Success) => Ok(()),
            _ => Err(self.gone()),
        }
    }

    /// Sends what was begun, and adds what is done.
    pub(super) fn turn(&mut self, done: &mut Vec<Done>) -> Result<(), Failure> {
        done.append(&mut self.done);
        let owes = self.load() > self.out.len();
        let jobs = self.under_way.iter().flatten();
        self.silence.check(&self.name, owes, || jobs.map(|job| job.command).collect())?;
        if self.out.is_empty() {
            return Ok(());
        }
        self.qp.post_sends(&std::mem::take(&mut self.out)).map_err(|_| self.gone())
    }

    fn gone(&self) -> Failure {
        let under_way = match self.load() {
            0 => String::new(),
            count => format!(", with {count} commands under way on one connection"),
        };
        Failure::peer(format!("{}: the target has gone{under_way}", self.name))
            .remedy("is it still running? Its log may say more")
    }

    fn broken(&self, cause: &str) -> Failure {
        Failure::peer(format!("{}: the target breaks the protocol: {cause}", self.name))
            .remedy("another target may do; RDDP_CAPTURE=FILE shows what this one says")
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.qp.disconnect();
    }
}

/// Makes the Send of a job's command; `None` if there is no such command.
fn capsule(disk: &Disk, cid: u16, job: &Job) -> Option<SendWr> {
    let len = job.command.payload();
    if let Some(buffer) = job.buffer.as_ref().filter(|_| disk.is_in_capsule(&job.command)) {
        let sqe = disk.command(cid, &job.command, Place::InCapsule { offset: 0, len })?;
        return Some(SendWr::send(0, buffer.with_header(&sqe.emit(), len).ok()?));
    }
    let place = job.buffer.as_ref().map_or(Place::NONE, |buffer| place(buffer, job));
    Some(SendWr::send_inline(0, &disk.command(cid, &job.command, place)?.emit()))
}

/// Returns the place of a job's payload in this host's memory.
fn place(buffer: &Buffer, job: &Job) -> Place {
    let payload = Buffer::payload(job.command.payload());
    let remote = buffer.region().remote(payload.start);
    Place::Keyed {
        address: remote.to,
        len: payload.len() as u32,
        key: remote.stag.0,
        // The memory is registered for as long as it is there.
        invalidate: false,
    }
}

fn no_target(uri: &Uri) -> Failure {
    Failure::peer(format!("{uri}: no NVMe target: its private data are others"))
        .remedy("is that the port of an NVMe target by RDMA?")
}

fn not_connected(error: &ConnectError, addr: SocketAddr, uri: &Uri) -> Failure {
    match error {
        ConnectError::Rejected { private_data } => match Refusal::parse(private_data) {
            Some(refusal) => {
                let cause = format!("{uri}: the target rejects the connection: {refusal}");
                match refusal {
                    Refusal::NoResources => Failure::refused(cause)
                        .remedy("it may have too many clients: try later, or with fewer connections"),
                    _ => Failure::refused(cause),
                }
            }
            None => no_target(uri),
        },
        _ => Failure::connecting(addr, error, "an NVMe target"),
    }
}

fn not_opened(failed: &Failed, uri: &Uri) -> Failure {
    let cause = format!("{uri}: {failed}");
    match failed {
        Failed::Unknown => Failure::refused(cause).remedy(format!("rddp block ls {}", uri.with_export(""))),
        Failed::NotAllowed => Failure::refused(cause).remedy("--host-nqn gives the name that it allows"),
        Failed::Refused(..) | Failed::Empty | Failed::Blocks => {
            Failure::refused(cause).remedy("its log may say more")
        }
        Failed::Fatal | Failed::Nonsense(_) => Failure::peer(cause).remedy("its log may say more"),
    }
}
