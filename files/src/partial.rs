//! A file that is arriving. It has a temporary name until it is complete and its checksum is right.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, Flock, FlockArg, OFlag, RenameFlags, openat, renameat, renameat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstatat, futimens};
use nix::sys::statvfs::fstatvfs;
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, unlinkat};
use rddp_command::failure::Failure;
use rddp_command::units::about;

use super::checksum::{Check, Checksum, beginning};
use super::files::{FileError, Spot, not_reserved, part_of, regular, set_mode};
use super::part::Part;
use super::protocol::Time;
use super::tasks::Hub;

/// The permissions of the file: nobody else reads it until it has its name.
pub(super) const PRIVATE: Mode = Mode::S_IRUSR.union(Mode::S_IWUSR);

/// Time within which another transfer of the same file must release it: most likely its client has
/// just died.
const LOCK_PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 3000 });

/// Interval at which a locked file is looked at again.
const LOCK_LOOK: Duration = Duration::from_millis(50);

/// Octets that are written before they must reach the disk, so that the wait at the end is short.
const SYNC_EVERY: u64 = 128 << 20;

pub(super) struct Partial {
    spot: Spot,
    part: OsString,
    file: Flock<File>,
    check: Check,
    /// The checksum over all octets so far.
    checksum: Checksum,
    /// The buffer for octets that come from registered memory, and have to be copied.
    kept: Vec<u8>,
    /// The end of the octets so far. Holes before it are not filled.
    len: u64,
    synced: u64,
    /// The end waits for no octets to reach the disk.
    is_unsynced: bool,
    /// The file has its name, or is removed.
    over: bool,
    clobber: Clobber,
}

/// Attributes that a file gets at its end, beside its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Last {
    pub(super) size: u64,
    pub(super) mode: u32,
    pub(super) modified: Option<Time>,
}

impl Last {
    /// Gives a file, whose octets so far end at `len`, its size, permissions and time.
    pub(super) fn give(self, file: &File, len: u64) -> io::Result<()> {
        fchmod(file, Mode::from_bits_truncate(self.mode & 0o777))?;
        self.give_others(file, len)
    }

    /// Gives a file the same but for its permissions.
    pub(super) fn give_others(self, file: &File, len: u64) -> io::Result<()> {
        if len != self.size {
            // The rest is a hole.
            file.set_len(self.size)?;
        }
        if let Some(Time { seconds, nanos }) = self.modified {
            let time = TimeSpec::new(seconds, nanos.into());
            futimens(file, &time, &time)?;
        }
        Ok(())
    }
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
    pub(super) async fn open(
        spot: Spot,
        clobber: Clobber,
        check: Check,
        hub: &Hub,
    ) -> Result<Self, FileError> {
        not_reserved(&spot.name)?;
        let part = part_of(&spot.name);
        replaces(&spot.dir, &spot.name, clobber, &spot.shown())?;
        let file = lock(&spot, &part, hub).await?;
        let checksum = Checksum::new(check);
        let kept = Vec::new();
        Ok(Partial {
            spot,
            part,
            file,
            check,
            checksum,
            kept,
            len: 0,
            synced: 0,
            is_unsynced: false,
            over: false,
            clobber,
        })
    }

    /// Returns whether a file with the final name exists.
    pub(super) fn replaces(&self) -> Result<bool, FileError> {
        replaces(&self.spot.dir, &self.spot.name, self.clobber, &self.name())
    }

    /// Returns whether the complete file is there already, by its size and time. It gets the
    /// permissions that it would get by [`Partial::finish`].
    pub(super) fn is_there(&self, last: Last) -> bool {
        let there = fstatat(&self.spot.dir, &*self.spot.name, AtFlags::AT_SYMLINK_NOFOLLOW);
        there.is_ok_and(|there| is_there(&self.spot.dir, &self.spot.name, &there, last))
    }

    /// Leaves it to the system when octets reach the disk.
    pub(super) fn leave_unsynced(&mut self) {
        self.is_unsynced = true;
    }

    pub(super) fn name(&self) -> String {
        self.spot.shown()
    }

    /// Reads the octets that exist, and returns their number and the proof of them. `tick` is
    /// called now and then.
    pub(super) async fn examine(
        &mut self,
        tick: &mut impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<(u64, String), FileError> {
        self.file.seek(SeekFrom::Start(0)).map_err(|error| self.wrong(error))?;
        let name = self.name();
        let beginning = beginning(&self.file, u64::MAX, self.check, &name, tick).await?;
        (self.len, self.checksum) = (beginning.len, beginning.checksum);
        Ok((self.len, beginning.proof))
    }

    /// Discards the octets that exist.
    pub(super) fn restart(&mut self) -> Result<(), FileError> {
        self.file.set_len(0).map_err(|error| self.wrong(error))?;
        (self.checksum, self.len, self.synced) = (Checksum::new(self.check), 0, 0);
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

    /// Writes octets at an offset that is not before the end of those that are there. `tick` is
    /// called now and then.
    pub(super) async fn append(
        &mut self,
        offset: u64,
        octets: &[u8],
        hub: &Hub,
        tick: &mut impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<(), FileError> {
        self.file.write_all_at(octets, offset).map_err(|error| self.wrong(error))?;
        self.checksum.add_zeros(offset - self.len, tick).await?;
        self.checksum.add(octets);
        self.has(offset + octets.len() as u64, hub).await
    }

    /// Writes octets of registered memory as [`Partial::append`] does.
    pub(super) async fn append_part(
        &mut self,
        offset: u64,
        octets: &Part<'_>,
        hub: &Hub,
        tick: &mut impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<(), FileError> {
        if self.check == Check::Sha256 {
            // A peer can write to this memory at any time: the file is to have the octets that are
            // summed.
            let mut kept = std::mem::take(&mut self.kept);
            self.append(offset, octets.copied(&mut kept).map_err(FileError::memory)?, hub, tick).await?;
            self.kept = kept;
            return Ok(());
        }
        let written = octets.memory.write_to(&*self.file, offset, octets.range.clone());
        written.map_err(|error| self.wrong(error))?;
        self.has(offset + octets.len() as u64, hub).await
    }

    /// Notes that the octets end there. Now and then they must reach the disk.
    async fn has(&mut self, len: u64, hub: &Hub) -> Result<(), FileError> {
        self.len = len;
        if self.len - self.synced >= SYNC_EVERY {
            self.sync(hub).await?;
            self.synced = self.len;
        }
        Ok(())
    }

    /// Waits until what was written has reached the disk.
    async fn sync(&self, hub: &Hub) -> Result<(), FileError> {
        if self.is_unsynced {
            return Ok(());
        }
        // Without a descriptor for another thread, this one waits.
        let synced = match self.file.try_clone() {
            Ok(file) => hub.aside(move || file.sync_all(), || Ok(())).await.map_err(FileError::Stopped)?,
            Err(_) => None,
        };
        synced.unwrap_or_else(|| self.file.sync_all()).map_err(|error| self.wrong(error))
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the SHA-256 of all `size` octets, if it is asked for. What is behind those that came
    /// is a hole. `tick` is called now and then.
    pub(super) async fn checksum(
        &mut self,
        size: u64,
        tick: &mut impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<&Checksum, FileError> {
        self.checksum.add_zeros(size - self.len, tick).await?;
        Ok(&self.checksum)
    }

    /// Gives the file, which is complete and right, its name, its size, its time, and the
    /// permissions that it has at the other end. Returns whether a file with this
    /// name was replaced.
    pub(super) async fn finish(mut self, last: Last, hub: &Hub) -> Result<bool, FileError> {
        last.give(&self.file, self.len).map_err(|error| self.wrong(error))?;
        self.sync(hub).await?;
        if !is_still(&self.file, &self.spot, &self.part) {
            return Err(FileError::Replaced(self.name()));
        }
        let Spot { dir, name } = &self.spot;
        let replaced = take_name(dir, &self.part, name, self.clobber, &self.name())?;
        self.over = true;
        // The name is safe on the disk once the directory is. In a directory that cannot be read,
        // that cannot be waited for.
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        if !self.is_unsynced
            && let Ok(dir) = openat(dir, ".", flags, Mode::empty())
        {
            let _ = nix::unistd::fsync(dir);
        }
        Ok(replaced)
    }

    /// Gives up the partial file, whose octets are wrong, and removes it.
    pub(super) fn discard(mut self) {
        self.remove();
    }

    /// Removes the partial file.
    pub(super) fn remove(&mut self) {
        // A partial file that cannot be removed is overwritten the next time. A file that somebody
        // else has put there is not removed.
        if is_still(&self.file, &self.spot, &self.part) {
            let _ = unlinkat(&self.spot.dir, &*self.part, UnlinkatFlags::NoRemoveDir);
        }
        self.over = true;
    }

    fn wrong(&self, error: io::Error) -> FileError {
        FileError::writing(&self.name(), error)
    }

    fn no_space(&self, free: u64, need: u64) -> FileError {
        FileError::NoSpace { name: self.name(), free: about(free), need: about(need) }
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

/// Returns whether a regular file, which is `there`, has this size and time, and sets its
/// permissions.
///
/// Two files that programs of this host wrote in one step of its clock have the same time, too. So
/// a file whose time is that of its last write here is not taken for the other end's: one that has
/// arrived got its time later.
pub(super) fn is_there(dir: &OwnedFd, name: &OsStr, there: &FileStat, last: Last) -> bool {
    let Some(has) = is_same(there, last) else { return false };
    let mode = last.mode & 0o777;
    if has != mode {
        // A file of somebody else's keeps its permissions.
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let _ = openat(dir, name, flags, Mode::empty()).and_then(|file| set_mode(&file, mode));
    }
    true
}

/// Returns the permissions of a regular file of this size and time, as [`is_there`] has them.
pub(super) fn is_same(there: &FileStat, last: Last) -> Option<u32> {
    let time = last.modified?;
    let is_file = SFlag::from_bits_truncate(there.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG;
    let is_same = is_file
        && u64::try_from(there.st_size) == Ok(last.size)
        && (there.st_mtime, there.st_mtime_nsec) == (time.seconds, i64::from(time.nanos))
        && (there.st_ctime, there.st_ctime_nsec) != (there.st_mtime, there.st_mtime_nsec);
    is_same.then_some(there.st_mode & 0o777)
}

/// Makes a file that is to arrive, or opens it: `how` says which.
pub(super) fn make_part(dir: &OwnedFd, part: &OsStr, how: OFlag, mode: Mode) -> nix::Result<File> {
    let flags = how | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    openat(dir, part, flags, mode).map(File::from)
}

/// Gives a file, which is complete, its final name. Returns whether a file with this name was
/// replaced.
pub(super) fn take_name(
    dir: &OwnedFd,
    part: &OsStr,
    name: &OsStr,
    clobber: Clobber,
    shown: &str,
) -> Result<bool, FileError> {
    let replaced = replaces(dir, name, clobber, shown)?;
    take_free_name(dir, part, name, clobber, shown)?;
    Ok(replaced)
}

/// Gives a file, which is complete, a name in a directory where nothing else has it.
pub(super) fn take_free_name(
    dir: &OwnedFd,
    part: &OsStr,
    name: &OsStr,
    clobber: Clobber,
    shown: &str,
) -> Result<(), FileError> {
    rename(dir, part, name, clobber).map_err(|error| match error {
        Errno::EEXIST => FileError::Exists(shown.to_owned()),
        error => FileError::writing(shown, error),
    })
}

fn rename(dir: &OwnedFd, part: &OsStr, name: &OsStr, clobber: Clobber) -> nix::Result<()> {
    match clobber {
        Clobber::Yes => renameat(dir, part, dir, name),
        // A file that appears at the last moment is kept as well.
        Clobber::No => match renameat2(dir, part, dir, name, RenameFlags::RENAME_NOREPLACE) {
            // A file system that cannot rename in this way in one step.
            Err(Errno::EINVAL) => renameat(dir, part, dir, name),
            renamed => renamed,
        },
    }
}

/// Returns whether a regular file exists where the file shall be. A file that must be kept is an
/// error, and so is anything that is not a file.
pub(super) fn replaces(
    dir: &OwnedFd,
    name: &OsStr,
    clobber: Clobber,
    shown: &str,
) -> Result<bool, FileError> {
    match fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Err(Errno::ENOENT) => Ok(false),
        Err(error) => Err(FileError::new(shown, error)),
        Ok(there) if SFlag::from_bits_truncate(there.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG => {
            Err(FileError::NotRegular(shown.to_owned()))
        }
        Ok(_) if clobber == Clobber::No => Err(FileError::Exists(shown.to_owned())),
        Ok(_) => Ok(true),
    }
}

/// Opens the partial file for this transfer only.
async fn lock(spot: &Spot, part: &OsStr, hub: &Hub) -> Result<Flock<File>, FileError> {
    let wrong = |error: Errno| named(part, FileError::new(&spot.shown(), error));
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        let file = make_part(&spot.dir, part, OFlag::O_RDWR, PRIVATE).map_err(wrong)?;
        regular(&file, &spot.shown()).map_err(|error| named(part, error))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            // Another transfer may have ended meanwhile, and this may be the complete file.
            Ok(file) if is_still(&file, spot, part) => return Ok(file),
            Ok(_) => {}
            Err((_, Errno::EWOULDBLOCK)) if Instant::now() >= deadline => {
                return Err(FileError::Busy(spot.shown()));
            }
            Err((_, Errno::EWOULDBLOCK)) => hub.sleep(LOCK_LOOK).await,
            Err((_, error)) => return Err(wrong(error)),
        }
    }
}

/// Returns the error of opening a partial file, which names it where something else has its name.
fn named(part: &OsStr, error: FileError) -> FileError {
    match error {
        FileError::NotRegular(name) | FileError::Directory(name) => {
            let part = part.to_string_lossy().into_owned();
            FileError::InTheWay { name, part }
        }
        error => error,
    }
}

fn is_still(file: &File, spot: &Spot, part: &OsStr) -> bool {
    let named = fstatat(&spot.dir, part, AtFlags::AT_SYMLINK_NOFOLLOW);
    let opened = file.metadata();
    matches!((named, opened), (Ok(named), Ok(opened)) if named.st_ino == opened.ino() && named.st_dev == opened.dev())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rddp_rnic::Rnic;

    use super::super::files::local_spot;
    use super::*;

    fn hub() -> std::rc::Rc<Hub> {
        Hub::new(&Rnic::open().unwrap()).unwrap()
    }

    fn open(spot: Spot, clobber: Clobber) -> Result<Partial, FileError> {
        let hub = hub();
        hub.run(Partial::open(spot, clobber, Check::Sha256, &hub)).unwrap()
    }

    fn partial(dir: &tempfile::TempDir, name: &str) -> Result<Partial, FileError> {
        open(local_spot(&dir.path().join(name)).unwrap(), Clobber::Yes)
    }

    fn append(file: &mut Partial, octets: &[u8]) {
        let (at, hub) = (file.len(), hub());
        hub.run(file.append(at, octets, &hub, &mut async || Ok(()))).unwrap().unwrap();
    }

    fn finish(file: Partial, mode: u32) -> Result<bool, FileError> {
        let (last, hub) = (Last { size: file.len(), mode, modified: None }, hub());
        hub.run(file.finish(last, &hub)).unwrap()
    }

    #[test]
    fn a_file_that_shall_stay_stays() {
        let dir = tempfile::tempdir().unwrap();
        let spot = || local_spot(&dir.path().join("file")).unwrap();
        let early = open(spot(), Clobber::No).unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "precious").unwrap();
        // In the check before the end, and then by the kernel.
        let Spot { dir: there, name } = &early.spot;
        assert_eq!(rename(there, &early.part, name, early.clobber), Err(Errno::EEXIST));
        assert!(matches!(finish(early, 0o600), Err(FileError::Exists(_))));
        assert!(matches!(open(spot(), Clobber::No), Err(FileError::Exists(_))));
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        assert!(finish(partial(&dir, "file").unwrap(), 0o600).unwrap());
        std::fs::remove_file(path).unwrap();
        assert!(!finish(open(spot(), Clobber::No).unwrap(), 0o600).unwrap());
    }

    #[test]
    fn the_name_appears_only_when_all_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = partial(&dir, "file").unwrap();
        append(&mut file, b"hello ");
        append(&mut file, b"world");
        assert!(!dir.path().join("file").exists());
        let part = std::fs::metadata(dir.path().join("file.rddp.part")).unwrap();
        assert_eq!(part.mode() & 0o777, 0o600);
        finish(file, 0o4700).unwrap();
        assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"hello world");
        assert_eq!(std::fs::metadata(dir.path().join("file")).unwrap().mode() & 0o7777, 0o700);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_empty_partial_file_is_removed_and_an_empty_file_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        drop(partial(&dir, "file").unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        finish(partial(&dir, "file").unwrap(), 0o600).unwrap();
        assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"");
    }

    #[test]
    fn a_partial_file_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = partial(&dir, "file").unwrap();
        append(&mut file, b"hello ");
        drop(file);
        let mut file = partial(&dir, "file").unwrap();
        let (len, _) = hub().run(file.examine(&mut async || Ok(()))).unwrap().unwrap();
        assert_eq!(len, 6);
        append(&mut file, b"world");
        let mut whole = Checksum::new(Check::Sha256);
        whole.add(b"hello world");
        let hub = hub();
        let checksum = hub.run(file.checksum(11, &mut async || Ok(()))).unwrap().unwrap().so_far();
        assert_eq!(checksum, whole.so_far());
        file.restart().unwrap();
        append(&mut file, b"new");
        finish(file, 0o644).unwrap();
        assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"new");
    }

    #[test]
    fn two_transfers_do_not_write_the_same_file() {
        let dir = tempfile::tempdir().unwrap();
        let first = partial(&dir, "file").unwrap();
        assert!(matches!(partial(&dir, "file"), Err(FileError::Busy(_))));
        drop(first);
        let mut second = partial(&dir, "file").unwrap();
        append(&mut second, b"octets");
        second.discard();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_replaced_a_partial_file_is_neither_renamed_nor_removed() {
        let dir = tempfile::tempdir().unwrap();
        for octets in [&b""[..], b"ours"] {
            let mut file = partial(&dir, "file").unwrap();
            append(&mut file, octets);
            std::fs::write(dir.path().join("other"), "theirs").unwrap();
            std::fs::rename(dir.path().join("other"), dir.path().join("file.rddp.part")).unwrap();
            assert!(matches!(finish(file, 0o644), Err(FileError::Replaced(_))));
            assert!(!dir.path().join("file").exists());
            assert_eq!(std::fs::read(dir.path().join("file.rddp.part")).unwrap(), b"theirs");
        }
    }

    #[test]
    fn links_and_directories_in_its_place_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("victim"), "precious").unwrap();
        symlink("victim", dir.path().join("file.rddp.part")).unwrap();
        let in_its_way = |name| {
            let Err(error) = partial(&dir, name) else { panic!("{name} is opened") };
            let failure = error.failure(rddp_command::failure::FailureKind::Failed);
            let part = format!("{name}.rddp.part");
            assert_eq!(failure.to_string(), format!("{name}: {part} is in its way, and no regular file"));
            assert_eq!(failure.how(), Some(&*format!("remove or rename {part}")));
        };
        in_its_way("file");
        std::fs::create_dir(dir.path().join("dir.rddp.part")).unwrap();
        in_its_way("dir");
        nix::unistd::mkfifo(&dir.path().join("pipe.rddp.part"), Mode::S_IRWXU).unwrap();
        in_its_way("pipe");
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        assert!(matches!(partial(&dir, "sub"), Err(FileError::NotRegular(_))));
        symlink("victim", dir.path().join("link")).unwrap();
        assert!(matches!(partial(&dir, "link"), Err(FileError::NotRegular(_))));
    }

    #[test]
    fn a_file_that_appeared_meanwhile_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = partial(&dir, "file").unwrap();
        append(&mut file, b"new");
        nix::unistd::mkfifo(&dir.path().join("file"), Mode::S_IRWXU).unwrap();
        assert!(matches!(finish(file, 0o644), Err(FileError::NotRegular(_))));
        assert!(!std::fs::symlink_metadata(dir.path().join("file")).unwrap().is_file());
    }
}
