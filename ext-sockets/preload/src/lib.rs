//! `librddp_sockets.so`: the C library's socket calls, replaced in a program that loads this
//! library before the C library.
//!
//! Each function has the C library's signature and asks `rddp_switch::gate` where the call goes.
//! Nearly all calls go on to the C library, with the arguments they came with, so that the result,
//! errno and the system calls are what they would have been. On that way nothing is locked,
//! allocated or written, which makes it as safe in a signal handler, and between `vfork` and
//! `exec`, as the C library's function.
//!
//! Not served are calls within the C library itself (stdio on a descriptor, the resolver), programs
//! linked statically, programs that make system calls themselves (Go), `io_uring`, and libraries
//! that are loaded with `RTLD_DEEPBIND`.
//!
//! Functions that need no code of ours are not here: `fstat`, `isatty`, `lseek`, `mmap`, `pread`
//! and `pwrite` answer for a framed socket what they answer for any; `fork` and `vfork` are noticed
//! otherwise (`rddp_switch::process`).
//!
//! # Safety
//!
//! An exported function has the contract of the C function of its name, or that of the header that
//! declares it: a program that may call the one may call the other. Arguments that go on to the C
//! library unchanged need no more than that, and comments say "passed on unchanged". Memory that
//! the program names is read and written through `rddp_stream::lent`, which fails with `EFAULT`
//! where no memory is mapped.
#![allow(unsafe_code)] // C signatures take pointers
#![allow(unreachable_pub)] // the dynamic linker reaches them

#[macro_use]
mod hook;

mod control;
mod create;
mod data;
mod exs;
mod message;
mod names;
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
use rddp_switch::{capture, kinds, placement, process, sdp, startup, switch, trace};

/// Run by the dynamic linker when the library is loaded. Calls that constructors of other libraries
/// make before are served too.
#[used]
#[unsafe(link_section = ".init_array")]
static ON_LOAD: extern "C" fn() = on_load;

extern "C" fn on_load() {
    real::resolve();
    real::guard_by_these();
    real::around_fork(before_fork, in_parent, in_child);
    process::after_system_call(kinds::after_system_call);
    real::at_exit(on_exit);
    trace::begin();
    switch::load();
    capture::begin();
    progress::load();
    startup::load();
    sdp::load();
    placement::load();
    // SAFETY: each function of `OWN` has the contract of the C library's function that it stands
    // before.
    unsafe { as_program::install(exs::OWN) };
    if kinds::adopt_open() {
        stdio::replace_standard_streams();
    }
}

extern "C" fn before_fork() {
    kinds::before_fork();
}

extern "C" fn in_parent() {
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
