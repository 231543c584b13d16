//! The steps that the target's caller takes for a command, and the subsystems that it serves.

use super::BLOCK_SHIFT;
use super::status::Status;
use crate::export::{Command, Export};

/// A subsystem: what a host connects to, with one disk as namespace 1.
#[derive(Clone, Debug)]
pub struct Subsystem {
    /// The name of the subsystem.
    pub nqn: String,
    /// A number that no other disk has, and that stays the disk's own.
    pub nguid: [u8; 16],
    /// The disk.
    pub export: Export,
}

impl Subsystem {
    /// Returns whether there is a whole block on the disk: else no host is shown the subsystem, or
    /// connects to it.
    #[must_use]
    pub fn has_blocks(&self) -> bool {
        self.export.size >> BLOCK_SHIFT > 0
    }
}

/// A step that the caller takes for a command.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// Send the answer.
    Answer(Outcome),
    /// Write these octets to the command's place, and send an answer of success behind them.
    Give(Vec<u8>),
    /// Get so many octets from the front of the command's place, for
    /// [`Target::fetched`](super::target::Target::fetched).
    Fetch(usize),
    /// Have a disk do that, by its number, and answer what comes of it. The octets that are read or
    /// written have the command's place.
    Disk(usize, Command),
    /// Have a disk do all that, and answer once.
    Trim(usize, Vec<Command>),
    /// Do nothing: the answer tells of an event, and there is none.
    Hold,
}

/// The outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The result.
    pub result: u64,
    /// The status.
    pub status: Status,
}

impl From<Status> for Outcome {
    fn from(status: Status) -> Self {
        Outcome { result: 0, status }
    }
}

impl Step {
    pub(super) fn success(result: u64) -> Self {
        Step::Answer(Outcome { result, status: Status::SUCCESS })
    }

    pub(super) fn failed(result: u64, status: Status) -> Self {
        Step::Answer(Outcome { result, status })
    }
}

impl From<Result<Step, Status>> for Step {
    fn from(result: Result<Step, Status>) -> Self {
        result.unwrap_or_else(|status| Step::Answer(status.into()))
    }
}
