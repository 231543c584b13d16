//! `region`: the client Reads the file itself, by an STag over it. No octet of it goes through
//! memory of this program.

use std::sync::Arc;

use rddp_command::failure::Failure;
use rddp_rnic::{Access, MemoryRegion};

use super::{Gift, Given, Strategy};
use crate::files::{FileError, refused};

pub(crate) struct Region;

impl Strategy for Region {
    const NAME: &'static str = "region";
    const IS_RANGE: bool = true;

    async fn memory(gift: &mut Gift<'_>) -> Result<MemoryRegion, Failure> {
        let (source, pd) = (&gift.source, &gift.talk.end.pd);
        let file = source.file().try_clone();
        let file = file.map_err(|error| refused(FileError::new(source.name(), error)))?;
        let range = source.size() - source.left()..source.size();
        // A file that has become shorter is refused as one that has changed.
        let region = pd.register_file(file, range, Access::REMOTE_READ);
        region.map_err(|error| match source.is_as_it_was() {
            true => error.into(),
            false => refused(FileError::Changed(source.name().to_owned())),
        })
    }

    async fn give(gift: &mut Gift<'_>, _memory: &Arc<MemoryRegion>) -> Result<Given, Failure> {
        gift.until_done().await
    }
}
