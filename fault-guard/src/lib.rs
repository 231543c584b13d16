//! Guarded copies of memory that may become unmapped, and detection of `fork`.
//!
//! A program lends memory to this library, and that memory may go bad while it is lent: a file that
//! is mapped there is truncated (SIGBUS), or the range is unmapped (SIGSEGV). [`copy_in`],
//! [`copy_out`] and [`call`] access such memory and, once [`install`] has been called, return
//! [`Faulted`] where otherwise the process would end. [`fork::Origin`] tells whether an object was
//! made in this process or is the copy that a child of `fork` has, and [`sockets`] closes the
//! sockets that such a child has inherited and cannot use.
//!
//! Faults are guarded on x86-64 and aarch64 ([`GUARDED`]). Elsewhere the functions access the
//! memory unguarded, and such a fault ends the process.

mod actions;
mod chain;
mod copy;
pub mod fork;
mod handler;
mod held;
pub mod mask;
mod masks;
#[cfg(all(
    any(target_arch = "aarch64", target_arch = "x86_64"),
    target_os = "linux",
    target_pointer_width = "64",
    not(miri)
))]
mod routine;
#[cfg(not(all(
    any(target_arch = "aarch64", target_arch = "x86_64"),
    target_os = "linux",
    target_pointer_width = "64",
    not(miri)
)))]
#[path = "routine/none.rs"]
mod routine;
pub mod sockets;
mod system;

pub use copy::{Faulted, Work, call, call_unseen, copy_in, copy_out, copy_shared};
pub use handler::{as_ignored, install, is_installed, sigaction, unblock_in_handlers};
pub use held::after_fork;
pub use routine::GUARDED;
pub use system::{Sigaction, Sigmask, use_system};
