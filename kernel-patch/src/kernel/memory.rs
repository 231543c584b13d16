//! Memory that the program can place into.
//!
//! It comes in pieces of [`PIECE_LEN`] octets, each a map of its own in an array of maps, and
//! mapped side by side into one range of addresses. All of it is resident from the start and never
//! swapped. A payload that crosses from one piece into the next is left to user level.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use aya::maps::MapData;

use super::PatchError;
use super::sys::{self, Row};
use crate::layout::{PIECE_LEN, PIECE_PADDING, PIECES};

/// The places for pieces: the program's array of maps, and which of them are taken.
#[derive(Debug)]
pub struct Pieces {
    array: MapData,
    taken: Mutex<Vec<bool>>,
}

/// A range of memory, zeroed, that goes back to the kernel when dropped.
///
/// Dropping it waits until no program can be in the midst of a copy, some milliseconds. The STags
/// that open it must have been closed before.
#[derive(Debug)]
pub struct Memory {
    row: Row,
    len: usize,
    first: u32,
    count: u32,
    pieces: Arc<Pieces>,
}

impl Pieces {
    pub(super) fn new(array: MapData) -> Self {
        Self { array, taken: Mutex::new(vec![false; PIECES as usize]) }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.array.fd().as_fd()
    }

    /// Makes at least one octet of memory.
    ///
    /// # Errors
    /// There are not that many pieces in a row, or the kernel has no memory.
    pub fn allocate(self: &Arc<Self>, len: usize) -> Result<Memory, PatchError> {
        let count = len.div_ceil(PIECE_LEN).max(1);
        // Before any is made: each takes its memory at once.
        free_row(&self.taken.lock().unwrap_or_else(PoisonError::into_inner), count)?;
        let size = (PIECE_LEN + PIECE_PADDING) as u32;
        let made: Vec<OwnedFd> = (0..count).map(|_| sys::create_array(size)).collect::<Result<_, _>>()?;
        let whole = len.max(1).next_multiple_of(PAGE);
        let row = Row::map(made.iter().map(AsFd::as_fd), PIECE_LEN, whole)?;
        let first = self.publish(&made)?;
        Ok(Memory { row, len, first, count: count as u32, pieces: self.clone() })
    }

    /// Shows pieces to the program, in a row. Returns the number of the first.
    fn publish(&self, made: &[OwnedFd]) -> Result<u32, PatchError> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        for number in first..first + count {
            // Where that fails the piece stays, and its place stays taken.
            if sys::remove(self.fd(), number).is_ok() {
                taken[number as usize] = false;
            }
        }
    }
}

impl Memory {
    /// Returns the address of the first octet. The program in the kernel may change any octet for
    /// which an STag is open, at any time.
    #[must_use]
    pub fn ptr(&self) -> NonNull<u8> {
        self.row.ptr()
    }

    /// Returns the number of octets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no octets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the place of the first octet, as entries of STags and records have it.
    #[must_use]
    pub fn start(&self) -> u64 {
        u64::from(self.first) * PIECE_LEN as u64
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.pieces.withdraw(self.first, self.count);
    }
}

/// Returns the first of so many places in a row that are not taken.
fn free_row(taken: &[bool], count: usize) -> Result<usize, PatchError> {
    let row = taken.windows(count).position(|row| !row.contains(&true));
    row.ok_or(PatchError::Full("pieces of memory"))
}

const PAGE: usize = 4096;
