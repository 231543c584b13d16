//! The dynamic section of a program or library: which libraries it needs, where it has them looked
//! for, and the names in it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::elf::{self, Segment};

/// The dynamic section of a file, and its strings (ELF-64 object file format, figure 8).
#[derive(Debug, Default)]
pub(crate) struct Dynamic {
    entries: Vec<(u64, u64)>,
    strings: Vec<u8>,
}

const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

/// Most octets of the section, and of its strings, that are read.
const SECTION: usize = 64 << 10;
const STRINGS: usize = 64 << 20;

impl Dynamic {
    /// Reads the section of a file. A file without one, or that cannot be read, tells nothing.
    pub(crate) fn read(path: &Path) -> Self {
        File::open(path).ok().and_then(|file| Self::of(&file)).unwrap_or_default()
    }

    fn of(file: &impl FileExt) -> Option<Self> {
        let segments = elf::segments(&octets(file, 0, elf::HEAD)?);
        let section = segments.iter().find(|segment| segment.kind == elf::PT_DYNAMIC)?;
        let section = octets(file, section.octets.start, section.octets.len().min(SECTION))?;
        let words = section.as_chunks::<8>().0;
        let words = words.as_chunks::<2>().0.iter();
        let entries = words.map(|[tag, value]| (u64::from_le_bytes(*tag), u64::from_le_bytes(*value)));
        let mut dynamic = Dynamic { entries: entries.collect(), strings: Vec::new() };
        let start = place(&segments, dynamic.value(DT_STRTAB)?)?;
        let len = usize::try_from(dynamic.value(DT_STRSZ)?).ok()?;
        dynamic.strings = octets(file, start, len.min(STRINGS))?;
        Some(dynamic)
    }

    /// Returns the names of the libraries that are needed.
    pub(crate) fn needs(&self) -> Vec<&str> {
        let names = self.entries.iter().filter(|(tag, _)| *tag == DT_NEEDED);
        names.filter_map(|(_, at)| self.string(*at)).collect()
    }

    /// Returns the search path that comes before `LD_LIBRARY_PATH`: an RPATH without a RUNPATH.
    pub(crate) fn rpath(&self) -> Option<&str> {
        if self.value(DT_RUNPATH).is_some() {
            return None;
        }
        self.string(self.value(DT_RPATH)?)
    }

    /// Returns whether one of the strings, such as a symbol or a version, is this one.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.strings.split(|octet| *octet == 0).any(|string| string == name.as_bytes())
    }

    fn value(&self, wanted: u64) -> Option<u64> {
        self.entries.iter().find(|(tag, _)| *tag == wanted).map(|(_, value)| *value)
    }

    fn string(&self, at: u64) -> Option<&str> {
        let rest = self.strings.get(usize::try_from(at).ok()?..)?;
        std::str::from_utf8(rest.split(|octet| *octet == 0).next()?).ok()
    }
}

/// Returns where in the file the octet is that is loaded at `address`.
fn place(segments: &[Segment], address: u64) -> Option<usize> {
    let address = usize::try_from(address).ok()?;
    let loaded = segments.iter().filter(|segment| segment.kind == elf::PT_LOAD);
    loaded
        .filter_map(|segment| Some((segment, address.checked_sub(segment.address)?)))
        .find(|(segment, offset)| *offset < segment.octets.len())
        .and_then(|(segment, offset)| segment.octets.start.checked_add(offset))
}

/// Returns up to `len` octets of the file from `start` on.
fn octets(file: &impl FileExt, start: usize, len: usize) -> Option<Vec<u8>> {
    let mut octets = vec![0; len];
    let mut filled = 0;
    while filled < len {
        let at = u64::try_from(start.checked_add(filled)?).ok()?;
        match file.read_at(&mut octets[filled..], at).ok()? {
            0 => break,
            more => filled += more,
        }
    }
    octets.truncate(filled);
    Some(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_needs_the_c_library() {
        let found = Dynamic::read(Path::new("/proc/self/exe"));
        assert!(found.needs().contains(&"libc.so.6"), "{found:?}");
        assert!(found.has("getauxval") || found.has("write"));
        assert!(!found.has("rdma_create_id"));
        assert_eq!(found.rpath(), None);
    }

    #[test]
    fn other_files_tell_nothing() {
        for path in ["/nonexistent", "/dev/null", "/proc/self/status"] {
            assert!(Dynamic::read(Path::new(path)).needs().is_empty(), "{path}");
        }
    }

    #[test]
    fn an_rpath_counts_only_without_a_runpath() {
        let strings = b"\0/one\0".to_vec();
        let with = |entries: &[(u64, u64)]| Dynamic { entries: entries.into(), strings: strings.clone() };
        assert_eq!(with(&[(DT_RPATH, 1)]).rpath(), Some("/one"));
        assert_eq!(with(&[(DT_RPATH, 1), (DT_RUNPATH, 1)]).rpath(), None);
        assert_eq!(with(&[(DT_RPATH, 99)]).rpath(), None);
    }
}
