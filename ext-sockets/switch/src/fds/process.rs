//! Tells whether the table of descriptors belongs to the calling process.
//!
//! After `vfork`, and in the code that `posix_spawn` runs before it executes the new program, the
//! child uses its parent's memory. The child closes and duplicates its own descriptors, which must
//! not change what the table says of the parent's. A wrapper of `vfork` would return twice, so the
//! child is recognised by its process id. After `fork` the memory is a copy and belongs to the
//! child.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rddp_real as real;
use rddp_stream::Process;

use crate::table;

/// The id of the process that the table belongs to; 0 before the first question.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// A function to call in the child of a `fork` made by the bare system call.
static AFTER_SYSTEM_CALL: OnceLock<fn()> = OnceLock::new();

/// Sets the function to call in the child of a `fork` made by the bare system call, once that is
/// noticed. Only the first call has an effect.
pub fn after_system_call(call: fn()) {
    let _ = AFTER_SYSTEM_CALL.set(call);
}

/// Returns whether the table belongs to the calling process. This costs a system call, and is asked
/// about sockets of ours only.
pub fn owns_table() -> bool {
    let me = real::process_id();
    match OWNER.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => {
            Process::forget_me();
            real::claim_memory();
            true
        }
        Err(owner) if owner == me => true,
        // A `fork` by the bare system call, of which the C library knows nothing.
        Err(_) if real::is_copied_memory() => {
            after_fork();
            AFTER_SYSTEM_CALL.get().into_iter().for_each(|call| call());
            true
        }
        Err(_) => false,
    }
}

/// Gives the table, a copy of the parent's, to the calling process: the child of a `fork`.
///
/// If the table has entries, the next process to ask may be a child of `vfork`, so the owner is
/// noted now. An empty table goes to the process that first sets an entry; a process without
/// sockets of ours makes no system call here.
pub fn after_fork() {
    if table::any() {
        OWNER.store(std::process::id(), Ordering::Relaxed);
        real::claim_memory();
    } else {
        OWNER.store(0, Ordering::Relaxed);
    }
}
