//! `librddp_sockets.so` as programs see it: C programs, compiled here, that run with and without
//! the library.
//!
//! The tests need `cc` and `nm`, which linking Rust programs needs too; a test that needs `strace`
//! says so and does nothing without it.

mod both;
mod cancelled;
mod closing;
mod connects;
mod cost;
mod device;
mod differential;
mod early;
mod edges;
mod errno;
mod exiting;
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
mod sdp;
mod sleepers;
mod stress;
mod support;
mod ways;
