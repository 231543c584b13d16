//! A file that is arriving. It has a temporary name until it is complete and its checksum is right.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, Flock, FlockArg, OFlag, RenameFlags, openat, renameat, renameat2};
use nix::sys::stat::{Mode, SFlag, fchmod, fstatat};
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::checksum::Checksum;
use super::files::{FileError, PART, Spot, not_reserved, regular};
use crate::failure::Failure;
use crate::units::about;

/// The permissions of the file: nobody else reads it until it has its name.
const PRIVATE: Mode = Mode::S_IRUSR.union(Mode::S_IWUSR);

/// Time within which another transfer of the same file must release it: most likely its client has
/// just died.
const LOCK_PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 3000 });

/// Octets that are written before they must reach the disk, so that the wait at the end is short.
const SYNC_EVERY: u64 = 128 << 20;

pub(super) struct Partial {
    spot: Spot,
    part: String,
    file: Flock<File>,
    /// The checksum over all octets so far.
    checksum: Checksum,
    len: u64,
    synced: u64,
    /// The file has its name, or is removed.
    over: bool,
    clobber: Clobber,
}

/// The permission to replace an existing file, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clobber {
    Yes,
    No,
}

impl Clobber {
    pub(super) fn unless(kept: bool) -> Self {
        if kept { Clobber::No } else { Clobber::Yes }
    }
}

impl Partial {
    /// Opens the partial file, or makes it.
    pub(super) fn open(spot: Spot, clobber: Clobber) -> Result<Self, FileError> {
        not_reserved(&spot.name)?;
        let part = format!("{}{PART}", spot.name);
        replaces(&spot, clobber)?;
        let file = lock(&spot, &part)?;
        Ok(Partial { spot, part, file, checksum: Checksum::new(), len: 0, synced: 0, over: false, clobber })
    }

    /// Returns whether a file with the final name exists.
    pub(super) fn replaces(&self) -> Result<bool, FileError> {
        replaces(&self.spot, self.clobber)
    }

    pub(super) fn name(&self) -> &str {
        &self.spot.name
    }

    /// Reads the octets that exist, and returns their number and checksum. `tick` is called now and
    /// then.
    pub(super) fn examine(
        &mut self,
        tick: &mut dyn FnMut() -> Result<(), Failure>,
    ) -> Result<(u64, String), FileError> {
        self.file.seek(SeekFrom::Start(0)).map_err(|error| self.wrong(error))?;
        self.checksum = Checksum::new();
        self.len = self.checksum.add_all(&self.file, u64::MAX, &self.spot.name, tick)?;
        Ok((self.len, self.checksum.so_far()))
    }

    /// Discards the octets that exist.
    pub(super) fn restart(&mut self) -> Result<(), FileError> {
        self.file.set_len(0).map_err(|error| self.wrong(error))?;
        self.file.seek(SeekFrom::Start(0)).map_err(|error| self.wrong(error))?;
        (self.checksum, self.len, self.synced) = (Checksum::new(), 0, 0);
        Ok(())
    }

    /// Checks that there is space for `more` octets.
    pub(super) fn has_room(&self, more: u64) -> Result<(), FileError> {
        let free = fstatvfs(&*self.file).map(|fs| fs.blocks_available().saturating_mul(fs.fragment_size()));
        match free {
            Ok(free) if free < more => Err(self.no_space(free, more)),
            // A file system that does not tell its free space may have enough.
            _ => Ok(()),
        }
    }

    pub(super) fn append(&mut self, octets: &[u8]) -> Result<(), FileError> {
        self.file.write_all(octets).map_err(|error| self.wrong(error))?;
        self.checksum.add(octets);
        self.len += octets.len() as u64;
        if self.len - self.synced >= SYNC_EVERY {
            self.file.sync_data().map_err(|error| self.wrong(error))?;
            self.synced = self.len;
        }
        Ok(())
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn checksum(&self) -> String {
        self.checksum.so_far()
    }

    /// Gives the file, which is complete and right, its name, and the permissions of `mode` that
    /// this process grants. Returns whether a file with this name was replaced.
    pub(super) fn finish(mut self, mode: u32) -> Result<bool, FileError> {
        let mode = Mode::from_bits_truncate(mode & 0o777 & !umask());
        fchmod(&*self.file, mode).map_err(|error| self.wrong(error.into()))?;
        self.file.sync_all().map_err(|error| self.wrong(error))?;
        if !is_still(&self.file, &self.spot, &self.part) {
            return Err(FileError::Replaced(self.spot.name.clone()));
        }
        let replaced = self.replaces()?;
        self.rename()?;
        self.over = true;
        let dir = &self.spot.dir;
        // The name is safe on the disk once the directory is. In a directory that cannot be read,
        // that cannot be waited for.
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        if let Ok(dir) = openat(dir, ".", flags, Mode::empty()) {
            let _ = nix::unistd::fsync(dir);
        }
        Ok(replaced)
    }

    fn rename(&self) -> Result<(), FileError> {
        let (Spot { dir, name }, part) = (&self.spot, self.part.as_str());
        let renamed = match self.clobber {
            Clobber::Yes => renameat(dir, part, dir, name.as_str()),
            // A file that appears at the last moment is kept as well.
            Clobber::No => match renameat2(dir, part, dir, name.as_str(), RenameFlags::RENAME_NOREPLACE) {
                // A file system that cannot rename in this way in one step.
                Err(Errno::EINVAL) => renameat(dir, part, dir, name.as_str()),
                renamed => renamed,
            },
        };
        renamed.map_err(|error| match error {
            Errno::EEXIST => FileError::Exists(name.clone()),
            error => self.wrong(error.into()),
        })
    }

    /// Gives up the partial file, whose octets are wrong, and removes it.
    pub(super) fn discard(mut self) {
        self.remove();
    }

    fn remove(&mut self) {
        // A partial file that cannot be removed is overwritten the next time. A file that somebody
        // else has put there is not removed.
        if is_still(&self.file, &self.spot, &self.part) {
            let _ = unlinkat(&self.spot.dir, self.part.as_str(), UnlinkatFlags::NoRemoveDir);
        }
        self.over = true;
    }

    fn wrong(&self, error: io::Error) -> FileError {
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOSPC | Errno::EDQUOT) => FileError::Full(self.spot.name.clone()),
            _ => FileError::new(&self.spot.name, error),
        }
    }

    fn no_space(&self, free: u64, need: u64) -> FileError {
        FileError::NoSpace { name: self.spot.name.clone(), free: about(free), need: about(need) }
    }
}

/// Removes a partial file of which no octet has arrived.
impl Drop for Partial {
    fn drop(&mut self) {
        if !self.over && self.file.metadata().is_ok_and(|metadata| metadata.len() == 0) {
            self.remove();
        }
    }
}

/// Returns whether a regular file exists where the file shall be. A file that must be kept is an
/// error, and so is anything that is not a file.
fn replaces(spot: &Spot, clobber: Clobber) -> Result<bool, FileError> {
    let name = || spot.name.clone();
    match fstatat(&spot.dir, spot.name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
        Err(Errno::ENOENT) => Ok(false),
        Err(error) => Err(FileError::new(&spot.name, error)),
        Ok(there) if SFlag::from_bits_truncate(there.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG => {
            Err(FileError::NotRegular(name()))
        }
        Ok(_) if clobber == Clobber::No => Err(FileError::Exists(name())),
        Ok(_) => Ok(true),
    }
}

/// Opens the partial file for this transfer only.
fn lock(spot: &Spot, part: &str) -> Result<Flock<File>, FileError> {
    let wrong = |error: Errno| FileError::new(&spot.name, error);
    let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        let file = File::from(openat(spot.dir.as_fd(), part, flags, PRIVATE).map_err(wrong)?);
        regular(&file, &spot.name)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            // Another transfer may have ended meanwhile, and this may be the complete file.
            Ok(file) if is_still(&file, spot, part) => return Ok(file),
            Ok(_) => {}
            Err((_, Errno::EWOULDBLOCK)) if Instant::now() >= deadline => {
                return Err(FileError::Busy(spot.name.clone()));
            }
            Err((_, Errno::EWOULDBLOCK)) => std::thread::sleep(Duration::from_millis(50)),
            Err((_, error)) => return Err(wrong(error)),
        }
    }
}

/// Returns the permissions that new files do not get.
pub(super) fn umask() -> u32 {
    // umask(2) can be read only by changing it, for all threads.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|digits| u32::from_str_radix(digits.trim(), 8).ok()).unwrap_or(0o022)
}

fn is_still(file: &File, spot: &Spot, part: &str) -> bool {
    let named = fstatat(&spot.dir, part, AtFlags::AT_SYMLINK_NOFOLLOW);
    let opened = file.metadata();
    matches!((named, opened), (Ok(named), Ok(opened)) if named.st_ino == opened.ino() && named.st_dev == opened.dev())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::files::local_spot;
    use super::*;

    fn partial(dir: &tempfile::TempDir, name: &str) -> Result<Partial, FileError> {
        Partial::open(local_spot(&dir.path().join(name)).unwrap(), Clobber::Yes)
    }

    #[test]
    fn a_file_that_shall_stay_stays() {
        let dir = tempfile::tempdir().unwrap();
        let spot = || local_spot(&dir.path().join("file")).unwrap();
        let early = Partial::open(spot(), Clobber::No).unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "precious").unwrap();
        // In the check before the end, and then by the kernel.
        assert!(matches!(early.rename(), Err(FileError::Exists(_))));
        assert!(matches!(early.finish(0o600), Err(FileError::Exists(_))));
        assert!(matches!(Partial::open(spot(), Clobber::No), Err(FileError::Exists(_))));
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        assert!(partial(&dir, "file").unwrap().finish(0o600).unwrap());
        std::fs::remove_file(path).unwrap();
        assert!(!Partial::open(spot(), Clobber::No).unwrap().finish(0o600).unwrap());
    }

    #[test]
    fn the_name_appears_only_when_all_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = partial(&dir, "file").unwrap();
        file.append(b"hello ").unwrap();
        file.append(b"world").unwrap();
        assert!(!dir.path().join("file").exists());
        let part = std::fs::metadata(dir.path().join("file.rddp.part")).unwrap();
        assert_eq!(part.mode() & 0o777, 0o600);
        file.finish(0o4700).unwrap();
        assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"hello world");
        assert_eq!(std::fs::metadata(dir.path().join("file")).unwrap().mode() & 0o7777, 0o700);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_empty_partial_file_is_removed_and_an_empty_file_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        drop(partial(&dir, "file").unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        partial(&dir, "file").unwrap().finish(0o600).unwrap();
        assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"");
    }

    #[test]
    fn a_partial_file_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = partial(&dir, "file").unwrap();
        file.append(b"hello ").unwrap();
        drop(file);
        let mut file = partial(&dir, "file").unwrap();
        let (len, _) = file.examine(&mut || Ok(())).unwrap();
        assert_eq!(len, 6);
        file.append(b"world").unwrap();
        let mut whole = Checksum::new();
        whole.add(b"hello world");
        assert_eq!(file.checksum(), whole.so_far());
        file.restart().unwrap();
        file.append(b"new").unwrap();
        file.finish(0o644).unwrap();
        assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"new");
    }

    #[test]
    fn two_transfers_do_not_write_the_same_file() {
        let dir = tempfile::tempdir().unwrap();
        let first = partial(&dir, "file").unwrap();
        assert!(matches!(partial(&dir, "file"), Err(FileError::Busy(_))));
        drop(first);
        let mut second = partial(&dir, "file").unwrap();
        second.append(b"octets").unwrap();
        second.discard();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_replaced_a_partial_file_is_neither_renamed_nor_removed() {
        let dir = tempfile::tempdir().unwrap();
        for octets in [&b""[..], b"ours"] {
            let mut file = partial(&dir, "file").unwrap();
            file.append(octets).unwrap();
            std::fs::write(dir.path().join("other"), "theirs").unwrap();
            std::fs::rename(dir.path().join("other"), dir.path().join("file.rddp.part")).unwrap();
            assert!(matches!(file.finish(0o644), Err(FileError::Replaced(_))));
            assert!(!dir.path().join("file").exists());
            assert_eq!(std::fs::read(dir.path().join("file.rddp.part")).unwrap(), b"theirs");
        }
    }

    #[test]
    fn links_and_directories_in_its_place_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("victim"), "precious").unwrap();
        symlink("victim", dir.path().join("file.rddp.part")).unwrap();
        assert!(matches!(partial(&dir, "file"), Err(FileError::NotRegular(_))));
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        assert!(matches!(partial(&dir, "sub"), Err(FileError::NotRegular(_))));
        symlink("victim", dir.path().join("link")).unwrap();
        assert!(matches!(partial(&dir, "link"), Err(FileError::NotRegular(_))));
    }

    #[test]
    fn a_file_that_appeared_meanwhile_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = partial(&dir, "file").unwrap();
        file.append(b"new").unwrap();
        nix::unistd::mkfifo(&dir.path().join("file"), Mode::S_IRWXU).unwrap();
        assert!(matches!(file.finish(0o644), Err(FileError::NotRegular(_))));
        assert!(!std::fs::symlink_metadata(dir.path().join("file")).unwrap().is_file());
    }
}
