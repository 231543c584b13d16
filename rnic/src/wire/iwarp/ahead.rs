//! Octets of files on their way into FPDUs.
//!
//! Short segments of a message are copied out of one long read; long ones are read straight into
//! their FPDUs. What is read ahead belongs to one message and is forgotten behind it: the next one
//! finds the file as it is then.
//!
//! What is not in memory is read by another thread ([`Readers`](crate::io::readers::Readers)),
//! while this message waits and no grant is held. The octets are then taken from what that thread
//! has read, once the grant of the next segment has been made.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use rddp_stat::Counter;

use super::arena::Arena;
use crate::mem::{Faulted, FilePart, Grant, Stop};
use crate::queues::attributes::QpAttributes;
use crate::stat::Tally;

/// Octets from which on a piece of payload is read straight into its place.
const LONG: usize = 16 * 1024;

/// Octets of one read that shorter pieces share.
const READ: usize = 64 * 1024;

/// Most octets that one read takes: by another thread, unless all QPs together keep too much.
pub(super) const MOST: usize = 256 * 1024;

thread_local! {
    /// Memory that the last message which ended in this thread leaves to the next.
    static SPARE: Cell<Arena> = const { Cell::new(Arena::new()) };
}

/// Octets that were read out of a file for the message at hand.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    octets: Arena,
    /// The address that is reserved for the first of them.
    start: u64,
    /// Octets that another thread reads.
    reading: Option<Reading>,
    /// Reads that were made here, and by other threads, and that nobody was told of.
    at_once: u64,
    by_pool: u64,
}

#[derive(Debug)]
struct Reading {
    /// The address that is reserved for the first of them.
    start: u64,
    len: usize,
    /// The octets, once they have been read; fewer if the file has no more.
    done: Arc<Mutex<Option<Arena>>>,
}

impl Ahead {
    /// Copies octets of memory or of a file. `source` goes no further than the message.
    ///
    /// # Errors
    /// They cannot be had: not yet, if another thread [is reading](Self::is_reading) them, or ever.
    // Kept out of the way of messages that are in memory.
    #[cold]
    #[inline(never)]
    pub(super) fn copy_to(
        &mut self,
        attrs: &QpAttributes,
        source: &Grant,
        offset: usize,
        out: &mut [u8],
    ) -> Result<(), Faulted> {
        if !source.is_in_file() {
            return source.copy_to(offset, out);
        }
        let (at, left) = (source.octets().start + offset as u64, source.len() - offset);
        let is_gone = self.take_read(at)?;
        if self.copy_known(at, out) {
            return Ok(());
        }
        let Some(part) = source.in_file(offset).filter(|_| !is_gone) else { return Err(Faulted) };
        let stop = if out.len() >= LONG || out.len() == left {
            part.read(out, false).1
        } else {
            let stop = self.read(&part, at, left.min(READ));
            if self.copy_known(at, out) { None } else { stop }
        };
        match stop {
            None => {
                self.at_once += 1;
                Ok(())
            }
            Some(Stop::Gone) => Err(Faulted),
            Some(Stop::Cold) => {
                self.by_pool += 1;
                self.read_elsewhere(attrs, part, at, left);
                Err(Faulted)
            }
        }
    }

    /// Counts the reads since the last time.
    pub(super) fn tell(&mut self, tally: &Tally) {
        tally.add(Counter::FileReadsAtOnce, std::mem::take(&mut self.at_once));
        tally.add(Counter::FileReadsByPool, std::mem::take(&mut self.by_pool));
    }

    /// Takes the octets that another thread has read. Returns whether it has found that those at
    /// this address, or some behind them, are gone.
    ///
    /// # Errors
    /// It has not read them yet.
    fn take_read(&mut self, at: u64) -> Result<bool, Faulted> {
        let Some(Reading { start, len, done }) = &self.reading else { return Ok(false) };
        let octets = done.lock().take().ok_or(Faulted)?;
        let is_gone = *start == at && octets.len() < *len;
        (self.octets, self.start, self.reading) = (octets, *start, None);
        Ok(is_gone)
    }

    /// Copies octets that have been read. Returns whether they have.
    fn copy_known(&self, at: u64, out: &mut [u8]) -> bool {
        let skip = at.wrapping_sub(self.start);
        let known = self.octets.len() as u64;
        let is_known = skip <= known && out.len() as u64 <= known - skip;
        if is_known {
            out.copy_from_slice(self.octets.get(skip as usize..skip as usize + out.len()));
        }
        is_known
    }

    /// Reads ahead what is in memory. Returns why that is not all.
    fn read(&mut self, part: &FilePart, at: u64, len: usize) -> Option<Stop> {
        self.octets = self.emptied();
        let (count, stop) = part.read(self.octets.room(len), false);
        self.octets.truncate(count);
        self.start = at;
        stop
    }

    /// Has another thread read, and wake the background thread for this QP then.
    fn read_elsewhere(&mut self, attrs: &QpAttributes, part: FilePart, start: u64, left: usize) {
        let len = left.min(if attrs.device.promised.is_exhausted() { READ } else { MOST });
        let (mut octets, done) = (self.emptied(), Arc::<Mutex<_>>::default());
        self.reading = Some(Reading { start, len, done: done.clone() });
        let (driver, token) = (attrs.device.driver.clone(), attrs.token);
        attrs.device.readers.run(move || {
            let (count, _) = part.read(octets.room(len), true);
            octets.truncate(count);
            *done.lock() = Some(octets);
            driver.at(Instant::now(), token);
        });
    }

    /// Returns memory for octets, and forgets what was read.
    fn emptied(&mut self) -> Arena {
        let mut octets = std::mem::take(&mut self.octets);
        if octets.capacity() == 0 {
            octets = SPARE.try_with(Cell::take).unwrap_or_default();
        }
        octets.clear();
        octets
    }

    /// Returns whether another thread reads, or has read what was not taken yet.
    #[inline]
    pub(super) fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// Forgets what was read, at the end of its message.
    #[inline]
    pub(super) fn forget(&mut self) {
        if self.octets.capacity() > 0 {
            self.leave();
        }
    }

    #[cold]
    #[inline(never)]
    fn leave(&mut self) {
        std::mem::take(&mut self.octets).leave(&SPARE);
    }

    /// Returns how much memory is kept.
    #[inline]
    pub(super) fn kept(&self) -> usize {
        self.octets.capacity() + self.reading.as_ref().map_or(0, |reading| reading.len)
    }
}
