//! The paths that are shown to programs, and where the tree has them.
//!
//! Nothing here allocates: `open` may be called in signal handlers and children of `vfork`.

use std::ffi::CStr;

/// Octets of the longest path, with the zero behind it.
pub(crate) const PATH_MAX: usize = libc::PATH_MAX as usize;

/// The folder of the kernel's devices that no hardware has: a name in `/sys/class/infiniband` is a
/// link to one two folders below. Programs that look for the hardware behind it come here.
const VIRTUAL: &[u8] = b"/sys/devices/virtual";

const CLASSES: &[u8] = b"/sys/class";

/// The folders of which some entries are shown, and how the names of those begin.
const PLACES: [(&[u8], &[u8]); 3] = [
    (CLASSES, b"infiniband"),
    (b"/dev", b"infiniband"),
    // By these, NCCL takes an adapter for one that reads the memory of GPUs: the tree has none.
    (b"/sys/kernel/mm", b"memory_peers"),
];

/// A path that is shown: a folder, and what stands behind it in the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shown<'a> {
    folder: &'static [u8],
    rest: &'a [u8],
    /// Set if the folder is the tree's, and not the host's.
    is_in_tree: bool,
}

impl<'a> Shown<'a> {
    /// Returns what a path shows; `None` if it is another's, or leads out again by `..`.
    pub(crate) fn of(path: &'a [u8]) -> Option<Self> {
        // Most paths end here.
        if path.first() != Some(&b'/') {
            return None;
        }
        PLACES.iter().find_map(|&(folder, word)| {
            let rest = behind(path, folder)?;
            let (name, inside) = first(rest)?;
            if !name.starts_with(word) {
                return None;
            }
            if folder == CLASSES
                && let Some(rest) = above_device(inside)
            {
                return Some(Shown { folder: VIRTUAL, rest, is_in_tree: false });
            }
            stays(inside).then_some(Shown { folder, rest, is_in_tree: true })
        })
    }

    /// Writes the path that is looked at in its place; `None` if that is too long.
    pub(crate) fn there<'r>(self, tree: &[u8], room: &'r mut [u8; PATH_MAX]) -> Option<&'r CStr> {
        let mut len = 0;
        let tree = if self.is_in_tree { tree } else { b"" };
        for part in [tree, self.folder, self.rest, b"\0"] {
            room.get_mut(len..len + part.len())?.copy_from_slice(part);
            len += part.len();
        }
        CStr::from_bytes_with_nul(room.get(..len)?).ok()
    }
}

/// Returns the part of a path that programs know, of one in the tree.
pub(crate) fn seen<'a>(path: &'a [u8], tree: &[u8]) -> Option<&'a [u8]> {
    path.strip_prefix(tree).filter(|rest| Shown::of(rest).is_some())
}

/// Takes the first name off a path; slashes and dots in front of it lead nowhere.
fn first(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let begin = path.iter().position(|octet| *octet != b'/')?;
    let path = &path[begin..];
    let (name, rest) = path.split_at(path.iter().position(|octet| *octet == b'/').unwrap_or(path.len()));
    if name == b"." { first(rest) } else { Some((name, rest)) }
}

/// Returns what stands behind a folder in a path that begins with it.
fn behind<'a>(mut path: &'a [u8], mut folder: &[u8]) -> Option<&'a [u8]> {
    while let Some((wanted, more)) = first(folder) {
        let (name, rest) = first(path)?;
        if name != wanted {
            return None;
        }
        (path, folder) = (rest, more);
    }
    Some(path)
}

/// Returns the rest of a path that leads to a device, and by `../..` to what is above it.
fn above_device(path: &[u8]) -> Option<&[u8]> {
    let (name, rest) = first(path)?;
    let (up, rest) = first(rest)?;
    let (again, rest) = first(rest)?;
    (name != b".." && up == b".." && again == b"..").then_some(rest)
}

/// Returns whether a path never leads above where it begins.
fn stays(mut path: &[u8]) -> bool {
    let mut depth = 0usize;
    while let Some((name, rest)) = first(path) {
        match (name, depth) {
            (b"..", 0) => return false,
            (b"..", _) => depth -= 1,
            _ => depth += 1,
        }
        path = rest;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(path: &str) -> Option<String> {
        let mut room = [0; PATH_MAX];
        let found = Shown::of(path.as_bytes())?.there(b"/run/tree", &mut room)?;
        Some(found.to_str().unwrap().to_owned())
    }

    #[test]
    fn paths_of_devices_are_in_the_tree() {
        for (path, wanted) in [
            ("/sys/class/infiniband", "/run/tree/sys/class/infiniband"),
            ("/sys/class/infiniband/", "/run/tree/sys/class/infiniband/"),
            (
                "/sys/class/infiniband_verbs/uverbs0/ibdev",
                "/run/tree/sys/class/infiniband_verbs/uverbs0/ibdev",
            ),
            ("//sys/./class//infiniband/a/../b", "/run/tree/sys/class//infiniband/a/../b"),
            ("/dev/infiniband/uverbs0", "/run/tree/dev/infiniband/uverbs0"),
            (
                "/sys/kernel/mm/memory_peers/nv_mem/version",
                "/run/tree/sys/kernel/mm/memory_peers/nv_mem/version",
            ),
        ] {
            assert_eq!(mapped(path).as_deref(), Some(wanted));
        }
    }

    #[test]
    fn other_paths_are_left_alone() {
        for path in [
            "",
            "/",
            ".",
            "/sys",
            "/sys/class",
            "/sys/class/",
            "/sys/class/net/infiniband",
            "/dev/null",
            "sys/class/infiniband",
            "/sys/classes/infiniband",
            "/sys/class/infin",
            "/dev/../infiniband",
            "/sys/class/infiniband/..",
            "/sys/class/infiniband/a/..//b/../../net",
            "/sys/class/../class/infiniband",
        ] {
            assert_eq!(mapped(path), None, "{path}");
        }
    }

    #[test]
    fn above_a_device_is_what_is_above_a_virtual_one() {
        for (path, wanted) in [
            ("/sys/class/infiniband/a/../..", "/sys/devices/virtual"),
            ("/sys/class/infiniband/a/./..//../net/lo", "/sys/devices/virtual/net/lo"),
            ("/sys/class/infiniband_verbs/uverbs0/../..", "/sys/devices/virtual"),
        ] {
            assert_eq!(mapped(path).as_deref(), Some(wanted));
        }
        assert_eq!(mapped("/dev/infiniband/a/../.."), None);
        assert_eq!(mapped("/sys/class/infiniband/../../.."), None);
    }

    #[test]
    fn a_path_fits_or_is_left_alone() {
        let place = "/run/tree/dev/infiniband/".len();
        let of_length = |len: usize| mapped(&format!("/dev/infiniband/{}", "a".repeat(len)));
        let longest = PATH_MAX - 1 - place;
        assert_eq!(of_length(longest).map(|path| path.len()), Some(PATH_MAX - 1));
        assert_eq!(of_length(longest + 1), None);
        assert_eq!(of_length(2 * PATH_MAX), None);
    }

    #[test]
    fn a_name_in_the_tree_is_told_as_programs_know_it() {
        let seen = |path: &'static str| seen(path.as_bytes(), b"/run/tree");
        assert_eq!(seen("/run/tree/sys/class/infiniband/a"), Some(&b"/sys/class/infiniband/a"[..]));
        for path in ["/run/tree", "/run/tree/sys", "/run/trees/dev/infiniband", "/dev/null"] {
            assert_eq!(seen(path), None, "{path}");
        }
    }
}
