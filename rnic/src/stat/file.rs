//! The file in memory in which a device's QPs count, and who has its slots.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::resource::{Resource, getrlimit};
use parking_lot::Mutex;
use rddp_stat::layout::{COUNTS, HEADER, MAGIC, SLOT, VERSION, WORD, header, slot};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fstat, memfd_create};

use super::tally::Tally;
use crate::mem::{Block, Shown};

/// Slots that a file has at first: with them it is two pages long.
const FIRST_SLOTS: usize = 8;

/// Slots that a file may have: 32 MiB. QPs beyond count for their program alone.
const MOST_SLOTS: usize = 65_536;

/// The file of a device, once it has a connection.
#[derive(Debug, Default)]
pub(crate) struct StatFile(Mutex<Phase>);

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Unmade,
    Made(Made),
    /// The kernel has refused it.
    Refused,
}

/// A file, and who has its slots.
struct Made {
    file: OwnFile,
    header: Arc<Shown>,
    /// Parts of the file, each with the number of its first slot.
    parts: Vec<(usize, Arc<Shown>)>,
    slots: usize,
    free: Vec<usize>,
}

impl StatFile {
    /// Takes a slot. Where there is none to be had, the counts are for the program alone.
    pub(crate) fn take(self: &Arc<Self>) -> Tally {
        let taken = self.with_made(|made| {
            let number = made.free.pop().or_else(|| made.grow().ok())?;
            Some((made.block(number)?, number))
        });
        match taken {
            Some((block, number)) => Tally::shown(block, self.clone(), number),
            None => Tally::alone(),
        }
    }

    /// Takes a slot back, and adds its counts to those of connections that have ended.
    pub(super) fn give_back(&self, number: usize, block: &Block) {
        let mut phase = self.0.lock();
        let Phase::Made(made) = &mut *phase else { return };
        change_owner(block, || {
            block[slot::IDENTITY].store(0, Ordering::Relaxed);
            let ended = &made.header.words()[header::ENDED..][..COUNTS];
            for (sum, count) in ended.iter().zip(&block[slot::COUNTS..]) {
                add(sum, count.swap(0, Ordering::Relaxed));
            }
            block[slot::IDENTITY + 1..slot::COUNTS].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        });
        made.free.push(number);
    }

    /// Counts a Terminate with this code, sent or received.
    pub(super) fn count_terminate(&self, code: u16, sent: bool) {
        let phase = self.0.lock();
        let Phase::Made(made) = &*phase else { return };
        let key = header::SET | u64::from(code);
        let entries = &made.header.words()[header::TERMINATES_AT..][..3 * header::TERMINATES];
        let is_its = |entry: &&[AtomicU64]| [0, key].contains(&entry[0].load(Ordering::Relaxed));
        // A program that meets more codes than there are has its first ones counted.
        if let Some(entry) = entries.chunks(3).find(is_its) {
            entry[0].store(key, Ordering::Relaxed);
            add(&entry[if sent { 1 } else { 2 }], 1);
        }
    }

    /// Makes the descriptor look like that of another file, and returns its number.
    #[cfg(test)]
    pub(super) fn lose_descriptor(&self) -> i32 {
        use std::os::fd::AsRawFd;
        let Phase::Made(made) = &mut *self.0.lock() else { panic!("there is no file") };
        let number = made.file.fd().unwrap().as_raw_fd();
        made.file.inode = (0, 0);
        number
    }

    /// Calls `f` with the file, which is made if there is none.
    fn with_made<R>(&self, f: impl FnOnce(&mut Made) -> Option<R>) -> Option<R> {
        let mut phase = self.0.lock();
        if let Phase::Unmade = *phase {
            *phase = match Made::new() {
                Ok(made) => Phase::Made(made),
                Err(error) => {
                    tracing::debug!(%error, "no file for counts: rddp stat will not see this device");
                    Phase::Refused
                }
            };
        }
        match &mut *phase {
            Phase::Made(made) => f(made),
            _ => None,
        }
    }
}

impl Made {
    fn new() -> io::Result<Self> {
        let file = OwnFile::new()?;
        file.extend(HEADER * WORD)?;
        let header = Shown::map(file.fd()?, 0, HEADER)?;
        let mut made = Made { file, header, parts: Vec::new(), slots: 0, free: Vec::new() };
        let first = made.grow()?;
        made.free.push(first);
        let start = [
            (header::VERSION, VERSION),
            (header::LEN, HEADER as u64),
            (header::SLOT_LEN, SLOT as u64),
            (header::PID, u64::from(std::process::id())),
        ];
        start.iter().for_each(|(at, word)| made.header.words()[*at].store(*word, Ordering::Relaxed));
        // Last: from here on it is a file of counters.
        made.header.words()[header::MAGIC].store(MAGIC, Ordering::Release);
        Ok(made)
    }

    /// Makes the file longer, and returns a slot of the new part.
    fn grow(&mut self) -> io::Result<usize> {
        let (first, more) = (self.slots, self.slots.max(FIRST_SLOTS));
        if first + more > MOST_SLOTS {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let from = HEADER + first * SLOT;
        self.file.extend((from + more * SLOT) * WORD)?;
        let part = Shown::map(self.file.fd()?, from, more * SLOT)?;
        self.parts.push((first, part));
        self.slots = first + more;
        self.header.words()[header::SLOTS].store(self.slots as u64, Ordering::Relaxed);
        self.free.extend((first + 1..self.slots).rev());
        Ok(first)
    }

    fn block(&self, number: usize) -> Option<Block> {
        let (first, part) = self.parts.iter().rev().find(|(first, _)| *first <= number)?;
        Block::of(part, number - first)
    }
}

impl std::fmt::Debug for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Made").field("slots", &self.slots).field("free", &self.free.len()).finish()
    }
}

/// A memfd that cannot become shorter. Its number is only used while it is still this file's: a
/// program may close descriptors that are not its own, and open others.
struct OwnFile {
    /// `Some` until it is dropped.
    fd: Option<OwnedFd>,
    inode: (u64, u64),
}

impl OwnFile {
    fn new() -> io::Result<Self> {
        let fd = memfd_create(rddp_stat::NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        // Else a process that shortens it would have this one killed by SIGBUS.
        fcntl_add_seals(&fd, SealFlags::SHRINK)?;
        let inode = inode_of(&fd)?;
        Ok(OwnFile { fd: Some(fd), inode })
    }

    /// Makes the file `len` octets long. Its pages are taken now: a page that is missing later
    /// would be a SIGBUS.
    fn extend(&self, len: usize) -> io::Result<()> {
        // A file beyond this limit is a SIGXFSZ.
        let (most, _) = getrlimit(Resource::RLIMIT_FSIZE)?;
        if len as u64 > most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(fallocate(self.fd()?, FallocateFlags::empty(), 0, len as u64)?)
    }

    /// Returns the descriptor, if it is still that of the file.
    fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        let own = self.fd.as_ref().filter(|fd| inode_of(fd).is_ok_and(|inode| inode == self.inode));
        own.map(AsFd::as_fd).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        if self.fd().is_err() {
            // Closing it would close a file of the program's.
            std::mem::forget(self.fd.take());
        }
    }
}

fn inode_of(fd: &OwnedFd) -> io::Result<(u64, u64)> {
    let stat = fstat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Changes what readers know a slot by: its generation is odd meanwhile.
pub(super) fn change_owner(block: &Block, change: impl FnOnce()) {
    let generation = &block[slot::GENERATION];
    let before = generation.load(Ordering::Relaxed) & !1;
    generation.store(before | 1, Ordering::SeqCst);
    change();
    generation.store(before.wrapping_add(2), Ordering::SeqCst);
}

/// Adds to a word that only the calling thread changes now.
#[inline(always)]
pub(super) fn add(word: &AtomicU64, count: u64) {
    word.store(word.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}
