//! What a library that works on a program's memory, in a program's process, must know of the system
//! below it.
//!
//! [`fork::Origin`] tells whether an object was made in this process or is the copy that a child of
//! `fork` has, and [`sockets`] closes what such a child has no use for.

pub mod fork;
pub mod sockets;
