//! The unsafe code of this crate: memory that a program lends, and calls of Linux.
#![allow(unsafe_code)]

mod memory;
mod userfault;

pub use memory::ProgramMemory;
pub(crate) use userfault::{UserFault, at_fork};
