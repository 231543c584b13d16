//! A file that a copy makes. It has another name until it is complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rddp_command::failure::Failure;

use crate::block::desk::Desk;
use crate::block::disk::lock;
use crate::block::end::Local;

/// The part of a name that a file has until it is complete.
const PART: &str = ".rddp.part";

/// A file that goes, unless it is complete.
pub(super) struct Target {
    path: PathBuf,
    part: PathBuf,
    /// The file, which no other copy makes as long as it is open.
    file: File,
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
        let part = PathBuf::from(part);
        let file = own(path, &part)?;
        let target = Target { path: path.to_owned(), part, file, is_complete: false };
        let emptied = target.file.set_len(0).and_then(|()| target.file.set_len(size));
        emptied.map_err(|error| failure(path, &error))?;
        Ok(target)
    }

    /// Opens the file as a disk.
    pub(super) fn open(&self, desk: &Desk) -> Result<Local, Failure> {
        let file = self.file.try_clone().map_err(|error| failure(&self.path, &error))?;
        Local::of(desk, file, &self.part)
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
            .map_err(|error| failure(&self.path, &error))?;
        self.is_complete = true;
        // Under its first name it is there no more, or goes now.
        let _ = fs::remove_file(&self.part);
        Ok(())
    }

    fn sync_folder(&self) -> io::Result<()> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
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

/// Opens the file that gets a name at the end, or makes it, for this copy alone.
fn own(path: &Path, part: &Path) -> Result<File, Failure> {
    loop {
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(part);
        let file = opened.map_err(|error| failure(path, &error))?;
        lock(&file, part)?;
        // Another copy may have ended meanwhile, and this may be its complete file.
        let opened = file.metadata().map_err(|error| failure(path, &error))?;
        if fs::metadata(part).is_ok_and(|named| (named.dev(), named.ino()) == (opened.dev(), opened.ino())) {
            return Ok(file);
        }
        if path.exists() {
            return Err(failure(path, &ErrorKind::AlreadyExists.into()));
        }
    }
}

fn failure(path: &Path, error: &io::Error) -> Failure {
    let failure = Failure::failed(format!("{}: {error}", path.display()));
    match error.kind() {
        ErrorKind::NotFound => failure.remedy("make its directory first"),
        ErrorKind::PermissionDenied => failure.remedy("name a directory that you may write to"),
        ErrorKind::FileTooLarge => {
            failure.remedy("no file there can be so long: name one on another file system, or a device")
        }
        ErrorKind::StorageFull => failure.remedy("make room, and copy again"),
        _ => failure,
    }
}
