//! `pipelined`: a thread reads the next slots while the client Reads those before. A slow disk and
//! the connection are at work at the same time, and this thread serves others meanwhile.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::Instant;

use rddp_command::failure::Failure;
use rddp_command::signals::CHECK_INTERVAL;
use rddp_rnic::{MemError, MemoryRegion};
use rddp_stat::Counter;

use super::{Gift, Given, Ring, Slots, Strategy};
use crate::checksum::Check;
use crate::files::{FileError, refused};
use crate::part::Part;
use crate::protocol::{Chunk, ToClient};
use crate::tasks::Alarm;

pub(crate) struct Pipelined;

impl Strategy for Pipelined {
    const NAME: &'static str = "pipelined";
    const COUNTER: Counter = Counter::OctetsByPipelined;
    const IS_RANGE: bool = false;

    async fn memory(gift: &mut Gift<'_>) -> Result<Option<MemoryRegion>, Failure> {
        gift.slots()
    }

    async fn give(gift: &mut Gift<'_>, memory: &Arc<MemoryRegion>) -> Result<Given, Failure> {
        let Ok(reader) = Reader::start(gift, memory) else { return Slots::give(gift, memory).await };
        let mut ring = Ring::new(gift.plan.depth);
        let (mut is_more, mut reading) = (true, 0);
        loop {
            while reading > 0 {
                let Read { chunk, count, crc } = match reader.done.try_recv() {
                    Ok(read) => read,
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Err(Failure::failed("a thread has panicked")),
                };
                reading -= 1;
                gift.source.was_read(count, chunk.len).map_err(refused)?;
                let crc = crc.map_err(FileError::memory).map_err(refused)?;
                gift.announce(&mut ring, Chunk { crc, ..chunk })?;
            }
            while let Some(message) = gift.talk.heard()? {
                if gift.take(&mut ring, &message)? {
                    return Ok(Given::Unwanted);
                }
            }
            while is_more && let Some(&slot) = ring.free.last() {
                let talk = &mut *gift.talk;
                let mut tick = async || talk.say_busy(&ToClient::Busy).await;
                let planned = gift.source.plan(gift.plan.chunk, &mut tick).await.map_err(refused)?;
                let Some((offset, len)) = planned else {
                    is_more = false;
                    break;
                };
                gift.under_way.begun(ring.under_way());
                ring.free.pop();
                reading += 1;
                // The thread ends after this end is dropped.
                let _ = reader.wanted.send(Chunk { slot, offset, len, crc: None });
            }
            if !is_more && ring.under_way() == 0 {
                return Ok(Given::Sent);
            }
            if reading > 0 {
                gift.talk.stirred(Instant::now() + CHECK_INTERVAL).await;
                gift.talk.say_alive(&ToClient::Busy)?;
            } else {
                let message = gift.hear().await?;
                if gift.take(&mut ring, &message)? {
                    return Ok(Given::Unwanted);
                }
            }
        }
    }
}

/// The thread that reads.
struct Reader {
    wanted: Sender<Chunk>,
    done: Receiver<Read>,
}

/// A chunk for which a slot was read: how many octets there were, and their CRC.
struct Read {
    chunk: Chunk,
    count: io::Result<usize>,
    crc: Result<Option<u32>, MemError>,
}

impl Reader {
    fn start(gift: &Gift<'_>, memory: &Arc<MemoryRegion>) -> io::Result<Self> {
        let ((wanted, chunks), (give, done)) = (channel(), channel());
        let (file, memory) = (gift.source.file(), memory.clone());
        let (alarm, check) = (gift.talk.alarm(), gift.check);
        thread::Builder::new()
            .name("rddp-reader".into())
            .spawn(move || read_all(&file, &memory, check, &chunks, &give, &alarm))?;
        Ok(Reader { wanted, done })
    }
}

/// Reads chunks until nobody wants more.
fn read_all(
    file: &File,
    memory: &MemoryRegion,
    check: Check,
    chunks: &Receiver<Chunk>,
    give: &Sender<Read>,
    alarm: &Alarm,
) {
    for chunk in chunks {
        let octets: Part<'_> = chunk.part(memory);
        let count = memory.read_from(file, chunk.offset, octets.range.clone());
        let read = Read { chunk, count, crc: check.of_chunk(&octets) };
        if give.send(read).is_err() {
            return;
        }
        alarm.ring();
    }
}
