//! A file that is sent: its octets in order, its checksum, and the proof that it did not change
//! meanwhile.

use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, SystemTime};

use super::checksum::Checksum;
use super::files::FileError;
use crate::failure::Failure;

/// The longest step of the clock from which the times of files are taken.
const TICK: Duration = Duration::from_millis(20);

/// A file's identity and version: any change of octets changes one of these fields, unless it is
/// made through a mapping.
#[derive(Debug, PartialEq, Eq)]
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
    pub(super) fn settled(file: &File) -> std::io::Result<Metadata> {
        let metadata = file.metadata()?;
        // A change within the same step of the clock would leave the time as it is: the times of a
        // file that changed so recently are read again when that step is over.
        if let Some(left) = Version::of(&metadata).age().and_then(|age| TICK.checked_sub(age)) {
            std::thread::sleep(left);
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

pub(super) struct Source {
    file: File,
    name: String,
    version: Version,
    mode: u32,
    checksum: Checksum,
}

impl Source {
    /// Opens a regular file at its beginning; `name` is its name in messages.
    pub(super) fn new(file: File, name: &str) -> Result<Self, FileError> {
        let metadata = Version::settled(&file).map_err(|error| FileError::new(name, error))?;
        let (version, mode) = (Version::of(&metadata), metadata.mode() & 0o777);
        let source = Source { name: name.to_owned(), version, mode, checksum: Checksum::new(), file };
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

    /// Returns the file's permissions.
    pub(super) fn mode(&self) -> u32 {
        self.mode
    }

    /// Returns the checksum of all octets so far.
    pub(super) fn checksum(&self) -> String {
        self.checksum.so_far()
    }

    /// Returns the offset at which to begin when the other end has `have` octets with this
    /// checksum. `tick` is called now and then.
    pub(super) fn resume(
        &mut self,
        have: u64,
        sha256: &str,
        tick: &mut dyn FnMut() -> Result<(), Failure>,
    ) -> Result<u64, FileError> {
        if have == 0 || have > self.size() {
            return Ok(0);
        }
        let mut checksum = Checksum::new();
        let read = checksum.add_all(&self.file, have, &self.name, tick)?;
        if read == have && checksum.so_far() == sha256 {
            self.checksum = checksum;
            return Ok(have);
        }
        self.file.seek(SeekFrom::Start(0)).map_err(|error| self.wrong(error))?;
        Ok(0)
    }

    /// Reads the next octets, exactly as many as the buffer holds.
    pub(super) fn read(&mut self, octets: &mut [u8]) -> Result<(), FileError> {
        self.file.read_exact(octets).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => FileError::Changed(self.name.clone()),
            _ => self.wrong(error),
        })?;
        self.checksum.add(octets);
        Ok(())
    }

    /// Checks that the octets that were read are one version of the file, not parts of two; `again`
    /// is the file to which the name leads now.
    pub(super) fn check_unchanged(&self, again: Result<File, FileError>) -> Result<(), FileError> {
        let now = again.ok().and_then(|file| file.metadata().ok());
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_change_right_after_the_first_look_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for _ in 0..20 {
            fs::write(&path, "old").unwrap();
            let source = Source::new(File::open(&path).unwrap(), "file").unwrap();
            let open = || File::open(&path).map_err(|error| FileError::new("file", error));
            source.check_unchanged(open()).unwrap();
            fs::write(&path, "new").unwrap();
            assert!(matches!(source.check_unchanged(open()), Err(FileError::Changed(_))));
            fs::remove_file(&path).unwrap();
            assert!(matches!(source.check_unchanged(open()), Err(FileError::Changed(_))));
        }
    }
}
