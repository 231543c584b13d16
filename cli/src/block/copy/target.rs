//! A file that a copy makes. It has another name until it is complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rddp_command::failure::Failure;

/// The part of a name that a file has until it is complete.
const PART: &str = ".rddp.part";

/// A file that goes, unless it is complete.
pub(super) struct Target {
    path: PathBuf,
    part: PathBuf,
    is_complete: bool,
}

impl Target {
    /// Makes a file of this size, all hole. What an earlier copy left is lost.
    pub(super) fn make(path: &Path, size: u64) -> Result<Self, Failure> {
        if path.is_symlink() {
            return Err(Failure::failed(format!("{}: a link to a file that is not there", path.display()))
                .remedy("name the file that is to be made, or remove the link"));
        }
        let mut part = path.as_os_str().to_owned();
        part.push(PART);
        let target = Target { path: path.to_owned(), part: part.into(), is_complete: false };
        let made = OpenOptions::new().write(true).create(true).truncate(true).open(&target.part);
        made.and_then(|file| file.set_len(size)).map_err(|error| target.failure(&error))?;
        Ok(target)
    }

    /// Returns the name that the file has until it is complete.
    pub(super) fn part(&self) -> &Path {
        &self.part
    }

    /// Gives the file, which is on the disk, its name. One that got that name meanwhile stays.
    pub(super) fn complete(mut self) -> Result<(), Failure> {
        fs::hard_link(&self.part, &self.path)
            .or_else(|error| match error.kind() {
                ErrorKind::AlreadyExists => Err(error),
                // A file system without links.
                _ => fs::rename(&self.part, &self.path),
            })
            .and_then(|()| self.sync_folder())
            .map_err(|error| self.failure(&error))?;
        self.is_complete = true;
        // Under its first name it is there no more, or goes now.
        let _ = fs::remove_file(&self.part);
        Ok(())
    }

    fn sync_folder(&self) -> io::Result<()> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }

    fn failure(&self, error: &io::Error) -> Failure {
        Failure::failed(format!("{}: {error}", self.path.display()))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if !self.is_complete {
            // One that cannot be removed has a name that says what it is.
            let _ = fs::remove_file(&self.part);
        }
    }
}
