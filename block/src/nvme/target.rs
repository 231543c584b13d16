//! The target: its subsystems, of one disk each, and the controllers of its hosts.
//!
//! The caller has the connections, of which each is one [`Queue`]. It hands each capsule to
//! [`Target::take`], does what the [`Step`] says, and sends the answer that [`Queue::answer`]
//! makes.
//! As a connection ends it calls [`Target::close`], and from time to time [`Target::end_silent`];
//! after both it ends the connections of queues that [are over](Target::is_over). `now` is the
//! time since whatever moment the caller likes.

use core::time::Duration;
use std::collections::BTreeMap;

use super::capsule::{Cqe, Place, Sqe};
use super::connect::{ANY_CONTROLLER, CONNECT_LEN, Connect, ConnectData, Fabrics, Wrong};
use super::controller::{Controller, Surroundings};
use super::io::{self, Work};
use super::log::Entry;
use super::private_data::{Refusal, Reply, Request};
use super::status::Status;
use super::step::{Outcome, Step, Subsystem};
use super::{ADMIN_COMMANDS, DISCOVERY_NQN, MAX_COMMANDS, MAX_QUEUES};
use crate::export::Command;

/// The greatest number of a controller (Base, "Identify Controller data structure", CNTLID).
const LAST_CONTROLLER: u16 = 0xffef;

/// The address of the target that a host has connected to, which it learns by discovery.
#[derive(Clone, Debug, Default)]
pub struct Address {
    /// The address, as text.
    pub address: String,
    /// The address is one of IPv6.
    pub is_ipv6: bool,
    /// The port.
    pub port: u16,
}

/// A queue: the target's side of a connection.
#[derive(Debug)]
pub struct Queue {
    asked: Request,
    at: Address,
    /// The controller, and how often it had been reset.
    owner: Option<(u16, u32)>,
    /// Entries of the submission queue.
    size: u16,
    /// The entry behind the last that was taken.
    head: u16,
}

impl Queue {
    /// Makes the queue of a connection whose host has sent these private data.
    ///
    /// # Errors
    /// What the host is to be told as it is rejected (RDMA, "Connection Establishment").
    pub fn new(private_data: &[u8]) -> Result<Self, Refusal> {
        let asked = Request::parse(private_data)?;
        let most = if asked.qid == 0 { ADMIN_COMMANDS } else { MAX_COMMANDS };
        if asked.qid > MAX_QUEUES {
            return Err(Refusal::Qid);
        }
        if !(1..most).contains(&asked.commands) {
            return Err(Refusal::CommandQueueSize);
        }
        if asked.answers <= asked.commands {
            return Err(Refusal::AnswerQueueSize);
        }
        let size = asked.commands + 1;
        Ok(Queue { asked, at: Address::default(), owner: None, size, head: 0 })
    }

    /// Notes the address that the host has connected to.
    pub fn reached(&mut self, at: Address) {
        self.at = at;
    }

    /// Returns the greatest number of commands at a time, for which there have to be receives.
    #[must_use]
    pub fn commands(&self) -> u16 {
        self.asked.commands + 1
    }

    /// Returns the private data for the host that is accepted.
    #[must_use]
    pub fn reply(&self) -> Reply {
        Reply { commands: self.commands() }
    }

    /// Returns whether the host has connected to a controller.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.owner.is_some()
    }

    /// Makes the answer to a command.
    #[must_use]
    pub fn answer(&self, sqe: &Sqe, outcome: Outcome) -> Cqe {
        Cqe { result: outcome.result, head: self.head, cid: sqe.cid, status: outcome.status }
    }

    fn is_admin(&self) -> bool {
        self.asked.qid == 0
    }
}

/// The target.
#[derive(Debug)]
pub struct Target {
    subsystems: Vec<Subsystem>,
    /// The hosts that may connect; all where there is none.
    hosts: Vec<String>,
    firmware: String,
    controllers: BTreeMap<u16, Controller>,
    last: u16,
}

impl Target {
    /// Makes a target. With no `hosts`, every host may connect; `firmware` is the program's
    /// version.
    #[must_use]
    pub fn new(subsystems: Vec<Subsystem>, hosts: Vec<String>, firmware: &str) -> Self {
        let firmware = firmware.to_owned();
        Target { subsystems, hosts, firmware, controllers: BTreeMap::new(), last: 0 }
    }

    /// Returns whether a host may have the disks. One that may not is shown none.
    #[must_use]
    pub fn allows(&self, host: &str) -> bool {
        may(&self.hosts, host)
    }

    /// Acts on a command, behind which `data` octets have come in its capsule.
    pub fn take(&mut self, queue: &mut Queue, sqe: &Sqe, data: usize, now: Duration) -> Step {
        queue.head = (queue.head + 1) % queue.size;
        self.begin(queue, sqe, data, now).into()
    }

    fn begin(&mut self, queue: &Queue, sqe: &Sqe, data: usize, now: Duration) -> Result<Step, Status> {
        let place = sqe.place()?;
        if let Place::InCapsule { offset, len } = place
            && offset.checked_add(len.into()).is_none_or(|end| end > data as u64)
        {
            return Err(Status::SGL_OFFSET);
        }
        let Some(owner) = queue.owner else { return self.connect_begins(queue, sqe, &place) };
        let Some(controller) = self.controllers.get_mut(&owner.0) else {
            return Err(Status::QUEUE_DELETED);
        };
        controller.heard = now;
        let subsystem = controller.subsystem.map(|at| &self.subsystems[at]);
        let step = if queue.is_admin() {
            let (subsystems, hosts, at) = (&self.subsystems, &self.hosts, &queue.at);
            let host = controller.host.clone();
            let entries = || if may(hosts, &host) { entries(subsystems, at) } else { Vec::new() };
            let at = Surroundings { subsystem, firmware: &self.firmware, entries: &entries };
            controller.admin(sqe, &place, &at)?
        } else {
            let (Some(at), Some(subsystem)) = (controller.subsystem, subsystem) else {
                return Err(Status::INVALID_OPCODE);
            };
            if owner.1 != controller.resets || !controller.is_ready() {
                return Err(Status::SEQUENCE_ERROR);
            }
            match io::check(sqe, &place, &subsystem.export)? {
                Work::Disk(command) => Step::Disk(at, command),
                Work::Ranges(len) => Step::Fetch(len),
                Work::Nothing => Step::success(0),
            }
        };
        // Octets for a host go into its memory: capsules of answers have no room for them.
        let gives = matches!(step, Step::Give(_) | Step::Disk(_, Command::Read { .. }));
        if gives && matches!(place, Place::InCapsule { .. }) { Err(Status::SGL_TYPE) } else { Ok(step) }
    }

    /// Acts on a command of a connection that is no controller's yet: only a Connect makes sense.
    fn connect_begins(&self, queue: &Queue, sqe: &Sqe, place: &Place) -> Result<Step, Status> {
        let Ok(Fabrics::Connect(connect)) = Fabrics::parse(sqe) else {
            return Err(Status::SEQUENCE_ERROR);
        };
        if connect.format != 0 {
            return Err(Status::CONNECT_FORMAT);
        }
        if connect.qid != queue.asked.qid {
            return Ok(wrong(Wrong::QID));
        }
        if !(1..=queue.asked.commands).contains(&connect.size) {
            return Ok(wrong(Wrong::SIZE));
        }
        if place.len() as usize != CONNECT_LEN {
            return Err(Status::DATA_LENGTH);
        }
        Ok(Step::Fetch(CONNECT_LEN))
    }

    /// Acts on the octets that a command needed.
    pub fn fetched(&mut self, queue: &mut Queue, sqe: &Sqe, octets: &[u8], now: Duration) -> Step {
        match (Fabrics::parse(sqe), <&[u8; CONNECT_LEN]>::try_from(octets)) {
            (Ok(Fabrics::Connect(connect)), Ok(octets)) => self.connect(queue, &connect, octets, now),
            (Ok(_), _) => Step::Answer(Status::INVALID_FIELD.into()),
            (Err(_), _) => self.trim(queue, octets).into(),
        }
    }

    fn trim(&self, queue: &Queue, ranges: &[u8]) -> Result<Step, Status> {
        let controller = queue.owner.and_then(|(cntlid, _)| self.controllers.get(&cntlid));
        let at = controller.and_then(|controller| controller.subsystem).ok_or(Status::QUEUE_DELETED)?;
        let trims = io::trims(ranges, &self.subsystems[at].export)?;
        Ok(if trims.is_empty() { Step::success(0) } else { Step::Trim(at, trims) })
    }

    /// Makes a connection the queue of a controller (Base, "Connect Command").
    fn connect(
        &mut self,
        queue: &mut Queue,
        connect: &Connect,
        octets: &[u8; CONNECT_LEN],
        now: Duration,
    ) -> Step {
        let data = match ConnectData::parse(octets) {
            _ if queue.owner.is_some() => return Step::failed(0, Status::SEQUENCE_ERROR),
            Ok(data) => data,
            Err(place) => return wrong(place),
        };
        let owner = if queue.is_admin() {
            self.connect_admin(data, connect.keep_alive, now)
        } else {
            self.connect_io(&data, connect.qid)
        };
        match owner {
            Ok(owner) => {
                (queue.owner, queue.size) = (Some(owner), connect.size + 1);
                queue.head %= queue.size;
                Step::success(owner.0.into())
            }
            Err(outcome) => Step::Answer(outcome),
        }
    }

    /// Makes a controller for a host.
    fn connect_admin(
        &mut self,
        data: ConnectData,
        keep_alive: u32,
        now: Duration,
    ) -> Result<(u16, u32), Outcome> {
        if data.cntlid != ANY_CONTROLLER {
            return Err(wrong_outcome(Wrong::CNTLID));
        }
        let named = |subsystem: &Subsystem| subsystem.has_blocks() && subsystem.nqn == data.subsystem;
        let subsystem = self.subsystems.iter().position(named);
        if subsystem.is_none() && data.subsystem != DISCOVERY_NQN {
            return Err(wrong_outcome(Wrong::SUBSYSTEM));
        }
        // Every host may look. It sees nothing if it may not have anything.
        if subsystem.is_some() && !self.allows(&data.host) {
            return Err(Status::INVALID_HOST.into());
        }
        let cntlid = self.free_number().ok_or(Status::CONTROLLER_BUSY)?;
        let mut controller = Controller::new(cntlid, subsystem, data.host, data.host_id);
        controller.set_keep_alive(keep_alive);
        controller.heard = now;
        let owner = (cntlid, controller.resets);
        self.controllers.insert(cntlid, controller);
        Ok(owner)
    }

    /// Returns a number that no controller has, and that none had a short while ago.
    fn free_number(&mut self) -> Option<u16> {
        for _ in 0..LAST_CONTROLLER {
            self.last = self.last % LAST_CONTROLLER + 1;
            if !self.controllers.contains_key(&self.last) {
                return Some(self.last);
            }
        }
        None
    }

    /// Gives a controller another queue, if it is the same host's.
    fn connect_io(&mut self, data: &ConnectData, qid: u16) -> Result<(u16, u32), Outcome> {
        let controller =
            self.controllers.get_mut(&data.cntlid).ok_or_else(|| wrong_outcome(Wrong::CNTLID))?;
        let Some(at) = controller.subsystem else { return Err(wrong_outcome(Wrong::QID)) };
        if self.subsystems[at].nqn != data.subsystem {
            return Err(wrong_outcome(Wrong::SUBSYSTEM));
        }
        if controller.host != data.host {
            return Err(wrong_outcome(Wrong::HOST));
        }
        if controller.host_id != data.host_id {
            return Err(wrong_outcome(Wrong::HOST_ID));
        }
        controller.add_queue(qid)?;
        Ok((controller.cntlid, controller.resets))
    }

    /// Notes that the connection of a queue has ended. With an admin queue its controller ends.
    pub fn close(&mut self, queue: &Queue) {
        let Some((cntlid, resets)) = queue.owner else { return };
        if queue.is_admin() {
            self.controllers.remove(&cntlid);
        } else if let Some(controller) = self.controllers.get_mut(&cntlid)
            && controller.resets == resets
        {
            controller.remove_queue(queue.asked.qid);
        }
    }

    /// Ends the controllers of which nothing was heard for their keep-alive time (Base, "Keep
    /// Alive"). Returns the names of their hosts.
    pub fn end_silent(&mut self, now: Duration) -> Vec<String> {
        let mut hosts = Vec::new();
        self.controllers.retain(|_, controller| {
            let since = now.saturating_sub(controller.heard);
            let is_silent = controller.keep_alive.is_some_and(|most| since > most);
            if is_silent {
                hosts.push(std::mem::take(&mut controller.host));
            }
            !is_silent
        });
        hosts
    }

    /// Notes that a queue's controller is at work: commands are answered as well as taken.
    pub fn touch(&mut self, queue: &Queue, now: Duration) {
        if let Some(controller) = queue.owner.and_then(|(cntlid, _)| self.controllers.get_mut(&cntlid)) {
            controller.heard = now;
        }
    }

    /// Returns whether a queue's controller has ended, or has been reset since.
    #[must_use]
    pub fn is_over(&self, queue: &Queue) -> bool {
        queue.owner.is_some_and(|(cntlid, resets)| {
            let controller = self.controllers.get(&cntlid);
            controller.is_none_or(|controller| !queue.is_admin() && controller.resets != resets)
        })
    }

    /// Returns how many controllers there are.
    #[must_use]
    pub fn controllers(&self) -> usize {
        self.controllers.len()
    }
}

/// Returns whether a host may have the disks.
fn may(hosts: &[String], host: &str) -> bool {
    hosts.is_empty() || hosts.iter().any(|allowed| allowed == host)
}

/// Returns the entries of discovery.
fn entries(subsystems: &[Subsystem], at: &Address) -> Vec<Entry> {
    let entry = |subsystem: &Subsystem| Entry {
        is_rdma: true,
        is_discovery: false,
        is_ipv6: at.is_ipv6,
        address: at.address.clone(),
        port: at.port.to_string(),
        subsystem: subsystem.nqn.clone(),
    };
    subsystems.iter().filter(|subsystem| subsystem.has_blocks()).map(entry).collect()
}

fn wrong_outcome(place: Wrong) -> Outcome {
    Outcome { result: place.result(), status: Status::CONNECT_PARAMETERS }
}

fn wrong(place: Wrong) -> Step {
    Step::Answer(wrong_outcome(place))
}
