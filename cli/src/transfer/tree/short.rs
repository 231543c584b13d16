//! A short file that arrives in a tree: it has a name of its own until it is complete.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, fchmod, futimens};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::arrival::replaces;
use crate::failure::Failure;
use crate::transfer::checksum::{Check, Checksum};
use crate::transfer::files::FileError;
use crate::transfer::partial::{Clobber, Last, rename};
use crate::transfer::protocol::Time;

/// A short file; removed when it is dropped.
pub(super) struct Short {
    file: File,
    dir: Rc<OwnedFd>,
    part: OsString,
    name: OsString,
    /// The end of the octets that have arrived.
    pub(super) end: u64,
    checksum: Checksum,
    has_name: bool,
}

impl Short {
    pub(super) fn new(
        dir: Rc<OwnedFd>,
        part: &OsStr,
        name: &OsStr,
        check: Check,
        shown: &str,
    ) -> Result<Self, FileError> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = openat(&*dir, part, flags, Mode::S_IRUSR | Mode::S_IWUSR);
        let file = File::from(file.map_err(|error| FileError::new(shown, error))?);
        let (name, part, checksum) = (name.to_owned(), part.to_owned(), Checksum::new(check));
        Ok(Short { file, dir, part, name, end: 0, checksum, has_name: false })
    }

    pub(super) async fn write(
        &mut self,
        offset: u64,
        octets: &[u8],
        shown: &str,
        tick: &mut impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<(), FileError> {
        self.file.write_all_at(octets, offset).map_err(|error| wrong(shown, error))?;
        self.checksum.add_zeros(offset - self.end, tick).await?;
        self.checksum.add(octets);
        self.end = offset + octets.len() as u64;
        Ok(())
    }

    /// Returns the checksum of all `size` octets. What is behind those that came is a hole.
    pub(super) async fn checksum(
        &mut self,
        size: u64,
        tick: &mut impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<&Checksum, FileError> {
        self.checksum.add_zeros(size - self.end, tick).await?;
        Ok(&self.checksum)
    }

    /// Gives the file its length, times, permissions and name. Returns whether it replaced another.
    pub(super) fn finish(mut self, last: Last, clobber: Clobber, shown: &str) -> Result<bool, FileError> {
        let Last { size, mode, modified } = last;
        if self.end != size {
            // The rest is a hole.
            self.file.set_len(size).map_err(|error| wrong(shown, error))?;
        }
        fchmod(&self.file, Mode::from_bits_truncate(mode & 0o777))
            .map_err(|error| wrong(shown, error.into()))?;
        if let Some(Time { seconds, nanos }) = modified {
            let time = TimeSpec::new(seconds, nanos.into());
            futimens(&self.file, &time, &time).map_err(|error| wrong(shown, error.into()))?;
        }
        let replaced = replaces(&self.dir, &self.name, clobber, shown)?;
        rename(&self.dir, &self.part, &self.name, clobber).map_err(|error| match error {
            Errno::EEXIST => FileError::Exists(shown.to_owned()),
            error => wrong(shown, error.into()),
        })?;
        self.has_name = true;
        Ok(replaced)
    }
}

impl Drop for Short {
    fn drop(&mut self) {
        if !self.has_name {
            // Nobody else knows this name, and nothing can be done about a failure here.
            let _ = unlinkat(&*self.dir, &*self.part, UnlinkatFlags::NoRemoveDir);
        }
    }
}

fn wrong(shown: &str, error: std::io::Error) -> FileError {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOSPC | Errno::EDQUOT) => FileError::Full(shown.to_owned()),
        _ => FileError::new(shown, error),
    }
}
