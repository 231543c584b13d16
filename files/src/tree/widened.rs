//! Directories of a tree that arrive without the right to write to them, or to search them: the
//! receiver gives it to itself while it needs it, and takes it back at the end.
//!
//! Several connections of one process may write to the same directory. The last one that ends
//! gives it its permissions: those that it had, or that were assigned to it meanwhile.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::fstat;
use nix::unistd::{AccessFlags, faccessat};

use super::below::beneath;
use crate::files::set_mode;

/// Directories that a connection keeps in mind; then the first ones get back what they had.
const MOST: usize = 1024;

const OWNERS: u32 = 0o700;
const SET_GROUP_ID: u32 = 0o2000;

/// A directory's device and inode.
type Id = (u64, u64);

/// A directory that has got rights for the time being.
struct Shared {
    /// The permissions that it is to have.
    mode: u32,
    connections: usize,
}

/// The directories of all connections of this process. It is locked while permissions change, so
/// that none closes a directory between another's look at it and its first use.
static SHARED: Mutex<BTreeMap<Id, Shared>> = Mutex::new(BTreeMap::new());

/// Directories that need to be open to this connection, by their paths.
#[derive(Default)]
pub(super) struct Widened(Vec<(OsString, Id)>);

impl Widened {
    /// Lets this process write to a directory, unless it may. The uppermost stays as it is.
    pub(super) fn widen(&mut self, top: &OwnedFd, dir: &OwnedFd, path: &OsStr) {
        self.hold(top, dir, path, true);
    }

    /// Has a directory stay open if it was opened for another connection.
    pub(super) fn join(&mut self, top: &OwnedFd, dir: &OwnedFd, path: &OsStr) {
        self.hold(top, dir, path, false);
    }

    fn hold(&mut self, top: &OwnedFd, dir: &OwnedFd, path: &OsStr, may_widen: bool) {
        if path.is_empty() {
            return;
        }
        let mut all = shared();
        let needed = AccessFlags::W_OK | AccessFlags::X_OK;
        let is_closed = may_widen && faccessat(dir, ".", needed, AtFlags::AT_EACCESS) == Err(Errno::EACCES);
        if !is_closed && all.is_empty() {
            return;
        }
        let Ok((id, mode)) = look_at(dir) else { return };
        if self.0.iter().any(|(_, held)| *held == id) {
            return;
        }
        if let Some(shared) = all.get_mut(&id) {
            shared.connections += 1;
        } else if is_closed && mode & OWNERS != OWNERS && set_mode(dir, mode | OWNERS).is_ok() {
            all.insert(id, Shared { mode, connections: 1 });
        } else {
            // What cannot be had is told by the call that needs it.
            return;
        }
        drop(all);
        self.0.push((path.to_owned(), id));
        if self.0.len() > MOST {
            let (path, id) = self.0.remove(0);
            give_back(beneath(top, &path, OFlag::O_PATH | OFlag::O_DIRECTORY), id);
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
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
        while let Some((path, id)) = self.0.pop() {
            let mut dir = beneath(top, &path, flags);
            if matches!(dir, Err(Errno::EACCES)) {
                // Another connection of the same tree has ended, and closed one on the way.
                let way = path.as_bytes().iter().rposition(|octet| *octet == b'/');
                self.widen_all(top, OsStr::from_bytes(&path.as_bytes()[..way.unwrap_or(0)]));
                dir = beneath(top, &path, flags);
            }
            give_back(dir, id);
        }
    }
}

/// Sets the permissions of a directory, and its set-group-ID bit, which it keeps if it has it from
/// the directory that it is in. One of somebody else's stays as it is; one that connections write
/// to gets them when those have ended.
pub(super) fn set_dir_mode(dir: &OwnedFd, mode: u32) -> nix::Result<()> {
    let mut all = shared();
    let (id, now) = look_at(dir)?;
    match all.get_mut(&id) {
        Some(shared) => shared.mode = mode & 0o2777 | shared.mode & SET_GROUP_ID,
        None => assign(dir, now, mode)?,
    }
    Ok(())
}

/// Returns whether [`set_dir_mode`] would change the permissions.
pub(super) fn would_set_dir_mode(dir: &OwnedFd, mode: u32) -> nix::Result<bool> {
    let (_, now) = look_at(dir)?;
    Ok(now != wanted(now, mode))
}

/// Returns the permissions that a directory gets.
fn wanted(now: u32, mode: u32) -> u32 {
    mode & 0o2777 | now & SET_GROUP_ID
}

fn assign(dir: &OwnedFd, now: u32, mode: u32) -> nix::Result<()> {
    let wanted = wanted(now, mode);
    if now == wanted {
        return Ok(());
    }
    // A process that may not set the bit (RestrictSUIDSGID) sets the rest, unless that clears it.
    match set_mode(dir, wanted) {
        Err(Errno::EPERM) if now & SET_GROUP_ID == 0 => match set_mode(dir, mode & 0o777) {
            Err(Errno::EPERM) => Ok(()),
            set => set,
        },
        Err(Errno::EPERM) => Ok(()),
        set => set,
    }
}

/// Ends a connection's need of a directory, which gets its permissions if it was the last one.
fn give_back(dir: nix::Result<OwnedFd>, id: Id) {
    let mut all = shared();
    let Some(shared) = all.get_mut(&id) else { return };
    shared.connections -= 1;
    if shared.connections > 0 {
        return;
    }
    let mode = shared.mode;
    all.remove(&id);
    // A directory that has gone, or was replaced, needs nothing.
    if let Ok(dir) = dir
        && let Ok((there, now)) = look_at(&dir)
        && there == id
    {
        let _ = assign(&dir, now, mode);
    }
}

fn look_at(dir: &OwnedFd) -> nix::Result<(Id, u32)> {
    let there = fstat(dir)?;
    Ok(((there.st_dev, there.st_ino), there.st_mode & 0o7777))
}

fn shared() -> MutexGuard<'static, BTreeMap<Id, Shared>> {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}
