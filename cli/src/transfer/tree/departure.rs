//! A tree that is sent: its directories and regular files, in chunks that are full of records.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::{Whence, lseek64};
use rustix::fs::Dir;

use super::arrival::{Counts, beneath};
use super::pipe::Pipe;
use super::record::{AROUND_DATA, Attributes, LONGEST, Left, Name, Record};
use crate::transfer::files::FileError;
use crate::transfer::protocol::SLOT;
use crate::transfer::source::Version;

/// Octets of a file that are worth a record of their own at the end of a chunk.
const WORTH: usize = 4096;

/// The depth of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transfer) struct Depth {
    /// Into directories; without it, only files are sent, and of directories the names in them.
    pub(in crate::transfer) recursive: bool,
    /// Names and attributes, without the octets of files.
    pub(in crate::transfer) names_only: bool,
}

pub(in crate::transfer) struct Departure<P> {
    pipe: P,
    chunk: Vec<u8>,
    depth: Depth,
    left: Left,
    pub(in crate::transfer) counts: Counts,
}

impl<P: Pipe> Departure<P> {
    pub(in crate::transfer) fn new(pipe: P, depth: Depth) -> Self {
        let chunk = Vec::with_capacity(SLOT);
        Departure { pipe, chunk, depth, left: Left::default(), counts: Counts::default() }
    }

    /// Sends a file or directory, by this name; of a directory without one, what it holds. `shown`
    /// is its name in messages, and `open` opens it.
    pub(in crate::transfer) fn add(
        &mut self,
        name: &[u8],
        shown: &str,
        open: impl Fn(OFlag) -> nix::Result<OwnedFd>,
    ) -> Result<(), FileError> {
        let wrong = |error: std::io::Error| FileError::new(shown, error);
        let there = open(OFlag::O_PATH | OFlag::O_CLOEXEC).map_err(|error| wrong(error.into()))?;
        let there = File::from(there).metadata().map_err(wrong)?;
        if there.is_dir() {
            if !self.depth.recursive && !self.depth.names_only {
                return Err(FileError::Directory(shown.to_owned()));
            }
            let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            // The names of a listing begin where it does.
            let name = if self.depth.names_only { &[] } else { name };
            return self.walk(name, &open(flags).map_err(|error| wrong(error.into()))?);
        }
        if !there.is_file() {
            return Err(FileError::NotRegular(shown.to_owned()));
        }
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let file = File::from(open(flags).map_err(|error| wrong(error.into()))?);
        let name = Name::new(name).ok_or_else(|| FileError::Reserved(shown.to_owned()))?;
        self.file(&file, name)
    }

    /// Ends the tree. Returns what was left out, once the other end has taken all.
    pub(in crate::transfer) fn finish(mut self) -> Result<(Left, Counts), FileError> {
        let left = self.left;
        self.push(&Record::End(left))?;
        self.flush()?;
        self.pipe.drain().map_err(FileError::Stopped)?;
        Ok((left, self.counts))
    }

    fn walk(&mut self, name: &[u8], top: &OwnedFd) -> Result<(), FileError> {
        // Directories that are still to be read, by their paths below the top.
        let mut ahead = vec![Vec::new()];
        while let Some(path) = ahead.pop() {
            let opened = beneath(top, OsStr::from_bytes(&path), OFlag::O_RDONLY | OFlag::O_DIRECTORY);
            let listed = opened.ok().and_then(|dir| Some((Dir::read_from(&dir).ok()?, dir)));
            let Some((listed, dir)) = listed else {
                self.left.failed += 1;
                continue;
            };
            let dir = File::from(dir);
            let whole = joined(name, &path);
            if !whole.is_empty() && !self.directory(&whole, &dir)? {
                continue;
            }
            self.entries(listed, &dir, &whole, &path, &mut ahead)?;
        }
        Ok(())
    }

    /// Sends the name of a directory. Returns whether it can be sent.
    fn directory(&mut self, name: &[u8], dir: &File) -> Result<bool, FileError> {
        let (Some(name), Ok(there)) = (Name::new(name), dir.metadata()) else {
            self.left.skipped += 1;
            return Ok(false);
        };
        self.push(&Record::Dir { name, attributes: attributes(&there) })?;
        Ok(true)
    }

    /// Sends the files of a directory, and adds its directories to `ahead`.
    fn entries(
        &mut self,
        listed: Dir,
        dir: &File,
        whole: &[u8],
        path: &[u8],
        ahead: &mut Vec<Vec<u8>>,
    ) -> Result<(), FileError> {
        for entry in listed {
            self.pipe.tick().map_err(FileError::Stopped)?;
            let Ok(entry) = entry else {
                self.left.failed += 1;
                break;
            };
            let last = entry.file_name().to_bytes();
            if matches!(last, b"." | b"..") {
                continue;
            }
            // An entry is looked at before it is opened: opening a pipe or a device has an effect.
            let there = openat(dir, OsStr::from_bytes(last), OFlag::O_PATH | LINK_ITSELF, Mode::empty());
            let Ok(there) = there.map_err(Into::into).and_then(|there| File::from(there).metadata()) else {
                self.left.failed += 1;
                continue;
            };
            let is_entered = there.is_dir() && self.depth.recursive;
            match Name::new(&joined(whole, last)) {
                Some(_) if is_entered => ahead.push(joined(path, last)),
                Some(name) if there.is_dir() => {
                    self.push(&Record::Dir { name, attributes: attributes(&there) })?;
                }
                Some(name) if there.is_file() && self.depth.names_only => self.name(name, &there)?,
                Some(name) if there.is_file() => {
                    match openat(dir, OsStr::from_bytes(last), READ | LINK_ITSELF, Mode::empty()) {
                        Ok(file) => self.file(&File::from(file), name)?,
                        Err(_) => self.left.failed += 1,
                    }
                }
                _ => self.left.skipped += 1,
            }
        }
        Ok(())
    }

    fn name(&mut self, name: Name<'_>, there: &Metadata) -> Result<(), FileError> {
        self.push(&Record::File { name, attributes: attributes(there), size: there.size() })
    }

    fn file(&mut self, file: &File, name: Name<'_>) -> Result<(), FileError> {
        let Ok(there) = Version::settled(file) else {
            self.left.failed += 1;
            return Ok(());
        };
        self.name(name, &there)?;
        if self.depth.names_only {
            return Ok(());
        }
        let version = Version::of(&there);
        let is_whole = self.octets(file, &there)?
            && file.metadata().is_ok_and(|now| Version::of(&now) == version)
            && file.read_at(&mut [0], there.size()).is_ok_and(|more| more == 0);
        if is_whole {
            self.counts.files += 1;
            self.counts.octets += there.size();
            return self.push(&Record::Complete);
        }
        self.left.failed += 1;
        self.push(&Record::Withdrawn)
    }

    /// Sends the octets of a file but for its holes. Returns whether all could be read.
    fn octets(&mut self, file: &File, there: &Metadata) -> Result<bool, FileError> {
        let is_sparse = there.blocks().saturating_mul(512) < there.size();
        let mut at = 0;
        while at < there.size() {
            let (from, to) = if is_sparse { extent(file, at, there.size()) } else { (at, there.size()) };
            at = from;
            while at < to {
                self.make_room(AROUND_DATA + WORTH.min((to - at) as usize))?;
                let room = SLOT - self.chunk.len() - AROUND_DATA;
                let mut octets = vec![0; usize::try_from(to - at).unwrap_or(room).min(room)];
                if file.read_exact_at(&mut octets, at).is_err() {
                    return Ok(false);
                }
                self.push(&Record::Data { offset: at, octets: &octets })?;
                at += octets.len() as u64;
            }
        }
        Ok(true)
    }

    fn push(&mut self, record: &Record<'_>) -> Result<(), FileError> {
        // `octets` has made room for its records.
        if !matches!(record, Record::Data { .. }) {
            self.make_room(LONGEST)?;
        }
        record.emit(&mut self.chunk);
        Ok(())
    }

    fn make_room(&mut self, octets: usize) -> Result<(), FileError> {
        if SLOT - self.chunk.len() < octets { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), FileError> {
        self.pipe.send(&self.chunk).map_err(FileError::Stopped)?;
        self.chunk.clear();
        Ok(())
    }
}

const LINK_ITSELF: OFlag = OFlag::O_NOFOLLOW.union(OFlag::O_CLOEXEC);
const READ: OFlag = OFlag::O_RDONLY.union(OFlag::O_NONBLOCK).union(OFlag::O_NOCTTY);

fn attributes(there: &Metadata) -> Attributes {
    let nanos = u32::try_from(there.mtime_nsec()).unwrap_or(0);
    Attributes { mode: there.mode() & 0o777, seconds: there.mtime(), nanos }
}

fn joined(dir: &[u8], last: &[u8]) -> Vec<u8> {
    if dir.is_empty() || last.is_empty() { [dir, last].concat() } else { [dir, b"/", last].concat() }
}

/// Returns the next range that is no hole; empty at the end, if there is none.
fn extent(file: &File, at: u64, size: u64) -> (u64, u64) {
    let seek = |at: u64, whence| lseek64(file.as_fd(), at as i64, whence).map(|found| found as u64);
    let from = match seek(at, Whence::SeekData) {
        Ok(from) => from.clamp(at, size),
        Err(Errno::ENXIO) => return (size, size),
        // A file system that does not tell.
        Err(_) => return (at, size),
    };
    let to = seek(from, Whence::SeekHole).unwrap_or(size).min(size);
    // A file that changes meanwhile must not keep the walk in place.
    if to > from { (from, to) } else { (from, size) }
}
