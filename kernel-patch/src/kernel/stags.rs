//! The mirror of the engine's STags that the program looks into.
//!
//! Each STag has the place of its index modulo the number of entries. One whose place is taken is
//! not mirrored, and its Writes are placed at user level. The program holds an STag, by a
//! compare-and-swap that fits only while it is open, for as long as one copy takes; to close it
//! waits for that, under half a microsecond, and then nothing is placed through it any more
//! (RFC 5042 §6.2.2).

use std::mem::offset_of;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use rddp_ddp::Stag;

use super::sys::Shared;
use super::waits::Waits;
use crate::layout::{Entry, RIGHT_OWN, RIGHT_WRITE, STAG_OPEN, STAG_PINS, STAG_WRITING, STAGS};

/// The memory that an STag opens, for what, and to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The first Tagged Offset.
    pub base: u64,
    /// Number of octets.
    pub len: u64,
    /// Place of the first octet ([`Memory::start`](super::Memory::start), and octets behind it).
    pub start: u64,
    /// Protection domain.
    pub pd: u64,
    /// The only QP that may use it; all of the protection domain if 0.
    pub qp: u32,
    /// Open to the peer's Writes.
    pub writes: bool,
    /// Open to receives and to sinks of Reads of this end, each of which is opened besides
    /// ([`Awaited`](super::Awaited)).
    pub own: bool,
}

impl Scope {
    fn rights(&self) -> u32 {
        let write = if self.writes { RIGHT_WRITE } else { 0 };
        write | if self.own { RIGHT_OWN } else { 0 }
    }
}

/// The mirror.
#[derive(Debug)]
pub struct Stags {
    shared: Shared,
    /// Held while an entry is written: the number of openings.
    openings: Mutex<u32>,
}

impl Stags {
    /// Makes a mirror of the mapped entries.
    pub(super) fn new(shared: Shared) -> Self {
        Self { shared, openings: Mutex::new(0) }
    }

    /// Opens memory by `stag`. Returns false if the STag's place is taken.
    pub fn open(&self, stag: Stag, scope: &Scope) -> bool {
        let mut openings = self.openings.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entry(stag);
        let state = self.shared.u64(entry + offset_of!(Entry, state));
        if state.load(Ordering::Acquire) != 0 {
            return false;
        }
        state.store(STAG_WRITING, Ordering::SeqCst);
        let fields = [
            (offset_of!(Entry, base), scope.base),
            (offset_of!(Entry, len), scope.len),
            (offset_of!(Entry, start), scope.start),
            (offset_of!(Entry, pd), scope.pd),
        ];
        for (offset, value) in fields {
            self.shared.u64(entry + offset).store(value, Ordering::Relaxed);
        }
        self.shared.u32(entry + offset_of!(Entry, qp)).store(scope.qp, Ordering::Relaxed);
        self.shared.u32(entry + offset_of!(Entry, rights)).store(scope.rights(), Ordering::Relaxed);
        *openings = openings.wrapping_add(1);
        self.shared.u32(entry + offset_of!(Entry, opening)).store(*openings, Ordering::Relaxed);
        state.store(u64::from(stag.0) << 32 | STAG_OPEN, Ordering::Release);
        true
    }

    /// Returns whether `stag` is open here to this end's own receives and sinks.
    #[must_use]
    pub fn is_open_to_own(&self, stag: Stag) -> bool {
        let entry = entry(stag);
        let state = self.shared.u64(entry + offset_of!(Entry, state)).load(Ordering::Acquire);
        let rights = self.shared.u32(entry + offset_of!(Entry, rights)).load(Ordering::Relaxed);
        (state >> 32) as u32 == stag.0 && state & STAG_OPEN != 0 && rights & RIGHT_OWN != 0
    }

    /// Returns the number of the time that `stag` was opened, if it is open here: a record has it,
    /// too ([`Record::opening`](crate::layout::Record::opening)).
    #[must_use]
    pub fn opening(&self, stag: Stag) -> Option<u32> {
        let entry = entry(stag);
        let state = self.shared.u64(entry + offset_of!(Entry, state)).load(Ordering::Acquire);
        let opening = self.shared.u32(entry + offset_of!(Entry, opening)).load(Ordering::Relaxed);
        ((state >> 32) as u32 == stag.0 && state & STAG_OPEN != 0).then_some(opening)
    }

    /// Closes `stag`, if it is open here. When this returns, the program no longer places through
    /// it.
    pub fn close(&self, stag: Stag) {
        let _openings = self.openings.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.shared.u64(entry(stag) + offset_of!(Entry, state));
        if (state.load(Ordering::Acquire) >> 32) as u32 != stag.0 {
            return;
        }
        state.fetch_and(!STAG_OPEN, Ordering::SeqCst);
        let mut waits = Waits::default();
        while state.load(Ordering::Acquire) & STAG_PINS != 0 {
            waits.turn();
        }
        state.store(0, Ordering::Release);
    }
}

/// Returns the offset of an STag's entry. The index is the STag without its key, the low eight
/// bits.
fn entry(stag: Stag) -> usize {
    ((stag.0 >> 8) & (STAGS - 1)) as usize * size_of::<Entry>()
}
