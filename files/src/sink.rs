//! The destination of a get that has begun: a file that gets its name at the end, or a stream.

use rddp_command::failure::Failure;

use super::checksum::Check;
use super::files::FileError;
use super::part::Part;
use super::partial::{Clobber, Last, Partial};
use super::stream::Stream;
use super::target::Target;
use super::tasks::Hub;

pub(super) enum Sink {
    Partial(Partial),
    Stream(Stream),
}

impl Sink {
    pub(super) async fn open(
        target: Target,
        clobber: Clobber,
        check: Check,
        hub: &Hub,
    ) -> Result<Self, FileError> {
        match target {
            Target::File(spot) => Partial::open(spot, clobber, check, hub).await.map(Sink::Partial),
            Target::Stream(file, name) => Ok(Sink::Stream(Stream::new(file, &name, check))),
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Sink::Partial(partial) => partial.name(),
            Sink::Stream(stream) => stream.name(),
        }
    }

    /// Returns whether a transfer that ended early can be resumed.
    pub(super) fn is_resumable(&self) -> bool {
        matches!(self, Sink::Partial(_))
    }

    /// Returns whether the file is there already, by its size and time. It gets the permissions
    /// that it would get if it was fetched.
    pub(super) fn is_there(&self, last: Last) -> bool {
        match self {
            Sink::Partial(partial) => partial.is_there(last),
            Sink::Stream(_) => false,
        }
    }

    /// Returns the number and proof of the octets of an earlier transfer. `tick` is called now
    /// and then.
    pub(super) async fn examine(
        &mut self,
        tick: &mut impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<(u64, String), FileError> {
        match self {
            Sink::Partial(partial) => partial.examine(tick).await,
            Sink::Stream(_) => Ok((0, String::new())),
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

    /// Writes the next octets, which may be behind a hole. `tick` is called now and then while that
    /// has to wait.
    pub(super) async fn append(
        &mut self,
        offset: u64,
        octets: &Part<'_>,
        hub: &Hub,
        tick: &mut impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<(), FileError> {
        match self {
            Sink::Partial(partial) => partial.append_part(offset, octets, hub, tick).await,
            Sink::Stream(stream) => stream.append_part(offset, octets, tick).await,
        }
    }

    /// Writes octets that were in a message, as [`Sink::append`] does.
    pub(super) async fn append_octets(
        &mut self,
        offset: u64,
        octets: &[u8],
        hub: &Hub,
        tick: &mut impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<(), FileError> {
        match self {
            Sink::Partial(partial) => partial.append(offset, octets, hub, tick).await,
            Sink::Stream(stream) => stream.append(offset, octets, tick).await,
        }
    }

    /// Fills the hole at the end of a file of `size` octets, where holes have to be filled.
    pub(super) async fn fill(
        &mut self,
        size: u64,
        tick: &mut impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<(), FileError> {
        match self {
            Sink::Partial(_) => Ok(()),
            Sink::Stream(stream) => stream.append(size, &[], tick).await,
        }
    }

    pub(super) fn len(&self) -> u64 {
        match self {
            Sink::Partial(partial) => partial.len(),
            Sink::Stream(stream) => stream.len(),
        }
    }

    /// Returns the SHA-256 of all `size` octets, if it is asked for. `tick` is called now and then.
    pub(super) async fn checksum(
        &mut self,
        size: u64,
        tick: &mut impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<String, FileError> {
        match self {
            Sink::Partial(partial) => Ok(partial.checksum(size, tick).await?.so_far()),
            Sink::Stream(stream) => Ok(stream.checksum()),
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
    pub(super) async fn finish(self, last: Last, hub: &Hub) -> Result<bool, FileError> {
        match self {
            Sink::Partial(partial) => partial.finish(last, hub).await,
            Sink::Stream(stream) => stream.finish().map(|()| false),
        }
    }
}
