//! Slots that this process was the last to leave. They are freed some time after that, or when
//! there are too many of them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::claim::free_left;
use super::layout::MAX_SLABS;
use super::layout::SLOTS;
use super::pool::{self, Pool};

/// Most slots that wait.
const MANY: usize = 256;

/// Generation, file and number of each, and [`SET`]; 0: none.
static LEFT: [AtomicU64; MANY] = [const { AtomicU64::new(0) }; MANY];
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// Index of the slot that has waited longest, as far as is known.
static OLDEST: AtomicUsize = AtomicUsize::new(0);

const NUMBER_BITS: u32 = 21;
const SET: u64 = 1 << 31;
const _: () = assert!(MAX_SLABS * SLOTS < 1 << NUMBER_BITS);

/// Notes that a slot was left: it takes the place of the one that has waited longest, which is
/// freed.
pub(super) fn note(pool: &'static Pool, number: usize, generation: u32) {
    let Some((file, _)) = pool::mapped().find(|(_, other)| std::ptr::eq(*other, pool)) else {
        free_left(pool, number, generation, false);
        return;
    };
    let word = u64::from(generation) << 32 | SET | (file as u64) << NUMBER_BITS | number as u64;
    let place = NEXT.fetch_add(1, Ordering::Relaxed);
    free(LEFT[place % MANY].swap(word, Ordering::AcqRel), false);
    free_late(place + 1);
}

/// Frees slots that have waited long enough, the oldest first and not many at a time.
fn free_late(next: usize) {
    for _ in 0..A_FEW {
        let oldest = OLDEST.load(Ordering::Relaxed).max(next.saturating_sub(MANY));
        if oldest >= next {
            return;
        }
        let place = &LEFT[oldest % MANY];
        let word = place.load(Ordering::Acquire);
        if !free(word, true) {
            return;
        }
        let _ = place.compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed);
        OLDEST.store(oldest + 1, Ordering::Relaxed);
    }
}

const A_FEW: usize = 4;

/// Frees all slots that wait, if no process has come to them since.
pub(super) fn free_all() {
    for place in &LEFT {
        free(place.swap(0, Ordering::AcqRel), false);
    }
}

/// Forgets the slots in the child of a `fork`: they are its parent's.
pub fn forget_left() {
    LEFT.iter().for_each(|place| place.store(0, Ordering::Release));
}

fn free(word: u64, only_if_late: bool) -> bool {
    let file = (word & (SET - 1)) >> NUMBER_BITS;
    let pool = pool::mapped().find(|(number, _)| word != 0 && *number as u64 == file);
    let number = word as usize & ((1 << NUMBER_BITS) - 1);
    pool.is_none_or(|(_, pool)| free_left(pool, number, (word >> 32) as u32, only_if_late))
}
