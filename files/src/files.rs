//! Access to the files of a served directory, and to nothing outside it; and the errors of a file.
//!
//! The kernel itself keeps paths inside the directory (`openat2` with `RESOLVE_BENEATH`): a
//! directory that is replaced by a symbolic link at the wrong moment does not lead out of it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, open, openat2, readlinkat};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};
use rddp_command::failure::{Failure, FailureKind, MORE_FILES, printable_name};
use rddp_rnic::MemError;
use sha2::{Digest, Sha256};

/// The suffix to the name of a file that is not complete. No other file is put or got under a name
/// with this suffix, because it could be taken for the first part of one.
pub(super) const PART: &str = ".rddp.part";

/// Octets of the longest name of a file.
const LONGEST_NAME: usize = 255;

/// An error of opening, reading or writing a file.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    #[error("{0}: outside the served directory")]
    Outside(String),
    #[error("{0}: no such file")]
    NoFile(String),
    #[error("{0}: its directory does not exist")]
    NoDirectory(String),
    #[error("{0}: not a directory")]
    NotDirectory(String),
    #[error("{0}: not a regular file")]
    NotRegular(String),
    #[error("{0}: a directory")]
    Directory(String),
    #[error("{0}: it is there already")]
    Exists(String),
    #[error("{0}: a symbolic link that leads nowhere")]
    Dangling(String),
    #[error("{0}: a link to an open file, not to a path")]
    OpenFile(String),
    #[error("{0}: permission denied")]
    Permission(String),
    #[error("{0}: names that end in {PART} are those of files that are not complete")]
    Reserved(String),
    #[error("{0}: somebody else has replaced or removed its {PART}")]
    Replaced(String),
    /// Something else has the name of a file that is not complete.
    #[error("{name}: {part} is in its way, and no regular file")]
    InTheWay { name: String, part: String },
    #[error("{0}: another transfer is writing it")]
    Busy(String),
    #[error("{name}: no space left on the device ({free} free, {need} needed)")]
    NoSpace { name: String, free: String, need: String },
    #[error("{0}: no space left on the device")]
    Full(String),
    #[error("{0}: it has octets, but no size")]
    NoSize(String),
    #[error("{0}: it changed while it was being read")]
    Changed(String),
    /// A file at the server, which could not say which of the two it is.
    #[error("{0}: it changed while it was being read, or its disk failed at the server")]
    ChangedThere(String),
    /// This process, or its host, can open no more files at the moment.
    #[error("{name}: {source}")]
    NoDescriptor { name: String, source: io::Error },
    #[error("{name}: {source}")]
    Other { name: String, source: io::Error },
    /// An error that is not about the file.
    #[error("{0}")]
    Stopped(Failure),
}

impl FileError {
    /// Returns the error as a failure of this host, or of the host that serves.
    pub(super) fn failure(self, kind: FailureKind) -> Failure {
        // A name alone can have backslashes.
        let failure = |error: &FileError| Failure::new(kind, printable_name(&error.to_string()));
        match &self {
            FileError::NoSpace { .. } => {
                failure(&self).remedy("make room and repeat: what is there already is kept")
            }
            FileError::Full(_) => failure(&self).remedy("make room, and repeat the command"),
            FileError::Changed(_) => failure(&self).remedy("repeat the command when nobody writes it"),
            FileError::ChangedThere(_) => failure(&self)
                .remedy("repeat the command when nobody writes it there; the server's log says more"),
            FileError::InTheWay { part, .. } => failure(&self).remedy(format!("remove or rename {part}")),
            FileError::Busy(_) => failure(&self).remedy("wait until it has ended"),
            FileError::Directory(_) => failure(&self).remedy("--recursive for directories"),
            FileError::NoDirectory(_) => failure(&self).remedy("make the directory first"),
            FileError::NoSize(_) => failure(&self)
                .remedy("files such as those of /proc have to be copied first, and the copy sent"),
            FileError::Dangling(_) => failure(&self).remedy("remove the link, or make what it leads to"),
            FileError::OpenFile(_) => failure(&self).remedy("name - for standard output"),
            FileError::Exists(_) => failure(&self).remedy("leave --no-clobber out, or choose another name"),
            FileError::Reserved(_) => failure(&self).remedy("choose another name"),
            FileError::NoDescriptor { .. } => failure(&self).remedy(MORE_FILES),
            FileError::Stopped(stopped) => stopped.clone(),
            _ => failure(&self),
        }
    }

    /// An error of the memory that octets of a file go through.
    pub(super) fn memory(error: MemError) -> Self {
        FileError::Stopped(error.into())
    }

    /// An error of writing to a file.
    pub(super) fn writing(name: &str, error: impl Into<io::Error>) -> Self {
        let error = error.into();
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOSPC | Errno::EDQUOT) => FileError::Full(name.to_owned()),
            _ => FileError::new(name, error),
        }
    }

    pub(super) fn new(name: &str, error: impl Into<io::Error>) -> Self {
        let (name, source) = (name.to_owned(), error.into());
        match source.raw_os_error().map(Errno::from_raw) {
            // The kernel's errors for a path that leads out by a link or by "..".
            Some(Errno::EXDEV) => FileError::Outside(name),
            Some(Errno::ENOENT) => FileError::NoFile(name),
            Some(Errno::EACCES | Errno::EPERM | Errno::EROFS) => FileError::Permission(name),
            Some(Errno::ENOTDIR) => FileError::NotDirectory(name),
            Some(Errno::EISDIR | Errno::ENXIO | Errno::ELOOP) => FileError::NotRegular(name),
            Some(Errno::EMFILE | Errno::ENFILE) => FileError::NoDescriptor { name, source },
            _ => FileError::Other { name, source },
        }
    }
}

/// A directory whose files peers may name.
#[derive(Debug)]
pub(super) struct Root(OwnedFd);

/// The place of a file that exists or will exist: its directory, and its name in that.
#[derive(Debug)]
pub(super) struct Spot {
    pub(super) dir: OwnedFd,
    pub(super) name: OsString,
}

impl Spot {
    /// Returns the name as messages have it.
    pub(super) fn shown(&self) -> String {
        self.name.to_string_lossy().into_owned()
    }
}

/// Number of calls of `openat2` before giving up: it asks to be called again when a rename
/// interfered.
const TRIES: usize = 16;

/// Number of symbolic links that are followed one after the other; the kernel follows as many.
const LINKS: usize = 40;

impl Root {
    pub(super) fn open(path: &Path) -> Result<Self, FileError> {
        directory(path).map(Root)
    }

    /// Opens a regular file for reading.
    pub(super) fn file(&self, path: &str) -> Result<File, FileError> {
        inside(path)?;
        not_reserved(path)?;
        regular_file(path, |flags| self.beneath(path, flags))
    }

    /// Returns the place at which a file shall be written. There is a regular file or nothing; its
    /// directory exists. A symbolic link stands for the file that it leads to, which must exist
    /// inside the served directory.
    pub(super) fn spot(&self, path: &str) -> Result<Spot, FileError> {
        inside(path)?;
        let mut at = path.to_owned();
        for _ in 0..LINKS {
            let spot = self.spot_at(&at, path)?;
            match readlinkat(&spot.dir, &*spot.name) {
                Ok(link) => at = beside(&at, &link, path)?,
                Err(Errno::ENOENT) if at != path => break,
                // Not a link, or nothing there.
                Err(Errno::EINVAL | Errno::ENOENT) => return Ok(spot),
                Err(error) => return Err(FileError::new(path, error)),
            }
        }
        Err(FileError::Dangling(path.to_owned()))
    }

    /// Returns the place of `path` itself. Links have led to it from `asked`, the path that errors
    /// name.
    fn spot_at(&self, path: &str, asked: &str) -> Result<Spot, FileError> {
        let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
        if matches!(name, "" | "." | "..") {
            return Err(FileError::NotRegular(asked.to_owned()));
        }
        let dir = self.beneath(parent, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC);
        let dir = dir.map_err(|error| match error {
            Errno::ENOENT | Errno::ENOTDIR => FileError::NoDirectory(asked.to_owned()),
            error => FileError::new(asked, error),
        })?;
        Ok(Spot { dir, name: name.into() })
    }

    pub(super) fn beneath(&self, path: &str, flags: OFlag) -> nix::Result<OwnedFd> {
        let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        let how = OpenHow::new().flags(flags).resolve(resolve);
        let mut opened = Err(Errno::EAGAIN);
        for _ in 0..TRIES {
            opened = openat2(self.0.as_fd(), path, how);
            if !matches!(opened, Err(Errno::EAGAIN)) {
                break;
            }
        }
        opened
    }
}

/// Returns the path, from the served directory, to which the link at `path` leads; `asked` is the
/// path that errors name.
fn beside(path: &str, link: &OsStr, asked: &str) -> Result<String, FileError> {
    let link = link.to_str().ok_or_else(|| FileError::NotRegular(asked.to_owned()))?;
    match path.rsplit_once('/') {
        _ if link.starts_with('/') => Err(FileError::Outside(asked.to_owned())),
        Some((parent, _)) => Ok(format!("{parent}/{link}")),
        None => Ok(link.to_owned()),
    }
}

/// Returns the name of a file that is not complete: the file's own with [`PART`] behind it, or, of
/// a name that is too long for that, one that is made of its SHA-256.
pub(super) fn part_of(name: &OsStr) -> OsString {
    let mut part = name.to_owned();
    if name.len() + PART.len() > LONGEST_NAME {
        let digest = Sha256::digest(name.as_encoded_bytes());
        part = digest[..16].iter().fold(OsString::from("."), |part, octet| {
            [part, format!("{octet:02x}").into()].into_iter().collect()
        });
    }
    part.push(PART);
    part
}

/// Sets the permissions of a file or directory that is open, also by `O_PATH` alone, which
/// fchmod(2) does not take.
pub(super) fn set_mode(open: &impl AsRawFd, mode: u32) -> nix::Result<()> {
    let path = format!("/proc/self/fd/{}", open.as_raw_fd());
    fchmodat(AT_FDCWD, &*path, Mode::from_bits_truncate(mode), FchmodatFlags::FollowSymlink)
}

/// Refuses paths that cannot be valid, whatever is in the directory.
pub(super) fn inside(path: &str) -> Result<(), FileError> {
    if path.starts_with('/') || path.split('/').any(|part| part == "..") {
        return Err(FileError::Outside(path.to_owned()));
    }
    if path.is_empty() || path.contains('\0') {
        return Err(FileError::NoFile(path.to_owned()));
    }
    Ok(())
}

pub(super) fn not_reserved(path: impl AsRef<OsStr>) -> Result<(), FileError> {
    let path = path.as_ref();
    if path.as_encoded_bytes().ends_with(PART.as_bytes()) {
        return Err(FileError::Reserved(path.to_string_lossy().into_owned()));
    }
    Ok(())
}

/// Returns the place of a local file that exists or will exist.
pub(super) fn local_spot(path: &Path) -> Result<Spot, FileError> {
    let shown = path.display().to_string();
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let dir = directory(parent).map_err(|error| match error {
        FileError::NoDirectory(_) => FileError::NoDirectory(shown.clone()),
        error => error,
    })?;
    let name = path.file_name().ok_or(FileError::NotRegular(shown))?;
    Ok(Spot { dir, name: name.to_owned() })
}

/// Opens a local regular file for reading.
pub(super) fn local_file(path: &Path) -> Result<File, FileError> {
    let shown = path.display().to_string();
    regular_file(&shown, |flags| open(path, flags, Mode::empty()))
}

/// Opens a regular file for reading. Anything else is not even opened: opening a pipe lets its
/// writer continue, and opening a device may have an effect.
fn regular_file(name: &str, open: impl Fn(OFlag) -> nix::Result<OwnedFd>) -> Result<File, FileError> {
    let wrong = |error| FileError::new(name, error);
    regular(&File::from(open(OFlag::O_PATH | OFlag::O_CLOEXEC).map_err(wrong)?), name)?;
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOCTTY | OFlag::O_NONBLOCK;
    let file = File::from(open(flags).map_err(wrong)?);
    regular(&file, name)?;
    Ok(file)
}

pub(super) fn directory(path: &Path) -> Result<OwnedFd, FileError> {
    let shown = path.display().to_string();
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    open(path, flags, Mode::empty()).map_err(|error| match error {
        Errno::ENOENT => FileError::NoDirectory(shown),
        Errno::ENOTDIR => FileError::NotDirectory(shown),
        error => FileError::new(&shown, error),
    })
}

pub(super) fn regular(file: &File, name: &str) -> Result<(), FileError> {
    let metadata = file.metadata().map_err(|error| FileError::new(name, error))?;
    match metadata.is_file() {
        true => Ok(()),
        false if metadata.is_dir() => Err(FileError::Directory(name.to_owned())),
        false => Err(FileError::NotRegular(name.to_owned())),
    }
}

/// Returns the failure that a client is told for an error of a file.
pub(super) fn refused(error: FileError) -> Failure {
    match error {
        FileError::Changed(_) => error.failure(FailureKind::Changed),
        // Descriptors are wanted like places. Files that are open need no more of them, so the
        // client loses nothing if it comes back; of a tree, it has what has arrived.
        FileError::NoDescriptor { .. } => error.failure(FailureKind::TurnedAway),
        _ => error.failure(FailureKind::Refused),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A served directory, with something beside it.
    fn tree() -> (tempfile::TempDir, Root) {
        let tree = tempfile::tempdir().unwrap();
        let served = tree.path().join("served");
        std::fs::create_dir_all(served.join("sub")).unwrap();
        std::fs::write(tree.path().join("secret"), "secret").unwrap();
        std::fs::write(served.join("file"), "file").unwrap();
        std::fs::write(served.join("sub/file"), "file").unwrap();
        symlink("../secret", served.join("out")).unwrap();
        symlink(tree.path(), served.join("up")).unwrap();
        symlink("/etc/passwd", served.join("absolute")).unwrap();
        symlink("sub/file", served.join("within")).unwrap();
        let root = Root::open(&served).unwrap();
        (tree, root)
    }

    #[test]
    fn files_inside_can_be_read() {
        let (_tree, root) = tree();
        for path in ["file", "sub/file", "./file", "sub/./file", "sub//file", "within"] {
            root.file(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        }
    }

    #[test]
    fn paths_that_lead_outside_are_refused() {
        let (_tree, root) = tree();
        for path in [
            "/etc/passwd",
            "../secret",
            "sub/../../secret",
            "sub/../file",
            "out",
            "up/secret",
            "absolute",
            "..",
        ] {
            assert!(matches!(root.file(path), Err(FileError::Outside(_))), "{path}");
        }
        for path in ["/tmp/new", "../new", "up/new", "up/served/new", "sub/../../new", ".."] {
            assert!(matches!(root.spot(path), Err(FileError::Outside(_))), "{path}");
        }
    }

    #[test]
    fn anything_but_a_regular_file_is_refused() {
        let (tree, root) = tree();
        nix::unistd::mkfifo(&tree.path().join("served/fifo"), Mode::S_IRWXU).unwrap();
        for path in ["sub", "."] {
            assert!(matches!(root.file(path), Err(FileError::Directory(_))), "{path}");
        }
        assert!(matches!(root.file("fifo"), Err(FileError::NotRegular(_))));
        assert!(matches!(root.file("file/x"), Err(FileError::NotDirectory(_))));
        assert!(matches!(root.file("none"), Err(FileError::NoFile(_))));
        assert!(matches!(root.file(""), Err(FileError::NoFile(_))));
        assert!(matches!(root.file("a\0b"), Err(FileError::NoFile(_))));
        assert!(matches!(root.spot("none/new"), Err(FileError::NoDirectory(_))));
        assert!(matches!(root.spot("sub/"), Err(FileError::NotRegular(_))));
    }

    /// Opening a pipe lets a writer that waits for a reader continue, and closing the pipe then
    /// breaks it.
    #[test]
    fn only_regular_files_are_opened() {
        let (tree, root) = tree();
        let fifo = tree.path().join("served/fifo");
        nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        let sleeper = std::sync::Arc::new(rddp_test_support::Sleeper::default());
        let writer = {
            let fifo = fifo.clone();
            let here = sleeper.clone();
            std::thread::spawn(move || {
                here.is_here();
                File::options().write(true).open(fifo).map(drop)
            })
        };
        sleeper.await_asleep();
        assert!(matches!(root.file("fifo"), Err(FileError::NotRegular(_))));
        assert!(matches!(local_file(&fifo), Err(FileError::NotRegular(_))));
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!writer.is_finished());
        drop(File::open(&fifo));
        writer.join().unwrap().unwrap();
    }

    #[test]
    fn a_link_stands_for_what_it_leads_to() {
        let (tree, root) = tree();
        symlink("../within", tree.path().join("served/sub/back")).unwrap();
        symlink("none", tree.path().join("served/loose")).unwrap();
        symlink("sub/..", tree.path().join("served/dots")).unwrap();
        for path in ["within", "sub/back"] {
            assert_eq!(root.spot(path).unwrap().name, "file", "{path}");
        }
        for path in ["out", "absolute"] {
            assert!(matches!(root.spot(path), Err(FileError::Outside(_))), "{path}");
        }
        assert!(matches!(root.spot("loose"), Err(FileError::Dangling(_))));
        assert!(matches!(root.spot("dots"), Err(FileError::NotRegular(_))));
    }
}
