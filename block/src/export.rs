//! Exports: the disks that a server has.

use std::fmt;
use std::ops::Range;

/// A disk that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The name by which clients ask for it.
    pub name: String,
    /// Octets that it has.
    pub size: u64,
    /// Clients may write.
    pub writable: bool,
}

/// A request of a client for a disk, found to be within its export and allowed there.
///
/// Durability: once [`Flush`](Self::Flush) is answered, everything that was answered before it, on
/// any connection, outlives a crash; a request with `fua` is that by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Reads octets.
    Read {
        /// The first of them.
        offset: u64,
        /// The number of octets.
        len: u32,
    },
    /// Writes octets.
    Write {
        /// The first of them.
        offset: u64,
        /// The number of octets.
        len: u32,
        /// The octets are to be on the disk before the answer.
        fua: bool,
    },
    /// Has octets read as zeroes.
    Zero {
        /// The first of them.
        offset: u64,
        /// The number of octets.
        len: u32,
        /// The octets are to be on the disk before the answer.
        fua: bool,
        /// The disk may give up their room.
        may_trim: bool,
    },
    /// Tells that octets are not needed any more.
    Trim {
        /// The first of them.
        offset: u64,
        /// The number of octets.
        len: u32,
        /// The change is to be on the disk before the answer.
        fua: bool,
    },
    /// Has everything that was answered before on the disk.
    Flush,
    /// Asks where the data are.
    Status {
        /// The first octet.
        offset: u64,
        /// The number of octets that are asked about.
        len: u32,
        /// The answer has one extent.
        one: bool,
    },
}

impl Command {
    /// Returns how many octets are read or written by it.
    #[must_use]
    pub fn payload(&self) -> u32 {
        match *self {
            Command::Read { len, .. } | Command::Write { len, .. } => len,
            _ => 0,
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, offset, len) = match *self {
            Command::Flush => return f.write_str("flushing"),
            Command::Read { offset, len } => ("reading", offset, len),
            Command::Write { offset, len, .. } => ("writing", offset, len),
            Command::Zero { offset, len, .. } => ("zeroing", offset, len),
            Command::Trim { offset, len, .. } => ("trimming", offset, len),
            Command::Status { offset, len, .. } => ("asking for holes in", offset, len),
        };
        write!(f, "{what} {len} octets at {offset}")
    }
}

/// The reason why a disk did not do what was asked. Each protocol has a number of its own for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskError {
    /// The disk may not be written.
    #[error("not permitted (EPERM)")]
    Perm,
    /// The disk has failed.
    #[error("the disk has failed (EIO)")]
    Io,
    /// There is no memory.
    #[error("no memory (ENOMEM)")]
    NoMem,
    /// The request makes no sense.
    #[error("no such request (EINVAL)")]
    Inval,
    /// The disk is full, or a write goes beyond its end.
    #[error("no room on the disk (ENOSPC)")]
    NoSpc,
    /// The request is too long.
    #[error("the request is too long (EOVERFLOW)")]
    Overflow,
    /// The disk cannot do that.
    #[error("not supported (ENOTSUP)")]
    NotSup,
    /// The server is about to end.
    #[error("the server is about to end (ESHUTDOWN)")]
    Shutdown,
}

/// A part of a disk that is alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Octets of it.
    pub len: u64,
    /// The part is a hole, which reads as zeroes.
    pub hole: bool,
}

impl Export {
    /// Returns whether all of a request's octets are on the disk. A sum that wraps is not.
    #[must_use]
    pub fn has(&self, offset: u64, len: u32) -> bool {
        offset.checked_add(len.into()).is_some_and(|end| end <= self.size)
    }
}

/// Returns the extents of `asked`, given those places of data in it, in order.
pub fn extents(asked: Range<u64>, data: impl IntoIterator<Item = Range<u64>>) -> Vec<Extent> {
    let mut extents = Vec::new();
    let mut at = asked.start;
    for piece in data {
        let (from, to) = (piece.start.clamp(at, asked.end), piece.end.clamp(at, asked.end));
        for (end, hole) in [(from, true), (to, false)] {
            if end > at {
                extents.push(Extent { len: end - at, hole });
                at = end;
            }
        }
    }
    if asked.end > at {
        extents.push(Extent { len: asked.end - at, hole: true });
    }
    extents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_beyond_the_end_is_not_on_the_disk_even_if_the_sum_wraps() {
        let disk = Export { name: String::new(), size: 1000, writable: false };
        for (offset, len, has) in
            [(0, 1000, true), (1000, 0, true), (0, 1001, false), (1001, 0, false), (u64::MAX, 2, false)]
        {
            assert_eq!(disk.has(offset, len), has, "{offset} {len}");
        }
    }

    #[test]
    fn extents_cover_what_was_asked() {
        let shown = |asked, data: &[Range<u64>]| -> Vec<(u64, bool)> {
            extents(asked, data.iter().cloned()).iter().map(|extent| (extent.len, extent.hole)).collect()
        };
        assert_eq!(shown(0..100, &[]), [(100, true)]);
        assert_eq!(shown(0..100, &[0..60, 60..100]), [(60, false), (40, false)]);
        assert_eq!(
            shown(10..100, &[0..20, 30..40, 90..200]),
            [(10, false), (10, true), (10, false), (50, true), (10, false)]
        );
        assert_eq!(shown(10..100, std::slice::from_ref(&(10..40))), [(30, false), (60, true)]);
        assert_eq!(shown(5..5, &[]), []);
    }

    #[test]
    fn commands_say_what_they_are_and_what_they_move() {
        let (offset, len, fua) = (7, 4096, false);
        for (command, said, payload) in [
            (Command::Flush, "flushing", 0),
            (Command::Read { offset, len }, "reading 4096 octets at 7", 4096),
            (Command::Write { offset, len, fua }, "writing 4096 octets at 7", 4096),
            (Command::Trim { offset, len, fua }, "trimming 4096 octets at 7", 0),
            (Command::Status { offset, len, one: true }, "asking for holes in 4096 octets at 7", 0),
        ] {
            assert_eq!((command.to_string(), command.payload()), (said.into(), payload));
        }
    }
}
