//! Entries of a tree that the receiver does not take, since something else is in their place.

use nix::sys::stat::SFlag;
use rddp_command::failure::printable_name;
use rddp_command::out::{self, complain};
use serde::Serialize;

use super::counts::Counts;
use super::record::Name;

/// The thing that is in the place of an entry and stays. Its number in a `Want` is its place in
/// [`There::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum There {
    Other,
    /// A regular file that `--no-clobber` keeps.
    Kept,
    File,
    Directory,
    Link,
    Pipe,
    Socket,
    Device,
}

impl There {
    const ALL: [There; 8] = [
        There::Other,
        There::Kept,
        There::File,
        There::Directory,
        There::Link,
        There::Pipe,
        There::Socket,
        There::Device,
    ];

    pub(super) fn of(kind: SFlag) -> Self {
        match kind {
            SFlag::S_IFREG => There::File,
            SFlag::S_IFDIR => There::Directory,
            SFlag::S_IFLNK => There::Link,
            SFlag::S_IFIFO => There::Pipe,
            SFlag::S_IFSOCK => There::Socket,
            SFlag::S_IFCHR | SFlag::S_IFBLK => There::Device,
            _ => There::Other,
        }
    }

    pub(super) fn from_number(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or(There::Other)
    }

    pub(super) fn number(self) -> u8 {
        self as u8
    }

    fn words(self) -> &'static str {
        match self {
            There::Other => "something else",
            There::Kept | There::File => "a regular file",
            There::Directory => "a directory",
            There::Link => "a symbolic link",
            There::Pipe => "a pipe",
            There::Socket => "a socket",
            There::Device => "a device",
        }
    }
}

/// The kind of an entry that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    File,
    Directory,
    Link,
}

/// Returns the sentence about an entry in whose place something else is.
fn conflict(name: &str, sent: Sent, there: There) -> String {
    let sent = match sent {
        Sent::File => "a regular file",
        Sent::Directory => "a directory",
        Sent::Link => "a symbolic link",
    };
    format!("{name}: {sent} is sent, and {} is there", there.words())
}

/// Directories that were refused: nothing below them is taken.
#[derive(Default)]
pub(super) struct Refused(Vec<Vec<u8>>);

/// A conflict, as `--json` prints it.
#[derive(Serialize)]
struct Conflict<'a> {
    conflict: &'a str,
    cause: &'a str,
}

impl Refused {
    pub(super) fn is_below(&self, name: &[u8]) -> bool {
        let is_at =
            |dir: &Vec<u8>| name.strip_prefix(&dir[..]).is_some_and(|rest| matches!(rest, [] | [b'/', ..]));
        self.0.iter().any(is_at)
    }

    /// Has nothing be taken below this directory.
    pub(super) fn add_dir(&mut self, name: Name<'_>) {
        self.0.push(name.octets().to_vec());
    }
}

impl Counts {
    /// Counts an entry that was refused, and names a conflict to the user of this end.
    pub(super) fn refused(&mut self, name: Name<'_>, sent: Sent, there: There) {
        if there == There::Kept {
            self.kept += 1;
            return;
        }
        self.conflicts += 1;
        let name = name.shown();
        let cause = conflict(&name, sent, there);
        if out::style().json {
            out::json_complaint(&Conflict { conflict: &name, cause: &cause });
        } else {
            complain!("{}", printable_name(&cause));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_the_numbers_of_their_places() {
        for (number, there) in (0..).zip(There::ALL) {
            assert_eq!((there.number(), There::from_number(number)), (number, there));
        }
        assert_eq!(There::from_number(200), There::Other);
    }

    #[test]
    fn what_is_below_a_refused_directory_is_told_by_its_name() {
        let mut refused = Refused::default();
        refused.add_dir(Name::new(b"a/b").unwrap());
        for (name, is_below) in [("a/b", true), ("a/b/c", true), ("a/bc", false), ("a", false), ("b", false)]
        {
            assert_eq!(refused.is_below(name.as_bytes()), is_below, "{name}");
        }
    }
}
