//! A short file that arrives in a tree: it has a name of its own until it is complete.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};
use rddp_command::failure::Failure;

use super::dirs::Dir;
use crate::checksum::{Check, Checksum};
use crate::files::FileError;
use crate::partial::{Clobber, Last, PRIVATE, make_part, take_free_name, take_name};

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
    /// The file was made with the permissions that it is to have.
    has_mode: bool,
    /// Nothing else can have its name.
    is_first: bool,
}

impl Short {
    pub(super) fn new(
        dir: &Dir,
        part: &OsStr,
        name: &OsStr,
        mode: u32,
        check: Check,
        shown: &str,
    ) -> Result<Self, FileError> {
        // Where the system would take nothing from the permissions, they need not be set later.
        let mode = mode & 0o777;
        let has_mode = mode & dir.withheld == 0;
        let made_with = if has_mode { Mode::from_bits_truncate(mode) } else { PRIVATE };
        let (is_first, dir) = (dir.is_empty, dir.open.clone());
        let file = make_part(&dir, part, OFlag::O_WRONLY | OFlag::O_EXCL, made_with);
        let file = file.map_err(|error| FileError::new(shown, error))?;
        let (name, part, checksum) = (name.to_owned(), part.to_owned(), Checksum::new(check));
        Ok(Short { file, dir, part, name, end: 0, checksum, has_name: false, has_mode, is_first })
    }

    pub(super) async fn write(
        &mut self,
        offset: u64,
        octets: &[u8],
        shown: &str,
        tick: &mut impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<(), FileError> {
        self.file.write_all_at(octets, offset).map_err(|error| FileError::writing(shown, error))?;
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
        let given = if self.has_mode { Last::give_others } else { Last::give };
        given(last, &self.file, self.end).map_err(|error| FileError::writing(shown, error))?;
        let (dir, part, name) = (&self.dir, &self.part, &self.name);
        let replaced = if self.is_first {
            take_free_name(dir, part, name, clobber, shown)?;
            false
        } else {
            take_name(dir, part, name, clobber, shown)?
        };
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
