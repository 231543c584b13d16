//! The list of what was installed, with checksums: by it, files of rddp's own are told from others.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use sha2::{Digest, Sha256};

/// The list's path under the prefix: lines of `sha256sum`, with paths relative to the prefix.
pub(super) const PATH: &str = "lib/rddp-installed";

/// Files and links that were installed, each with the checksum of its contents. There may be more
/// than one for a file, if installing was interrupted.
#[derive(Debug, Default)]
pub(super) struct Manifest(Vec<(String, String)>);

impl Manifest {
    /// Reads the list of what was installed before; without one, nothing was.
    pub(super) fn read(prefix: &Path) -> io::Result<Self> {
        let text = match fs::read_to_string(prefix.join(PATH)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        let lines = text.lines().filter_map(|line| line.split_once("  "));
        Ok(Manifest(lines.map(|(sum, name)| (name.to_owned(), sum.to_owned())).collect()))
    }

    pub(super) fn add(&mut self, name: &str, sum: String) {
        let entry = (name.to_owned(), sum);
        if !self.0.contains(&entry) {
            self.0.push(entry);
        }
    }

    pub(super) fn has(&self, name: &str, sum: &str) -> bool {
        self.0.iter().any(|(known, known_sum)| known == name && known_sum == sum)
    }

    pub(super) fn text(&self) -> String {
        self.0.iter().map(|(name, sum)| format!("{sum}  {name}\n")).collect()
    }
}

/// Returns the checksum of a file's contents, or of the path that a link names, not followed;
/// nothing where there is no file.
pub(super) fn checksum(path: &Path) -> io::Result<Option<String>> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(found) if found.is_symlink() => Ok(Some(sum_of_link(fs::read_link(path)?.as_os_str().as_bytes()))),
        Ok(found) if found.is_file() => Ok(Some(sum_of_file(&fs::read(path)?))),
        Ok(_) => Err(io::Error::other("neither a file nor a link")),
    }
}

pub(super) fn sum_of_file(octets: &[u8]) -> String {
    hex(Sha256::digest(octets).as_ref())
}

/// A link and a file never have the same checksum.
pub(super) fn sum_of_link(target: &[u8]) -> String {
    hex(Sha256::new().chain_update(b"link to\0").chain_update(target).finalize().as_ref())
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_was_written_is_read() {
        let scratch = tempfile::tempdir().unwrap();
        assert!(Manifest::read(scratch.path()).unwrap().text().is_empty());
        let mut list = Manifest::default();
        list.add("bin/rddp", sum_of_file(b"old"));
        list.add("bin/rddp", sum_of_file(b"new"));
        list.add("bin/rddp", sum_of_file(b"new"));
        assert_eq!(list.text().lines().count(), 2);
        fs::create_dir(scratch.path().join("lib")).unwrap();
        fs::write(scratch.path().join(PATH), list.text()).unwrap();
        let read = Manifest::read(scratch.path()).unwrap();
        assert!(read.has("bin/rddp", &sum_of_file(b"old")) && read.has("bin/rddp", &sum_of_file(b"new")));
        assert!(!read.has("bin/rddp", &sum_of_file(b"other")) && !read.has("bin", &sum_of_file(b"new")));
    }

    #[test]
    fn a_link_is_not_the_file_that_holds_its_target() {
        assert_ne!(sum_of_link(b"librddp_verbs.so"), sum_of_file(b"librddp_verbs.so"));
        assert_eq!(sum_of_file(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
