//! The assembly routine that calls guarded work and returns after a fault, one for each
//! architecture.
//!
//! `call` saves the registers that a C function must preserve, records the guarded range and its
//! own stack pointer for this thread (the note), and calls the work. At a fault in the range, the
//! signal handler sets the stack pointer to the recorded one and continues at the routine's
//! landing, which returns 1. So the routine returns once, whatever happens, and for the compiler it
//! is an ordinary call. Behind each call the note from before is restored, so that guards nest: a
//! signal handler of the program may make a guarded copy itself.
//!
//! `call_unseen` calls work without a guard, by one instruction that the compiler does not look
//! into.
//!
//! The note is thread-local storage of the initial-exec kind. This exists before a thread runs, so
//! that no access to it allocates, not even a thread's first one in a signal handler.

use std::arch::global_asm;
use std::ffi::c_void;

use crate::Work;
use crate::mask::Signals;

#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
mod arch;

pub(crate) use arch::call_unseen;

/// Faults are guarded on this system: Linux on x86-64 or aarch64.
pub const GUARDED: bool = true;

unsafe extern "C" {
    /// Calls `work(to, from, len)`. Returns 1 if it was abandoned at a fault between `start` and
    /// `end`, or else 0.
    #[link_name = "rddp_fault_guard_call"]
    pub(crate) fn call(
        work: Work,
        to: *mut c_void,
        from: *const c_void,
        len: usize,
        start: usize,
        end: usize,
    ) -> u32;

    /// Copies `len` octets. `mempcpy` is `memcpy` with another result, and as fast.
    ///
    /// `ThreadSanitizer` puts a function of its own in the place of `memcpy`, which takes what
    /// other threads write meanwhile for a race. It has none for `mempcpy`, whose accesses it does
    /// not see, as it sees none of code that the compiler has not made.
    #[link_name = "mempcpy"]
    pub(crate) fn copy(to: *mut c_void, from: *const c_void, len: usize) -> *mut c_void;

    #[link_name = "rddp_fault_guard_note"]
    fn note() -> *const Thread;

    #[link_name = "rddp_fault_guard_landing"]
    static LANDING: u8;
}

// The record of each thread: a [`Thread`], all zeros at first. The symbol is not local to its
// object file, because the compiler may put the routine into another.
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

/// Makes the interrupted thread continue at the landing if its guarded work caused the fault at
/// `address`. Returns whether it did. `address` is `None` for a fault at an address that cannot be
/// a program's memory: the kernel does not give it.
///
/// # Safety
/// `context` is the `ucontext_t` that the kernel gave a signal handler, on this thread.
pub(crate) unsafe fn recover(address: Option<usize>, context: *mut c_void) -> bool {
    // SAFETY: the caller passes a live `ucontext_t` that only this handler refers to; `note`
    // returns the address of this thread's own note, which no other thread writes.
    let (machine, note) = unsafe {
        let context = context.cast::<libc::ucontext_t>();
        (&mut (*context).uc_mcontext, (&raw const (*note()).note).read_volatile())
    };
    // SAFETY: `covers` has found that the frame is a little above the stack pointer, and so in the
    // same stack, which is mapped.
    if !note.covers(address, arch::stack_pointer(machine)) || !unsafe { arch::is_live(note.frame) } {
        return false;
    }
    arch::resume_at(machine, (&raw const LANDING).addr(), note.frame);
    true
}

/// Returns the stack pointer of the interrupted thread.
///
/// # Safety
/// The requirement of [`recover`].
pub(crate) unsafe fn stack_pointer(context: *const libc::ucontext_t) -> usize {
    // SAFETY: `context` is the live `ucontext_t` that the kernel gave a signal handler.
    arch::stack_pointer(unsafe { &(*context).uc_mcontext })
}

/// Returns the record of the calling thread's signals.
#[inline]
pub(crate) fn signals() -> &'static Signals {
    // SAFETY: the record belongs to the thread and exists as long as it runs. It is accessed
    // through `Cell`s, and by this thread alone, since `Signals` cannot be shared.
    unsafe { &(*note()).signals }
}

/// The record of a thread: its guard and its signals.
#[repr(C)]
struct Thread {
    note: Note,
    signals: Signals,
}

/// The frame and the range of a thread's guarded work. The routines know this layout.
#[repr(C)]
struct Note {
    /// The stack pointer of the routine; 0 when nothing is guarded.
    frame: usize,
    /// The guarded addresses.
    start: usize,
    end: usize,
}

/// The end of the addresses that a program's memory can have: they have 47 bits, or 56 where the
/// page tables have a fifth level, which a program must ask for.
const USER_END: usize = 1 << 47;
/// The octet of an address that aarch64 may leave out when it reports a fault.
const TAG: usize = 0xff << 56;

/// The stack that guarded work may use. A fault with the stack pointer further below the frame is
/// not the work's, but for instance that of a signal handler on another stack.
const MAX_DEPTH: usize = 64 * 1024;

impl Note {
    /// Returns whether guarded work caused a fault at `address` with the stack pointer at `stack`.
    fn covers(&self, address: Option<usize>, stack: usize) -> bool {
        // Without a note `frame` is 0, and no stack pointer is below that.
        let below = self.frame.wrapping_sub(stack);
        let has = |address| self.has(address) || self.has(address | self.start & TAG);
        stack <= self.frame && below < MAX_DEPTH && address.map_or_else(|| self.reaches_beyond(), has)
    }

    /// Returns whether an address is in the range. The range may pass the end of the address space
    /// and continue at 0.
    fn has(&self, address: usize) -> bool {
        address.wrapping_sub(self.start) < self.end.wrapping_sub(self.start)
    }

    /// Returns whether the range has an address that cannot be a program's memory.
    fn reaches_beyond(&self) -> bool {
        self.start > self.end || self.end > USER_END
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_DEPTH, Note};

    #[test]
    fn a_fault_is_guarded_at_an_address_of_the_range_and_not_far_below_the_frame() {
        let note = Note { frame: 1 << 20, start: 100, end: 200 };
        let frame = note.frame;
        assert!(note.covers(Some(100), frame) && note.covers(Some(199), frame - MAX_DEPTH + 1));
        assert!(!note.covers(Some(99), frame) && !note.covers(Some(200), frame));
        assert!(!note.covers(Some(150), frame + 1) && !note.covers(Some(150), frame - MAX_DEPTH));
    }

    #[test]
    fn a_range_may_have_impossible_addresses_and_pass_the_end_of_the_address_space() {
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
