//! The ES-API (Extended Sockets API): operations, event queues and registered memory, over whatever
//! socket calls a program finds; and the threads that can make progress for it.
//!
//! | module | what |
//! |---|---|
//! | [`exs`] | the ES-API: operations, event queues, registered memory |
//! | [`threads`] | two threads for calls that wait, as the report's design has them |
//! | [`progress`] | the choice who makes progress with waiting operations: the caller, or the threads |
//! | [`as_program`] | the socket calls as the program finds them, for code that acts on its behalf |
#![deny(unsafe_code)]

pub mod exs;
pub mod progress;
mod sys;
pub mod threads;

pub use sys::as_program;
