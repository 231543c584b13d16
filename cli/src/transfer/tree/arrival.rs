//! A tree that arrives: directories are made, and each file gets its name once it is complete.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, RenameFlags, ResolveFlag, openat, openat2, renameat, renameat2};
use nix::sys::stat::{Mode, SFlag, fchmod, fstatat, futimens, mkdirat};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, syncfs, unlinkat};

use super::record::{Attributes, Left, Name, Record, RecordError};
use crate::failure::Failure;
use crate::transfer::files::{FileError, PART};
use crate::transfer::partial::{Clobber, umask};
use crate::transfer::protocol::out_of_step;

/// Interval at which an end that waits for the disk looks again.
const LOOK: Duration = Duration::from_millis(20);

/// The directory into which a tree arrives. No symbolic link below it is followed.
pub(in crate::transfer) struct Arrival {
    top: OwnedFd,
    /// The directory of the last file, by its path.
    dir: (OsString, Rc<OwnedFd>),
    /// The name of a file that is not complete; at most one exists at a time.
    part: String,
    umask: u32,
    clobber: Clobber,
    file: Option<Arriving>,
    pub(in crate::transfer) counts: Counts,
}

/// The files that have arrived, and their octets.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::transfer) struct Counts {
    pub(in crate::transfer) files: u64,
    pub(in crate::transfer) octets: u64,
    pub(in crate::transfer) replaced: u64,
}

/// A file that is not complete; removed when it is dropped.
struct Arriving {
    file: File,
    dir: Rc<OwnedFd>,
    part: String,
    name: OsString,
    shown: String,
    attributes: Attributes,
    size: u64,
    /// The end of the octets that have arrived.
    end: u64,
    has_name: bool,
}

impl Arrival {
    pub(in crate::transfer) fn new(top: OwnedFd, clobber: Clobber) -> Result<Self, FileError> {
        let mut random = [0; 8];
        getrandom::fill(&mut random)
            .map_err(|error| FileError::Stopped(Failure::failed(format!("random numbers: {error}"))))?;
        let part = format!(".{:016x}{PART}", u64::from_be_bytes(random));
        let dir = top.try_clone().map_err(|error| FileError::new(".", error))?;
        let dir = (OsString::new(), Rc::new(dir));
        Ok(Arrival { top, dir, part, umask: umask(), clobber, file: None, counts: Counts::default() })
    }

    /// Takes the records of one chunk. Returns what the sender has left out, once all has arrived.
    pub(in crate::transfer) fn take(&mut self, chunk: &[u8]) -> Result<Option<Left>, FileError> {
        let mut rest = chunk;
        while !rest.is_empty() {
            let (record, behind) = Record::parse(rest).map_err(no_record)?;
            rest = behind;
            match (record, &mut self.file) {
                (Record::Dir { name, attributes }, None) => self.make_dir(name, attributes)?,
                (Record::File { name, attributes, size }, None) => {
                    self.file = Some(self.begin(name, attributes, size)?);
                }
                (Record::Data { offset, octets }, Some(file)) => file.write(offset, octets)?,
                (Record::Complete, _) => self.complete()?,
                (Record::Withdrawn, file @ Some(_)) => *file = None,
                (Record::End(left), None) if rest.is_empty() => return Ok(Some(left)),
                _ => return Err(FileError::Stopped(out_of_step())),
            }
        }
        Ok(None)
    }

    /// Waits until all has reached the disk. `tick` is called meanwhile.
    pub(in crate::transfer) fn finish(
        &self,
        tick: &mut dyn FnMut() -> Result<(), Failure>,
    ) -> Result<(), FileError> {
        let wrong = |error: std::io::Error| FileError::new(".", error);
        // A descriptor of `O_PATH` cannot be synced.
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let Ok(top) = openat(&self.top, ".", flags, Mode::empty()) else { return Ok(()) };
        let sync = thread::Builder::new().spawn(move || syncfs(top)).map_err(wrong)?;
        while !sync.is_finished() {
            tick().map_err(FileError::Stopped)?;
            thread::sleep(LOOK);
        }
        match sync.join() {
            Ok(synced) => synced.map_err(|error| wrong(error.into())),
            Err(_) => Err(wrong(Errno::EIO.into())),
        }
    }

    /// Makes a directory, unless it exists. Its owner may always write to it.
    fn make_dir(&mut self, name: Name<'_>, attributes: Attributes) -> Result<(), FileError> {
        let (parent, last) = name.split();
        let wrong = |error: Errno| FileError::new(&name.shown(), error);
        let parent = self.directory(parent, name)?;
        let mode = attributes.mode & 0o777 & !self.umask | 0o700;
        match mkdirat(&*parent, last, Mode::from_bits_truncate(mode)) {
            Ok(()) => Ok(()),
            Err(Errno::EEXIST) if is_dir(&parent, last) => Ok(()),
            Err(error) => Err(wrong(error)),
        }
    }

    fn begin(&mut self, name: Name<'_>, attributes: Attributes, size: u64) -> Result<Arriving, FileError> {
        let (dir, last) = name.split();
        let shown = name.shown();
        let dir = self.directory(dir, name)?;
        replaces(&dir, last, self.clobber, &shown)?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = openat(&*dir, self.part.as_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR);
        let file = File::from(file.map_err(|error| FileError::new(&shown, error))?);
        let (name, part) = (last.to_owned(), self.part.clone());
        Ok(Arriving { file, dir, part, name, shown, attributes, size, end: 0, has_name: false })
    }

    fn complete(&mut self) -> Result<(), FileError> {
        let file = self.file.take().ok_or_else(|| FileError::Stopped(out_of_step()))?;
        let size = file.size;
        let replaced = file.finish(self.umask, self.clobber)?;
        self.counts.files += 1;
        self.counts.octets += size;
        self.counts.replaced += u64::from(replaced);
        Ok(())
    }

    /// Returns the directory with this path, `name`'s.
    fn directory(&mut self, path: &OsStr, name: Name<'_>) -> Result<Rc<OwnedFd>, FileError> {
        if self.dir.0 != path {
            let opened = beneath(&self.top, path, OFlag::O_PATH | OFlag::O_DIRECTORY);
            let opened = opened.map_err(|error| match error {
                Errno::ENOENT | Errno::ENOTDIR => FileError::NoDirectory(name.shown()),
                Errno::ELOOP => FileError::Outside(name.shown()),
                error => FileError::new(&name.shown(), error),
            })?;
            self.dir = (path.to_owned(), Rc::new(opened));
        }
        Ok(self.dir.1.clone())
    }
}

impl Arriving {
    fn write(&mut self, offset: u64, octets: &[u8]) -> Result<(), FileError> {
        let fits = offset >= self.end && octets.len() as u64 <= self.size.saturating_sub(offset);
        if !fits {
            return Err(FileError::Stopped(out_of_step()));
        }
        self.file.write_all_at(octets, offset).map_err(|error| self.wrong(error))?;
        self.end = offset + octets.len() as u64;
        Ok(())
    }

    /// Gives the file its length, times, permissions and name. Returns whether it replaced another.
    fn finish(mut self, umask: u32, clobber: Clobber) -> Result<bool, FileError> {
        if self.end != self.size {
            // The rest is a hole.
            self.file.set_len(self.size).map_err(|error| self.wrong(error))?;
        }
        let Attributes { mode, seconds, nanos } = self.attributes;
        let mode = Mode::from_bits_truncate(mode & 0o777 & !umask);
        let time = TimeSpec::new(seconds, nanos.into());
        let attributes = fchmod(&self.file, mode).and_then(|()| futimens(&self.file, &time, &time));
        attributes.map_err(|error| self.wrong(error.into()))?;
        let replaced = replaces(&self.dir, &self.name, clobber, &self.shown)?;
        self.rename(clobber)?;
        self.has_name = true;
        Ok(replaced)
    }

    fn rename(&self, clobber: Clobber) -> Result<(), FileError> {
        let (dir, part, name) = (&*self.dir, self.part.as_str(), self.name.as_os_str());
        let renamed = match clobber {
            Clobber::Yes => renameat(dir, part, dir, name),
            // A file that appears at the last moment is kept as well.
            Clobber::No => match renameat2(dir, part, dir, name, RenameFlags::RENAME_NOREPLACE) {
                // A file system that cannot rename in this way in one step.
                Err(Errno::EINVAL) => renameat(dir, part, dir, name),
                renamed => renamed,
            },
        };
        renamed.map_err(|error| match error {
            Errno::EEXIST => FileError::Exists(self.shown.clone()),
            error => self.wrong(error.into()),
        })
    }

    fn wrong(&self, error: std::io::Error) -> FileError {
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOSPC | Errno::EDQUOT) => FileError::Full(self.shown.clone()),
            _ => FileError::new(&self.shown, error),
        }
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        if !self.has_name {
            // Nobody else knows this name, and nothing can be done about a failure here.
            let _ = unlinkat(&*self.dir, self.part.as_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}

fn no_record(error: RecordError) -> FileError {
    FileError::Stopped(match error {
        RecordError::Crc => Failure::mismatch("octets changed on their way: their crc32c does not match"),
        RecordError::Malformed => out_of_step(),
    })
}

/// Opens what is below `top`, without following a symbolic link.
pub(super) fn beneath(top: &OwnedFd, path: &OsStr, flags: OFlag) -> nix::Result<OwnedFd> {
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    let path = if path.is_empty() { OsStr::from_bytes(b".") } else { path };
    openat2(top.as_fd(), path, OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(resolve))
}

fn kind(dir: &OwnedFd, name: &OsStr) -> nix::Result<SFlag> {
    let there = fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
    Ok(SFlag::from_bits_truncate(there.st_mode) & SFlag::S_IFMT)
}

fn is_dir(dir: &OwnedFd, name: &OsStr) -> bool {
    kind(dir, name) == Ok(SFlag::S_IFDIR)
}

/// Returns whether a regular file exists where the file shall be. Anything else there, and a file
/// that must be kept, is an error.
fn replaces(dir: &OwnedFd, name: &OsStr, clobber: Clobber, shown: &str) -> Result<bool, FileError> {
    match kind(dir, name) {
        Err(Errno::ENOENT) => Ok(false),
        Err(error) => Err(FileError::new(shown, error)),
        Ok(SFlag::S_IFREG) if clobber == Clobber::Yes => Ok(true),
        Ok(SFlag::S_IFREG) => Err(FileError::Exists(shown.to_owned())),
        Ok(_) => Err(FileError::NotRegular(shown.to_owned())),
    }
}
