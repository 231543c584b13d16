//! The place from which one thread works with disks, near and far: one completion queue for all
//! connections, and a bell for the threads of files.

use rddp_command::endpoint::cannot_wait;
use rddp_command::failure::Failure;
use rddp_command::signals;
use rddp_rnic::{Completion, CompletionQueue, ProtectionDomain, Rnic};

use super::bell::Bell;

/// A device, and what all ends of a copy share of it.
pub(super) struct Desk {
    pub(super) pd: ProtectionDomain,
    pub(super) cq: CompletionQueue,
    pub(super) bell: Bell,
}

impl Desk {
    pub(super) fn new() -> Result<Self, Failure> {
        let rnic = Rnic::open()?;
        let cq = rnic.create_cq(64)?;
        let bell = Bell::new(&cq);
        Ok(Desk { pd: rnic.alloc_pd(), cq, bell })
    }

    /// Returns the completions that there are.
    pub(super) fn completions(&self) -> Vec<Completion> {
        self.cq.completions().collect()
    }

    /// Waits for a completion or the bell, but not for long.
    pub(super) fn wait(&self) -> Result<(), Failure> {
        signals::check()?;
        self.bell.wait(signals::CHECK_INTERVAL).map_err(|error| cannot_wait(&error))
    }
}
