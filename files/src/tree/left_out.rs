//! Entries of a tree that are not sent: named to the user of this end, and counted by kind.

use std::collections::BTreeMap;

use nix::sys::stat::SFlag;
use rddp_command::failure::{Failure, FailureKind, printable_name};
use rddp_command::out::{self, complain};
use serde::Serialize;

/// Entries that are named without `-v`.
const NAMED: u64 = 20;

/// The remedy for special files.
const SKIP: &str = "--skip-special leaves special files out without complaint; -v names all of them";

/// The kind of an entry that is not sent. Its number in a record is its place in [`What::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum What {
    /// A kind that this end does not know, or that the server has not told.
    Other,
    /// A symbolic link, where the user has asked for none.
    Link,
    Pipe,
    Socket,
    Device,
    /// A file that has not arrived completely.
    Incomplete,
    /// A file or directory whose path has more octets than can be sent.
    LongPath,
    /// A symbolic link that may lead out of the tree.
    LinkOut,
}

impl What {
    const ALL: [What; 8] = [
        What::Other,
        What::Link,
        What::Pipe,
        What::Socket,
        What::Device,
        What::Incomplete,
        What::LongPath,
        What::LinkOut,
    ];

    /// Returns the kind of what is neither a regular file nor a directory.
    pub(super) fn of(kind: SFlag) -> Self {
        match kind {
            SFlag::S_IFLNK => What::Link,
            SFlag::S_IFIFO => What::Pipe,
            SFlag::S_IFSOCK => What::Socket,
            SFlag::S_IFBLK | SFlag::S_IFCHR => What::Device,
            _ => What::Other,
        }
    }

    pub(super) fn from_number(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or(What::Other)
    }

    pub(super) fn number(self) -> u8 {
        self as u8
    }

    /// Returns whether `--skip-special` asks for leaving it out.
    fn is_special(self) -> bool {
        !matches!(self, What::Other | What::LongPath)
    }

    /// Returns what to do about entries of this kind, and of no other.
    fn remedy(self) -> Option<&'static str> {
        match self {
            What::Other => Some("run a newer rddp serve there, which names them"),
            What::Incomplete => Some(
                "repeat the transfers of which NAME.rddp.part is left; remove .NUMBER.rddp.part, \
                 which one that was killed has left, once none is running",
            ),
            What::LongPath => Some("send the directories that are so deep as trees of their own"),
            What::LinkOut => Some("--links all makes links as they are"),
            What::Link | What::Pipe | What::Socket | What::Device => None,
        }
    }

    /// Returns the kind in words, for one entry and for several.
    fn words(self) -> [&'static str; 2] {
        match self {
            What::Other => ["entry of a kind that is not told", "entries of kinds that are not told"],
            What::Link => ["symbolic link", "symbolic links"],
            What::Pipe => ["pipe", "pipes"],
            What::Socket => ["socket", "sockets"],
            What::Device => ["device", "devices"],
            What::Incomplete => ["file that is not complete", "files that are not complete"],
            What::LongPath => ["path that is too long", "paths that are too long"],
            What::LinkOut => ["symbolic link that leads out", "symbolic links that lead out"],
        }
    }
}

/// The entries that were left out so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftOut {
    counts: BTreeMap<What, u64>,
    /// The user has asked for special files to be left out: they are counted only.
    skip_special: bool,
}

/// An entry, as `--json` prints it.
#[derive(Serialize)]
struct Entry<'a> {
    left_out: &'a str,
    kind: What,
}

impl LeftOut {
    pub(super) fn new(skip_special: bool) -> Self {
        LeftOut { counts: BTreeMap::new(), skip_special }
    }

    /// Counts an entry, and names it unless many were named.
    pub(super) fn note(&mut self, name: &[u8], what: What) {
        *self.counts.entry(what).or_default() += 1;
        if !self.is_asked_for(what) && (self.unasked() <= NAMED || out::style().verbose) {
            let (name, [one, _]) = (String::from_utf8_lossy(name), what.words());
            if out::style().json {
                out::json_complaint(&Entry { left_out: &name, kind: what });
            } else {
                complain!("{}: left out: {one}", printable_name(&name));
            }
        }
    }

    /// Counts entries that an older server has left out and not named.
    pub(super) fn add_unnamed(&mut self, all: u64) {
        let unnamed = all.saturating_sub(self.counts.values().sum());
        if unnamed > 0 {
            *self.counts.entry(What::Other).or_default() += unnamed;
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.skip_special |= other.skip_special;
        for (what, count) in &other.counts {
            *self.counts.entry(*what).or_default() += count;
        }
    }

    /// Returns how many were left out of each kind.
    pub(super) fn counts(&self) -> BTreeMap<What, u64> {
        self.counts.clone()
    }

    fn is_asked_for(&self, what: What) -> bool {
        what == What::Link || self.skip_special && what.is_special()
    }

    /// Returns how many were left out that the user did not ask for.
    fn unasked(&self) -> u64 {
        self.counts.iter().filter(|(what, _)| !self.is_asked_for(**what)).map(|(_, count)| count).sum()
    }

    /// Returns how many were left out, by kind, in words; `None` for nothing.
    pub(super) fn words(&self) -> Option<String> {
        let words = |(what, count): (&What, &u64)| {
            let [one, several] = what.words();
            format!("{count} {}", if *count == 1 { one } else { several })
        };
        let all: Vec<_> = self.counts.iter().map(words).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// Fails if something was left out that the user did not ask for.
    pub(super) fn all_sent(&self) -> Result<(), Failure> {
        let Some(words) = self.words().filter(|_| self.unasked() > 0) else { return Ok(()) };
        let unasked = || self.counts.keys().filter(|what| !self.is_asked_for(**what));
        let skip = unasked().any(|what| what.is_special()).then_some(SKIP);
        let remedies: Vec<_> = unasked().filter_map(|what| what.remedy()).chain(skip).collect();
        Err(Failure::new(FailureKind::LeftOut, format!("left out: {words}")).remedy(remedies.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_the_numbers_of_their_places() {
        for (number, what) in (0..).zip(What::ALL) {
            assert_eq!((what.number(), What::from_number(number)), (number, what));
        }
        assert_eq!(What::from_number(200), What::Other);
    }

    #[test]
    fn special_files_fail_unless_they_are_to_be_left_out() {
        for (what, skip_special, is_failure) in [
            (What::Link, false, false),
            (What::LinkOut, false, true),
            (What::LinkOut, true, false),
            (What::Pipe, false, true),
            (What::Pipe, true, false),
            (What::LongPath, true, true),
            (What::Other, true, true),
        ] {
            let mut left_out = LeftOut::new(skip_special);
            assert!(left_out.all_sent().is_ok());
            left_out.note(b"name", what);
            assert_eq!(left_out.all_sent().is_err(), is_failure, "{what:?} {skip_special}");
        }
    }

    #[test]
    fn each_reason_that_was_not_asked_for_has_its_remedy() {
        let how = |skip_special| {
            let mut left_out = LeftOut::new(skip_special);
            [What::Socket, What::Pipe, What::Incomplete, What::LongPath, What::LinkOut]
                .iter()
                .for_each(|what| left_out.note(b"name", *what));
            left_out.all_sent().unwrap_err().how().unwrap().to_owned()
        };
        let [all, long] = [how(false), how(true)];
        for remedy in ["repeat the tr", "remove .N", "so deep", "--links all", "--skip-special", "-v names"] {
            assert_eq!(all.matches(remedy).count(), 1, "{remedy}: {all}");
        }
        assert_eq!(Some(&*long), What::LongPath.remedy());
    }

    #[test]
    fn entries_that_were_not_named_are_counted_too() {
        let mut left_out = LeftOut::new(false);
        left_out.note(b"name", What::Link);
        left_out.add_unnamed(3);
        let words = "2 entries of kinds that are not told, 1 symbolic link";
        assert_eq!(left_out.words().unwrap(), words);
    }
}
