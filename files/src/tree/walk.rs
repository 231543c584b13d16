//! The walk through a tree that is sent: its directories, and what is in them.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use rustix::fs::Dir;

use super::below::beneath;
use super::departure::{Departure, Location, attributes};
use super::left_out::What;
use super::pipe::Pipe;
use super::record::Record;
use crate::files::FileError;

impl<P: Pipe> Departure<P> {
    /// Counts and names what could not be read in the walk, on one of several connections.
    async fn cannot_walk(&mut self, name: &[u8], error: Errno) -> Result<(), FileError> {
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
            self.dirs.push(name.octets().to_vec());
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
            // An entry is looked at before it is opened: opening a pipe or a device has an effect.
            let there = openat(dir, OsStr::from_bytes(last), OFlag::O_PATH | LINK_ITSELF, Mode::empty());
            let there = match there.map_err(Into::into).and_then(|there| File::from(there).metadata()) {
                Ok(there) => there,
                Err(error) => {
                    self.cannot_walk(&joined(whole, last), errno(&error)).await?;
                    continue;
                }
            };
            let name = joined(whole, last);
            if !there.is_dir() && !there.is_file() {
                self.leave_out(&name, What::of(there.file_type())).await?;
                continue;
            }
            let Some(name) = self.sendable(&name).await? else { continue };
            if there.is_file() {
                self.file(name, &there, Location::Below(top.clone(), joined(path, last))).await?;
            } else if self.depth.recursive {
                ahead.push(joined(path, last));
            } else {
                self.push(&Record::Dir { name, attributes: attributes(&there) }).await?;
            }
        }
        Ok(())
    }
}

/// Opens a directory below `top`, and begins to list it.
fn listed(top: &OwnedFd, path: &[u8]) -> Result<(Dir, File), Errno> {
    let dir = beneath(top, OsStr::from_bytes(path), OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
    let listed = Dir::read_from(&dir).map_err(|error| Errno::from_raw(error.raw_os_error()))?;
    Ok((listed, File::from(dir)))
}

fn errno(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

const LINK_ITSELF: OFlag = OFlag::O_NOFOLLOW.union(OFlag::O_CLOEXEC);

fn joined(dir: &[u8], last: &[u8]) -> Vec<u8> {
    if dir.is_empty() || last.is_empty() { [dir, last].concat() } else { [dir, b"/", last].concat() }
}
