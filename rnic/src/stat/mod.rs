//! Counts of connections where other processes can read them (`rddp stat`).
//!
//! | file | what |
//! |---|---|
//! | `file` | the device's file in memory, and its slots |
//! | `tally` | the counts of one QP, in a slot |
//!
//! The layout is that of the crate `rddp-stat`. A device makes its file for its first connection,
//! and not before. Where the kernel gives none, QPs count all the same, for their program alone.

mod file;
mod tally;

pub(crate) use file::StatFile;
pub(crate) use tally::Tally;

#[cfg(test)]
mod tests;
