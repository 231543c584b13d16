//! The only unsafe code of the ES-API and its threads: socket calls on a program's memory, what C
//! programs pass, and work that threads hand over.
#![allow(unsafe_code)]

pub mod as_program;
pub(crate) mod exs;
pub(crate) mod threads;
