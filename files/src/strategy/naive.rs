//! `naive`: the whole file is read into memory before the client Reads any of it.

use std::sync::Arc;

use rddp_command::failure::Failure;
use rddp_rnic::{Access, MemoryRegion};

use super::{Gift, Given, Strategy};
use crate::files::refused;
use crate::part::Part;
use crate::protocol::{SLOT, ToClient, out_of_step};

pub(crate) struct Naive;

impl Strategy for Naive {
    const NAME: &'static str = "naive";
    const IS_RANGE: bool = true;

    async fn memory(gift: &mut Gift<'_>) -> Result<MemoryRegion, Failure> {
        let len = usize::try_from(gift.source.left()).map_err(|_| out_of_step())?;
        let memory = gift.talk.end.pd.allocate(len, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
        let whole = Part { memory: &memory, range: 0..len };
        let mut read = 0;
        while read < len {
            let talk = &mut *gift.talk;
            let mut tick = async || talk.say_busy(&ToClient::Busy).await;
            let room = whole.behind(read).first(SLOT);
            // A file that has become shorter is an error already.
            let next = gift.source.next(&room, &mut tick).await.map_err(refused)?;
            read += next.ok_or_else(out_of_step)?.1;
            tick().await?;
        }
        Ok(memory)
    }

    async fn give(gift: &mut Gift<'_>, _memory: &Arc<MemoryRegion>) -> Result<Given, Failure> {
        gift.until_done().await
    }
}
