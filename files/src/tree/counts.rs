//! Counts of a transfer, and the end that names what it leaves out.

/// The files that have arrived, and their octets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) files: u64,
    pub(crate) octets: u64,
    /// Octets that have moved: those of files but for holes.
    pub(crate) carried: u64,
    pub(crate) replaced: u64,
    /// Files that stay as they are because the user asked for it, and entries in whose place is
    /// something else.
    pub(crate) kept: u64,
    pub(crate) conflicts: u64,
    /// Files that the receiver had already.
    pub(crate) unchanged: u64,
    /// Symbolic links that are there.
    pub(crate) links: u64,
    /// Entries that the sender does not have: those that were removed, and those that could not be.
    pub(crate) removed: u64,
    pub(crate) not_removed: u64,
}

impl Counts {
    /// Returns the number of files that the receiver has.
    pub(crate) fn there(&self) -> u64 {
        self.files + self.unchanged
    }
}

/// The place where it is said what could not be read, and what was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// By this end, to its user, who may have asked for special files to be left out.
    Here { skip_special: bool },
    /// By the other end, which gets a record of each.
    There,
}
