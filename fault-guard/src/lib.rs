//! What a library that works on a program's memory, in a program's process, must know of the system
//! below it.
//!
//! [`fork::Origin`] tells whether an object was made in this process or is the copy that a child of
//! `fork` has.

pub mod fork;
