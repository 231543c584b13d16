//! The directories into which files of a tree arrive: one is open at a time.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use crate::stdin::umask;

/// Directories made by this transfer that are kept in mind. Others are looked at, file by file.
const MOST: usize = 1024;

/// Permissions of which a directory's ACL may take any from new files.
const ANY: u32 = 0o777;

/// A directory, which is open.
#[derive(Clone)]
pub(super) struct Dir {
    pub(super) path: OsString,
    pub(super) open: Rc<OwnedFd>,
    /// The directory has nothing but what this transfer has put there, which has made it.
    pub(super) is_empty: bool,
    /// Permissions that a new file does not get, whatever it is made with.
    pub(super) withheld: u32,
    /// This process can write to it, as far as it may make that so.
    pub(super) is_writable: bool,
}

/// Directories as far as this transfer knows them.
pub(super) struct Dirs {
    umask: u32,
    made: HashSet<Vec<u8>>,
}

impl Dirs {
    pub(super) fn new() -> Self {
        Dirs { umask: umask(), made: HashSet::new() }
    }

    /// Notes that this transfer has made a directory.
    pub(super) fn has_made(&mut self, path: &[u8]) {
        if self.made.len() == MOST {
            self.made.clear();
        }
        self.made.insert(path.to_vec());
    }

    pub(super) fn opened(&self, path: &OsStr, open: OwnedFd) -> Dir {
        let is_empty = self.made.contains(path.as_bytes());
        let withheld = if has_default_acl(&open) { ANY } else { self.umask };
        Dir { path: path.to_owned(), open: Rc::new(open), is_empty, withheld, is_writable: false }
    }
}

/// Returns whether a directory says itself what new files in it get.
fn has_default_acl(dir: &OwnedFd) -> bool {
    let path = format!("/proc/self/fd/{}", dir.as_raw_fd());
    match rustix::fs::getxattr(&path, "system.posix_acl_default", &mut [0u8; 0][..]) {
        Ok(_) => true,
        Err(error) => !matches!(error, rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP),
    }
}
