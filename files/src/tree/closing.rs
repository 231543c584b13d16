//! The end of a tree that is sent: its directories are walked once more, when all files are there.
//!
//! The receiver gives each directory its time, and, with `--delete`, removes what the sender has
//! not. Neither end keeps anything meanwhile but for one directory.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{SFlag, fstatat};
use rustix::fs::{Dir, FileType};

use super::below::joined;
use super::departure::{Departure, attributes};
use super::pipe::Pipe;
use super::record::{Name, Record};
use super::removed::tell_removed;
use super::walk::{errno, listed};
use crate::files::FileError;

/// Directories that are closed before the receiver is asked what it has removed.
const ASKED: usize = 64;

/// The names of a directory, sorted, and those of them that are directories.
struct Names {
    all: Vec<Vec<u8>>,
    dirs: Vec<Vec<u8>>,
}

impl<P: Pipe> Departure<P> {
    /// Walks a tree once more, by the same name. What is no directory needs no end.
    pub(crate) async fn close(
        &mut self,
        name: &[u8],
        open: impl Fn(OFlag) -> nix::Result<OwnedFd>,
    ) -> Result<(), FileError> {
        self.settle_all().await?;
        if self.is_excluded(name, true) {
            return Ok(());
        }
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | self.follows(name);
        let Ok(top) = open(flags) else { return Ok(()) };
        let top = Rc::new(top);
        let (mut ahead, mut closed) = (vec![Vec::new()], 0);
        while let Some(path) = ahead.pop() {
            self.pipe.tick().await.map_err(FileError::Stopped)?;
            let whole = joined(name, &path);
            if self.refused.is_below(&whole) {
                continue;
            }
            match self.close_dir(&top, &whole, &path).await? {
                Ok(dirs) => ahead.extend(dirs.iter().map(|last| joined(&path, last))),
                Err(error) if self.deletes() => self.cannot_walk(&whole, error).await?,
                // It was told when it was to be sent.
                Err(_) => {}
            }
            closed += 1;
            if closed == ASKED {
                (closed, _) = (0, self.ask_removed().await?);
            }
        }
        self.ask_removed().await
    }

    /// Returns whether the receiver is to remove what is not here: never once something could not
    /// be read.
    fn deletes(&self) -> bool {
        self.wishes.delete && self.left.failed == 0
    }

    /// Closes one directory. Returns the directories in it.
    async fn close_dir(
        &mut self,
        top: &Rc<OwnedFd>,
        whole: &[u8],
        path: &[u8],
    ) -> Result<Result<Vec<Vec<u8>>, Errno>, FileError> {
        let name = Name::new(whole);
        if name.is_none() && !whole.is_empty() {
            return Ok(Ok(Vec::new()));
        }
        let (listed, dir) = match listed(top, path) {
            Ok(listed) => listed,
            Err(error) => return Ok(Err(error)),
        };
        let there = match dir.metadata() {
            Ok(there) => there,
            Err(error) => return Ok(Err(errno(&error))),
        };
        let names = match self.names(listed, &OwnedFd::from(dir), whole) {
            Ok(names) => names,
            Err(error) => return Ok(Err(error)),
        };
        if self.deletes() {
            self.push(&Record::Listed(name)).await?;
            for last in &names.all {
                self.push(&Record::Entry(last)).await?;
            }
        }
        self.push(&Record::Closed { name, attributes: attributes(&there) }).await?;
        Ok(Ok(names.dirs))
    }

    /// Reads all names of a directory, also of what is not sent: it is here.
    fn names(&self, listed: Dir, dir: &OwnedFd, whole: &[u8]) -> Result<Names, Errno> {
        let mut names = Names { all: Vec::new(), dirs: Vec::new() };
        for entry in listed {
            let entry = entry.map_err(|error| Errno::from_raw(error.raw_os_error()))?;
            let last = entry.file_name().to_bytes();
            if matches!(last, b"." | b"..") {
                continue;
            }
            names.all.push(last.to_vec());
            let is_dir = match entry.file_type() {
                FileType::Unknown => is_dir(dir, last),
                kind => kind == FileType::Directory,
            };
            if is_dir && self.depth.recursive && !self.excluded.has(&joined(whole, last), true) {
                names.dirs.push(last.to_vec());
            }
        }
        names.all.sort_unstable();
        Ok(names)
    }

    /// Asks what was removed, until nothing is left to be told.
    async fn ask_removed(&mut self) -> Result<(), FileError> {
        if !self.wishes.delete {
            return Ok(());
        }
        loop {
            self.push(&Record::Ask).await?;
            self.flush().await?;
            let want = self.pipe.wanted().await.map_err(FileError::Stopped)?;
            if want.removed.is_empty() {
                return Ok(());
            }
            want.removed.iter().for_each(|removed| {
                tell_removed(removed, self.wishes.dry_run, &mut self.counts);
            });
        }
    }
}

fn is_dir(dir: &OwnedFd, name: &[u8]) -> bool {
    fstatat(dir, OsStr::from_bytes(name), AtFlags::AT_SYMLINK_NOFOLLOW)
        .is_ok_and(|there| SFlag::from_bits_truncate(there.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR)
}
