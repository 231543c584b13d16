//! Failures, output, signals and addresses: the parts that subcommands of `rddp` have in common.
//! The command uses them, and so do crates of subcommands; nothing is promised to other users.
//!
//! | module | what |
//! |---|---|
//! | `failure` | causes, remedies, exit codes |
//! | `out` | standard output and standard error, for people and as JSON |
//! | `signals` | Ctrl-C and SIGTERM |
//! | `addr`, `units` | names and addresses; numbers |
//! | `device` | the option `--device` |
//! | `listeners` | listening by several devices |
//! | `endpoint` | one connection and all that it needs |
//! | `places`, `threads` | the number of clients of a server, and a thread for each |
//! | `seldom` | lines that may come in crowds |
#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used)]

pub mod addr;
pub mod device;
pub mod endpoint;
pub mod failure;
pub mod listeners;
pub mod out;
pub mod places;
pub mod seldom;
pub mod signals;
pub mod threads;
pub mod units;
