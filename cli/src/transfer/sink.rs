//! The destination of a get that has begun: a file that gets its name at the end, or a stream.

use super::files::FileError;
use super::partial::{Clobber, Partial};
use super::stream::Stream;
use super::target::Target;
use crate::failure::Failure;

pub(super) enum Sink {
    Partial(Partial),
    Stream(Stream),
}

impl Sink {
    pub(super) fn open(target: Target, clobber: Clobber) -> Result<Self, FileError> {
        match target {
            Target::File(spot) => Partial::open(spot, clobber).map(Sink::Partial),
            Target::Stream(stream) => Ok(Sink::Stream(stream)),
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Sink::Partial(partial) => partial.name(),
            Sink::Stream(stream) => stream.name(),
        }
    }

    /// Returns whether a transfer that ended early can be resumed.
    pub(super) fn is_resumable(&self) -> bool {
        matches!(self, Sink::Partial(_))
    }

    /// Returns the number and checksum of the octets of an earlier transfer. `tick` is called now
    /// and then.
    pub(super) fn examine(
        &mut self,
        tick: &mut dyn FnMut() -> Result<(), Failure>,
    ) -> Result<(u64, String), FileError> {
        match self {
            Sink::Partial(partial) => partial.examine(tick),
            Sink::Stream(stream) => Ok((0, stream.checksum())),
        }
    }

    /// Discards the octets of an earlier transfer.
    pub(super) fn restart(&mut self) -> Result<(), FileError> {
        match self {
            Sink::Partial(partial) => partial.restart(),
            Sink::Stream(_) => Ok(()),
        }
    }

    /// Checks that there is space for `more` octets, where that can be found out.
    pub(super) fn has_room(&self, more: u64) -> Result<(), FileError> {
        match self {
            Sink::Partial(partial) => partial.has_room(more),
            Sink::Stream(_) => Ok(()),
        }
    }

    /// Writes the next octets. `tick` is called now and then while that has to wait.
    pub(super) fn append(
        &mut self,
        octets: &[u8],
        tick: &mut dyn FnMut() -> Result<(), Failure>,
    ) -> Result<(), FileError> {
        match self {
            Sink::Partial(partial) => partial.append(octets),
            Sink::Stream(stream) => stream.append(octets, tick),
        }
    }

    pub(super) fn len(&self) -> u64 {
        match self {
            Sink::Partial(partial) => partial.len(),
            Sink::Stream(stream) => stream.len(),
        }
    }

    pub(super) fn checksum(&self) -> String {
        match self {
            Sink::Partial(partial) => partial.checksum(),
            Sink::Stream(stream) => stream.checksum(),
        }
    }

    /// Discards octets that are wrong, where that is possible.
    pub(super) fn discard(self) {
        if let Sink::Partial(partial) = self {
            partial.discard();
        }
    }

    /// Completes the destination, whose octets are all there and right. Returns whether a file was
    /// replaced.
    pub(super) fn finish(self, mode: u32) -> Result<bool, FileError> {
        match self {
            Sink::Partial(partial) => partial.finish(mode),
            Sink::Stream(stream) => stream.finish().map(|()| false),
        }
    }
}
