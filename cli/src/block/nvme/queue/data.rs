//! The data of a command: into the host's memory, and from there or from the capsule.

use std::time::Instant;

use rddp_block::nvme::capsule::{Place, SQE_LEN};
use rddp_block::nvme::status::Status;
use rddp_block::nvme::step::Step;
use rddp_rnic::SendWr;

use super::{CAPSULE, Connection};
use crate::block::buffers::Buffer;
use crate::block::nvme::command::Phase;
use crate::block::session::{Means, Wrong};

impl Connection {
    /// Writes octets into the host's memory, and answers.
    pub(super) fn give(&mut self, id: u64, octets: &[u8]) -> Result<(), Wrong> {
        let command = self.commands.get(&id);
        let places = command.and_then(|command| Some((command.buffer.as_ref()?, command.remote()?)));
        let Some((buffer, remote)) = places else { return self.answer(id, Status::INTERNAL.into()) };
        self.out.push(SendWr::write(id, buffer.filled(octets)?, remote).unsignaled());
        self.answer(id, Status::SUCCESS.into())
    }

    /// Gets the host's octets: by a Read, or from the capsule.
    pub(super) fn fetch(
        &mut self,
        id: u64,
        len: usize,
        step: Step,
        place: Place,
        means: &mut Means,
    ) -> Result<(), Wrong> {
        let Some(command) = self.commands.get_mut(&id) else { return Ok(()) };
        match (place, &command.buffer, command.remote()) {
            (Place::InCapsule { offset, .. }, buffer, _) => {
                let at = command.slot * CAPSULE + SQE_LEN + offset as usize;
                let octets = self.inbox.read(at, len)?;
                if let Some(buffer) = buffer {
                    buffer.write(0, &octets)?;
                }
                self.fetched(id, &step, &octets, means)
            }
            (_, Some(buffer), Some(remote)) => {
                let sink = buffer.region().sge(Buffer::payload(len as u32));
                command.phase = Phase::Fetches(step);
                self.owe();
                self.reads += 1;
                self.out.push(SendWr::read(id, sink, remote));
                Ok(())
            }
            _ => self.answer(id, Status::INTERNAL.into()),
        }
    }

    /// Goes on with a command whose octets have come by a Read.
    pub(super) fn read(&mut self, id: u64, means: &mut Means) -> Result<(), Wrong> {
        self.moved = Instant::now();
        self.reads = self.reads.saturating_sub(1);
        let Some(command) = self.commands.get_mut(&id) else { return Ok(()) };
        let Phase::Fetches(step) = std::mem::replace(&mut command.phase, Phase::Rests) else {
            return Ok(());
        };
        let octets = match (&step, &command.buffer) {
            (Step::Fetch(len), Some(buffer)) => buffer.region().read(Buffer::payload(0).start, *len)?,
            _ => Vec::new(),
        };
        self.fetched(id, &step, &octets, means)
    }

    /// Goes on with a command whose octets are here: a write's in its buffer.
    pub(super) fn fetched(
        &mut self,
        id: u64,
        step: &Step,
        octets: &[u8],
        means: &mut Means,
    ) -> Result<(), Wrong> {
        let Some(command) = self.commands.get(&id) else { return Ok(()) };
        match step {
            Step::Disk(disk, work) => self.work(id, *disk, *work, Vec::new(), means),
            _ => {
                let (sqe, place) = (command.sqe, command.place());
                let step = means.target.fetched(&mut self.queue, &sqe, octets, means.now());
                if let (Step::Answer(outcome), Ok(octets)) = (&step, octets.try_into()) {
                    means.troubles.tell_connect(&self.peer, *outcome, octets, &means.target);
                }
                self.act(id, step, place, means)
            }
        }
    }
}
