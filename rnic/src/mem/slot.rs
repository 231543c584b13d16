//! From an STag to what it opens, without a lock.
//!
//! Each STag owns a [`Slot`], found through a [`Directory`] by the low bits of its index: `StagSource` draws until
//! those are vacant, so there are no collisions to walk through. A slot's state is one word (STag, open or not, number
//! of [`Pin`]s); a pin is taken by one compare-and-swap that succeeds only while the slot is open for exactly that
//! STag. [`Slot::close`] stops new pins and waits for the old ones to go: after it returns nobody uses the scope.
//!
//! Slots are not freed, and directories outgrown are kept, until the whole table is dropped. So a reader that is late
//! finds an old directory or a reused slot, never freed memory, and then the STag tells.

use std::cell::UnsafeCell;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rddp_ddp::Stag;

use super::stag::index;
use super::{Access, PdId, QpNum};

/// What an open STag stands for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    /// The first Tagged Offset.
    pub(super) base: u64,
    /// How many octets.
    pub(super) len: u64,
    /// Where the first octet is.
    pub(super) ptr: NonNull<u8>,
    pub(super) pd: PdId,
    /// The only QP that may use it remotely.
    pub(super) qp: Option<QpNum>,
    pub(super) access: Access,
    /// A window: only for peers, and not bound to a PD but to its QP.
    pub(super) window: bool,
}

/// One STag's state and scope.
#[repr(align(64))]
struct Slot {
    /// STag in the high half, then [`OPEN`], [`WRITING`] and the number of pins.
    state: AtomicU64,
    /// Written only under `WRITING`, which needs `!OPEN` and no pins; read only by pins.
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
        };
        Self { state: AtomicU64::new(0), scope: UnsafeCell::new(scope) }
    }

    /// One more pin, if the slot is open for this STag.
    fn pin(&self, stag: Stag) -> bool {
        let wanted = u64::from(stag.0) << 32 | OPEN;
        let mut state = self.state.load(Ordering::Relaxed);
        // With all pins out (somebody forgets them) the STag counts as closed rather than the count as zero.
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

    /// Names the STag that a closed slot is for.
    fn assign(&self, stag: Stag) {
        self.state.store(u64::from(stag.0) << 32, Ordering::Relaxed);
    }

    /// The index of the STag that it is for.
    fn index(&self) -> u32 {
        (self.state.load(Ordering::Relaxed) >> 40) as u32
    }

    /// Lets pins be taken for `stag`. The slot must be closed.
    fn open(&self, stag: Stag, scope: Scope) {
        let closed = self.state.load(Ordering::Relaxed) & !(OPEN | WRITING | PINS);
        self.state
            .compare_exchange(closed, closed | WRITING, Ordering::Acquire, Ordering::Relaxed)
            .expect("a slot is opened only when closed and drained");
        // SAFETY: the exchange found neither OPEN nor pins nor another writer, and none can come while WRITING is
        // set; the Acquire makes the reads of the last pins happen before this write.
        unsafe { *self.scope.get() = scope };
        self.state.store(u64::from(stag.0) << 32 | OPEN, Ordering::Release);
    }

    /// Stops new pins, then waits until the present ones are gone.
    fn close(&self) {
        self.state.fetch_and(!OPEN, Ordering::Relaxed);
        let mut tries = 0_u32;
        // RFC 5042 §6.2.2: when revocation returns, no packet changes the octets any more.
        while self.state.load(Ordering::Acquire) & PINS != 0 {
            tries += 1;
            match tries {
                0..64 => std::hint::spin_loop(),
                64..256 => std::thread::yield_now(),
                _ => std::thread::sleep(Duration::from_micros(50)),
            }
        }
    }
}

/// Keeps a slot open, and with it what its scope points to. Cheap, and may move between threads.
pub(super) struct Pin {
    slot: NonNull<Slot>,
}

// SAFETY: a pin is a count in an atomic and leave to read a scope that nobody writes meanwhile.
unsafe impl Send for Pin {}
// SAFETY: as above.
unsafe impl Sync for Pin {}

impl Pin {
    pub(super) fn scope(&self) -> &Scope {
        // SAFETY: the slot lives, because `SlotTable` frees slots only without pins; and its scope is not written
        // while this pin is counted. It was published before OPEN, which taking the pin has acquired.
        unsafe { &*self.slot.as_ref().scope.get() }
    }

    fn slot(&self) -> &Slot {
        // SAFETY: `SlotTable` frees slots only without pins.
        unsafe { self.slot.as_ref() }
    }
}

impl Clone for Pin {
    fn clone(&self) -> Self {
        // One pin is there, so this one is as good even when the slot has been closed meanwhile.
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

/// Finds slots by index; a power of two of them.
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

    /// The same slots among more cells. Indices apart by their low bits stay apart by more of them.
    fn widened(&self, cells: usize) -> Self {
        let wider = Self::new(cells);
        for cell in &self.cells {
            let slot = cell.load(Ordering::Relaxed);
            // SAFETY: null or a slot, and slots live as long as the table that this directory belongs to.
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
}

/// What a `SlotTable` owns: pointers from `Box::into_raw` that live as long as it does.
struct Store {
    directories: Vec<NonNull<Directory>>,
    slots: Vec<NonNull<Slot>>,
    free: Vec<NonNull<Slot>>,
}

// SAFETY: the pointers are to what the store owns, and that is Send and Sync.
unsafe impl Send for Store {}

impl SlotTable {
    pub(super) fn new() -> Self {
        let first = leak(Directory::new(FIRST_CELLS));
        let store = Store { directories: vec![first], slots: Vec::new(), free: Vec::new() };
        Self { current: AtomicPtr::new(first.as_ptr()), store: Mutex::new(store) }
    }

    /// A pin of what `stag`, all 32 bits of it, opens now.
    pub(super) fn pin(&self, stag: Stag) -> Option<Pin> {
        let slot = self.find(stag)?;
        slot.pin(stag).then(|| Pin { slot: NonNull::from(slot) })
    }

    /// Whether an STag with this index may be inserted.
    pub(super) fn is_vacant(&self, index: u32) -> bool {
        self.directory().cell(index).load(Ordering::Relaxed).is_null()
    }

    /// Makes room so that at least half of all indices are vacant.
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

    /// Gives `stag` a slot, closed. Its index must be vacant.
    pub(super) fn insert(&self, stag: Stag) {
        let mut store = self.store.lock();
        let slot = store.take();
        // SAFETY: slots live as long as the table.
        unsafe { slot.as_ref() }.assign(stag);
        let before = self.directory().cell(index(stag)).swap(slot.as_ptr(), Ordering::Release);
        assert!(before.is_null(), "an STag is inserted where none is");
    }

    /// Opens the slot of `stag`'s index, which must be closed, for `stag`.
    pub(super) fn open(&self, stag: Stag, scope: Scope) {
        self.find(stag).expect("an inserted STag has a slot").open(stag, scope);
    }

    /// Lets no new pin through and waits until those of old have gone.
    pub(super) fn close(&self, stag: Stag) {
        self.find(stag).expect("an inserted STag has a slot").close();
    }

    /// Takes the slot from `stag`, which must be closed.
    pub(super) fn remove(&self, stag: Stag) {
        let mut store = self.store.lock();
        let slot = self.directory().cell(index(stag)).swap(null_mut(), Ordering::Relaxed);
        store.free.extend(NonNull::new(slot));
    }

    fn directory(&self) -> &Directory {
        // SAFETY: directories live as long as the table, and the Acquire makes the contents of this one visible.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// The slot at the place of `stag`'s index, perhaps another STag's.
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
            // SAFETY: from `Box::into_raw` in `take`, freed here only, once its pins have gone; the directories that
            // point to it are not looked at any more, since nobody else has the table.
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
    /// A closed slot.
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

/// A power of two.
const FIRST_CELLS: usize = 64;
