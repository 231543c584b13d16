//! Whether the table is this process's own.
//!
//! After `vfork`, and in what `posix_spawn` runs before it executes the new program, the child uses its parent's memory: what it
//! closes and duplicates are its own descriptors, and must not change what is known of the parent's. A wrapper of `vfork` would
//! return twice, so the child is known by its process id. After `fork` the memory is a copy and the child's own.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rddp_real as real;
use rddp_stream::Process;

use crate::table;

/// The process that the table belongs to; 0 before anybody asked.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Called in the child of a `fork` that was the bare system call.
static AFTER_SYSTEM_CALL: OnceLock<fn()> = OnceLock::new();

/// Has `call` made in the child of a `fork` that was the bare system call, once that is noticed.
/// The first to say so is heard.
pub fn after_system_call(call: fn()) {
    let _ = AFTER_SYSTEM_CALL.set(call);
}

/// Whether the table belongs to the calling process. A system call; asked only about sockets of ours.
pub fn owns_table() -> bool {
    let me = real::process_id();
    match OWNER.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => {
            Process::forget_me();
            real::note_memory();
            true
        }
        Err(owner) if owner == me => true,
        // A `fork` that the C library knows nothing of: the system call itself.
        Err(_) if real::is_copied_memory() => {
            after_fork();
            AFTER_SYSTEM_CALL.get().into_iter().for_each(|call| call());
            true
        }
        Err(_) => false,
    }
}

/// In the child of a `fork`: the table, a copy, is its own.
///
/// With something in it the next to ask may be a child of `vfork`, so the owner is noted now. An empty one belongs to
/// whoever first sets an entry; a process without sockets of ours makes no system call here.
pub fn after_fork() {
    if table::any() {
        OWNER.store(std::process::id(), Ordering::Relaxed);
        real::note_memory();
    } else {
        OWNER.store(0, Ordering::Relaxed);
    }
}
