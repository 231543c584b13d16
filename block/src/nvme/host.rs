//! The host's end of a queue: from its Connect to the first command for a disk.
//!
//! A machine: the caller has a connection and [`MEMORY_LEN`] octets of memory that the target may
//! read and write. It sends what [`Opening::begin`] says, and hands each answer, with what is in
//! the memory then, to [`Opening::take`], which says what is next.

mod disk;

pub use self::disk::Disk;
use super::capsule::{Cqe, Place, Sqe};
use super::connect::{ANY_CONTROLLER, Connect, ConnectData, Fabrics, Wrong, property};
use super::controller::{KEEP_ALIVE, SET_FEATURES, cc, csts, feature};
use super::identify::{Asked, Controller, IDENTIFY_LEN, Namespace, parse_list};
use super::log::{self, ENTRY_LEN, Entry, GetLogPage, page};
use super::private_data::Request;
use super::status::Status;
use super::{ADMIN_COMMANDS, DISCOVERY_NQN, MAX_COMMANDS, MAX_TRANSFER};

/// Octets of the memory that the target reads and writes.
pub const MEMORY_LEN: usize = IDENTIFY_LEN;

/// Time in milliseconds after which a controller of which nothing is heard ends: the host sends
/// [`keep_alive`] more often.
pub const KEEP_ALIVE_MS: u32 = 30_000;

/// The logarithm of the largest block that is taken: larger ones have no room in a request.
const LARGEST_BLOCK: u8 = 16;

/// Entries of a page of discovery: more come from no target that means well.
const MOST_ENTRIES: u64 = 1000;

/// The memory, as the target has it.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// The Tagged Offset.
    pub address: u64,
    /// The STag.
    pub key: u32,
}

/// A host: its name, and a number that all its queues have alike.
#[derive(Clone, Debug)]
pub struct Host {
    /// The name.
    pub nqn: String,
    /// The number.
    pub id: [u8; 16],
}

/// Returns the private data with which a queue is connected.
#[must_use]
pub fn private_data(qid: u16, entries: u16, cntlid: u16) -> Request {
    Request { qid, answers: entries, commands: entries - 1, cntlid }
}

/// Makes a Keep Alive, for the admin queue.
#[must_use]
pub fn keep_alive(cid: u16) -> Sqe {
    Sqe::new(KEEP_ALIVE, cid, 0, Place::NONE, [0; 6])
}

/// Makes the command that shuts the controller down, the last of the admin queue.
#[must_use]
pub fn shut_down(cid: u16) -> Sqe {
    let value = (ENABLE | NORMAL_SHUTDOWN).into();
    Fabrics::Set { offset: property::CC, is_wide: false, value }.command(cid, Place::NONE)
}

/// A normal shutdown (Base, "Controller Configuration", SHN).
const NORMAL_SHUTDOWN: u32 = 1 << 14;

/// The configuration of a controller that is enabled.
const ENABLE: u32 = cc::ENABLE | cc::ENTRIES_OF_NVME;

/// The use of a queue.
#[derive(Clone, Copy, Debug)]
enum Wish {
    /// The page of discovery.
    List,
    /// A disk, with so many I/O queues.
    Disk { queues: u16 },
    /// An I/O queue, with that number.
    Queue { qid: u16, disk: Disk },
}

/// The command whose answer is awaited.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Connect,
    Capabilities,
    Enable,
    Ready,
    Controller,
    Header,
    /// The next entries are so many.
    Entries(u64),
    Namespaces,
    Namespace,
    Queues,
}

/// The way to a queue that is of use.
#[derive(Debug)]
pub struct Opening {
    wish: Wish,
    host: Host,
    subsystem: String,
    memory: Memory,
    stage: Stage,
    /// The disk, as far as it is known.
    disk: Disk,
    entries: Vec<Entry>,
}

/// A command to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The command.
    pub sqe: Sqe,
    /// Octets that are in the memory, from its front, before the command is sent.
    pub octets: Vec<u8>,
}

/// The way on behind an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another command.
    Ask(Ask),
    /// The subsystems that the target tells of.
    Listed(Vec<Entry>),
    /// The disk. I/O queues may be opened.
    Disk(Disk),
    /// The I/O queue takes commands.
    Queue,
}

/// The end of the way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// The target has no such subsystem, or not for this host.
    #[error("the target has no such subsystem")]
    Unknown,
    /// The host is not allowed.
    #[error("the target does not allow this host")]
    NotAllowed,
    /// The target refuses a command.
    #[error("the target refuses {0}: {1}")]
    Refused(&'static str, Status),
    /// The controller does not become ready.
    #[error("the controller fails as it is enabled")]
    Fatal,
    /// The subsystem has no namespace.
    #[error("the subsystem has no disk")]
    Empty,
    /// The blocks have metadata, or are too large.
    #[error("the disk has blocks of a form that is not supported")]
    Blocks,
    /// An answer that makes no sense.
    #[error("the target breaks the protocol: {0}")]
    Nonsense(&'static str),
}

impl Opening {
    /// Begins, on an admin queue, to ask a target for its subsystems.
    #[must_use]
    pub fn for_list(host: Host, memory: Memory) -> Self {
        Self::new(Wish::List, host, DISCOVERY_NQN, memory)
    }

    /// Begins, on an admin queue, to ask for the first disk of a subsystem, and for so many I/O
    /// queues.
    #[must_use]
    pub fn for_disk(host: Host, subsystem: &str, queues: u16, memory: Memory) -> Self {
        Self::new(Wish::Disk { queues: queues.max(1) }, host, subsystem, memory)
    }

    /// Begins an I/O queue, with that number, which is not 0.
    #[must_use]
    pub fn for_queue(host: Host, subsystem: &str, disk: Disk, qid: u16, memory: Memory) -> Self {
        Self::new(Wish::Queue { qid, disk }, host, subsystem, memory)
    }

    fn new(wish: Wish, host: Host, subsystem: &str, memory: Memory) -> Self {
        let disk = Disk {
            cntlid: ANY_CONTROLLER,
            nsid: 0,
            size: 0,
            block_shift: 0,
            writable: false,
            longest: 0,
            in_capsule: 0,
            zeroes: false,
            has_cache: false,
            queues: 0,
            entries: 0,
        };
        let subsystem = subsystem.to_owned();
        Opening { wish, host, subsystem, memory, stage: Stage::Connect, disk, entries: Vec::new() }
    }

    /// Returns the first command.
    #[must_use]
    pub fn begin(&self) -> Ask {
        let (qid, size, keep_alive, cntlid) = match self.wish {
            // Base, "Discovery controllers": one that is asked once has no keep-alive time.
            Wish::List => (0, ADMIN_COMMANDS - 1, 0, ANY_CONTROLLER),
            Wish::Disk { .. } => (0, ADMIN_COMMANDS - 1, KEEP_ALIVE_MS, ANY_CONTROLLER),
            Wish::Queue { qid, disk } => (qid, disk.entries - 1, 0, disk.cntlid),
        };
        let data = ConnectData {
            host_id: self.host.id,
            cntlid,
            subsystem: self.subsystem.clone(),
            host: self.host.nqn.clone(),
        };
        let octets = data.emit().to_vec();
        let connect = Fabrics::Connect(Connect { format: 0, qid, size, keep_alive });
        Ask { sqe: connect.command(0, self.place(octets.len() as u32)), octets }
    }

    fn place(&self, len: u32) -> Place {
        let Memory { address, key } = self.memory;
        Place::Keyed { address, len, key, invalidate: false }
    }

    /// Takes the answer to the last command, and what is in the memory then.
    ///
    /// # Errors
    /// There is no way on; the connection has to end.
    pub fn take(&mut self, cqe: &Cqe, memory: &[u8; MEMORY_LEN]) -> Result<Next, Failed> {
        if cqe.cid != 0 {
            return Err(Failed::Nonsense("an answer to a command that was not sent"));
        }
        if !cqe.status.is_success() {
            return Err(self.refused(cqe));
        }
        match self.stage {
            Stage::Connect => Ok(self.connected(cqe.result as u16)),
            Stage::Capabilities => {
                // Entries of a queue, less one (Base, "Controller Capabilities", MQES).
                self.disk.entries = (cqe.result as u16).saturating_add(1).min(MAX_COMMANDS);
                let value = ENABLE.into();
                let enable = Fabrics::Set { offset: property::CC, is_wide: false, value };
                Ok(self.ask(Stage::Enable, enable.command(0, Place::NONE)))
            }
            Stage::Enable => Ok(self.get_status()),
            Stage::Ready if cqe.result as u32 & csts::FATAL != 0 => Err(Failed::Fatal),
            Stage::Ready if cqe.result as u32 & csts::READY == 0 => Ok(self.get_status()),
            Stage::Ready => match self.wish {
                Wish::List => Ok(self.get_page(0, ENTRY_LEN, Stage::Header)),
                _ => Ok(self.identify(Asked::Controller, 0, Stage::Controller)),
            },
            Stage::Controller => self.controller(&Controller::parse(memory)),
            Stage::Namespaces => {
                self.disk.nsid = *parse_list(memory).first().ok_or(Failed::Empty)?;
                Ok(self.identify(Asked::Namespace, self.disk.nsid, Stage::Namespace))
            }
            Stage::Namespace => self.namespace(Namespace::parse(memory).ok_or(Failed::Empty)?),
            Stage::Queues => {
                let granted = (cqe.result as u16).min((cqe.result >> 16) as u16).saturating_add(1);
                self.disk.queues = self.disk.queues.min(granted);
                Ok(Next::Disk(self.disk))
            }
            Stage::Header => {
                let (header, _) = memory.split_first_chunk().ok_or(Failed::Nonsense("discovery"))?;
                let count = log::entries(header);
                if count > MOST_ENTRIES {
                    return Err(Failed::Nonsense("more subsystems than there can be"));
                }
                Ok(self.get_entries(count))
            }
            Stage::Entries(left) => {
                let now = left.min((MEMORY_LEN / ENTRY_LEN) as u64);
                let (entries, _) = memory.as_chunks();
                self.entries.extend(entries.iter().take(now as usize).map(Entry::parse));
                Ok(self.get_entries(left - now))
            }
        }
    }

    fn ask(&mut self, stage: Stage, sqe: Sqe) -> Next {
        self.stage = stage;
        Next::Ask(Ask { sqe, octets: Vec::new() })
    }

    fn connected(&mut self, cntlid: u16) -> Next {
        if let Wish::Queue { .. } = self.wish {
            return Next::Queue;
        }
        self.disk.cntlid = cntlid;
        let get = Fabrics::Get { offset: property::CAP, is_wide: true };
        self.ask(Stage::Capabilities, get.command(0, Place::NONE))
    }

    fn get_status(&mut self) -> Next {
        let get = Fabrics::Get { offset: property::CSTS, is_wide: false };
        self.ask(Stage::Ready, get.command(0, Place::NONE))
    }

    fn identify(&mut self, asked: Asked, nsid: u32, stage: Stage) -> Next {
        let place = self.place(IDENTIFY_LEN as u32);
        self.ask(stage, asked.command(0, nsid, place))
    }

    fn get_page(&mut self, offset: usize, len: usize, stage: Stage) -> Next {
        let asked = GetLogPage { page: page::DISCOVERY, len: len as u64, offset: offset as u64 };
        let place = self.place(len as u32);
        self.ask(stage, asked.command(0, 0, place))
    }

    /// Asks for the entries that are left, as many as the memory has room for.
    fn get_entries(&mut self, left: u64) -> Next {
        if left == 0 {
            return Next::Listed(std::mem::take(&mut self.entries));
        }
        let len = (left as usize * ENTRY_LEN).min(MEMORY_LEN);
        self.get_page((1 + self.entries.len()) * ENTRY_LEN, len, Stage::Entries(left))
    }

    fn controller(&mut self, controller: &Controller) -> Result<Next, Failed> {
        let longest = controller.max_transfer.unwrap_or(u64::MAX).min(MAX_TRANSFER.into());
        self.disk.longest = longest as u32;
        self.disk.in_capsule = controller.in_capsule;
        (self.disk.zeroes, self.disk.has_cache) = (controller.zeroes, controller.has_cache);
        if controller.commands != 0 {
            self.disk.entries = self.disk.entries.min(controller.commands);
        }
        if self.disk.entries < 2 {
            return Err(Failed::Nonsense("a queue without room for a command"));
        }
        Ok(self.identify(Asked::Namespaces, 0, Stage::Namespaces))
    }

    fn namespace(&mut self, namespace: Namespace) -> Result<Next, Failed> {
        let shift = namespace.block_shift;
        if namespace.metadata != 0 || shift > LARGEST_BLOCK || self.disk.longest >> shift == 0 {
            return Err(Failed::Blocks);
        }
        (self.disk.size, self.disk.block_shift) = (namespace.blocks << shift, shift);
        self.disk.writable = namespace.writable;
        let Wish::Disk { queues } = self.wish else { return Err(Failed::Empty) };
        self.disk.queues = queues;
        let asked = u32::from(queues - 1);
        let cdw = [feature::QUEUES.into(), asked << 16 | asked, 0, 0, 0, 0];
        Ok(self.ask(Stage::Queues, Sqe::new(SET_FEATURES, 0, 0, Place::NONE, cdw)))
    }

    fn refused(&self, cqe: &Cqe) -> Failed {
        let is = |status: Status| cqe.status.code() == status.code();
        let what = match self.stage {
            Stage::Connect if is(Status::INVALID_HOST) => return Failed::NotAllowed,
            Stage::Connect if is(Status::CONNECT_PARAMETERS) && cqe.result == Wrong::SUBSYSTEM.result() => {
                return Failed::Unknown;
            }
            Stage::Connect => "to connect",
            Stage::Capabilities | Stage::Enable | Stage::Ready => "to be enabled",
            Stage::Controller | Stage::Namespaces | Stage::Namespace => "to say what it is",
            Stage::Header | Stage::Entries(_) => "to list its subsystems",
            Stage::Queues => "any queue",
        };
        Failed::Refused(what, cqe.status)
    }
}

#[cfg(test)]
mod tests;
