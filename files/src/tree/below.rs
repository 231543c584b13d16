//! Files and directories below the top of a tree. No symbolic link is followed.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{FileStat, SFlag, UtimensatFlags, fstatat, utimensat};
use nix::sys::time::TimeSpec;

use crate::files::part_of;
use crate::protocol::Time;

/// Opens what is below `top`, without following a symbolic link.
pub(super) fn beneath(top: &OwnedFd, path: &OsStr, flags: OFlag) -> nix::Result<OwnedFd> {
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    let path = if path.is_empty() { OsStr::from_bytes(b".") } else { path };
    openat2(top.as_fd(), path, OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(resolve))
}

/// Looks at what has this name, a link itself.
pub(super) fn look(dir: &OwnedFd, name: &OsStr) -> nix::Result<FileStat> {
    fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW)
}

pub(super) fn kind_of(there: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(there.st_mode) & SFlag::S_IFMT
}

pub(super) fn kind(dir: &OwnedFd, name: &OsStr) -> nix::Result<SFlag> {
    look(dir, name).map(|there| kind_of(&there))
}

/// Sets the time of the last change of what has this name, and of no other.
pub(super) fn set_time(dir: &OwnedFd, name: &OsStr, time: Time) -> nix::Result<()> {
    let time = TimeSpec::new(time.seconds, time.nanos.into());
    utimensat(dir, name, &time, &time, UtimensatFlags::NoFollowSymlink)
}

/// Returns whether a partial file of this name has octets, and not too many.
pub(super) fn has_begun(dir: &OwnedFd, name: &OsStr, size: u64) -> bool {
    fstatat(dir, &*part_of(name), AtFlags::AT_SYMLINK_NOFOLLOW).is_ok_and(|there| {
        SFlag::from_bits_truncate(there.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG
            && u64::try_from(there.st_size).is_ok_and(|have| (1..=size).contains(&have))
    })
}

/// Returns the path of an entry of a directory.
pub(super) fn joined(dir: &[u8], last: &[u8]) -> Vec<u8> {
    if dir.is_empty() || last.is_empty() { [dir, last].concat() } else { [dir, b"/", last].concat() }
}
