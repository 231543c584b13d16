//! The routine that a fault returns from, one for each architecture.
//!
//! `call` saves what a C function must preserve, notes the range and its own stack pointer for this
//! thread, and calls the work. At a fault the handler sets the stack pointer to the noted one and
//! goes on at the routine's landing, which returns 1. So the routine returns once, whatever
//! happens, and the compiler sees a plain call. The note before is put back behind each call:
//! guards nest, as when a signal handler of the program's own makes a guarded copy.
//!
//! The note is thread-local storage of the initial-exec kind. That is there before a thread runs,
//! so that no access allocates: the first one of a thread may be the signal handler's.

use std::arch::global_asm;
use std::ffi::c_void;

use crate::Work;
use crate::mask::Signals;

#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
mod arch;

/// Faults are guarded on this system: Linux on x86-64 or aarch64.
pub const GUARDED: bool = true;

unsafe extern "C" {
    /// Calls `work(to, from, len)`; 1 if it ended at a fault between `start` and `end`, else 0.
    #[link_name = "rddp_fault_guard_call"]
    pub(crate) fn call(
        work: Work,
        to: *mut c_void,
        from: *const c_void,
        len: usize,
        start: usize,
        end: usize,
    ) -> u32;

    #[link_name = "rddp_fault_guard_note"]
    fn note() -> *const Thread;

    #[link_name = "rddp_fault_guard_landing"]
    static LANDING: u8;
}

// What is noted for each thread: a [`Thread`], all zeros at first. Not local to its object file,
// because the compiler may put the routine into another.
global_asm!(
    ".pushsection .tbss.rddp_fault_guard_noted,\"awT\",@nobits",
    ".balign 8",
    ".globl rddp_fault_guard_noted",
    ".hidden rddp_fault_guard_noted",
    ".type rddp_fault_guard_noted,@tls_object",
    ".size rddp_fault_guard_noted,{size}",
    "rddp_fault_guard_noted:",
    ".zero {size}",
    ".popsection",
    size = const size_of::<Thread>(),
);

/// Has the interrupted thread go on at the landing, if the fault at `address` is its guarded
/// work's. `None`: an address that no memory of a program can have, which the kernel does not tell.
///
/// # Safety
/// `context` is the `ucontext_t` that the kernel gave a signal handler, on this thread.
pub(crate) unsafe fn recover(address: Option<usize>, context: *mut c_void) -> bool {
    // SAFETY: the caller promises a live `ucontext_t`, which only this handler refers to; `note`
    // returns the address of this thread's own note, which no other thread writes.
    let (machine, note) = unsafe {
        let context = context.cast::<libc::ucontext_t>();
        (&mut (*context).uc_mcontext, (&raw const (*note()).note).read_volatile())
    };
    // SAFETY: a frame that is that little above the stack pointer is in the same stack.
    if !note.covers(address, arch::stack_pointer(machine)) || !unsafe { arch::is_live(note.frame) } {
        return false;
    }
    arch::resume_at(machine, (&raw const LANDING).addr(), note.frame);
    true
}

/// Returns the stack pointer of the interrupted thread.
///
/// # Safety
/// As of [`recover`].
pub(crate) unsafe fn stack_pointer(context: *const libc::ucontext_t) -> usize {
    // SAFETY: the caller's word.
    arch::stack_pointer(unsafe { &(*context).uc_mcontext })
}

/// Returns what is noted of the calling thread's signals.
#[inline]
pub(crate) fn signals() -> &'static Signals {
    // SAFETY: the thread's own, for as long as it runs; it is reached through `Cell`s, by the
    // thread alone, since they are not for sharing.
    unsafe { &(*note()).signals }
}

/// Notes on a thread: its guard, and its signals.
#[repr(C)]
struct Thread {
    note: Note,
    signals: Signals,
}

/// The frame and the range that a thread has noted. The routines know its layout.
#[repr(C)]
struct Note {
    /// The stack pointer of the routine, 0 when nothing is guarded.
    frame: usize,
    /// The guarded addresses.
    start: usize,
    end: usize,
}

/// Behind the addresses that a program's memory can have: 47 bits of them, or 56 where pages have a
/// fifth level, which programs ask for by name.
const USER_END: usize = 1 << 47;
/// Octet of an address that aarch64 may leave out when it tells of a fault.
const TAG: usize = 0xff << 56;

/// Stack that guarded work may use. What is further below the frame is not the work: a signal
/// handler on a stack of its own, say.
const MAX_DEPTH: usize = 64 * 1024;

impl Note {
    /// Returns whether a fault at `address`, with the stack pointer at `stack`,
    /// is the guarded work's.
    fn covers(&self, address: Option<usize>, stack: usize) -> bool {
        // Without a note `frame` is 0, which is above nothing.
        let below = self.frame.wrapping_sub(stack);
        let has = |address| self.has(address) || self.has(address | self.start & TAG);
        stack <= self.frame && below < MAX_DEPTH && address.map_or_else(|| self.reaches_beyond(), has)
    }

    /// Returns whether an address is in the range, which may go on at 0 behind the last of all.
    fn has(&self, address: usize) -> bool {
        address.wrapping_sub(self.start) < self.end.wrapping_sub(self.start)
    }

    /// Returns whether there is an address in the range that no memory of a program can have.
    fn reaches_beyond(&self) -> bool {
        self.start > self.end || self.end > USER_END
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_DEPTH, Note};

    #[test]
    fn a_fault_is_the_works_at_a_guarded_address_and_not_far_below_the_frame() {
        let note = Note { frame: 1 << 20, start: 100, end: 200 };
        let frame = note.frame;
        assert!(note.covers(Some(100), frame) && note.covers(Some(199), frame - MAX_DEPTH + 1));
        assert!(!note.covers(Some(99), frame) && !note.covers(Some(200), frame));
        assert!(!note.covers(Some(150), frame + 1) && !note.covers(Some(150), frame - MAX_DEPTH));
    }

    #[test]
    fn a_range_may_lie_where_no_memory_can_be_and_go_round() {
        let frame = 1 << 20;
        let note = |start: usize, len| Note { frame, start, end: start.wrapping_add(len) };
        assert!(!note(1 << 46, 4096).covers(None, frame), "all of it can be there");
        assert!(
            note(0xdead_beef << 32, 8).covers(None, frame) && note((1 << 47) - 8, 16).covers(None, frame)
        );
        let round = note(4096_usize.wrapping_neg(), 8192);
        assert!([None, Some(0), Some(4095), Some(usize::MAX)].into_iter().all(|at| round.covers(at, frame)));
        assert!(!round.covers(Some(4096), frame));
        assert!(note(0xde << 56 | 4096, 8).covers(Some(4096), frame), "without its tag");
    }

    #[test]
    fn nothing_is_covered_without_a_note() {
        let none = Note { frame: 0, start: 0, end: usize::MAX };
        assert!([1, 4096, usize::MAX].into_iter().all(|stack| !none.covers(Some(150), stack)));
        assert!(!none.covers(None, 4096));
    }
}
