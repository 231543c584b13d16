//! Chunks of a tree on their way: the client Writes them, or Reads them.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rddp_command::failure::Failure;
use rddp_rnic::{Access, MemoryRegion, SendWr};

use crate::part::Part;
use crate::protocol::{Chunk, SLOT, SLOTS, ToClient, ToServer, Want, Window, out_of_step};
use crate::show::Progress;
use crate::talk::{Next, Talk};
use crate::tasks::Hub;

/// The id of Writes, which cause no completions.
const WRITE: u64 = 1;

/// Answers that are under way: the other end is asked once more before the first is needed.
const MOST_WANTS: usize = 2;

/// A way for chunks of at most `SLOT` octets to the other end.
pub(crate) trait Pipe {
    /// Returns the slot of the next chunk, once one is free.
    async fn room(&mut self) -> Result<Part<'_>, Failure>;

    /// Sends the first `len` octets of the slot.
    fn send(&mut self, len: usize) -> Result<(), Failure>;

    /// Waits until the other end has taken all chunks.
    async fn drain(&mut self) -> Result<(), Failure>;

    /// Waits until the other end has said what it wants of the first offers that it was asked
    /// about.
    async fn wanted(&mut self) -> Result<Want, Failure>;

    /// Called when the other end has another file, or had it already.
    fn has_file(&self);

    /// Called now and then while there is nothing to send.
    async fn tick(&mut self) -> Result<(), Failure>;

    fn hub(&self) -> Rc<Hub>;
}

/// The slots that are free, and where the next chunk begins.
struct Slots {
    free: Vec<usize>,
    /// The slot of the chunk that is being filled.
    filling: Option<usize>,
    offset: u64,
}

impl Slots {
    fn new() -> Self {
        Slots { free: (0..SLOTS).collect(), filling: None, offset: 0 }
    }

    /// Returns the slot of the next chunk, if one is free.
    fn next(&mut self) -> Option<usize> {
        self.filling = self.filling.or_else(|| self.free.pop());
        self.filling
    }

    /// Takes the slot of the next chunk, which has so many octets.
    fn fill(&mut self, len: usize) -> Option<Chunk> {
        let chunk = Chunk { slot: self.filling.take()?, offset: self.offset, len, crc: None };
        self.offset += len as u64;
        Some(chunk)
    }

    fn release(&mut self, slot: usize) -> Result<(), Failure> {
        if slot >= SLOTS || self.filling == Some(slot) || self.free.contains(&slot) {
            return Err(out_of_step());
        }
        self.free.push(slot);
        Ok(())
    }
}

/// A client's chunks, which it Writes into the server's window.
pub(super) struct PutPipe<'a> {
    talk: &'a mut Talk,
    buffers: MemoryRegion,
    window: Window,
    slots: Slots,
    wants: VecDeque<Want>,
    progress: &'a Progress,
    limit: Option<u64>,
    patience: Duration,
}

impl<'a> PutPipe<'a> {
    pub(super) fn new(
        talk: &'a mut Talk,
        window: Window,
        progress: &'a Progress,
        limit: Option<u64>,
        patience: Duration,
    ) -> Result<Self, Failure> {
        let buffers = talk.end.pd.allocate(SLOTS * SLOT, Access::LOCAL_WRITE)?;
        let (slots, wants) = (Slots::new(), VecDeque::new());
        Ok(PutPipe { talk, buffers, window, slots, wants, progress, limit, patience })
    }

    /// Waits for the next message. What the other end wants is kept until it is asked for.
    async fn hear(&mut self) -> Result<(), Failure> {
        match self.talk.hear(self.patience).await? {
            ToClient::Free { slot } => self.slots.release(slot),
            ToClient::Want(want) if self.wants.len() < MOST_WANTS => {
                self.wants.push_back(want);
                Ok(())
            }
            _ => Err(out_of_step()),
        }
    }
}

impl Pipe for PutPipe<'_> {
    async fn room(&mut self) -> Result<Part<'_>, Failure> {
        loop {
            if let Some(slot) = self.slots.next() {
                return Ok(Part::of_slot(&self.buffers, slot, SLOT));
            }
            self.hear().await?;
        }
    }

    fn send(&mut self, len: usize) -> Result<(), Failure> {
        let chunk = self.slots.fill(len).ok_or_else(out_of_step)?;
        let local = self.buffers.sge(chunk.part(&self.buffers).range);
        let write = SendWr::write(WRITE, local, self.window.slot(chunk.slot));
        self.talk.say_behind(Some(write), &ToServer::Chunk(chunk))?;
        self.progress.moved(chunk.len);
        self.progress.hold_back(self.slots.offset, self.limit)
    }

    async fn drain(&mut self) -> Result<(), Failure> {
        while self.slots.free.len() < SLOTS {
            self.hear().await?;
        }
        Ok(())
    }

    async fn wanted(&mut self) -> Result<Want, Failure> {
        loop {
            if let Some(want) = self.wants.pop_front() {
                return Ok(want);
            }
            self.hear().await?;
        }
    }

    async fn tick(&mut self) -> Result<(), Failure> {
        self.talk.say_busy(&ToServer::Busy).await
    }

    fn has_file(&self) {
        self.progress.has_files(1);
    }

    fn hub(&self) -> Rc<Hub> {
        self.talk.hub.clone()
    }
}

/// A server's chunks, which the client Reads.
pub(crate) struct GivePipe<'a> {
    talk: &'a mut Talk,
    region: &'a MemoryRegion,
    slots: Slots,
    lens: [usize; SLOTS],
    wants: VecDeque<Want>,
    patience: Duration,
}

impl<'a> GivePipe<'a> {
    pub(crate) fn new(talk: &'a mut Talk, region: &'a MemoryRegion, patience: Duration) -> Self {
        GivePipe { talk, region, slots: Slots::new(), lens: [0; SLOTS], wants: VecDeque::new(), patience }
    }

    /// Waits for the next message, as [`PutPipe::hear`] does.
    async fn hear(&mut self) -> Result<(), Failure> {
        match self.talk.hear(self.patience).await? {
            ToServer::Free { slot } => self.release(slot),
            ToServer::Want(want) if self.wants.len() < MOST_WANTS => {
                self.wants.push_back(want);
                Ok(())
            }
            _ => Err(out_of_step()),
        }
    }

    fn release(&mut self, slot: usize) -> Result<(), Failure> {
        self.slots.release(slot)?;
        self.talk.moved(self.lens[slot]);
        Ok(())
    }
}

impl Pipe for GivePipe<'_> {
    async fn room(&mut self) -> Result<Part<'_>, Failure> {
        loop {
            if let Some(slot) = self.slots.next() {
                return Ok(Part::of_slot(self.region, slot, SLOT));
            }
            self.hear().await?;
        }
    }

    fn send(&mut self, len: usize) -> Result<(), Failure> {
        let chunk = self.slots.fill(len).ok_or_else(out_of_step)?;
        self.lens[chunk.slot] = chunk.len;
        self.talk.say(&ToClient::Chunk(chunk))
    }

    async fn drain(&mut self) -> Result<(), Failure> {
        while self.slots.free.len() < SLOTS {
            self.hear().await?;
        }
        Ok(())
    }

    async fn wanted(&mut self) -> Result<Want, Failure> {
        loop {
            if let Some(want) = self.wants.pop_front() {
                return Ok(want);
            }
            self.hear().await?;
        }
    }

    async fn tick(&mut self) -> Result<(), Failure> {
        // A client that takes its chunks slowly must not keep its place by the length of the walk.
        self.talk.say_alive(&ToClient::Busy)?;
        self.talk.hub.breathe().await;
        Ok(())
    }

    // A server shows no progress.
    fn has_file(&self) {}

    fn hub(&self) -> Rc<Hub> {
        self.talk.hub.clone()
    }
}

/// The chunks that a client Reads, each in its slot.
pub(super) struct GetPipe<'a> {
    pub(super) talk: &'a mut Talk,
    buffers: Arc<MemoryRegion>,
    window: Window,
    /// The contents of each slot, present or to come by the Read that is under way.
    arrived: [Option<Chunk>; SLOTS],
    /// The offset up to which the server has announced octets.
    announced: u64,
    patience: Duration,
}

impl<'a> GetPipe<'a> {
    pub(super) fn new(talk: &'a mut Talk, window: Window, patience: Duration) -> Result<Self, Failure> {
        let buffers = talk.sinks(SLOTS * SLOT)?;
        Ok(GetPipe { talk, buffers, window, arrived: [None; SLOTS], announced: 0, patience })
    }

    /// Copies the next chunk into a buffer, and returns it there. Reads complete in the order in
    /// which they were asked for.
    pub(super) async fn next<'b>(&mut self, kept: &'b mut Vec<u8>) -> Result<&'b [u8], Failure> {
        loop {
            match self.talk.next(self.patience).await? {
                Next::Message(ToClient::Chunk(chunk)) => self.read(chunk)?,
                Next::Read(slot) => return self.take(slot, kept),
                Next::Message(_) => return Err(out_of_step()),
            }
        }
    }

    fn read(&mut self, chunk: Chunk) -> Result<(), Failure> {
        chunk.check(self.announced, u64::MAX)?;
        if self.arrived[chunk.slot].replace(chunk).is_some() {
            return Err(out_of_step());
        }
        self.announced += chunk.len as u64;
        let at = chunk.slot * SLOT;
        let sink = self.buffers.sge(at..at + chunk.len);
        self.talk.end.post(&SendWr::read(chunk.slot as u64, sink, self.window.slot(chunk.slot)))
    }

    fn take<'b>(&mut self, slot: u64, kept: &'b mut Vec<u8>) -> Result<&'b [u8], Failure> {
        let slot = usize::try_from(slot).unwrap_or(SLOTS);
        let chunk = self.arrived.get_mut(slot).and_then(Option::take).ok_or_else(out_of_step)?;
        let octets = chunk.part(&self.buffers).copied(kept)?;
        self.talk.say(&ToServer::Free { slot })?;
        Ok(octets)
    }
}
