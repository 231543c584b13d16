//! A file that is not complete: a short one, or one that is worth resuming.

use rddp_command::failure::Failure;

use super::short::Short;
use crate::checksum::Check;
use crate::files::FileError;
use crate::partial::{Last, Partial};
use crate::protocol::out_of_step;
use crate::tasks::Hub;

/// A file that is not complete.
pub(super) struct Arriving {
    pub(super) shown: String,
    pub(super) last: Last,
    /// The offset at which this transfer began.
    pub(super) from: u64,
    pub(super) contents: Contents,
    /// The checksum that the sender has named.
    pub(super) named: Option<[u8; 32]>,
}

pub(super) enum Contents {
    Short(Short),
    Long(Partial),
}

impl Arriving {
    pub(super) async fn write(
        &mut self,
        offset: u64,
        octets: &[u8],
        hub: &Hub,
        tick: &mut impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<(), FileError> {
        let end = match &self.contents {
            Contents::Short(short) => short.end,
            Contents::Long(partial) => partial.len(),
        };
        let fits = offset >= end && octets.len() as u64 <= self.last.size.saturating_sub(offset);
        if !fits {
            return Err(FileError::Stopped(out_of_step()));
        }
        match &mut self.contents {
            Contents::Short(short) => short.write(offset, octets, &self.shown, tick).await,
            Contents::Long(partial) => partial.append(offset, octets, hub, tick).await,
        }
    }

    /// Checks the SHA-256 of the file, where that was agreed on.
    pub(super) async fn check(
        &mut self,
        check: Check,
        tick: &mut impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<(), FileError> {
        if check != Check::Sha256 {
            return Ok(());
        }
        let size = self.last.size;
        let ours = match &mut self.contents {
            Contents::Short(short) => short.checksum(size, tick).await?.digest(),
            Contents::Long(partial) => partial.checksum(size, tick).await?.digest(),
        };
        if ours == self.named {
            return Ok(());
        }
        if let Contents::Long(partial) = &mut self.contents {
            partial.remove();
        }
        let shown = &self.shown;
        Err(FileError::Stopped(Failure::mismatch(format!("{shown}: its sha256 differs at the two ends"))))
    }

    /// Removes the file, which changed at the sender.
    pub(super) fn discard(self) {
        if let Contents::Long(partial) = self.contents {
            partial.discard();
        }
    }
}
