//! Directories of a tree that arrive without the right to write to them, or to search them: the
//! receiver gives it to itself while it needs it, and takes it back at the end.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::fstat;
use nix::unistd::{AccessFlags, faccessat};

use super::below::beneath;
use crate::transfer::files::set_mode;

/// Directories that are kept in mind; then the first ones get back what they had.
const MOST: usize = 1024;

const OWNERS: u32 = 0o700;

/// Directories that have got rights for the time being, by their paths, and the permissions that
/// they are to have.
#[derive(Default)]
pub(super) struct Widened(Vec<(OsString, u32)>);

impl Widened {
    /// Lets this process write to a directory, unless it may. The uppermost stays as it is.
    pub(super) fn widen(&mut self, top: &OwnedFd, dir: &OwnedFd, path: &OsStr) {
        let needed = AccessFlags::W_OK | AccessFlags::X_OK;
        if path.is_empty() || faccessat(dir, ".", needed, AtFlags::AT_EACCESS) != Err(Errno::EACCES) {
            return;
        }
        let Ok(mode) = fstat(dir).map(|there| there.st_mode & 0o7777) else { return };
        // What cannot be had is told by the call that needs it.
        if mode & OWNERS != OWNERS && set_mode(dir, mode | OWNERS).is_ok() {
            self.0.push((path.to_owned(), mode));
        }
        if self.0.len() > MOST {
            let (path, mode) = self.0.remove(0);
            // A directory that has gone, or was replaced, needs nothing.
            let _ = give_back(top, &path, mode);
        }
    }

    /// Lets this process search all directories on the way to this one, and write to them.
    pub(super) fn widen_all(&mut self, top: &OwnedFd, path: &OsStr) {
        let octets = path.as_bytes();
        let ends = (0..=octets.len()).filter(|at| octets.get(*at).is_none_or(|octet| *octet == b'/'));
        for end in ends {
            let path = OsStr::from_bytes(&octets[..end]);
            if let Ok(dir) = beneath(top, path, OFlag::O_PATH | OFlag::O_DIRECTORY) {
                self.widen(top, &dir, path);
            }
        }
    }

    /// Takes all rights back, of what is below others first.
    pub(super) fn restore(&mut self, top: &OwnedFd) {
        while let Some((path, mode)) = self.0.pop() {
            if give_back(top, &path, mode) == Err(Errno::EACCES) {
                // Another connection of the same tree has ended, and closed one on the way.
                self.widen_all(top, &path);
                let _ = give_back(top, &path, mode);
            }
        }
    }
}

/// Gives a directory its permissions.
fn give_back(top: &OwnedFd, path: &OsStr, mode: u32) -> nix::Result<()> {
    beneath(top, path, OFlag::O_PATH | OFlag::O_DIRECTORY).and_then(|dir| set_mode(&dir, mode))
}
