//! Detection of `fork`: [`Origin`] tells which process made an object.
//!
//! Each process has an epoch, a number that none of its ancestors had. It stands in a page that the
//! kernel clears in a child of `fork` (`MADV_WIPEONFORK`, Linux 4.14). An object that stores the
//! epoch when it is made can tell by one load whether it is the copy in a child. A process that
//! shares the memory, as a child of `vfork` does until `exec`, counts as the same process.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The process that made an object.
///
/// Where the kernel cannot clear a page, a handler of `pthread_atfork` does it. Then only the C
/// library's `fork` is noticed, not the bare system call.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    epoch: u64,
    page: &'static AtomicU64,
}

impl Origin {
    /// Returns the calling process.
    ///
    /// Safe in a signal handler, and between `fork` and `exec`. The exception is the very first
    /// call where the kernel cannot clear a page.
    #[must_use]
    pub fn here() -> Self {
        Self::by(page())
    }

    /// Returns whether the calling process is this one: false in a child of `fork`, and for ever
    /// after.
    #[inline]
    #[must_use]
    pub fn is_here(self) -> bool {
        self.page.load(Ordering::Relaxed) == self.epoch
    }

    /// Returns the number that tells the process from its ancestors; its highest bit is clear.
    pub(crate) fn epoch(self) -> u64 {
        self.epoch
    }

    fn by(page: &'static AtomicU64) -> Self {
        let epoch = match page.load(Ordering::Relaxed) {
            UNSET => set(page),
            epoch => epoch,
        };
        Origin { epoch, page }
    }
}

/// The page's contents in a process that has no epoch yet.
const UNSET: u64 = 0;

/// Gives the process its epoch, unless another thread has done so, and returns it.
fn set(page: &AtomicU64) -> u64 {
    let epoch = new_epoch();
    page.compare_exchange(UNSET, epoch, Ordering::Relaxed, Ordering::Relaxed).err().unwrap_or(epoch)
}

/// Returns a number that is not 0, and that no ancestor had: every ancestor with an epoch has
/// incremented the counter of which this process has a copy. The process id stands beside the count
/// for a `fork` in the middle of another thread's first call, whose increment the child may not
/// see.
fn new_epoch() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
    count << 32 | u64::from(std::process::id())
}

/// The page; null until it is needed.
static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

/// Returns the page. Does not wait for another thread, since a child of `fork` has no other
/// threads.
fn page() -> &'static AtomicU64 {
    // SAFETY: null, or a page that was published below and lives for ever.
    if let Some(page) = unsafe { PAGE.load(Ordering::Acquire).as_ref() } {
        return page;
    }
    let made = wiped_page().unwrap_or_else(reset_word);
    let new = ptr::from_ref(made).cast_mut();
    match PAGE.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => made,
        // Another thread came first. The page made here, if it is one, is never used and never
        // freed: each thread that makes its first call at that very moment loses one at most.
        // SAFETY: not null, and so published above by another thread; it lives for ever.
        Err(theirs) => unsafe { &*theirs },
    }
}

/// Returns a new page that the kernel clears in a child of `fork`, or `None` where it cannot.
fn wiped_page() -> Option<&'static AtomicU64> {
    let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping of at least a page, at an address that the kernel chooses, affects
    // nothing that exists, and the advice concerns it alone. It is zeroed, aligned and never
    // unmapped, and so an `AtomicU64` of static lifetime.
    unsafe {
        let at = libc::mmap(ptr::null_mut(), size_of::<AtomicU64>(), rights, flags, -1, 0);
        if at == libc::MAP_FAILED {
            return None;
        }
        if libc::madvise(at, size_of::<AtomicU64>(), libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(at, size_of::<AtomicU64>());
            return None;
        }
        Some(&*at.cast())
    }
}

/// Returns a word that the C library's `fork` clears in the child.
fn reset_word() -> &'static AtomicU64 {
    static WORD: AtomicU64 = AtomicU64::new(UNSET);
    extern "C" fn reset() {
        WORD.store(UNSET, Ordering::Relaxed);
    }
    // SAFETY: the handler makes one atomic store. It may be registered several times, and then
    // stores several times.
    unsafe { libc::pthread_atfork(None, None, Some(reset)) };
    &WORD
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns whether `child`, run in a child of `fork`, returned true.
    pub(crate) fn holds_in_child(child: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child calls only `child`, which neither allocates nor locks, and ends without
        // a destructor.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let holds = child();
            // SAFETY: `_exit` runs no destructor and no handler of `atexit`, which could want locks
            // that threads of the parent held; the process has no other thread.
            unsafe { libc::_exit(if holds { 0 } else { 1 }) };
        }
        assert!(pid > 0);
        let mut status = 0;
        // SAFETY: waits for the child just made.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }

    /// Both kinds of memory in which an epoch may stand.
    fn pages() -> [&'static AtomicU64; 2] {
        [wiped_page().expect("the tests run on Linux 4.14 or newer"), reset_word()]
    }

    #[test]
    fn an_origin_is_here_in_all_threads_of_the_process() {
        let (here, again) = (Origin::here(), Origin::here());
        assert!(here.is_here() && again.is_here());
        assert_eq!(here.epoch, again.epoch);
        assert!(
            std::thread::spawn(move || here.is_here() && Origin::here().epoch == here.epoch).join().unwrap()
        );
    }

    #[test]
    fn objects_that_a_child_of_fork_inherits_are_copies_and_those_that_it_makes_are_not() {
        let parent = Origin::here();
        assert!(holds_in_child(|| {
            let before = !parent.is_here();
            let own = Origin::here();
            before && own.is_here() && !parent.is_here() && own.epoch != parent.epoch
        }));
        assert!(parent.is_here());
    }

    #[test]
    fn no_descendant_has_the_epoch_of_an_ancestor() {
        for page in pages() {
            let parent = Origin::by(page);
            assert!(holds_in_child(|| {
                let child = Origin::by(page);
                let grandchild_differs = holds_in_child(|| {
                    let own = Origin::by(page);
                    own.is_here() && !child.is_here() && !parent.is_here()
                });
                grandchild_differs && child.is_here() && !parent.is_here()
            }));
            assert!(parent.is_here());
        }
    }

    /// A child that never asked for its epoch passes on a cleared page: its own child must not take
    /// the objects of the first process for its own either.
    #[test]
    fn a_grandchild_of_a_child_that_never_asked_is_not_the_parent() {
        for page in pages() {
            let parent = Origin::by(page);
            assert!(holds_in_child(|| holds_in_child(|| !parent.is_here() && Origin::by(page).is_here())));
        }
    }

    #[test]
    fn threads_that_ask_first_at_the_same_time_agree() {
        for _ in 0..100 {
            let page = wiped_page().unwrap();
            let epochs = std::thread::scope(|threads| {
                [(); 4]
                    .map(|()| threads.spawn(|| Origin::by(page).epoch))
                    .map(|thread| thread.join().unwrap())
            });
            assert_eq!(epochs, [page.load(Ordering::Relaxed); 4]);
        }
    }

    /// A child of `vfork` has its parent's memory: closing the parent's sockets there would close
    /// them for the parent.
    #[test]
    fn a_child_of_vfork_counts_as_the_same_process() {
        extern "C" fn child(origin: *mut libc::c_void) -> libc::c_int {
            // SAFETY: the pointer is the parent's `Origin`; the parent sleeps until this child has
            // ended.
            let origin = unsafe { *origin.cast::<Origin>() };
            libc::c_int::from(!origin.is_here())
        }
        let mut origin = Origin::here();
        let mut stack = vec![0_u128; 4096];
        let top = stack.as_mut_ptr_range().end;
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        // SAFETY: the stack is the child's alone until it has ended, which `CLONE_VFORK` waits for.
        let pid = unsafe { libc::clone(child, top.cast(), flags, (&raw mut origin).cast()) };
        assert!(pid > 0);
        let mut status = 0;
        // SAFETY: waits for the child just made.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
    }
}
