//! `librddp_sockets.so` as programs see it: C programs, compiled here, that run with and without it.
//!
//! They need `cc` and `nm`, which whoever links Rust programs has; what needs `strace` says so and does nothing without it.

mod both;
mod cancelled;
mod connects;
mod cost;
mod differential;
mod early;
mod edges;
mod exports;
mod exs;
mod faults;
mod forking;
mod handlers;
mod hostile;
mod leaving;
mod modes;
mod options;
mod processes;
mod raw;
mod readiness;
mod sleepers;
mod stress;
mod support;
mod ways;
