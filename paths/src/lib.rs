//! `librddp_paths.so`: the files of devices that look like RoCE, shown to programs where the kernel
//! would have them.
//!
//! Loaded in front of the C library (`LD_PRELOAD`), it has the functions that take paths. One that
//! gets a path of `map` goes on with the same path in the tree that `RDDP_PATHS` names, which
//! `rddp run --roce` makes; all else goes on as it is. `docs/roce.md` tells of the ways for
//! programs that do not call the C library.
//!
//! | module | subject |
//! |---|---|
//! | `map` | which paths are shown, and where the tree has them: pure |
//! | `calls` | the C library's functions, before and behind ours |
#![deny(unsafe_code)]
#![warn(clippy::unwrap_used)]

// A program of tests would export the functions, and call them itself.
#[cfg(not(test))]
mod calls;
#[cfg_attr(test, allow(dead_code, reason = "`calls` uses it, which tests go without"))]
mod map;
