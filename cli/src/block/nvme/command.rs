//! A command of a host that is under way.

use rddp_block::export::Command as Work;
use rddp_block::nvme::capsule::{Cqe, Place, Sqe};
use rddp_block::nvme::step::Step;
use rddp_rnic::{Gather, Remote, SendWr, Stag};

use super::super::buffers::Buffer;

/// A command, from its capsule to the moment when TCP has its answer.
pub(super) struct Command {
    pub(super) sqe: Sqe,
    /// The receive in which its capsule is, until the command is answered.
    pub(super) slot: usize,
    pub(super) phase: Phase,
    pub(super) buffer: Option<Buffer>,
    /// Octets of the buffer, which count against the connection's.
    pub(super) octets: usize,
}

/// The next thing that a command waits for.
pub(super) enum Phase {
    /// Memory, or nothing yet.
    Begins(Step),
    /// The host's octets, which an RDMA Read gets.
    Fetches(Step),
    /// A disk, which does that now, and then has the rest to do.
    Works { disk: usize, work: Work, rest: Vec<Work> },
    /// The answer has been given, or never will be.
    Rests,
}

impl Command {
    pub(super) fn new(sqe: Sqe, slot: usize, step: Step) -> Self {
        Command { sqe, slot, phase: Phase::Begins(step), buffer: None, octets: 0 }
    }

    /// Returns the place of the data. The target takes no command without one that is legal.
    pub(super) fn place(&self) -> Place {
        self.sqe.place().unwrap_or(Place::NONE)
    }

    /// Returns the place of the data in the host's memory, if it is there.
    pub(super) fn remote(&self) -> Option<Remote> {
        match self.place() {
            Place::Keyed { address, key, .. } => Some(Remote { stag: Stag(key), to: address }),
            Place::InCapsule { .. } => None,
        }
    }

    /// Makes the Send of the answer. It invalidates the host's memory where the host asked for that
    /// (RDMA, "Keyed SGL Data Block descriptor").
    pub(super) fn answer(&self, id: u64, cqe: &Cqe) -> SendWr {
        let octets = cqe.emit();
        match self.place().invalidates() {
            Some(key) => SendWr::send_invalidate(id, Gather::Inline(octets.to_vec()), Stag(key)),
            None => SendWr::send_inline(id, &octets),
        }
    }
}

/// Returns how many octets of memory a step needs here: of a disk's data, of what the
/// host is given, or of octets that it has in its memory.
pub(super) fn needs(step: &Step, place: &Place) -> usize {
    match step {
        Step::Disk(_, Work::Read { len, .. } | Work::Write { len, .. }) => *len as usize,
        Step::Give(octets) => octets.len(),
        Step::Fetch(len) if matches!(place, Place::Keyed { .. }) => *len,
        _ => 0,
    }
}
