//! The names that may come from a server: those that its client has asked for. Without this a
//! server could put files of its own beside those that were wanted.

use std::collections::HashSet;

use rddp_command::failure::{Failure, printable};

use super::exclude::Excluded;
use super::record::Record;

/// The names that may come.
#[derive(Default)]
pub(crate) enum Asked {
    /// Every name: of a client, which may put what it likes.
    #[default]
    Anything,
    Names {
        /// Names in the uppermost directory; without them, any there.
        tops: Option<HashSet<Vec<u8>>>,
        recursive: bool,
    },
}

/// Returns the name by which a path comes. The contents of a directory, whose path ends with a
/// slash or a dot, and those of the served directory itself come without one.
pub(crate) fn name_of(path: &str) -> &str {
    match path.rsplit('/').next() {
        None | Some("." | "..") => "",
        Some(name) => name,
    }
}

/// Returns the path of a directory without slashes and dots behind it.
pub(crate) fn place_of(path: &str) -> &str {
    let mut place = path.trim_end_matches('/');
    while let Some(above) = place.strip_suffix("/.") {
        place = above.trim_end_matches('/');
    }
    if place.is_empty() { "." } else { place }
}

impl Asked {
    pub(super) fn of(paths: &[String], recursive: bool) -> Self {
        let names = paths.iter().map(|path| name_of(path));
        let tops = names.map(|name| (!name.is_empty()).then(|| name.as_bytes().to_vec()));
        Asked::Names { tops: tops.collect(), recursive }
    }

    /// Fails if a record is about something that was not asked for.
    pub(super) fn check(&self, record: &Record<'_>, excluded: &Excluded) -> Result<(), Failure> {
        let (name, is_dir) = match record {
            Record::Dir { name, .. } => (name.octets(), true),
            Record::File { name, .. }
            | Record::Offer { name, .. }
            | Record::Resume { name, .. }
            | Record::Link { name, .. } => (name.octets(), false),
            Record::Listed(name) | Record::Closed { name, .. } => {
                (name.map_or(&b""[..], |name| name.octets()), true)
            }
            _ => return Ok(()),
        };
        if self.has(name, is_dir) && (name.is_empty() || !excluded.has(name, is_dir)) {
            return Ok(());
        }
        let shown = printable(&String::from_utf8_lossy(name));
        let shown = if shown.is_empty() { "." } else { &shown };
        Err(Failure::mismatch(format!("the server sends {shown}, which was not asked for"))
            .remedy("what came before it is there: see to it, and whether the server is to be trusted"))
    }

    fn has(&self, name: &[u8], is_dir: bool) -> bool {
        let Asked::Names { tops, recursive } = self else { return true };
        let mut parts = name.split(|octet| *octet == b'/');
        let is_top = tops.as_ref().is_none_or(|tops| parts.next().is_some_and(|top| tops.contains(top)));
        is_top && (*recursive || !is_dir && !name.contains(&b'/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(paths: &[&str], recursive: bool) -> Asked {
        Asked::of(&paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>(), recursive)
    }

    #[test]
    fn only_what_was_named_comes_and_what_is_below() {
        let tree = asked(&["a/b", "c"], true);
        for (name, has) in
            [("b", true), ("b/x", true), ("c", true), ("a", false), ("x", false), ("bx", false), ("", false)]
        {
            assert_eq!(tree.has(name.as_bytes(), true), has, "{name}");
        }
    }

    #[test]
    fn contents_have_any_name() {
        for path in ["a/b/", "a/", "", "/", ".", "a/."] {
            assert!(asked(&[path], true).has(b"x/y", false), "{path}");
            assert!(asked(&["c", path], true).has(b"", true), "{path}");
        }
    }

    #[test]
    fn files_alone_bring_no_directories() {
        let files = asked(&["d/f", "g"], false);
        assert!(files.has(b"f", false) && files.has(b"g", false));
        assert!(!files.has(b"f", true) && !files.has(b"f/x", false) && !files.has(b"d", false));
    }
}
