//! `--delete` at the receiver: what the sender has not is removed, when all files are there.
//!
//! Nothing is reached by a path with symbolic links in it: directories are opened below the
//! destination, and entries removed by their names in an open directory.

use std::ffi::OsStr;
use std::iter::Peekable;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};
use std::vec::IntoIter;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{FileStat, Mode, SFlag};
use nix::unistd::{UnlinkatFlags, unlinkat};
use rddp_command::failure::{Failure, printable_name};
use rddp_command::out::{self, complain};
use rustix::fs::Dir;
use serde::Serialize;

use super::arrival::Arrival;
use super::below::{beneath, joined, kind_of, look, set_time};
use super::counts::{Counts, Named};
use super::record::{Attributes, Name};
use super::would::{Would, tell_would};
use crate::files::{FileError, PART};
use crate::protocol::{Removed, Want, out_of_step};

/// The time after which a partial file that nobody writes is taken for left over.
const LEFT_OVER: Duration = Duration::from_secs(3600);

/// Octets of names that one answer tells, and of each name.
const MOST_TOLD: usize = 6000;
const LONGEST_TOLD: usize = 600;

/// A directory that is compared with what the sender has in it.
pub(super) struct Compared {
    /// The path below the top.
    path: Vec<u8>,
    dir: OwnedFd,
    /// The names in it that were not compared yet, sorted.
    names: Peekable<IntoIter<Vec<u8>>>,
    /// The last name that the sender has named.
    last: Vec<u8>,
}

impl Arrival {
    /// Begins to compare a directory.
    pub(super) fn compare(&mut self, name: Option<Name<'_>>) -> Result<(), FileError> {
        if !self.wishes.delete {
            return Err(FileError::Stopped(out_of_step()));
        }
        let path = Name::octets_of(name);
        self.compared = None;
        if self.is_missing || self.refused.is_below(path) {
            return Ok(());
        }
        let below = OsStr::from_bytes(path);
        let open = |arrival: &Self| beneath(&arrival.top, below, READ);
        let opened = open(self).or_else(|error| {
            if error == Errno::EACCES && !self.wishes.dry_run {
                self.widened.widen_all(&self.top, below);
            }
            open(self)
        });
        match opened.and_then(|dir| names(&dir).map(|names| (dir, names))) {
            Ok((dir, names)) => {
                let names = names.into_iter().peekable();
                self.compared = Some(Compared { path: path.to_vec(), dir, names, last: Vec::new() });
            }
            // What is not there, or no directory, has nothing that could be removed.
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => {}
            Err(error) => self.was_removed(path, true, Err(error)),
        }
        Ok(())
    }

    /// The sender has an entry of this name: those before it, which it has not named, are removed.
    pub(super) async fn keep(
        &mut self,
        name: &[u8],
        tick: &mut impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<(), FileError> {
        let Some(mut compared) = self.compared.take() else { return Ok(()) };
        if name <= &compared.last[..] {
            return Err(FileError::Stopped(out_of_step()));
        }
        while let Some(gone) = compared.names.next_if(|own| &own[..] < name) {
            self.remove(&compared, &gone, tick).await?;
        }
        compared.names.next_if(|own| own == name);
        compared.last = name.to_vec();
        self.compared = Some(compared);
        Ok(())
    }

    /// A directory is complete: what the sender has not named in it is removed, and it gets its
    /// time.
    pub(super) async fn close(
        &mut self,
        name: Option<Name<'_>>,
        attributes: Attributes,
        tick: &mut impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<(), FileError> {
        let path = Name::octets_of(name);
        if let Some(mut compared) = self.compared.take() {
            if compared.path != path {
                return Err(FileError::Stopped(out_of_step()));
            }
            while let Some(gone) = compared.names.next() {
                self.remove(&compared, &gone, tick).await?;
            }
        }
        if self.wishes.dry_run || self.refused.is_below(path) {
            return Ok(());
        }
        match name {
            None => {
                let _ = set_time(&self.top, OsStr::new("."), attributes.modified);
                Ok(())
            }
            Some(name) => {
                let (parent, last) = name.split();
                match self.found(parent, name) {
                    Ok(Some(dir)) => self.give_time(&dir, last, name, attributes),
                    // Something else is in the place of one above.
                    Ok(None) | Err(FileError::NoDirectory(_) | FileError::Outside(_)) => Ok(()),
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// Removes an entry, with all that is in it.
    async fn remove(
        &mut self,
        compared: &Compared,
        gone: &[u8],
        tick: &mut impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<(), FileError> {
        let whole = joined(&compared.path, gone);
        let Ok(there) = look(&compared.dir, OsStr::from_bytes(gone)) else { return Ok(()) };
        let is_dir = is_dir(&there);
        if self.excluded.has(&whole, is_dir) || is_in_use(&compared.dir, gone, &there) {
            return Ok(());
        }
        if !self.wishes.dry_run {
            self.widened.widen(&self.top, &compared.dir, OsStr::from_bytes(&compared.path));
        }
        let removed = if is_dir {
            self.remove_dir(compared, gone, tick).await?
        } else if self.wishes.dry_run {
            Ok(())
        } else {
            unlink(&compared.dir, gone, UnlinkatFlags::NoRemoveDir)
        };
        self.was_removed(&whole, is_dir, removed);
        Ok(())
    }

    /// Removes a directory of a compared one, and what is in it first. What is excluded stays, and
    /// the directories above it.
    async fn remove_dir(
        &mut self,
        compared: &Compared,
        gone: &[u8],
        tick: &mut impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<nix::Result<()>, FileError> {
        // Each directory is opened by its path anew, so that the depth costs no descriptors.
        let mut ahead = vec![(gone.to_vec(), false)];
        let mut outcome = Ok(());
        while let Some((path, is_empty)) = ahead.pop() {
            tick().await.map_err(FileError::Stopped)?;
            if is_empty {
                outcome = outcome.and(self.remove_empty(compared, &path));
                continue;
            }
            let whole = joined(&compared.path, &path);
            let dir = self.opened(compared, &path, &whole);
            let (dir, names) = match dir.and_then(|dir| names(&dir).map(|names| (dir, names))) {
                Ok(read) => read,
                Err(error) => {
                    outcome = outcome.and(Err(error));
                    continue;
                }
            };
            ahead.push((path.clone(), true));
            for last in names {
                let Ok(there) = look(&dir, OsStr::from_bytes(&last)) else { continue };
                if self.excluded.has(&joined(&whole, &last), is_dir(&there)) || is_in_use(&dir, &last, &there)
                {
                    outcome = outcome.and(Err(Errno::ENOTEMPTY));
                } else if is_dir(&there) {
                    ahead.push((joined(&path, &last), false));
                } else if !self.wishes.dry_run {
                    outcome = outcome.and(unlink(&dir, &last, UnlinkatFlags::NoRemoveDir));
                }
            }
        }
        Ok(outcome)
    }

    /// Opens a directory that is to be removed. Nothing is removed of another file system.
    fn opened(&mut self, compared: &Compared, path: &[u8], whole: &[u8]) -> nix::Result<OwnedFd> {
        let resolve =
            ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_XDEV;
        let open = |flags: OFlag| {
            let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(resolve);
            openat2(compared.dir.as_fd(), OsStr::from_bytes(path), how)
        };
        if !self.wishes.dry_run
            && let Ok(dir) = open(OFlag::O_PATH | OFlag::O_DIRECTORY)
        {
            self.widened.widen(&self.top, &dir, OsStr::from_bytes(whole));
        }
        open(READ)
    }

    fn remove_empty(&self, compared: &Compared, path: &[u8]) -> nix::Result<()> {
        let at = path.iter().rposition(|octet| *octet == b'/');
        let (parent, last) = at.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
        if self.wishes.dry_run {
            return Ok(());
        }
        let parent = beneath(&compared.dir, OsStr::from_bytes(parent), OFlag::O_PATH | OFlag::O_DIRECTORY)?;
        unlink(&parent, last, UnlinkatFlags::RemoveDir)
    }

    /// Notes what was removed, or could not be: for the user of this end, or for the sender.
    fn was_removed(&mut self, whole: &[u8], is_dir: bool, removed: nix::Result<()>) {
        let mut name = String::from_utf8_lossy(whole).into_owned();
        if is_dir {
            name.push('/');
        }
        let error = match removed {
            Err(Errno::ENOTEMPTY) => {
                Some("not removed, since something in it is excluded or in use".to_owned())
            }
            removed => removed.err().map(|error| format!("not removed: {}", error.desc())),
        };
        let removed = Removed { name, error };
        match self.named {
            Named::Here { .. } => tell_removed(&removed, self.wishes.dry_run, &mut self.counts),
            Named::There => self.removed.push_back(removed),
        }
    }

    /// Adds to an answer what was removed since the last one, as far as it fits.
    pub(super) fn tell_of_removed(&mut self, want: &mut Want) {
        let mut room = MOST_TOLD;
        while let Some(mut removed) = self.removed.pop_front() {
            if removed.name.len() > LONGEST_TOLD {
                removed.name = removed.name.chars().take(LONGEST_TOLD / 4).chain("...".chars()).collect();
            }
            let octets = serde_json::to_string(&removed).map_or(0, |text| text.len() + 1);
            if octets > room {
                self.removed.push_front(removed);
                break;
            }
            room -= octets;
            want.removed.push(removed);
        }
    }
}

/// Something that was not removed, as `--json` prints it.
#[derive(Serialize)]
struct Stays<'a> {
    not_removed: &'a str,
    cause: &'a str,
}

/// Counts what was removed, and tells the user of this end of it.
pub(super) fn tell_removed(removed: &Removed, is_dry: bool, counts: &mut Counts) {
    let Removed { name, error } = removed;
    match error {
        None if is_dry => {
            counts.removed += 1;
            tell_would(Would::Remove, name.as_bytes());
        }
        None => counts.removed += 1,
        Some(cause) => {
            counts.not_removed += 1;
            if out::style().json {
                out::json_complaint(&Stays { not_removed: name, cause });
            } else {
                complain!("{}: {cause}", printable_name(name));
            }
        }
    }
}

/// Returns whether an entry is a partial file that somebody may still write.
fn is_in_use(dir: &OwnedFd, name: &[u8], there: &FileStat) -> bool {
    if !name.ends_with(PART.as_bytes()) || kind_of(there) != SFlag::S_IFREG {
        return false;
    }
    let changed = Duration::from_secs(u64::try_from(there.st_ctime).unwrap_or(0));
    let age = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + changed);
    if age.is_ok_and(|age| age < LEFT_OVER) {
        return true;
    }
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    openat(dir, OsStr::from_bytes(name), flags, Mode::empty())
        .is_ok_and(|file| Flock::lock(file, FlockArg::LockExclusiveNonblock).is_err())
}

/// Removes an entry, unless somebody else has.
fn unlink(dir: &OwnedFd, name: &[u8], how: UnlinkatFlags) -> nix::Result<()> {
    match unlinkat(dir, OsStr::from_bytes(name), how) {
        Err(Errno::ENOENT) => Ok(()),
        removed => removed,
    }
}

fn is_dir(there: &FileStat) -> bool {
    kind_of(there) == SFlag::S_IFDIR
}

/// Returns the names in a directory, sorted.
fn names(dir: &OwnedFd) -> nix::Result<Vec<Vec<u8>>> {
    let wrong = |error: rustix::io::Errno| Errno::from_raw(error.raw_os_error());
    let mut names = Vec::new();
    for entry in Dir::read_from(dir).map_err(wrong)? {
        let name = entry.map_err(wrong)?.file_name().to_bytes().to_vec();
        if !matches!(&name[..], b"." | b"..") {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

const READ: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY);
