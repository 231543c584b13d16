//! A file of states as this process has mapped it: slab by slab, each when it is first needed, and
//! for as long as the process lives.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::super::{is_confined, now};
use super::file::{self, Opened};
use super::home::{Home, Slab};
use super::layout::{BLOCKS, HEADER, Header, MAX_SLABS, OF_SLOTS, PAGE, SLAB, SLOTS};
use super::process::Process;
use crate::Errno;

/// A file of states with the slabs that this process has mapped.
pub(super) struct Pool {
    path: PathBuf,
    user: u32,
    slabs: Box<[AtomicPtr<u8>]>,
    /// Keeps the lock on the file, as a mapping that is never read.
    lock: AtomicPtr<u8>,
    /// Number of the slot, or block, at which a search for a free one begins.
    pub(super) free_slot: AtomicUsize,
    pub(super) free_block: AtomicU32,
    /// Octets that the file may have, as it was last seen: a process with another root (`chroot`)
    /// cannot ask.
    longest: AtomicU64,
    /// Time, by [`now`], until which the file is not asked to grow again.
    no_growth: AtomicU64,
    next_sweep: AtomicU64,
    next_block_sweep: AtomicU64,
}

/// Most users' files that a process can have mapped.
const POOLS: usize = 8;

static MAPPED: [AtomicPtr<Pool>; POOLS] = [const { AtomicPtr::new(ptr::null_mut()) }; POOLS];

/// Nanoseconds in which a failed attempt is not repeated.
const A_WHILE: u64 = 100_000_000;

/// Returns the files that this process has mapped.
pub(super) fn mapped() -> impl Iterator<Item = (usize, &'static Pool)> {
    // SAFETY: null, or a pool that was leaked and is changed in its atomics alone.
    let pool = |place: &AtomicPtr<Pool>| unsafe { place.load(Ordering::Acquire).as_ref() };
    MAPPED.iter().enumerate().filter_map(move |(number, place)| Some((number, pool(place)?)))
}

impl Pool {
    /// Returns the file of this user in this folder; `None` if there is none to be had.
    pub(super) fn of(folder: &Path, user: u32, create: bool) -> Option<&'static Self> {
        let is_it = |pool: &Self| pool.user == user && pool.path.parent() == Some(folder);
        if let Some((_, pool)) = mapped().find(|(_, pool)| is_it(pool)) {
            return Some(pool);
        }
        let has_place = || MAPPED.iter().any(|place| place.load(Ordering::Relaxed).is_null());
        if is_confined() || !has_place() {
            return None;
        }
        let pool = Self::open(file::path(folder, user), user, create)?;
        let new = ptr::from_ref(pool).cast_mut();
        for place in &MAPPED {
            match place.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(pool),
                // SAFETY: not null, a pool that was leaked and is changed in its atomics alone.
                Err(other) => match unsafe { &*other } {
                    // Another thread came first. All threads look at the places in the same order,
                    // and none becomes free.
                    other if is_it(other) => {
                        // SAFETY: made by `open`, and nothing else refers to it.
                        unsafe { Self::unmake(new) };
                        return Some(other);
                    }
                    _ => {}
                },
            }
        }
        // SAFETY: made by `open`, and nothing else refers to it.
        unsafe { Self::unmake(new) };
        None
    }

    /// Unmaps the pool, and closes the file.
    ///
    /// # Safety
    /// The pool comes from a box, and nothing else refers to it.
    unsafe fn unmake(made: *mut Self) {
        // SAFETY: the pool comes from a box, and nothing else refers to it.
        let pool = unsafe { Box::from_raw(made) };
        for slab in &pool.slabs {
            if let Some(at) = NonNull::new(slab.load(Ordering::Acquire)) {
                // SAFETY: mapped by this pool, and nothing refers to it.
                unsafe { Slab::at(at).unmap(SLAB) };
            }
        }
        pool.unlock();
    }

    fn open(path: PathBuf, user: u32, create: bool) -> Option<&'static Self> {
        let may_create = create && (path.exists() || file::may_have(&path, 0) >= Some(SLAB as u64));
        if !may_create && !path.exists() {
            return None;
        }
        let opened = file::share(&path, user, create)?;
        let made = Box::into_raw(Box::new(Self {
            path,
            user,
            slabs: (0..MAX_SLABS).map(|_| AtomicPtr::default()).collect(),
            lock: AtomicPtr::default(),
            free_slot: AtomicUsize::new(0),
            free_block: AtomicU32::new(0),
            longest: AtomicU64::new(0),
            no_growth: AtomicU64::new(0),
            next_sweep: AtomicU64::new(0),
            next_block_sweep: AtomicU64::new(0),
        }));
        // SAFETY: made above, and unmade only if nothing else refers to it.
        let pool: &'static Self = unsafe { &*made };
        if pool.map_first(&opened).is_some() {
            return Some(pool);
        }
        drop(opened);
        let path = pool.path.clone();
        // SAFETY: made above; what referred to it is unmapped again.
        unsafe { Self::unmake(made) };
        file::remove_unused(&path, user, None);
        None
    }

    /// Maps the file's first slab, allocating it if it is a new file.
    fn map_first(&'static self, opened: &Opened) -> Option<()> {
        self.lock.store(map_lock(&opened.locked)?, Ordering::Relaxed);
        let home = Home { pool: Some(self), number: 0 };
        let slab = Slab::map(SLAB, home, |at| {
            let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
            // SAFETY: `at` is an address that `map` has reserved for this.
            unsafe {
                libc::mmap(at.cast(), SLAB, rights, flags, opened.file.as_raw_fd(), 0) != libc::MAP_FAILED
            }
        })?;
        // Only the header is allocated, to see whether there is more.
        let is_there = self.allocate(slab, 0, HEADER)
            && (slab.header().slabs.load(Ordering::Acquire) > 0 || self.begin(slab));
        if !is_there {
            // SAFETY: nothing else refers to the slab.
            unsafe { slab.unmap(SLAB) };
            return None;
        }
        self.slabs[0].store(slab.address().as_ptr(), Ordering::Release);
        self.ask_for_room();
        Some(())
    }

    fn begin(&self, slab: Slab) -> bool {
        if !self.has_room() || !self.allocate(slab, 0, SLAB) {
            return false;
        }
        publish(slab.header(), 0, slab.header(), OF_SLOTS);
        true
    }

    /// Returns how many slabs are allocated.
    pub(super) fn count(&self) -> usize {
        let first = self.slabs[0].load(Ordering::Acquire);
        let Some(first) = NonNull::new(first) else { return 0 };
        // SAFETY: a slab that was mapped here.
        let first = unsafe { Slab::at(first) };
        (first.header().slabs.load(Ordering::Acquire) as usize).min(MAX_SLABS)
    }

    /// Returns a slab that is allocated, mapped now if it is not yet.
    #[inline]
    pub(super) fn slab(&'static self, number: usize) -> Option<Slab> {
        match NonNull::new(self.slabs.get(number)?.load(Ordering::Acquire)) {
            // SAFETY: a slab that was mapped here.
            Some(at) => Some(unsafe { Slab::at(at) }),
            None if number < self.count() => self.map(number),
            None => None,
        }
    }

    /// Returns the slabs of a kind, with their numbers.
    pub(super) fn slabs(&'static self, kind: u64) -> impl DoubleEndedIterator<Item = (usize, Slab)> {
        (0..self.count()).filter_map(move |number| {
            let slab = self.slab(number)?;
            (slab.header().kind.load(Ordering::Acquire) == kind).then_some((number, slab))
        })
    }

    #[cold]
    fn map(&'static self, number: usize) -> Option<Slab> {
        if is_confined() {
            return None;
        }
        let slab = self.map_unseen(number)?;
        Some(self.keep(number, slab))
    }

    /// Maps a slab by means of the mappings that exist: the file may not be accessible any more.
    fn map_unseen(&'static self, number: usize) -> Option<Slab> {
        let first = self.slabs[0].load(Ordering::Acquire);
        let home = Home { pool: Some(self), number };
        Slab::map(SLAB, home, |at| {
            let (before, all) = (number * SLAB, (number + 1) * SLAB);
            // SAFETY: with an old length of 0 a second mapping of the file is made (mremap(2)),
            // from the first slab up to this one; its last part goes to the reserved address of the
            // slab, and the rest is unmapped again.
            unsafe {
                let whole = libc::mremap(first.cast(), 0, all, libc::MREMAP_MAYMOVE);
                if whole == libc::MAP_FAILED {
                    return false;
                }
                let moved = libc::mremap(
                    whole.cast::<u8>().add(before).cast(),
                    SLAB,
                    SLAB,
                    libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
                    at.cast::<libc::c_void>(),
                );
                let is_there = moved != libc::MAP_FAILED;
                libc::munmap(whole, if is_there { before } else { all });
                is_there
            }
        })
    }

    /// Notes the address of a slab, unless another thread has mapped it first.
    fn keep(&self, number: usize, slab: Slab) -> Slab {
        let (none, new) = (ptr::null_mut(), slab.address().as_ptr());
        match self.slabs[number].compare_exchange(none, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => slab,
            Err(other) => {
                // SAFETY: nothing else refers to this slab; the other was mapped here and is not
                // null.
                unsafe {
                    slab.unmap(SLAB);
                    Slab::at(NonNull::new_unchecked(other))
                }
            }
        }
    }

    /// Adds a slab of this kind to the file. Returns whether there is one more, of whatever kind.
    #[cold]
    pub(super) fn grow(&'static self, kind: u64) -> bool {
        if is_confined() || now() < self.no_growth.load(Ordering::Relaxed) {
            return false;
        }
        let grown = self.try_to_grow(kind);
        if grown.is_none() {
            self.no_growth.store(now() + A_WHILE, Ordering::Relaxed);
        }
        grown.is_some()
    }

    fn try_to_grow(&'static self, kind: u64) -> Option<()> {
        let first = self.slab(0)?;
        let number = self.count();
        if number >= MAX_SLABS || !self.has_room() {
            return None;
        }
        let slab = self.map_unseen(number)?;
        if !self.allocate(slab, number, SLAB) {
            // SAFETY: nothing else refers to the slab.
            unsafe { slab.unmap(SLAB) };
            return None;
        }
        publish(first.header(), number, slab.header(), kind);
        self.keep(number, slab);
        Some(())
    }

    /// Returns whether the file may have one more slab.
    fn has_room(&self) -> bool {
        self.ask_for_room();
        ((self.count() + 1) * SLAB) as u64 <= self.longest.load(Ordering::Relaxed)
    }

    fn ask_for_room(&self) {
        if let Some(longest) = file::may_have(&self.path, self.count()) {
            self.longest.store(longest, Ordering::Relaxed);
        }
    }

    /// Returns whether it is time to look for slots without holders: a process that finds no free
    /// slot asks often.
    pub(super) fn sweep_is_due(&self) -> bool {
        is_due(&self.next_sweep)
    }

    /// Returns whether it is time to look for blocks without owners.
    pub(super) fn block_sweep_is_due(&self) -> bool {
        is_due(&self.next_block_sweep)
    }

    /// Allocates the first `len` octets of a slab; those that are allocated stay as they are.
    /// `false`: there is no memory for it.
    fn allocate(&self, slab: Slab, number: usize, len: usize) -> bool {
        // SAFETY: pages of a mapping, whose octets do not change.
        if unsafe { libc::madvise(slab.address().as_ptr().cast(), len, libc::MADV_POPULATE_WRITE) } == 0 {
            return true;
        }
        let before_5_14 = Errno::last() == Errno::INVALID;
        before_5_14 && file::allocate(&self.path, self.user, number)
    }

    /// Maps all allocated slabs: this process is about to give up the calls that map memory.
    pub(super) fn map_all(&'static self) {
        for number in 0..self.count() {
            let _ = self.slab(number);
        }
    }

    /// Unlocks the file: this process no longer keeps it from being removed.
    pub(super) fn leave(&self) {
        self.unlock();
        file::remove_unused(&self.path, self.user, Some(Process::me()));
    }

    #[cfg(test)]
    pub(super) fn is_at(&self, path: &Path) -> bool {
        self.path == path
    }

    fn unlock(&self) {
        let lock = self.lock.swap(ptr::null_mut(), Ordering::AcqRel);
        if !lock.is_null() {
            // SAFETY: the page that `map_lock` mapped, which is never accessed.
            unsafe { libc::munmap(lock.cast(), PAGE) };
        }
    }

    /// Returns how many slots there may be at most.
    pub(super) fn slots(&self) -> usize {
        self.count() * SLOTS
    }

    /// Returns the slab of a slot's number, and the index in it.
    pub(super) fn slot(&'static self, number: usize) -> Option<(Slab, usize)> {
        let slab = self.slab(number / SLOTS)?;
        (slab.header().kind.load(Ordering::Acquire) == OF_SLOTS).then_some((slab, number % SLOTS))
    }

    /// Returns the slab and the index of a block.
    #[inline]
    pub(super) fn block(&'static self, number: u32) -> Option<(Slab, usize)> {
        let number = number as usize;
        let slab = self.slab(number / BLOCKS)?;
        let is_one = slab.header().kind.load(Ordering::Acquire) == super::layout::OF_BLOCKS;
        is_one.then_some((slab, number % BLOCKS))
    }
}

fn is_due(next: &AtomicU64) -> bool {
    let (now, due) = (now(), next.load(Ordering::Relaxed));
    now >= due && next.compare_exchange(due, now + A_WHILE, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// Marks an allocated slab as one of this kind, and counts it. A process that comes second finds it
/// marked.
fn publish(first: &Header, number: usize, slab: &Header, kind: u64) {
    let _ = slab.kind.compare_exchange(0, kind, Ordering::AcqRel, Ordering::Relaxed);
    let (before, after) = (number as u32, number as u32 + 1);
    let _ = first.slabs.compare_exchange(before, after, Ordering::AcqRel, Ordering::Relaxed);
}

fn map_lock(file: &File) -> Option<*mut u8> {
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at =
        unsafe { libc::mmap(ptr::null_mut(), PAGE, libc::PROT_NONE, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    (at != libc::MAP_FAILED).then_some(at.cast())
}
