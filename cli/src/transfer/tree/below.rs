//! Files and directories below the top of a tree. No symbolic link is followed.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{Mode, SFlag, fstat, fstatat};

use crate::transfer::files::{part_of, set_mode};

/// Opens what is below `top`, without following a symbolic link.
pub(super) fn beneath(top: &OwnedFd, path: &OsStr, flags: OFlag) -> nix::Result<OwnedFd> {
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    let path = if path.is_empty() { OsStr::from_bytes(b".") } else { path };
    openat2(top.as_fd(), path, OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(resolve))
}

pub(super) fn kind(dir: &OwnedFd, name: &OsStr) -> nix::Result<SFlag> {
    let there = fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
    Ok(SFlag::from_bits_truncate(there.st_mode) & SFlag::S_IFMT)
}

/// Sets the permissions of a directory, and its set-group-ID bit, which it keeps if it has it from
/// the directory that it is in. One of somebody else's stays as it is.
pub(super) fn set_dir_mode(dir: &OwnedFd, name: &OsStr, mode: u32) -> nix::Result<()> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let made = openat(dir, name, flags, Mode::empty())?;
    let now = fstat(&made)?.st_mode & 0o7777;
    let wanted = mode & 0o2777 | now & 0o2000;
    if now == wanted {
        return Ok(());
    }
    // A process that may not set the bit (RestrictSUIDSGID) sets the rest, unless that clears it.
    match set_mode(&made, wanted) {
        Err(Errno::EPERM) if now & 0o2000 == 0 => match set_mode(&made, mode & 0o777) {
            Err(Errno::EPERM) => Ok(()),
            set => set,
        },
        Err(Errno::EPERM) => Ok(()),
        set => set,
    }
}

/// Returns whether a partial file of this name has octets, and not too many.
pub(super) fn has_begun(dir: &OwnedFd, name: &OsStr, size: u64) -> bool {
    fstatat(dir, &*part_of(name), AtFlags::AT_SYMLINK_NOFOLLOW).is_ok_and(|there| {
        SFlag::from_bits_truncate(there.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG
            && u64::try_from(there.st_size).is_ok_and(|have| (1..=size).contains(&have))
    })
}
