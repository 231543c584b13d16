//! Memory that the program can place into.
//!
//! It comes in blocks of [`BLOCK_LEN`] octets, mapped side by side into one range of addresses.
//! Blocks are values of maps, each map a piece in an array of maps. What is shorter than a block
//! has some pages of one, which others have, too; what is longer has pieces of its own, with as
//! many blocks as it needs. All of it is resident from the start and never swapped. A payload that
//! crosses from one block into the next is left to user level.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use aya::maps::MapData;
use rddp_mpa::crc32c_append;

use super::PatchError;
use super::sys::{self, Row};
use crate::layout::{BLOCK_LEN, BLOCK_PADDING, PIECE_LEN, PIECES};

/// The places for pieces: the program's array of maps, which of them are taken, and blocks of which
/// regions have some pages each.
#[derive(Debug)]
pub struct Pieces {
    array: MapData,
    taken: Mutex<Vec<bool>>,
    shared: Mutex<Vec<Weak<Blocks>>>,
}

/// A range of memory, zeroed, that goes back to the kernel when dropped.
///
/// Dropping the last one of a block waits until no program can be in the midst of a copy, some
/// milliseconds. The STags that open it must have been closed before.
#[derive(Debug)]
pub struct Memory {
    blocks: Arc<Blocks>,
    at: usize,
    len: usize,
}

/// Blocks that the program knows, in pieces that follow each other.
#[derive(Debug)]
struct Blocks {
    row: Row,
    first: u32,
    count: u32,
    /// Pages of the first block that a range of memory has. Only those of a block that is alone are
    /// given away one by one.
    pages: Mutex<[bool; BLOCK_LEN / PAGE]>,
    pieces: Arc<Pieces>,
}

impl Pieces {
    pub(super) fn new(array: MapData) -> Self {
        let taken = Mutex::new(vec![false; PIECES as usize]);
        Self { array, taken, shared: Mutex::default() }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.array.fd().as_fd()
    }

    /// Makes at least one octet of memory.
    ///
    /// # Errors
    /// There are not that many pieces in a row, or the kernel has no memory.
    pub fn allocate(self: &Arc<Self>, len: usize) -> Result<Memory, PatchError> {
        if len >= BLOCK_LEN {
            return Ok(Memory { blocks: Arc::new(self.make(len.div_ceil(BLOCK_LEN))?), at: 0, len });
        }
        let mut shared = lock(&self.shared);
        shared.retain(|blocks| blocks.strong_count() > 0);
        if let Some(memory) = shared.iter().filter_map(Weak::upgrade).find_map(|blocks| part(&blocks, len)) {
            return Ok(memory);
        }
        let blocks = Arc::new(self.make(1)?);
        shared.push(Arc::downgrade(&blocks));
        part(&blocks, len).ok_or(PatchError::Full("pages of a new block"))
    }

    fn make(self: &Arc<Self>, blocks: usize) -> Result<Blocks, PatchError> {
        let count = blocks.div_ceil(PIECE_BLOCKS);
        // Before any is made: each takes its memory at once.
        free_row(&lock(&self.taken), count)?;
        let has = |piece: usize| PIECE_BLOCKS.min(blocks - piece * PIECE_BLOCKS);
        let size = (BLOCK_LEN + BLOCK_PADDING) as u32;
        let made = (0..count).map(|piece| sys::create_array(size, has(piece) as u32));
        let made: Vec<OwnedFd> = made.collect::<Result<_, _>>()?;
        let map = |block: usize| (made[block / PIECE_BLOCKS].as_fd(), block % PIECE_BLOCKS);
        let row = Row::map((0..blocks).map(map))?;
        let first = self.publish(&made)?;
        let pages = Mutex::new([false; BLOCK_LEN / PAGE]);
        Ok(Blocks { row, first, count: count as u32, pages, pieces: self.clone() })
    }

    /// Shows pieces to the program, in a row. Returns the number of the first.
    fn publish(&self, made: &[OwnedFd]) -> Result<u32, PatchError> {
        let mut taken = lock(&self.taken);
        let first = free_row(&taken, made.len())?;
        for (number, piece) in (first..).zip(made) {
            sys::insert(self.fd(), number as u32, piece.as_fd()).inspect_err(|_| {
                for shown in first..number {
                    let _ = sys::remove(self.fd(), shown as u32);
                }
            })?;
        }
        taken[first..first + made.len()].fill(true);
        Ok(first as u32)
    }

    fn withdraw(&self, first: u32, count: u32) {
        let mut taken = lock(&self.taken);
        for number in first..first + count {
            // Where that fails the piece stays, and its place stays taken.
            if sys::remove(self.fd(), number).is_ok() {
                taken[number as usize] = false;
            }
        }
    }
}

/// Takes pages of a block for so many octets, if it has them.
fn part(blocks: &Arc<Blocks>, len: usize) -> Option<Memory> {
    let mut taken = lock(&blocks.pages);
    let count = pages(0, len).end;
    let first = taken.windows(count).position(|pages| !pages.contains(&true))?;
    taken[first..first + count].fill(true);
    blocks.row.clear(first * PAGE..(first + count) * PAGE);
    Some(Memory { blocks: blocks.clone(), at: first * PAGE, len })
}

/// Returns the pages that memory has which begins at a page, one at least.
fn pages(at: usize, len: usize) -> Range<usize> {
    at / PAGE..at / PAGE + len.max(1).div_ceil(PAGE)
}

impl Drop for Blocks {
    fn drop(&mut self) {
        self.pieces.withdraw(self.first, self.count);
    }
}

impl Memory {
    /// Returns the address of the first octet. The program in the kernel may change any octet for
    /// which an STag is open, at any time.
    #[must_use]
    pub fn ptr(&self) -> NonNull<u8> {
        self.blocks.row.at(self.at)
    }

    /// Returns the number of octets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `crc` with the CRC of the octets at this place appended, whatever changes them
    /// meanwhile; `None` if they are not all of this memory.
    #[must_use]
    pub fn crc32c_append(&self, place: &Range<u64>, mut crc: u32) -> Option<u32> {
        let (start, end) = (self.start(), self.start() + self.len as u64);
        if place.start < start || place.end > end || place.start > place.end {
            return None;
        }
        let mut at = self.at + (place.start - start) as usize;
        let end = self.at + (place.end - start) as usize;
        while at < end {
            let mut chunk = [0; SUMMED];
            let (from, skipped) = (at - at % WORD, at % WORD);
            let len = (end - at).min(SUMMED - skipped);
            let words = chunk.as_chunks_mut::<WORD>().0.iter_mut();
            for (number, word) in words.take((skipped + len).div_ceil(WORD)).enumerate() {
                *word = self.blocks.row.word(from + number * WORD);
            }
            crc = crc32c_append(crc, &chunk[skipped..skipped + len]);
            at += len;
        }
        Some(crc)
    }

    /// Returns whether there are no octets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the place of the first octet, as entries of STags and records have it.
    #[must_use]
    pub fn start(&self) -> u64 {
        u64::from(self.blocks.first) * PIECE_LEN as u64 + self.at as u64
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.len < BLOCK_LEN {
            lock(&self.blocks.pages)[pages(self.at, self.len)].fill(false);
        }
    }
}

/// Returns the first of so many places in a row that are not taken.
fn free_row(taken: &[bool], count: usize) -> Result<usize, PatchError> {
    let row = taken.windows(count).position(|row| !row.contains(&true));
    row.ok_or(PatchError::Full("pieces of memory"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const PIECE_BLOCKS: usize = PIECE_LEN / BLOCK_LEN;
const PAGE: usize = 4096;
/// Octets that are summed at a time, and of a number that is read at once.
const SUMMED: usize = 4096;
const WORD: usize = 8;
