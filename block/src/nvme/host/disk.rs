//! A disk, as its host has it.

use crate::export::Command;
use crate::nvme::capsule::{Place, Sqe};
use crate::nvme::io;

/// A disk, and the controller by which the host has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The number of the controller.
    pub cntlid: u16,
    /// The number of the namespace.
    pub(super) nsid: u32,
    /// Octets that it has.
    pub size: u64,
    /// The logarithm of a block's octets.
    pub block_shift: u8,
    /// The host may write.
    pub writable: bool,
    /// Octets of the longest read or write.
    pub longest: u32,
    /// Octets of data that the capsule of a command may have.
    pub(super) in_capsule: u32,
    /// Write Zeroes is there.
    pub zeroes: bool,
    /// Octets that were written may be lost until a Flush.
    pub has_cache: bool,
    /// The number of I/O queues that the host may have.
    pub queues: u16,
    /// Entries of such a queue. The host sends one command less at a time.
    pub entries: u16,
}

impl Disk {
    /// Returns whether the data of a command go behind it in its capsule: then the target need not
    /// read them from the host's memory.
    #[must_use]
    pub fn is_in_capsule(&self, command: &Command) -> bool {
        matches!(command, Command::Write { len, .. } if *len <= self.in_capsule)
    }

    /// Makes a command for the disk; `None` of what NVMe has no command for.
    #[must_use]
    pub fn command(&self, cid: u16, command: &Command, place: Place) -> Option<Sqe> {
        let sqe = io::command(cid, command, self.block_shift, place)?;
        Some(Sqe { nsid: self.nsid, ..sqe })
    }
}
