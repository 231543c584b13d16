//! `slots`: this thread reads each slot when it is free, and tells the client of it.

use std::sync::Arc;

use rddp_command::failure::Failure;
use rddp_rnic::MemoryRegion;
use rddp_stat::Counter;

use super::{Gift, Given, Ring, Strategy};
use crate::files::refused;
use crate::part::Part;
use crate::protocol::{Chunk, ToClient};

pub(crate) struct Slots;

impl Strategy for Slots {
    const NAME: &'static str = "slots";
    const COUNTER: Counter = Counter::OctetsBySlots;
    const IS_RANGE: bool = false;

    async fn memory(gift: &mut Gift<'_>) -> Result<Option<MemoryRegion>, Failure> {
        gift.slots()
    }

    async fn give(gift: &mut Gift<'_>, memory: &Arc<MemoryRegion>) -> Result<Given, Failure> {
        let mut ring = Ring::new(gift.plan.depth);
        let mut is_more = true;
        while is_more || ring.under_way() > 0 {
            let Some(&slot) = ring.free.last().filter(|_| is_more) else {
                let message = gift.hear().await?;
                if gift.take(&mut ring, &message)? {
                    return Ok(Given::Unwanted);
                }
                continue;
            };
            let room = Part::of_slot(memory, slot, gift.plan.chunk);
            let talk = &mut *gift.talk;
            let mut tick = async || talk.say_busy(&ToClient::Busy).await;
            let Some((offset, len)) = gift.source.next(&room, &mut tick).await.map_err(refused)? else {
                is_more = false;
                continue;
            };
            gift.under_way.begun(ring.under_way());
            ring.free.pop();
            let crc = gift.check.of_chunk(&room.first(len))?;
            gift.announce(&mut ring, Chunk { slot, offset, len, crc })?;
            gift.talk.hub.breathe().await;
        }
        Ok(Given::Sent)
    }
}
