//! `naive`: the whole file is read into memory before the client Reads any of it.

use std::sync::Arc;

use rddp_command::failure::Failure;
use rddp_rnic::{Access, MemoryRegion};
use rddp_stat::Counter;

use super::{Gift, Given, Strategy};
use crate::files::refused;
use crate::protocol::{SLOT, ToClient, out_of_step};

pub(crate) struct Naive;

impl Strategy for Naive {
    const NAME: &'static str = "naive";
    const COUNTER: Counter = Counter::OctetsByNaive;
    const IS_RANGE: bool = true;

    async fn memory(gift: &mut Gift<'_>) -> Result<Option<MemoryRegion>, Failure> {
        let len = usize::try_from(gift.source.left()).map_err(|_| out_of_step())?;
        let memory = gift.talk.end.pd.allocate(len, Access::LOCAL_WRITE | Access::REMOTE_READ);
        let Ok(memory) = memory else { return Ok(None) };
        let (file, begin) = (gift.source.file(), gift.source.size() - gift.source.left());
        let talk = &mut *gift.talk;
        let mut tick = async || talk.say_busy(&ToClient::Busy).await;
        while let Some((offset, count)) = gift.source.plan(SLOT, &mut tick).await.map_err(refused)? {
            // Inside the file, and so inside the memory.
            let at = (offset - begin) as usize;
            let read = memory.read_from(&file, offset, at..at + count);
            gift.source.was_read(read, count).map_err(refused)?;
            tick().await?;
        }
        Ok(Some(memory))
    }

    async fn give(gift: &mut Gift<'_>, _memory: &Arc<MemoryRegion>) -> Result<Given, Failure> {
        gift.until_done().await
    }
}
