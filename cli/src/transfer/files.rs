//! Files of a served directory, and nothing outside it; and what can be wrong with a file.
//!
//! The kernel itself keeps paths inside (`openat2` with `RESOLVE_BENEATH`), so that a directory that is replaced by a
//! symbolic link at the wrong moment leads nowhere.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2, readlinkat};
use nix::sys::stat::Mode;

use crate::failure::{Failure, Kind};

/// What is added to the name of a file that is not complete. No other file is put or got under such a name: it could be
/// taken for the beginning of one.
pub(super) const PART: &str = ".rddp.part";

/// How a file was not opened, read or written.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    #[error("{0}: outside the served directory")]
    Outside(String),
    #[error("{0}: no such file")]
    NoFile(String),
    #[error("{0}: its directory does not exist")]
    NoDirectory(String),
    #[error("{0}: not a regular file")]
    NotRegular(String),
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
    #[error("{name}: {source}")]
    Other { name: String, source: io::Error },
    /// Not the file's fault.
    #[error("{0}")]
    Stopped(Failure),
}

impl FileError {
    /// As a failure of this host's, or of the host that serves.
    pub(super) fn failure(self, kind: Kind) -> Failure {
        let failure = |error: &FileError| Failure::new(kind, error.to_string());
        match &self {
            FileError::NoSpace { .. } => {
                failure(&self).remedy("make room and repeat: what is there already is kept")
            }
            FileError::Busy(_) => failure(&self).remedy("wait until it has ended"),
            FileError::NoDirectory(_) => failure(&self).remedy("make the directory first"),
            FileError::NoSize(_) => failure(&self)
                .remedy("files such as those of /proc have to be copied first, and the copy sent"),
            FileError::Dangling(_) => failure(&self).remedy("remove the link, or make what it leads to"),
            FileError::OpenFile(_) => failure(&self).remedy("name - for standard output"),
            FileError::Exists(_) => failure(&self).remedy("leave --no-clobber out, or choose another name"),
            FileError::Reserved(_) => failure(&self).remedy("choose another name"),
            FileError::Stopped(stopped) => stopped.clone(),
            _ => failure(&self),
        }
    }

    pub(super) fn new(name: &str, error: impl Into<io::Error>) -> Self {
        let (name, source) = (name.to_owned(), error.into());
        match source.raw_os_error().map(Errno::from_raw) {
            // The kernel's answers to a path that leaves by way of a link or of "..".
            Some(Errno::EXDEV) => FileError::Outside(name),
            Some(Errno::ENOENT) => FileError::NoFile(name),
            Some(Errno::EACCES | Errno::EPERM | Errno::EROFS) => FileError::Permission(name),
            Some(Errno::EISDIR | Errno::ENOTDIR | Errno::ENXIO | Errno::ELOOP) => FileError::NotRegular(name),
            _ => FileError::Other { name, source },
        }
    }
}

/// A directory that peers may name files in.
#[derive(Debug)]
pub(super) struct Root(OwnedFd);

/// Where a file is, or will be: its directory, and its name in there.
#[derive(Debug)]
pub(super) struct Spot {
    pub(super) dir: OwnedFd,
    pub(super) name: String,
}

/// `openat2` asks to be called again when a rename was under way; not for ever.
const TRIES: usize = 16;

/// Symbolic links that are followed one after the other, as many as the kernel follows.
const LINKS: usize = 40;

impl Root {
    pub(super) fn open(path: &Path) -> Result<Self, FileError> {
        directory(path).map(Root)
    }

    /// Opens a regular file to be read.
    pub(super) fn file(&self, path: &str) -> Result<File, FileError> {
        inside(path)?;
        not_reserved(path)?;
        regular_file(path, |flags| self.beneath(path, flags))
    }

    /// Where a file shall be written: what is there is a regular file or nothing. Its directory has
    /// to exist. A symbolic link stands for what it leads to, which has to be there, and inside.
    pub(super) fn spot(&self, path: &str) -> Result<Spot, FileError> {
        inside(path)?;
        let mut at = path.to_owned();
        for _ in 0..LINKS {
            let spot = self.spot_at(&at, path)?;
            match readlinkat(&spot.dir, spot.name.as_str()) {
                Ok(link) => at = beside(&at, &link, path)?,
                Err(Errno::ENOENT) if at != path => break,
                // No link, or nothing.
                Err(Errno::EINVAL | Errno::ENOENT) => return Ok(spot),
                Err(error) => return Err(FileError::new(path, error)),
            }
        }
        Err(FileError::Dangling(path.to_owned()))
    }

    /// The spot of `path` itself, to which links have led from `asked`, the path that errors name.
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
        Ok(Spot { dir, name: name.to_owned() })
    }

    fn beneath(&self, path: &str, flags: OFlag) -> nix::Result<OwnedFd> {
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

/// Returns where the link at `path` leads to, as a path from the served directory; `asked` is the
/// path that errors name.
fn beside(path: &str, link: &OsStr, asked: &str) -> Result<String, FileError> {
    let link = link.to_str().ok_or_else(|| FileError::NotRegular(asked.to_owned()))?;
    match path.rsplit_once('/') {
        _ if link.starts_with('/') => Err(FileError::Outside(asked.to_owned())),
        Some((parent, _)) => Ok(format!("{parent}/{link}")),
        None => Ok(link.to_owned()),
    }
}

/// What can be told from the path alone.
fn inside(path: &str) -> Result<(), FileError> {
    if path.starts_with('/') || path.split('/').any(|part| part == "..") {
        return Err(FileError::Outside(path.to_owned()));
    }
    if path.is_empty() || path.contains('\0') {
        return Err(FileError::NoFile(path.to_owned()));
    }
    Ok(())
}

pub(super) fn not_reserved(path: &str) -> Result<(), FileError> {
    if path.ends_with(PART) { Err(FileError::Reserved(path.to_owned())) } else { Ok(()) }
}

/// Where a file of our own is, or will be.
pub(super) fn local_spot(path: &Path) -> Result<Spot, FileError> {
    let shown = path.display().to_string();
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let dir = directory(parent).map_err(|_| FileError::NoDirectory(shown.clone()))?;
    let name = path.file_name().and_then(|name| name.to_str()).ok_or(FileError::NotRegular(shown))?;
    Ok(Spot { dir, name: name.to_owned() })
}

/// A regular file of our own, to be read.
pub(super) fn local_file(path: &Path) -> Result<File, FileError> {
    let shown = path.display().to_string();
    regular_file(&shown, |flags| open(path, flags, Mode::empty()))
}

/// Opens a regular file to be read. What else is there is not even opened: that a pipe has a reader
/// lets its writer go on, and a device may do something.
fn regular_file(name: &str, open: impl Fn(OFlag) -> nix::Result<OwnedFd>) -> Result<File, FileError> {
    let wrong = |error| FileError::new(name, error);
    regular(&File::from(open(OFlag::O_PATH | OFlag::O_CLOEXEC).map_err(wrong)?), name)?;
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOCTTY | OFlag::O_NONBLOCK;
    let file = File::from(open(flags).map_err(wrong)?);
    regular(&file, name)?;
    Ok(file)
}

fn directory(path: &Path) -> Result<OwnedFd, FileError> {
    let shown = path.display().to_string();
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    open(path, flags, Mode::empty()).map_err(|error| match error {
        Errno::ENOENT | Errno::ENOTDIR => FileError::NoDirectory(shown),
        error => FileError::new(&shown, error),
    })
}

pub(super) fn regular(file: &File, name: &str) -> Result<(), FileError> {
    let metadata = file.metadata().map_err(|error| FileError::new(name, error))?;
    if metadata.is_file() { Ok(()) } else { Err(FileError::NotRegular(name.to_owned())) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A served directory with something beside it.
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
    fn what_is_inside_can_be_read() {
        let (_tree, root) = tree();
        for path in ["file", "sub/file", "./file", "sub/./file", "sub//file", "within"] {
            root.file(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        }
    }

    #[test]
    fn what_leads_outside_is_refused() {
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
    fn what_is_no_regular_file_is_refused() {
        let (tree, root) = tree();
        nix::unistd::mkfifo(&tree.path().join("served/fifo"), Mode::S_IRWXU).unwrap();
        for path in ["sub", "fifo", "file/x", "."] {
            assert!(matches!(root.file(path), Err(FileError::NotRegular(_))), "{path}");
        }
        assert!(matches!(root.file("none"), Err(FileError::NoFile(_))));
        assert!(matches!(root.file(""), Err(FileError::NoFile(_))));
        assert!(matches!(root.file("a\0b"), Err(FileError::NoFile(_))));
        assert!(matches!(root.spot("none/new"), Err(FileError::NoDirectory(_))));
        assert!(matches!(root.spot("sub/"), Err(FileError::NotRegular(_))));
    }

    /// Opening a pipe lets whoever waits for its reader go on, and breaks it at once.
    #[test]
    fn what_is_no_regular_file_is_not_even_opened() {
        let (tree, root) = tree();
        let fifo = tree.path().join("served/fifo");
        nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        let writer = {
            let fifo = fifo.clone();
            std::thread::spawn(move || File::options().write(true).open(fifo).map(drop))
        };
        // Until it waits there; a writer that comes later proves nothing, but harms nothing.
        std::thread::sleep(std::time::Duration::from_millis(50));
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
