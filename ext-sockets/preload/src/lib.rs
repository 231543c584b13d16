//! `librddp_sockets.so`: the socket calls of the C library, as a program finds them when this library is loaded before it.
//!
//! Each function has the C library's signature and asks `rddp_switch::gate` where the call goes; for nearly all it is on to the C library, with
//! the arguments it came with, so that its result, its errno and its system calls are what they would have been. On that way nothing is locked,
//! allocated or written, which makes it as safe in a signal handler, and between `vfork` and `exec`, as the call itself.
//!
//! What cannot be had this way: calls within the C library itself (stdio on a descriptor, the resolver), programs linked statically,
//! programs that make system calls themselves (Go), `io_uring`, and what is loaded with `RTLD_DEEPBIND`.
//!
//! Functions that need no part of ours are not here: `getsockname`, `getpeername`, `fstat`, `isatty`, `lseek`, `mmap`, `pread` and
//! `pwrite` answer for a framed socket what they answer for any; `fork` and `vfork` are noticed otherwise (`rddp_switch::process`).
#![allow(unsafe_code)] // C signatures take pointers
#![allow(unreachable_pub)] // the dynamic linker reaches them

#[macro_use]
mod hook;

mod control;
mod create;
mod data;
mod exs;
mod message;
mod pieces;
mod print;
mod raw;
mod raw_signals;
mod signals;
mod start;
mod stdio;
mod variadic;
mod wait;

use rddp_es_api::{as_program, progress};
use rddp_real as real;
use rddp_switch::{kinds, process, startup, switch};

/// Run by the dynamic linker when the library is loaded; calls of constructors that run before are served too.
#[used]
#[unsafe(link_section = ".init_array")]
static ON_LOAD: extern "C" fn() = on_load;

extern "C" fn on_load() {
    real::resolve();
    real::guard_by_these();
    real::around_fork(before_fork, framed_fork_is_over, in_child);
    process::after_system_call(kinds::after_system_call);
    real::at_exit(on_exit);
    switch::load();
    progress::load();
    startup::load();
    // SAFETY: they keep the contract of the C library's, which they stand before.
    unsafe { as_program::install(exs::OWN) };
    if kinds::adopt_open() {
        stdio::replace_standard_streams();
    }
}

extern "C" fn before_fork() {
    kinds::before_fork();
}

extern "C" fn framed_fork_is_over() {
    kinds::fork_is_over();
}

extern "C" fn in_child() {
    process::after_fork();
    rddp_fault_guard::after_fork();
    kinds::after_fork();
}

extern "C" fn on_exit() {
    stdio::flush();
    kinds::exiting();
}
