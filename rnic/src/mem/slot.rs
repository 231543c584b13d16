//! The table from an STag to the memory that it opens, read without a lock.
//!
//! Each STag owns a [`Slot`], found through a [`Directory`] by the low bits of its
//! index: `StagSource` draws until those are vacant, so there are no collisions to walk
//! through. A slot's state is one word (STag, open or not, number of [`Pin`]s); a pin is
//! taken by one compare-and-swap that succeeds only while the slot is open for exactly
//! that STag. [`Slot::close`] stops new pins and waits for the old ones to go: after it
//! returns nobody uses the scope.
//!
//! Neither slots nor outgrown directories are freed before the whole table is dropped. So a reader
//! that is late finds an old directory or a reused slot, never freed memory, and the comparison of
//! STags tells it apart.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rddp_ddp::Stag;

use super::file::FileRange;
use super::stag::index;
use super::writers::Writers;
use super::{Access, PdId, QpNum};
use crate::kernel::Kernel;

/// The memory and rights that an open STag stands for.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    /// The first Tagged Offset.
    pub(super) base: u64,
    /// Number of octets.
    pub(super) len: u64,
    /// Address of the first octet.
    pub(super) ptr: NonNull<u8>,
    pub(super) pd: PdId,
    /// The only QP that may use it remotely.
    pub(super) qp: Option<QpNum>,
    pub(super) access: Access,
    /// True for a window: only peers may use it, and it is tied to a QP in place of a PD.
    pub(super) window: bool,
    /// True if a program lent the memory, which may then go bad.
    pub(super) lent: bool,
    /// True if a part of the memory is a mapping of a file, which others may write.
    pub(super) is_file: bool,
    /// The file that has the octets, none of which are mapped.
    pub(super) file: Option<Arc<FileRange>>,
}

impl Scope {
    /// Returns the addresses of the octets.
    pub(super) fn octets(&self) -> Range<u64> {
        let start = self.ptr.addr().get() as u64;
        start..start + self.len
    }
}

/// One STag's state and scope.
#[repr(align(64))]
struct Slot {
    /// STag in the high half, then [`OPEN`], [`WRITING`] and the number of pins.
    state: AtomicU64,
    /// Written only while `WRITING` is set, which needs `OPEN` clear and no pins; read only by
    /// holders of pins.
    scope: UnsafeCell<Scope>,
}

const OPEN: u64 = 1 << 31;
const WRITING: u64 = 1 << 30;
const PINS: u64 = WRITING - 1;

// SAFETY: `scope` is guarded by `state` as said at the field; its pointer is only an address here.
unsafe impl Sync for Slot {}
// SAFETY: nothing in a slot belongs to the thread that made it.
unsafe impl Send for Slot {}

impl Slot {
    fn new() -> Self {
        let scope = Scope {
            base: 0,
            len: 0,
            ptr: NonNull::dangling(),
            pd: PdId(0),
            qp: None,
            access: Access::empty(),
            window: false,
            is_file: false,
            lent: false,
            file: None,
        };
        Self { state: AtomicU64::new(0), scope: UnsafeCell::new(scope) }
    }

    /// Adds a pin if the slot is open for this STag. Returns whether it did.
    fn pin(&self, stag: Stag) -> bool {
        let wanted = u64::from(stag.0) << 32 | OPEN;
        let mut state = self.state.load(Ordering::Relaxed);
        // If all pins are taken (some holder never returns its own) the STag counts as closed; one
        // pin more would overflow the count to zero.
        while state & !PINS == wanted && state & PINS != PINS {
            match self.state.compare_exchange_weak(state, state + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    fn unpin(&self) {
        self.state.fetch_sub(1, Ordering::Release);
    }

    /// Sets the STag that a closed slot is for.
    fn assign(&self, stag: Stag) {
        self.state.store(u64::from(stag.0) << 32, Ordering::Relaxed);
    }

    /// Returns the index of the STag that the slot is for.
    fn index(&self) -> u32 {
        (self.state.load(Ordering::Relaxed) >> 40) as u32
    }

    /// Opens the slot, which must be closed, so that pins can be taken for `stag`.
    fn open(&self, stag: Stag, scope: &Scope) {
        let closed = self.state.load(Ordering::Relaxed) & !(OPEN | WRITING | PINS);
        self.state
            .compare_exchange(closed, closed | WRITING, Ordering::Acquire, Ordering::Relaxed)
            .expect("a slot is opened only when closed and drained");
        // SAFETY: the exchange found neither OPEN nor pins nor another writer, and none
        // can come while WRITING is set; the Acquire makes the reads of the last pins
        // happen before this write.
        unsafe { *self.scope.get() = scope.clone() };
        self.state.store(u64::from(stag.0) << 32 | OPEN, Ordering::Release);
    }

    /// Stops new pins, then waits until the present ones are gone.
    fn close(&self) {
        self.state.fetch_and(!OPEN, Ordering::Relaxed);
        // RFC 5042 §6.2.2: when revocation returns, no packet changes the octets any more.
        wait_until(|| self.state.load(Ordering::Acquire) & PINS == 0);
    }
}

/// Waits until other threads have done what `done` asks for, which they are about to do.
pub(super) fn wait_until(done: impl Fn() -> bool) {
    let mut tries = 0_u32;
    while !done() {
        tries = tries.saturating_add(1);
        match tries {
            0..64 => std::hint::spin_loop(),
            64..256 => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(50)),
        }
    }
}

/// A count that keeps a slot open, and with it the memory its scope points to. Cheap, and
/// may move between threads.
pub(super) struct Pin {
    slot: NonNull<Slot>,
}

// SAFETY: a pin is a count in an atomic, and permission to read a scope that nobody
// writes while it is counted.
unsafe impl Send for Pin {}
// SAFETY: as above.
unsafe impl Sync for Pin {}

impl Pin {
    pub(super) fn scope(&self) -> &Scope {
        // SAFETY: the slot lives, because `SlotTable` frees slots only without pins; and its scope
        // is not written while this pin is counted. It was published before OPEN, which taking the
        // pin has acquired.
        unsafe { &*self.slot.as_ref().scope.get() }
    }

    fn slot(&self) -> &Slot {
        // SAFETY: `SlotTable` frees slots only without pins.
        unsafe { self.slot.as_ref() }
    }
}

impl Clone for Pin {
    fn clone(&self) -> Self {
        // This pin is counted already, so a second one is as valid even when the slot
        // has been closed meanwhile.
        let before = self.slot().state.fetch_add(1, Ordering::Relaxed);
        assert!(before & PINS < PINS / 2, "more pins of one STag than there can be");
        Self { slot: self.slot }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.slot().unpin();
    }
}

/// Finds slots by the low bits of their index; has a power of two of cells.
struct Directory {
    cells: Box<[AtomicPtr<Slot>]>,
}

impl Directory {
    fn new(cells: usize) -> Self {
        Self { cells: (0..cells).map(|_| AtomicPtr::new(null_mut())).collect() }
    }

    fn cell(&self, index: u32) -> &AtomicPtr<Slot> {
        &self.cells[index as usize & (self.cells.len() - 1)]
    }

    /// Returns a directory of the same slots with more cells. Indices that differ in the low bits
    /// used so far also differ in more of them, so no two slots collide.
    fn widened(&self, cells: usize) -> Self {
        let wider = Self::new(cells);
        for cell in &self.cells {
            let slot = cell.load(Ordering::Relaxed);
            // SAFETY: null or a slot, and slots live as long as the table that this directory
            // belongs to.
            if let Some(index) = unsafe { slot.as_ref() }.map(Slot::index) {
                wider.cell(index).store(slot, Ordering::Relaxed);
            }
        }
        wider
    }
}

/// All slots of a table.
pub(super) struct SlotTable {
    /// The newest directory.
    current: AtomicPtr<Directory>,
    store: Mutex<Store>,
    /// The ranges that peers may change through the open STags.
    pub(super) writers: Arc<Writers>,
    /// The kernel's copy of the open STags, where it places.
    pub(super) kernel: Option<Arc<Kernel>>,
}

/// The allocations of a `SlotTable`: pointers from `Box::into_raw` that live as long as it does.
struct Store {
    directories: Vec<NonNull<Directory>>,
    slots: Vec<NonNull<Slot>>,
    free: Vec<NonNull<Slot>>,
}

// SAFETY: the pointers are to what the store owns, and that is Send and Sync.
unsafe impl Send for Store {}

impl SlotTable {
    pub(super) fn new(kernel: Option<Arc<Kernel>>) -> Self {
        let first = leak(Directory::new(FIRST_CELLS));
        let store = Store { directories: vec![first], slots: Vec::new(), free: Vec::new() };
        Self {
            current: AtomicPtr::new(first.as_ptr()),
            store: Mutex::new(store),
            writers: Arc::default(),
            kernel,
        }
    }

    /// Takes a pin of the memory that `stag` opens now; all 32 bits must match.
    pub(super) fn pin(&self, stag: Stag) -> Option<Pin> {
        let slot = self.find(stag)?;
        slot.pin(stag).then(|| Pin { slot: NonNull::from(slot) })
    }

    /// Returns whether an STag with this index may be inserted.
    pub(super) fn is_vacant(&self, index: u32) -> bool {
        self.directory().cell(index).load(Ordering::Relaxed).is_null()
    }

    /// Widens the directory so that at least half of all indices are vacant.
    pub(super) fn reserve(&self) {
        let mut store = self.store.lock();
        let live = store.slots.len() - store.free.len();
        let cells = self.directory().cells.len();
        if 2 * (live + 1) > cells {
            let wider = leak(self.directory().widened(2 * cells));
            store.directories.push(wider);
            self.current.store(wider.as_ptr(), Ordering::Release);
        }
    }

    /// Gives `stag` a closed slot. Its index must be vacant.
    pub(super) fn insert(&self, stag: Stag) {
        let mut store = self.store.lock();
        let slot = store.take();
        // SAFETY: slots live as long as the table.
        unsafe { slot.as_ref() }.assign(stag);
        let before = self.directory().cell(index(stag)).swap(slot.as_ptr(), Ordering::Release);
        assert!(before.is_null(), "an STag is inserted where none is");
    }

    /// Opens the slot of `stag`'s index, which must be closed, for `stag`. Waits for trains if
    /// peers may change octets.
    pub(super) fn open(&self, stag: Stag, scope: &Scope) {
        self.writers.open(index(stag), scope);
        self.find(stag).expect("an inserted STag has a slot").open(stag, scope);
        if let Some(kernel) = &self.kernel {
            // A window is for the peer (draft-hilland-rddp-verbs §7.10).
            let access = if scope.window { scope.access.intersection(Access::REMOTE) } else { scope.access };
            kernel.open(stag, scope.octets(), scope.base, (scope.pd, scope.qp), access);
        }
    }

    /// Refuses new pins and waits until the present ones are gone.
    pub(super) fn close(&self, stag: Stag) {
        if let Some(kernel) = &self.kernel {
            kernel.close(stag);
        }
        self.find(stag).expect("an inserted STag has a slot").close();
        self.writers.close(index(stag));
    }

    /// Takes the slot back from `stag`, which must be closed.
    pub(super) fn remove(&self, stag: Stag) {
        let mut store = self.store.lock();
        let slot = self.directory().cell(index(stag)).swap(null_mut(), Ordering::Relaxed);
        store.free.extend(NonNull::new(slot));
    }

    fn directory(&self) -> &Directory {
        // SAFETY: directories live as long as the table, and the Acquire makes the
        // contents of this one visible.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// Returns the slot at the place of `stag`'s index, which may belong to another STag.
    fn find(&self, stag: Stag) -> Option<&Slot> {
        let slot = self.directory().cell(index(stag)).load(Ordering::Acquire);
        // SAFETY: null or a slot, and slots live as long as the table.
        unsafe { slot.as_ref() }
    }
}

impl Drop for SlotTable {
    fn drop(&mut self) {
        let store = self.store.get_mut();
        for slot in store.slots.drain(..) {
            // SAFETY: from `Box::into_raw` in `take`, freed here only, once its pins have
            // gone; the directories that point to it are not looked at any more, since
            // nobody else has the table.
            unsafe {
                slot.as_ref().close();
                drop(Box::from_raw(slot.as_ptr()));
            }
        }
        for directory in store.directories.drain(..) {
            // SAFETY: from `leak`, freed here only, and nobody else has the table.
            drop(unsafe { Box::from_raw(directory.as_ptr()) });
        }
    }
}

impl Store {
    /// Returns a closed slot, a new one or one that was returned.
    fn take(&mut self) -> NonNull<Slot> {
        self.free.pop().unwrap_or_else(|| {
            let slot = leak(Slot::new());
            self.slots.push(slot);
            slot
        })
    }
}

fn leak<T>(value: T) -> NonNull<T> {
    NonNull::from(Box::leak(Box::new(value)))
}

/// Number of cells of the first directory, a power of two.
const FIRST_CELLS: usize = 64;

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    fn scope(base: u64) -> Scope {
        Scope {
            base,
            len: base,
            ptr: NonNull::dangling(),
            pd: PdId(1),
            qp: None,
            access: Access::empty(),
            window: false,
            is_file: false,
            lent: false,
            file: None,
        }
    }

    #[test]
    fn a_slot_is_found_only_while_it_is_open_for_that_stag() {
        let table = SlotTable::new(None);
        let stag = Stag(0x0012_3456);
        assert!(table.pin(stag).is_none());
        table.insert(stag);
        assert!(table.pin(stag).is_none());
        table.open(stag, &scope(7));
        assert_eq!(table.pin(stag).unwrap().scope().base, 7);
        assert!(table.pin(Stag(0x0012_3457)).is_none());
        table.close(stag);
        assert!(table.pin(stag).is_none());
        table.open(Stag(0x0012_3457), &scope(8));
        assert_eq!(table.pin(Stag(0x0012_3457)).unwrap().scope().base, 8);
        table.close(Stag(0x0012_3457));
        table.remove(Stag(0x0012_3457));
        assert!(table.is_vacant(0x1234));
    }

    #[test]
    fn an_index_with_the_same_low_bits_is_not_vacant() {
        let table = SlotTable::new(None);
        table.insert(Stag(5 << 8));
        assert!(!table.is_vacant(5));
        assert!(!table.is_vacant(5 + FIRST_CELLS as u32));
        assert!(table.is_vacant(6));
        assert!(table.pin(Stag((5 + FIRST_CELLS as u32) << 8)).is_none());
    }

    #[test]
    fn growth_keeps_what_is_there_and_half_of_it_vacant() {
        let table = SlotTable::new(None);
        for number in 1..1_000_u32 {
            // Odd multiples spread over all low bits.
            let index = number.wrapping_mul(0x9e37_79b1) >> 8;
            table.reserve();
            if table.is_vacant(index) {
                table.insert(Stag(index << 8));
                table.open(Stag(index << 8), &scope(u64::from(index)));
            }
        }
        let mut found = 0;
        for number in 1..1_000_u32 {
            let index = number.wrapping_mul(0x9e37_79b1) >> 8;
            if let Some(pin) = table.pin(Stag(index << 8)) {
                assert_eq!(pin.scope().base, u64::from(index));
                found += 1;
            }
        }
        let live = table.store.lock().slots.len();
        assert_eq!(found, live);
        assert!(live > 500 && table.directory().cells.len() >= 2 * live);
    }

    #[test]
    fn slots_are_used_again() {
        let table = SlotTable::new(None);
        for index in 1..100 {
            table.insert(Stag(index << 8));
            table.remove(Stag(index << 8));
        }
        assert_eq!(table.store.lock().slots.len(), 1);
    }

    #[test]
    #[should_panic(expected = "opened only when closed")]
    fn an_open_slot_is_not_opened_again() {
        let table = SlotTable::new(None);
        table.insert(Stag(0x100));
        table.open(Stag(0x100), &scope(1));
        table.open(Stag(0x101), &scope(2));
    }

    #[test]
    fn closing_waits_for_every_clone_of_a_pin() {
        let table = Arc::new(SlotTable::new(None));
        table.insert(Stag(0x100));
        table.open(Stag(0x100), &scope(1));
        let pin = table.pin(Stag(0x100)).unwrap();
        let copy = pin.clone();
        let closing = thread::spawn({
            let table = table.clone();
            move || table.close(Stag(0x100))
        });
        while table.pin(Stag(0x100)).is_some() {
            thread::yield_now();
        }
        drop(pin);
        thread::yield_now();
        assert!(!closing.is_finished());
        assert_eq!(copy.scope().base, 1);
        drop(copy);
        closing.join().unwrap();
    }

    /// A pin always sees the complete scope of its own STag.
    #[test]
    fn pins_never_see_another_stags_scope() {
        let table = &SlotTable::new(None);
        let done = &AtomicBool::new(false);
        let turns = if cfg!(miri) { 100 } else { 10_000 };
        table.insert(Stag(0x100));
        thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        for key in 0..4 {
                            if let Some(pin) = table.pin(Stag(0x100 + key)) {
                                let scope = pin.scope();
                                assert_eq!((scope.base, scope.len), (u64::from(key), u64::from(key)));
                            }
                        }
                        if cfg!(miri) {
                            thread::yield_now();
                        }
                    }
                });
            }
            for turn in 0..turns {
                let stag = Stag(0x100 + turn % 4);
                table.open(stag, &scope(u64::from(turn % 4)));
                if cfg!(miri) {
                    thread::yield_now();
                }
                table.close(stag);
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
