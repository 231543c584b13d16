//! `region`: the client Reads the file itself, by an STag over it. No octet of it goes through
//! memory of this program.

use std::sync::Arc;

use rddp_command::failure::Failure;
use rddp_rnic::{Access, MemoryRegion};
use rddp_stat::Counter;

use super::{Gift, Given, Strategy};
use crate::files::{FileError, refused};

pub(crate) struct Region;

impl Strategy for Region {
    const NAME: &'static str = "region";
    const COUNTER: Counter = Counter::OctetsByRegion;
    const IS_RANGE: bool = true;

    async fn memory(gift: &mut Gift<'_>) -> Result<Option<MemoryRegion>, Failure> {
        let (source, pd) = (&gift.source, &gift.talk.end.pd);
        let file = source.file().try_clone();
        let file = file.map_err(|error| refused(FileError::new(source.name(), error)))?;
        let range = source.size() - source.left()..source.size();
        match pd.register_file(file, range, Access::REMOTE_READ) {
            Ok(region) => Ok(Some(region)),
            // No addresses are left for it.
            Err(_) if source.is_as_it_was() => Ok(None),
            // A file that has become shorter is refused as one that has changed.
            Err(_) => Err(refused(FileError::Changed(source.name().to_owned()))),
        }
    }

    async fn give(gift: &mut Gift<'_>, _memory: &Arc<MemoryRegion>) -> Result<Given, Failure> {
        gift.until_done().await
    }
}
