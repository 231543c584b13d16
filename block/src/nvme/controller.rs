//! One controller of the target: its state, and the commands of its admin queue.

use core::time::Duration;

use super::capsule::{Place, Sqe};
use super::connect::{Fabrics, property};
use super::identify::{Asked, Controller as Description, IDENTIFY, IDENTIFY_LEN, VERSION};
use super::identify::{Namespace, emit_identifiers, emit_list};
use super::io::{ALL, NSID};
use super::log::{self, Entry, GET_LOG_PAGE, GetLogPage, page};
use super::status::Status;
use super::step::{Step, Subsystem};
use super::{BLOCK_SHIFT, DISCOVERY_NQN, EVENTS, IN_CAPSULE, MAX_COMMANDS, MAX_QUEUES, MAX_TRANSFER};

const ABORT: u8 = 0x08;
pub(super) const SET_FEATURES: u8 = 0x09;
const GET_FEATURES: u8 = 0x0a;
const ASYNC_EVENT: u8 = 0x0c;
pub(super) const KEEP_ALIVE: u8 = 0x18;

/// Octets of a log page that a host gets at a time: what waits for its memory takes this one's.
const MAX_PAGE: u64 = 1 << 16;

/// Features (Base, "Feature Identifiers").
pub(super) mod feature {
    pub(super) const VOLATILE_CACHE: u8 = 0x06;
    pub(in crate::nvme) const QUEUES: u8 = 0x07;
    pub(super) const ASYNC_EVENTS: u8 = 0x0b;
    pub(super) const KEEP_ALIVE: u8 = 0x0f;
}

/// Bits of the configuration (Base, "Controller Configuration").
pub(super) mod cc {
    pub(in crate::nvme) const ENABLE: u32 = 1;
    pub(super) const SHUTDOWN: u32 = 3 << 14;
    /// The command set, the page, arbitration: 0 is what the target has.
    pub(super) const CHOICES: u32 = 7 << 4 | 15 << 7 | 7 << 11;
    /// The sizes of entries of I/O queues, and those that there are.
    pub(super) const ENTRIES: u32 = 0xff << 16;
    pub(in crate::nvme) const ENTRIES_OF_NVME: u32 = 0x46 << 16;
}

/// Bits of the status (Base, "Controller Status").
pub(super) mod csts {
    pub(in crate::nvme) const READY: u32 = 1;
    pub(in crate::nvme) const FATAL: u32 = 1 << 1;
    pub(super) const SHUT_DOWN: u32 = 2 << 2;
}

/// A controller: what one host has of one subsystem.
#[derive(Debug)]
pub(super) struct Controller {
    pub(super) cntlid: u16,
    /// The subsystem, by its place in the target's list; `None` of discovery.
    pub(super) subsystem: Option<usize>,
    pub(super) host: String,
    pub(super) host_id: [u8; 16],
    /// Time without a command after which the controller ends.
    pub(super) keep_alive: Option<Duration>,
    /// The time of the last command.
    pub(super) heard: Duration,
    /// The I/O queues that are connected, a bit for each.
    queues: u32,
    /// Counts resets, so that I/O queues from before one are known.
    pub(super) resets: u32,
    /// The number of I/O queues that were granted, less one.
    granted: u16,
    configuration: u32,
    status: u32,
    events: usize,
}

/// The part of the target that a controller needs to know.
pub(super) struct Surroundings<'a> {
    pub(super) subsystem: Option<&'a Subsystem>,
    pub(super) firmware: &'a str,
    /// Makes the entries of discovery.
    pub(super) entries: &'a dyn Fn() -> Vec<Entry>,
}

impl Controller {
    pub(super) fn new(cntlid: u16, subsystem: Option<usize>, host: String, host_id: [u8; 16]) -> Self {
        Controller {
            cntlid,
            subsystem,
            host,
            host_id,
            keep_alive: None,
            heard: Duration::ZERO,
            queues: 0,
            resets: 0,
            granted: MAX_QUEUES - 1,
            configuration: 0,
            status: 0,
            events: 0,
        }
    }

    /// Sets the keep-alive time. 0 is none.
    pub(super) fn set_keep_alive(&mut self, millis: u32) {
        self.keep_alive = (millis != 0).then(|| Duration::from_millis(millis.into()));
    }

    /// Returns whether the host has enabled the controller.
    pub(super) fn is_ready(&self) -> bool {
        self.status & csts::READY != 0
    }

    /// Takes in an I/O queue. Returns whether there is no such queue yet, and may be one.
    pub(super) fn add_queue(&mut self, qid: u16) -> Result<(), Status> {
        let is_there = self.queues & 1 << qid != 0;
        if !self.is_ready() || is_there {
            return Err(Status::SEQUENCE_ERROR);
        }
        self.queues |= 1 << qid;
        Ok(())
    }

    /// Forgets an I/O queue whose connection has ended.
    pub(super) fn remove_queue(&mut self, qid: u16) {
        self.queues &= !(1 << qid);
    }

    /// Acts on a command of the admin queue.
    pub(super) fn admin(&mut self, sqe: &Sqe, place: &Place, at: &Surroundings<'_>) -> Result<Step, Status> {
        if let Ok(fabrics) = Fabrics::parse(sqe) {
            return self.fabrics(fabrics);
        }
        if !self.is_ready() {
            return Err(Status::SEQUENCE_ERROR);
        }
        match sqe.opcode {
            IDENTIFY => {
                let octets = self.identify(sqe, at)?;
                gives(place, octets)
            }
            GET_LOG_PAGE => self.log_page(sqe, place, at),
            SET_FEATURES => self.set_feature(sqe.cdw[0] as u8, sqe.cdw[1]),
            GET_FEATURES => self.feature(sqe.cdw[0] as u8),
            ASYNC_EVENT if self.events == EVENTS => Err(Status::EVENT_LIMIT),
            ASYNC_EVENT => {
                self.events += 1;
                Ok(Step::Hold)
            }
            // Bit 0: no command was aborted. All but those for events end by themselves.
            ABORT => Ok(Step::success(1)),
            KEEP_ALIVE => Ok(Step::success(0)),
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    fn fabrics(&mut self, command: Fabrics) -> Result<Step, Status> {
        match command {
            Fabrics::Connect(_) => Err(Status::SEQUENCE_ERROR),
            Fabrics::Get { offset, is_wide } => self.property(offset, is_wide).map(Step::success),
            Fabrics::Set { offset: property::CC, is_wide: false, value } => {
                self.configure(value as u32);
                Ok(Step::success(0))
            }
            Fabrics::Set { .. } => Err(Status::INVALID_FIELD),
        }
    }

    /// Returns a property (Base, "Controller Properties").
    fn property(&self, offset: u32, is_wide: bool) -> Result<u64, Status> {
        Ok(match (offset, is_wide) {
            // Entries of a queue, less one; queues are contiguous; ready within 7.5 s; the NVM
            // command set; pages of 4 KiB.
            (property::CAP, true) => u64::from(MAX_COMMANDS - 1) | 1 << 16 | 15 << 24 | 1 << 37,
            (property::VS, false) => VERSION.into(),
            (property::CC, false) => self.configuration.into(),
            (property::CSTS, false) => self.status.into(),
            _ => return Err(Status::INVALID_FIELD),
        })
    }

    /// Enables, resets or shuts down.
    fn configure(&mut self, value: u32) {
        let was_enabled = self.configuration & cc::ENABLE != 0;
        self.configuration = value;
        match (was_enabled, value & cc::ENABLE != 0) {
            (false, true) => {
                let has_entries = self.subsystem.is_none() || value & cc::ENTRIES == cc::ENTRIES_OF_NVME;
                let is_known = value & cc::CHOICES == 0 && has_entries;
                self.status = if is_known { csts::READY } else { csts::FATAL };
            }
            (true, false) => {
                // Base, "Controller Level Reset": I/O queues are deleted, and commands forgotten.
                (self.status, self.queues, self.events) = (0, 0, 0);
                self.resets = self.resets.wrapping_add(1);
            }
            _ => {}
        }
        if value & cc::SHUTDOWN != 0 {
            self.status |= csts::SHUT_DOWN;
        } else {
            self.status &= !csts::SHUT_DOWN;
        }
    }

    fn identify(&self, sqe: &Sqe, at: &Surroundings<'_>) -> Result<Vec<u8>, Status> {
        let asked = Asked::parse(sqe).ok_or(Status::INVALID_FIELD)?;
        let (Some(subsystem), nsid) = (at.subsystem, sqe.nsid) else {
            return if asked == Asked::Controller {
                Ok(self.description(at).emit())
            } else {
                Err(Status::INVALID_FIELD)
            };
        };
        match asked {
            Asked::Controller => Ok(self.description(at).emit()),
            Asked::Namespaces if nsid < ALL - 1 => Ok(emit_list((nsid < NSID).then_some(NSID))),
            Asked::Namespace if nsid == NSID => Ok(subsystem.namespace().emit()),
            Asked::Identifiers if nsid == NSID => Ok(emit_identifiers(subsystem.nguid)),
            Asked::Namespaces | Asked::Namespace | Asked::Identifiers => Err(Status::INVALID_NAMESPACE),
            // The upper octet of Command Dword 11 is the command set: 0 is NVM.
            Asked::Limits if sqe.cdw[1] >> 24 == 0 => Ok(vec![0; IDENTIFY_LEN]),
            Asked::Limits => Err(Status::INVALID_FIELD),
        }
    }

    fn description(&self, at: &Surroundings<'_>) -> Description {
        let has_disk = at.subsystem.is_some();
        Description {
            cntlid: self.cntlid,
            is_discovery: !has_disk,
            subsystem: at.subsystem.map_or(DISCOVERY_NQN, |subsystem| &subsystem.nqn).to_owned(),
            serial: at.subsystem.map_or_else(String::new, Subsystem::serial),
            model: "rddp".to_owned(),
            firmware: at.firmware.to_owned(),
            max_transfer: Some(if has_disk { MAX_TRANSFER.into() } else { MAX_PAGE }),
            in_capsule: if has_disk { IN_CAPSULE as u32 } else { 0 },
            commands: MAX_COMMANDS,
            namespaces: if has_disk { NSID } else { 0 },
            zeroes: has_disk,
            deallocates: has_disk,
            has_cache: has_disk,
        }
    }

    fn log_page(&self, sqe: &Sqe, place: &Place, at: &Surroundings<'_>) -> Result<Step, Status> {
        let asked = GetLogPage::parse(sqe);
        let octets = match (asked.page, at.subsystem.is_some()) {
            (page::DISCOVERY, false) => log::emit_discovery(&(at.entries)()),
            (page::ERRORS, true) => vec![0; 64],
            (page::HEALTH, true) => log::emit_health(),
            (page::FIRMWARE, true) => log::emit_firmware(at.firmware),
            _ => return Err(Status::INVALID_LOG_PAGE),
        };
        // No more memory is taken than the host has.
        if asked.len != u64::from(place.len()) || asked.len > MAX_PAGE {
            return Err(Status::DATA_LENGTH);
        }
        gives(place, asked.part(&octets).ok_or(Status::INVALID_FIELD)?)
    }

    fn set_feature(&mut self, feature: u8, value: u32) -> Result<Step, Status> {
        match feature {
            feature::QUEUES if self.queues != 0 => Err(Status::SEQUENCE_ERROR),
            feature::QUEUES => {
                let (submission, completion) = (value as u16, (value >> 16) as u16);
                if submission == u16::MAX || completion == u16::MAX {
                    return Err(Status::INVALID_FIELD);
                }
                self.granted = submission.min(completion).min(MAX_QUEUES - 1);
                self.feature(feature)
            }
            feature::KEEP_ALIVE => {
                self.set_keep_alive(value);
                Ok(Step::success(0))
            }
            // No event ever happens, and the cache is always on.
            feature::ASYNC_EVENTS => Ok(Step::success(0)),
            feature::VOLATILE_CACHE if value & 1 != 0 => Ok(Step::success(0)),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    fn feature(&self, feature: u8) -> Result<Step, Status> {
        Ok(Step::success(match feature {
            feature::QUEUES => u64::from(self.granted) << 16 | u64::from(self.granted),
            feature::KEEP_ALIVE => self.keep_alive.map_or(0, |time| time.as_millis() as u64),
            feature::ASYNC_EVENTS => 0,
            feature::VOLATILE_CACHE => 1,
            _ => return Err(Status::INVALID_FIELD),
        }))
    }
}

/// Gives octets to a host whose memory is as long.
fn gives(place: &Place, octets: Vec<u8>) -> Result<Step, Status> {
    if place.len() as usize == octets.len() { Ok(Step::Give(octets)) } else { Err(Status::DATA_LENGTH) }
}

impl Subsystem {
    fn namespace(&self) -> Namespace {
        Namespace {
            blocks: self.export.size >> BLOCK_SHIFT,
            block_shift: BLOCK_SHIFT,
            metadata: 0,
            nguid: self.nguid,
            writable: self.export.writable,
        }
    }

    /// Returns the serial number: the front of what tells the disk from others.
    fn serial(&self) -> String {
        self.nguid[..10].iter().map(|octet| format!("{octet:02x}")).collect()
    }
}
