//! The walk through a tree that is sent: its directories, and what is in them.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, readlinkat};
use nix::sys::stat::{FileStat, SFlag, fstatat};
use rustix::fs::Dir;

use super::below::{beneath, joined};
use super::departure::{Departure, Location, attributes};
use super::left_out::What;
use super::links::{depth, leads_out};
use super::pipe::Pipe;
use super::record::{Attributes, Record};
use super::refused::Sent;
use crate::files::FileError;
use crate::protocol::Time;
use crate::wishes::Links;

impl<P: Pipe> Departure<P> {
    /// Counts and names what could not be read in the walk, on one of several connections.
    pub(super) async fn cannot_walk(&mut self, name: &[u8], error: Errno) -> Result<(), FileError> {
        if self.tells() { self.cannot_read(name, error as u32).await } else { Ok(()) }
    }

    /// Sends all that is below a directory.
    pub(super) async fn walk(&mut self, name: &[u8], top: &Rc<OwnedFd>) -> Result<(), FileError> {
        // Directories that are still to be read, by their paths below the top.
        let mut ahead = vec![Vec::new()];
        while let Some(path) = ahead.pop() {
            let whole = joined(name, &path);
            if self.refused.is_below(&whole) {
                continue;
            }
            let (listed, dir) = match listed(top, &path) {
                Ok(listed) => listed,
                Err(error) => {
                    self.cannot_walk(&whole, error).await?;
                    continue;
                }
            };
            if !whole.is_empty() && !self.directory(&whole, &dir).await? {
                continue;
            }
            self.entries(listed, (top, &dir), &whole, &path, &mut ahead).await?;
        }
        Ok(())
    }

    /// Sends the name of a directory. Returns whether it can be sent.
    async fn directory(&mut self, name: &[u8], dir: &File) -> Result<bool, FileError> {
        let Some(name) = self.sendable(name).await? else { return Ok(false) };
        let there = match dir.metadata() {
            Ok(there) => there,
            Err(error) => {
                self.cannot_walk(name.octets(), errno(&error)).await?;
                return Ok(false);
            }
        };
        self.push(&Record::Dir { name, attributes: attributes(&there) }).await?;
        if !self.depth.names_only {
            self.dirs.push((name.octets().to_vec(), Sent::Directory));
            self.settle_many().await?;
        }
        Ok(true)
    }

    /// Sends the files of a directory, and adds its directories to `ahead`.
    async fn entries(
        &mut self,
        listed: Dir,
        (top, dir): (&Rc<OwnedFd>, &File),
        whole: &[u8],
        path: &[u8],
        ahead: &mut Vec<Vec<u8>>,
    ) -> Result<(), FileError> {
        for entry in listed {
            self.pipe.tick().await.map_err(FileError::Stopped)?;
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.cannot_walk(whole, Errno::from_raw(error.raw_os_error())).await?;
                    break;
                }
            };
            let last = entry.file_name().to_bytes();
            if matches!(last, b"." | b"..") {
                continue;
            }
            let name = joined(whole, last);
            // An entry is looked at before it is opened: opening a pipe or a device has an effect.
            let there = match fstatat(dir, OsStr::from_bytes(last), AtFlags::AT_SYMLINK_NOFOLLOW) {
                Ok(there) => there,
                Err(error) => {
                    self.cannot_walk(&name, error).await?;
                    continue;
                }
            };
            let kind = SFlag::from_bits_truncate(there.st_mode) & SFlag::S_IFMT;
            if self.excluded.has(&name, kind == SFlag::S_IFDIR) {
                continue;
            }
            if kind == SFlag::S_IFLNK {
                let depth = if path.is_empty() { 0 } else { depth(path) + 1 };
                let last = OsStr::from_bytes(last);
                self.link(&name, (dir.as_fd(), last), depth, attributes_of(&there)).await?;
                continue;
            }
            if !matches!(kind, SFlag::S_IFDIR | SFlag::S_IFREG) {
                self.leave_out(&name, What::of(kind)).await?;
                continue;
            }
            let Some(name) = self.sendable(&name).await? else { continue };
            if kind == SFlag::S_IFREG {
                let size = u64::try_from(there.st_size).unwrap_or(0);
                let location = Location::Below(top.clone(), joined(path, last));
                self.file(name, (attributes_of(&there), size), location).await?;
            } else if self.depth.recursive {
                ahead.push(joined(path, last));
            } else {
                self.push(&Record::Dir { name, attributes: attributes_of(&there) }).await?;
            }
        }
        Ok(())
    }
}

impl<P: Pipe> Departure<P> {
    /// Sends a symbolic link as it is, below `depth` directories of the tree: `last` in a
    /// directory, or, without a name, the link that is open.
    pub(super) async fn link(
        &mut self,
        name: &[u8],
        (dir, last): (BorrowedFd<'_>, &OsStr),
        depth: usize,
        attributes: Attributes,
    ) -> Result<(), FileError> {
        let links = if self.depth.names_only { Links::All } else { self.wishes.links };
        if links == Links::None {
            return self.leave_out(name, What::Link).await;
        }
        let Some(name) = self.sendable(name).await? else { return Ok(()) };
        let target = match readlinkat(dir, last) {
            Ok(target) => target,
            Err(error) => return self.cannot_walk(name.octets(), error).await,
        };
        let target = target.as_bytes();
        if links == Links::Inside && leads_out(depth, target) {
            return self.leave_out(name.octets(), What::LinkOut).await;
        }
        if self.is_for_others(name) {
            return Ok(());
        }
        self.push(&Record::Link { name, attributes, target }).await?;
        if self.depth.names_only {
            return Ok(());
        }
        self.counts.links += 1;
        self.dirs.push((name.octets().to_vec(), Sent::Link));
        self.settle_many().await
    }
}

/// Opens a directory below `top`, and begins to list it.
pub(super) fn listed(top: &OwnedFd, path: &[u8]) -> Result<(Dir, File), Errno> {
    let dir = beneath(top, OsStr::from_bytes(path), OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
    let listed = Dir::read_from(&dir).map_err(|error| Errno::from_raw(error.raw_os_error()))?;
    Ok((listed, File::from(dir)))
}

pub(super) fn errno(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

fn attributes_of(there: &FileStat) -> Attributes {
    let nanos = u32::try_from(there.st_mtime_nsec).unwrap_or(0);
    Attributes { mode: there.st_mode & 0o7777, modified: Time { seconds: there.st_mtime, nanos } }
}
