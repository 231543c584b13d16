//! The program's descriptors, as far as they are ours: which, and what is known of each.

pub mod process;
pub mod socket;
pub mod table;
