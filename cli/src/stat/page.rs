//! A process's file of counters: opened and read without trust in what it is or holds.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rddp_stat::Page;
use rustix::fs::{FileType, Mode, OFlags, fstat, fstatfs, open};

/// Octets of a file that are read: more than a device of this version has.
const MOST: u64 = 64 << 20;

/// A file, and which it is: two processes may have the same.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) page: Page,
    pub(super) inode: u64,
}

/// Reads the file at `path`, a link in `/proc/PID/fd`. `None`: it is no page of counters, or
/// another version's.
pub(super) fn read(path: &Path) -> io::Result<Option<Read>> {
    let Some((file, inode)) = open_memory(path)? else { return Ok(None) };
    let first = contents(&file)?;
    let Ok(mut page) = Page::parse(&first) else { return Ok(None) };
    page.keep_unchanged(&contents(&file)?);
    Ok(Some(Read { page, inode }))
}

/// Opens a file in memory. What only has its name, as a FIFO or a file of a user's own file system,
/// could make whoever opens it wait.
fn open_memory(path: &Path) -> io::Result<Option<(File, u64)>> {
    let named = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let stat = fstat(&named)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !is_file || fstatfs(&named)?.f_type != TMPFS {
        return Ok(None);
    }
    let again = format!("/proc/self/fd/{}", named.as_raw_fd());
    let file = open(again, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())?;
    Ok(Some((file.into(), stat.st_ino)))
}

fn contents(file: &File) -> io::Result<Vec<u8>> {
    let len = file.metadata()?.len().min(MOST);
    let mut octets = vec![0; usize::try_from(len).unwrap_or(0)];
    let mut have = 0;
    while have < octets.len() {
        match file.read_at(&mut octets[have..], have as u64)? {
            0 => break,
            count => have += count,
        }
    }
    octets.truncate(have);
    Ok(octets)
}

/// The number of `tmpfs` among file systems (`linux/magic.h`).
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

#[cfg(test)]
mod tests {
    use super::*;
    use rddp_stat::Connection;
    use std::io::Write;

    fn memory(octets: &[u8]) -> (std::fs::File, String) {
        use std::os::fd::AsRawFd;
        let fd = rustix::fs::memfd_create("rddp-stat", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = std::fs::File::from(fd);
        file.write_all(octets).unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        (file, path)
    }

    #[test]
    fn a_page_in_memory_is_read() {
        let page = Page { pid: 7, connections: vec![Connection::default()], ..Page::default() };
        let (_file, path) = memory(&page.emit());
        assert_eq!(read(Path::new(&path)).unwrap().unwrap().page, page);
    }

    #[test]
    fn what_only_has_the_name_of_a_page_is_none() {
        for octets in [&b""[..], b"rddpstat", &[0xff; 8192]] {
            let (_file, path) = memory(octets);
            assert!(read(Path::new(&path)).unwrap().is_none());
        }
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let fifo = folder.path().join("rddp-stat");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(read(&fifo).unwrap().is_none());
        assert!(read(Path::new("/proc/self/status")).unwrap().is_none(), "in no memory");
    }

    #[test]
    fn a_file_that_says_it_is_huge_is_read_as_far_as_a_page_goes() {
        let (file, path) = memory(&Page { pid: 3, ..Page::default() }.emit());
        file.set_len(1 << 40).unwrap();
        assert_eq!(read(Path::new(&path)).unwrap().unwrap().page.pid, 3);
    }
}
