//! Symbolic links of a tree: made as they are named, and followed by neither end.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::fcntl::{readlinkat, renameat};
use nix::unistd::symlinkat;

use super::arrival::Arrival;
use super::below::{kind, set_time};
use super::record::{Attributes, Name};
use super::refused::{Sent, There};
use crate::files::FileError;
use crate::partial::Clobber;
use crate::protocol::out_of_step;
use crate::wishes::Links;

/// Returns whether a link may lead out of a tree, in which it is below `depth` directories.
///
/// ".." behind another part may lead anywhere: that part can be a link itself.
pub(super) fn leads_out(depth: usize, target: &[u8]) -> bool {
    let (mut depth, mut is_down) = (depth, false);
    if target.starts_with(b"/") {
        return true;
    }
    for part in target.split(|octet| *octet == b'/') {
        match part {
            b"" | b"." => {}
            b".." if is_down || depth == 0 => return true,
            b".." => depth -= 1,
            _ => is_down = true,
        }
    }
    false
}

/// Returns the number of directories on a path.
pub(super) fn depth(path: &[u8]) -> usize {
    path.iter().filter(|octet| **octet == b'/').count()
}

impl Arrival {
    /// Makes a symbolic link, unless there is one that leads to the same.
    pub(super) fn make_link(
        &mut self,
        name: Name<'_>,
        attributes: Attributes,
        target: &[u8],
    ) -> Result<(), FileError> {
        let is_wanted = match self.wishes.links {
            Links::All => true,
            Links::Inside => !leads_out(depth(name.octets()), target),
            Links::None => false,
        };
        if !is_wanted {
            return Err(FileError::Stopped(out_of_step()));
        }
        let number = self.numbered()?;
        if self.refused.is_below(name.octets()) {
            return Ok(());
        }
        let (parent, last) = name.split();
        let Some(dir) = self.found(parent, name)? else {
            self.would_make(name, number, Sent::Link);
            return Ok(());
        };
        let wrong = |error: Errno| FileError::new(&name.shown(), error);
        let target = OsStr::from_bytes(target);
        match readlinkat(&dir, last) {
            Ok(there) if there == target => {}
            Ok(_) if self.clobber == Clobber::No => {
                return self.refuse_entry(name, number, Sent::Link, There::Kept);
            }
            Ok(_) | Err(Errno::ENOENT) if self.wishes.dry_run => self.would_make(name, number, Sent::Link),
            Ok(_) => {
                self.widened.widen(&self.top, &dir, parent);
                let replaced = symlinkat(target, &dir, &*self.part)
                    .and_then(|()| renameat(&dir, &*self.part, &dir, last));
                replaced.map_err(wrong)?;
            }
            Err(Errno::ENOENT) => {
                self.widened.widen(&self.top, &dir, parent);
                symlinkat(target, &dir, last).map_err(wrong)?;
            }
            Err(_) => {
                let there = There::of(kind(&dir, last).map_err(wrong)?);
                return self.refuse_entry(name, number, Sent::Link, there);
            }
        }
        self.counts.links += 1;
        if self.wishes.dry_run { Ok(()) } else { self.give_time(&dir, last, name, attributes) }
    }

    /// Gives a link or a directory its time. That of somebody else's stays.
    pub(super) fn give_time(
        &mut self,
        dir: &OwnedFd,
        last: &OsStr,
        name: Name<'_>,
        attributes: Attributes,
    ) -> Result<(), FileError> {
        let mut set = set_time(dir, last, attributes.modified);
        if set == Err(Errno::EACCES) {
            self.widened.widen(&self.top, dir, name.split().0);
            set = set_time(dir, last, attributes.modified);
        }
        match set {
            Ok(()) | Err(Errno::EPERM | Errno::ENOENT | Errno::ENOTDIR) => Ok(()),
            Err(error) => Err(FileError::new(&name.shown(), error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_lead_out_are_told_from_those_that_do_not() {
        for (depth, target, is_out) in [
            (0, "file", false),
            (0, "a/b/./c", false),
            (0, "", false),
            (0, "..", true),
            (1, "..", false),
            (1, "../", false),
            (2, ".././../x", false),
            (2, "../../../x", true),
            (3, "/etc/passwd", true),
            (0, "/", true),
            // The first part may be a link that leads upwards.
            (3, "up/..", true),
            (3, "../up/../x", true),
        ] {
            assert_eq!(leads_out(depth, target.as_bytes()), is_out, "{depth} {target}");
        }
    }
}
