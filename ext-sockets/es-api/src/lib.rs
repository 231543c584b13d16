//! The ES-API (Extended Sockets API): operations, event queues and registered memory, over whatever
//! socket calls a program finds; and the threads that may see to them.
//!
//! | module | what |
//! |---|---|
//! | [`exs`] | the ES-API: operations, event queues, registered memory |
//! | [`threads`] | two threads for calls that wait, as the report's design has them |
//! | [`progress`] | who goes on with what has to wait: the caller, or the threads |
//! | [`as_program`] | the socket calls as the program finds them, for what acts on its behalf |
#![deny(unsafe_code)]

pub mod exs;
pub mod progress;
mod sys;
pub mod threads;

pub use sys::as_program;
