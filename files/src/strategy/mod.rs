//! Strategies: the ways in which a server gives the octets of one file, which the client Reads.
//!
//! | | the server's memory | who says what is Read |
//! |---|---|---|
//! | `naive` | all of the file, read before the first Read | the client: one range is named |
//! | `region` | none: the file itself is registered | the client |
//! | `map` | a mapping of the file, which is kept for the next client | the client |
//! | `slots` | slots, each read when it is free | the server: a `Chunk` for each |
//! | `pipelined` | the same, read by a thread while others are on their way | the server |
//!
//! Only `slots` sees the octets in their order as they go, which SHA-256 needs; and what the client
//! Reads of one range has no CRC but that of its FPDUs. [`Choice::of`] takes that into account.

mod mapped;
mod naive;
mod pipelined;
mod region;
mod slots;

use std::sync::Arc;
use std::time::Duration;

use rddp_command::device::By;
use rddp_command::failure::Failure;
use rddp_rnic::{Access, MemoryRegion, QpState, Rnic};
use rddp_stat::Counter;

pub(crate) use self::mapped::{Mapped, Mappings};
pub(crate) use self::naive::Naive;
pub(crate) use self::pipelined::Pipelined;
pub(crate) use self::region::Region;
pub(crate) use self::slots::Slots;
use super::checksum::Check;
use super::protocol::{Chunk, EXTENTS, SLOT, SLOTS, ToClient, ToServer, out_of_step};
use super::source::Source;
use super::talk::Talk;

/// Octets of the shortest file for which a mapping is worth it.
const WORTH_A_MAPPING: u64 = 1 << 20;

/// Octets of the longest file that is read whole into memory.
const LONGEST_WHOLE: u64 = 1 << 30;

/// The strategy that a server's user has asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// By what costs least of those that are possible.
    #[default]
    Auto,
    /// The whole file is read, then the client Reads it.
    Naive,
    /// Slots are read one after the other as they become free.
    Slots,
    /// A thread reads slots while others are on their way.
    Pipelined,
    /// The client Reads the file itself.
    Region,
    /// The client Reads a mapping of the file.
    Map,
}

/// The strategy of a server, and the sizes of its slots.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The strategy.
    pub choice: Choice,
    /// Octets of a chunk, at most [`LARGEST_CHUNK`].
    pub chunk: usize,
    /// Chunks under way, at most [`MOST_CHUNKS`].
    pub depth: usize,
    /// The owner promises that files do not change.
    pub immutable: bool,
}

/// Octets of the longest chunk: a client has memory for no longer ones.
pub const LARGEST_CHUNK: usize = SLOT;

/// Chunks that are under way at most.
pub const MOST_CHUNKS: usize = SLOTS;

impl Default for Plan {
    fn default() -> Self {
        Plan { choice: Choice::default(), chunk: LARGEST_CHUNK, depth: MOST_CHUNKS, immutable: false }
    }
}

/// A strategy that is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chosen {
    Naive,
    Slots,
    Pipelined,
    Region,
    Map,
}

impl Plan {
    /// Fails if a device does not have what the strategy needs: clients of one of the host get
    /// slots.
    pub(crate) fn check(&self, rnic: &Rnic) -> Result<(), Failure> {
        let by = By::of(rnic);
        match self.choice {
            Choice::Naive | Choice::Region | Choice::Map if by.is_host() => Err(by
                .lacks("regions over files, nor a CRC that a checksum could be left out for")
                .remedy("--strategy slots or pipelined, or auto, which is slots there")),
            _ => Ok(()),
        }
    }

    /// Returns the strategy for what is left of a file, over a connection whose FPDUs have a CRC or
    /// not.
    pub(crate) fn of(&self, left: u64, check: Check, has_crc: bool) -> Chosen {
        let is_range = has_crc && left > 0;
        match self.choice {
            _ if check == Check::Sha256 => Chosen::Slots,
            Choice::Naive if is_range && left <= LONGEST_WHOLE => Chosen::Naive,
            Choice::Map if is_range && self.immutable => Chosen::Map,
            Choice::Auto if is_range && self.immutable && left >= WORTH_A_MAPPING => Chosen::Map,
            Choice::Auto | Choice::Region | Choice::Map if is_range => Chosen::Region,
            Choice::Pipelined => Chosen::Pipelined,
            _ => Chosen::Slots,
        }
    }
}

impl Chosen {
    /// Returns the strategy that takes the place of one for which there is no memory.
    pub(crate) fn otherwise(self) -> Self {
        if self == Chosen::Map { Chosen::Region } else { Chosen::Slots }
    }
}

/// A way of giving a file.
pub(crate) trait Strategy {
    /// The name in options and results.
    const NAME: &'static str;

    /// The count of its octets.
    const COUNTER: Counter;

    /// The client Reads what it wants of one range, from the first octet that it lacks to the end.
    const IS_RANGE: bool;

    /// Makes the memory that the client Reads; `None` where it cannot be had, and another strategy
    /// takes the place of this one ([`Chosen::otherwise`]).
    async fn memory(gift: &mut Gift<'_>) -> Result<Option<MemoryRegion>, Failure>;

    /// Gives all octets from where the source is, and waits until the client has them.
    async fn give(gift: &mut Gift<'_>, memory: &Arc<MemoryRegion>) -> Result<Given, Failure>;
}

/// The outcome of giving a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    Sent,
    /// The client has it already.
    Unwanted,
}

/// A file on its way to a client.
pub(crate) struct Gift<'a> {
    pub(crate) talk: &'a mut Talk,
    pub(crate) source: &'a mut Source,
    pub(crate) check: Check,
    pub(crate) plan: Plan,
    pub(crate) mappings: &'a Mappings,
    /// Time for which the client may say nothing.
    pub(crate) patience: Duration,
    pub(crate) under_way: UnderWay,
    /// The count of the octets that the client has got.
    pub(crate) counter: Counter,
}

/// Numbers of chunks that were begun, by how many others were under way: being read, or announced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnderWay([u64; SLOTS]);

impl UnderWay {
    /// Returns the numbers of Reads that came while so many others were being answered.
    pub(crate) fn of_reads(talk: &Talk) -> Self {
        UnderWay(Counter::READS_BESIDE.map(|counter| talk.end.qp.counted(counter)))
    }

    /// Counts a chunk that is begun while so many others are under way.
    fn begun(&mut self, others: usize) {
        self.0[others.min(SLOTS - 1)] += 1;
    }

    /// Returns the counts up to the last that is not 0.
    pub(crate) fn counts(&self) -> Vec<u64> {
        let len = self.0.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        self.0[..len].to_vec()
    }
}

impl Gift<'_> {
    fn slots(&self) -> Result<Option<MemoryRegion>, Failure> {
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
        Ok(Some(self.talk.end.pd.allocate(self.plan.depth * SLOT, access)?))
    }

    /// Counts octets that the client has got.
    fn moved(&self, octets: usize) {
        self.talk.moved(octets);
        self.talk.end.qp.count(self.counter, octets as u64);
    }

    async fn hear(&mut self) -> Result<ToServer, Failure> {
        self.talk.hear(self.patience).await
    }

    /// Names the extents of one range as the client asks for them, and waits until it has Read all
    /// that it wants.
    async fn until_done(&mut self) -> Result<Given, Failure> {
        let mut before = 0;
        loop {
            match self.hear().await? {
                ToServer::At { octets } if octets >= before => {
                    self.moved(usize::try_from(octets - before).unwrap_or(usize::MAX));
                    before = octets;
                }
                ToServer::Where { from } if from <= self.source.size() => {
                    let (list, to) = self.source.extents(from, EXTENTS);
                    self.talk.say(&ToClient::Extents { list, to })?;
                    self.talk.hub.breathe().await;
                }
                ToServer::Done => return Ok(Given::Sent),
                ToServer::Same => return Ok(Given::Unwanted),
                _ => return Err(out_of_step()),
            }
        }
    }

    /// Returns whether the client has ended the connection because it has the file already.
    pub(crate) fn was_unwanted(&mut self) -> bool {
        self.talk.end.qp.state() != QpState::ReadyToSend
            && std::iter::from_fn(|| self.talk.heard().ok().flatten())
                .any(|message| matches!(message, ToServer::Same))
    }

    fn announce(&mut self, ring: &mut Ring, chunk: Chunk) -> Result<(), Failure> {
        ring.announced[chunk.slot] = Some(chunk.len);
        self.talk.say(&ToClient::Chunk(chunk))
    }

    /// Takes a client's message about chunks. Returns whether it wants no more.
    fn take(&mut self, ring: &mut Ring, message: &ToServer) -> Result<bool, Failure> {
        match *message {
            ToServer::Free { slot } => {
                self.moved(ring.release(slot)?);
                Ok(false)
            }
            ToServer::Same => Ok(true),
            _ => Err(out_of_step()),
        }
    }
}

/// The slots: which are free, and which the client has been told of.
struct Ring {
    free: Vec<usize>,
    announced: [Option<usize>; SLOTS],
    depth: usize,
}

impl Ring {
    fn new(depth: usize) -> Self {
        Ring { free: (0..depth).collect(), announced: [None; SLOTS], depth }
    }

    /// Returns how many slots are being read, or the client has not emptied.
    fn under_way(&self) -> usize {
        self.depth - self.free.len()
    }

    /// Takes back a slot that the client has emptied. Returns how many octets it had.
    fn release(&mut self, slot: usize) -> Result<usize, Failure> {
        let len = self.announced.get_mut(slot).and_then(Option::take).ok_or_else(out_of_step)?;
        self.free.push(slot);
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_slot_that_was_announced_comes_back_and_once() {
        let mut ring = Ring::new(2);
        let slot = ring.free.pop().unwrap();
        assert!(ring.release(slot).is_err() && ring.release(SLOTS).is_err());
        ring.announced[slot] = Some(7);
        assert_eq!((ring.under_way(), ring.release(slot).unwrap(), ring.under_way()), (1, 7, 0));
        assert!(ring.release(slot).is_err());
    }

    #[test]
    fn chunks_under_way_are_counted_by_how_many_there_were() {
        let mut under_way = UnderWay::default();
        assert!(under_way.counts().is_empty());
        [0, 1, 1, 3].into_iter().for_each(|others| under_way.begun(others));
        assert_eq!(under_way.counts(), [1, 2, 0, 1]);
    }
}
