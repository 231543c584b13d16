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

#[cfg(all(target_arch = "aarch64", target_os = "linux", target_pointer_width = "64", not(miri)))]
#[path = "aarch64.rs"]
mod arch;
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_pointer_width = "64", not(miri)))]
#[path = "x86_64.rs"]
mod arch;
#[cfg(any(
    miri,
    not(target_os = "linux"),
    not(target_pointer_width = "64"),
    not(any(target_arch = "x86_64", target_arch = "aarch64"))
))]
#[path = "none.rs"]
mod arch;

pub use arch::GUARDED;
pub(crate) use arch::{call, recover};

/// What a thread has noted. The routines know its layout.
#[repr(C)]
#[cfg_attr(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))), allow(dead_code))]
struct Note {
    /// The stack pointer of the routine, 0 when nothing is guarded.
    frame: usize,
    /// The guarded addresses.
    start: usize,
    end: usize,
}

/// Stack that guarded work may use. What is further below the frame is not the work: a signal
/// handler on a stack of its own, say.
#[cfg_attr(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))), allow(dead_code))]
const MAX_DEPTH: usize = 64 * 1024;

#[cfg_attr(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))), allow(dead_code))]
impl Note {
    /// Whether a fault at `address`, with the stack pointer at `stack`, is the guarded work's.
    fn covers(&self, address: usize, stack: usize) -> bool {
        // Without a note `frame` is 0, which is above nothing.
        let below = self.frame.wrapping_sub(stack);
        stack <= self.frame && below < MAX_DEPTH && (self.start..self.end).contains(&address)
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_DEPTH, Note};

    #[test]
    fn a_fault_is_the_works_at_a_guarded_address_and_not_far_below_the_frame() {
        let note = Note { frame: 1 << 20, start: 100, end: 200 };
        let frame = note.frame;
        assert!(note.covers(100, frame) && note.covers(199, frame - MAX_DEPTH + 1));
        assert!(!note.covers(99, frame) && !note.covers(200, frame));
        assert!(!note.covers(150, frame + 1) && !note.covers(150, frame - MAX_DEPTH));
    }

    #[test]
    fn nothing_is_covered_without_a_note() {
        let none = Note { frame: 0, start: 0, end: usize::MAX };
        assert!([1, 4096, usize::MAX].into_iter().all(|stack| !none.covers(150, stack)));
    }
}
