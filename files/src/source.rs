//! A file that is sent: its octets in order, its checksum, and the proof that it did not change
//! meanwhile.

use std::fs::{File, Metadata};
use std::io::{Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::unistd::{Whence, lseek64};
use rddp_command::failure::Failure;

use super::checksum::{Check, Checksum, beginning};
use super::files::FileError;
use super::part::Part;
use super::protocol::{Extent, Time};
use super::tasks::Hub;

/// The longest step of the clock from which the times of files are taken.
const TICK: Duration = Duration::from_millis(20);

/// A file's identity and version: any change of octets changes one of these fields, unless it is
/// made through a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    dev: u64,
    ino: u64,
    size: u64,
    /// The modification time, which a program can set back.
    modified: (i64, i64),
    /// The change time, which no program can set back.
    changed: (i64, i64),
}

impl Version {
    pub(super) fn of(file: &Metadata) -> Self {
        Version {
            dev: file.dev(),
            ino: file.ino(),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }

    /// Returns what the file is like, once a change could not leave its times as they are.
    pub(super) async fn settled(file: &File, hub: &Hub) -> std::io::Result<Metadata> {
        let metadata = file.metadata()?;
        // A change within the same step of the clock would leave the time as it is: the times of a
        // file that changed so recently are read again when that step is over.
        if let Some(left) = Version::of(&metadata).age().and_then(|age| TICK.checked_sub(age)) {
            hub.sleep(left).await;
            return file.metadata();
        }
        Ok(metadata)
    }

    /// Returns how long ago the file was changed last; `None` if the file system's clock is ahead.
    fn age(&self) -> Option<Duration> {
        let (seconds, nanos) = self.changed;
        let since = Duration::new(seconds.try_into().ok()?, nanos.try_into().ok()?);
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + since).ok()
    }
}

/// Returns when the octets of a file changed last.
pub(super) fn modified(file: &Metadata) -> Time {
    Time { seconds: file.mtime(), nanos: u32::try_from(file.mtime_nsec()).unwrap_or(0) }
}

pub(super) struct Source {
    file: Arc<File>,
    name: String,
    version: Version,
    mode: u32,
    modified: Time,
    check: Check,
    checksum: Checksum,
    /// The offset of the next octet.
    at: u64,
    /// The file has holes, which need not be sent.
    is_sparse: bool,
}

impl Source {
    /// Opens a regular file at its beginning; `name` is its name in messages.
    pub(super) async fn new(file: File, name: &str, check: Check, hub: &Hub) -> Result<Self, FileError> {
        let there = Version::settled(&file, hub).await.map_err(|error| FileError::new(name, error))?;
        let source = Source {
            name: name.to_owned(),
            version: Version::of(&there),
            mode: there.mode() & 0o777,
            modified: modified(&there),
            check,
            checksum: Checksum::new(check),
            at: 0,
            // A file whose octets are compressed, or stand beside its attributes, has few blocks
            // as well.
            is_sparse: is_sparse(&there) && extent(&file, 0, there.size()) != (0, there.size()),
            file: Arc::new(file),
        };
        if source.size() == 0 && source.has_more()? {
            return Err(FileError::NoSize(name.to_owned()));
        }
        Ok(source)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn size(&self) -> u64 {
        self.version.size
    }

    pub(super) fn version(&self) -> &Version {
        &self.version
    }

    /// Returns the file's permissions.
    pub(super) fn mode(&self) -> u32 {
        self.mode
    }

    pub(super) fn modified(&self) -> Time {
        self.modified
    }

    /// Returns whether the file has holes that are not sent.
    pub(super) fn has_holes(&self) -> bool {
        self.is_sparse
    }

    /// Returns the SHA-256 of all octets so far, if it is asked for.
    pub(super) fn checksum(&self) -> String {
        self.checksum.so_far()
    }

    /// Returns the offset at which to begin when the other end has `have` octets with this proof.
    /// `tick` is called now and then.
    pub(super) async fn resume(
        &mut self,
        have: u64,
        proof: &str,
        tick: &mut impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<u64, FileError> {
        if have == 0 || have > self.size() {
            return Ok(0);
        }
        self.file.seek(SeekFrom::Start(0)).map_err(|error| self.wrong(error))?;
        let beginning = beginning(&self.file, have, self.check, &self.name, tick).await?;
        if beginning.len == have && beginning.proof == proof {
            (self.checksum, self.at) = (beginning.checksum, have);
            return Ok(have);
        }
        Ok(0)
    }

    /// Reads the next octets, at most as many as `room` has, into its beginning, and returns their
    /// offset and number. `None` at the end. `tick` is called now and then.
    pub(super) async fn next(
        &mut self,
        room: &Part<'_>,
        tick: &mut impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<Option<(u64, usize)>, FileError> {
        let Some((from, len)) = self.plan(room.len(), tick).await? else { return Ok(None) };
        let octets = room.first(len);
        self.was_read(octets.memory.read_from(&self.file, from, octets.range.clone()), len)?;
        self.checksum.add_part(&octets).map_err(FileError::memory)?;
        Ok(Some((from, len)))
    }

    /// Returns the offset and number of the next octets, at most `most`, which somebody else is to
    /// read. `None` at the end. `tick` is called now and then.
    pub(super) async fn plan(
        &mut self,
        most: usize,
        tick: &mut impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<Option<(u64, usize)>, FileError> {
        let size = self.size();
        let (from, to) = self.extent(self.at);
        self.checksum.add_zeros(from - self.at, tick).await?;
        self.at = from;
        if from >= size {
            return Ok(None);
        }
        let len = usize::try_from(to - from).unwrap_or(most).min(most);
        self.at += len as u64;
        Ok(Some((from, len)))
    }

    /// Returns the next extents from an offset on, at most `most`, and the offset up to which they
    /// are all.
    pub(super) fn extents(&self, from: u64, most: usize) -> (Vec<Extent>, u64) {
        let (mut list, mut at) = (Vec::new(), from);
        while at < self.size() && list.len() < most {
            let (start, end) = self.extent(at);
            if start < end {
                list.push(Extent(start, end - start));
            }
            at = end;
        }
        (list, at)
    }

    /// Returns the next range from an offset on that is no hole.
    fn extent(&self, at: u64) -> (u64, u64) {
        if self.is_sparse { extent(&self.file, at, self.size()) } else { (at, self.size()) }
    }

    /// Checks that `len` octets were read, where [`Source::plan`] had said that they are.
    pub(super) fn was_read(&self, read: std::io::Result<usize>, len: usize) -> Result<(), FileError> {
        match read.map_err(|error| self.wrong(error))? {
            count if count < len => Err(FileError::Changed(self.name.clone())),
            _ => Ok(()),
        }
    }

    /// Returns the file, for whoever reads what was planned.
    pub(super) fn file(&self) -> Arc<File> {
        self.file.clone()
    }

    /// Returns how many octets are left, from the next one to the end.
    pub(super) fn left(&self) -> u64 {
        self.size() - self.at
    }

    /// Returns whether the file that is open is the version that it was.
    pub(super) fn is_as_it_was(&self) -> bool {
        self.file.metadata().is_ok_and(|now| Version::of(&now) == self.version)
    }

    /// Checks that the octets that were read are one version of the file, not parts of two; `again`
    /// is the file to which the name leads now.
    pub(super) fn check_unchanged(&self, again: Result<File, FileError>) -> Result<(), FileError> {
        let now = match again {
            Ok(file) => file.metadata().ok(),
            // The file that is open tells as well whether it has changed.
            Err(FileError::NoDescriptor { .. }) => self.file.metadata().ok(),
            Err(error @ FileError::Other { .. }) => return Err(error),
            Err(_) => None,
        };
        if now.is_some_and(|now| Version::of(&now) == self.version) && !self.has_more()? {
            return Ok(());
        }
        Err(FileError::Changed(self.name.clone()))
    }

    /// Returns whether there are octets behind the file's size.
    fn has_more(&self) -> Result<bool, FileError> {
        let read = self.file.read_at(&mut [0], self.size()).map_err(|error| self.wrong(error))?;
        Ok(read > 0)
    }

    fn wrong(&self, error: std::io::Error) -> FileError {
        FileError::new(&self.name, error)
    }
}

/// Returns whether a file has holes, as far as its blocks tell.
pub(super) fn is_sparse(there: &Metadata) -> bool {
    there.blocks().saturating_mul(512) < there.size()
}

/// Returns the next range that is no hole; empty at the end, if there is none.
pub(super) fn extent(file: &File, at: u64, size: u64) -> (u64, u64) {
    let seek = |at: u64, whence| lseek64(file.as_fd(), at as i64, whence).map(|found| found as u64);
    let from = match seek(at, Whence::SeekData) {
        Ok(from) => from.clamp(at, size),
        Err(Errno::ENXIO) => return (size, size),
        // A file system that does not tell.
        Err(_) => return (at, size),
    };
    let to = seek(from, Whence::SeekHole).unwrap_or(size).min(size);
    // A file that changes meanwhile must not keep the walk in place.
    if to > from { (from, to) } else { (from, size) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rddp_rnic::{Access, Rnic};

    use super::*;

    #[test]
    fn a_change_right_after_the_first_look_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let hub = Hub::new(&Rnic::open().unwrap()).unwrap();
        for _ in 0..20 {
            fs::write(&path, "old").unwrap();
            let file = File::open(&path).unwrap();
            let source = hub.run(Source::new(file, "file", Check::Crc32c, &hub)).unwrap().unwrap();
            let open = || File::open(&path).map_err(|error| FileError::new("file", error));
            source.check_unchanged(open()).unwrap();
            fs::write(&path, "new").unwrap();
            assert!(matches!(source.check_unchanged(open()), Err(FileError::Changed(_))));
            fs::remove_file(&path).unwrap();
            assert!(matches!(source.check_unchanged(open()), Err(FileError::Changed(_))));
        }
    }

    /// Octets that a thread has read are checked as those that this one reads.
    #[test]
    fn octets_that_are_missing_and_errors_are_those_of_the_file() {
        let (file, hub) = (tempfile::tempfile().unwrap(), Hub::new(&Rnic::open().unwrap()).unwrap());
        file.write_all_at(b"octets", 0).unwrap();
        let mut source = hub.run(Source::new(file, "file", Check::Crc32c, &hub)).unwrap().unwrap();
        let planned = hub.run(source.plan(4, &mut async || Ok(()))).unwrap().unwrap();
        assert_eq!((planned, source.left()), (Some((0, 4)), 2));
        source.was_read(Ok(4), 4).unwrap();
        assert!(matches!(source.was_read(Ok(3), 4), Err(FileError::Changed(name)) if name == "file"));
        let failed = source.was_read(Err(Errno::EIO.into()), 4).unwrap_err();
        assert!(failed.to_string().starts_with("file: "), "{failed}");
        assert!(source.is_as_it_was());
        source.file().set_len(7).unwrap();
        assert!(!source.is_as_it_was());
    }

    #[test]
    fn holes_are_passed_over_and_count_in_the_checksum() {
        let (file, hub) = (tempfile::tempfile().unwrap(), Hub::new(&Rnic::open().unwrap()).unwrap());
        file.write_all_at(b"middle", 1 << 20).unwrap();
        file.set_len(2 << 20).unwrap();
        let mut source = hub.run(Source::new(file, "file", Check::Sha256, &hub)).unwrap().unwrap();
        let memory = hub.rnic.alloc_pd().allocate(1 << 16, Access::LOCAL_WRITE).unwrap();
        let room = Part::of_slot(&memory, 0, memory.len());
        let mut sent = 0;
        let next = |source: &mut Source| hub.run(source.next(&room, &mut async || Ok(()))).unwrap().unwrap();
        while let Some((_, octets)) = next(&mut source) {
            sent += octets;
        }
        assert!((6..1 << 19).contains(&sent), "{sent}");
        let mut whole = Checksum::new(Check::Sha256);
        whole.add(&[&vec![0; 1 << 20][..], b"middle", &vec![0; (1 << 20) - 6]].concat());
        assert_eq!(source.checksum(), whole.so_far());
    }
}
