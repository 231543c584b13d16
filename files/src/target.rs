//! The target of a get: a file, or something that is written to and never replaced (a pipe, a
//! device, standard output).

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::Mode;
use rddp_command::signals;

use super::files::{FileError, Spot, local_spot};
use super::partial::Clobber;

/// The name that stands for standard output, and for standard input.
pub(super) const STANDARD: &str = "-";

pub(super) enum Target {
    /// A regular file, or a name that is free.
    File(Spot),
    /// A pipe, a device or standard output, and its name in messages.
    Stream(File, String),
}

impl Target {
    /// Finds out what the target is. For a pipe, waits until there is a reader.
    pub(super) fn of(path: &Path, clobber: Clobber) -> Result<Self, FileError> {
        let shown = path.display().to_string();
        let wrong = |error: io::Error| FileError::new(&shown, error);
        if path == Path::new(STANDARD) {
            let out = io::stdout().as_fd().try_clone_to_owned().map_err(wrong)?;
            return Ok(Target::Stream(File::from(out), "standard output".to_owned()));
        }
        // Opening a path with `O_PATH` has no effect on what is there.
        let there = match open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()) {
            Ok(there) => File::from(there),
            Err(Errno::ENOENT | Errno::ELOOP) if is_link(path) => return Err(FileError::Dangling(shown)),
            Err(_) => return local_spot(path).map(Target::File),
        };
        let kind = there.metadata().map_err(wrong)?.file_type();
        if kind.is_fifo() || kind.is_char_device() || kind.is_block_device() {
            let file = write_to(path, &shown)?;
            return Ok(Target::Stream(file, shown));
        }
        if clobber == Clobber::No {
            return Err(FileError::Exists(shown));
        }
        if kind.is_file() && is_link(path) { behind(path, &shown) } else { local_spot(path) }
            .map(Target::File)
    }
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|there| there.is_symlink())
}

/// Returns the file to which a link leads.
fn behind(path: &Path, shown: &str) -> Result<Spot, FileError> {
    // A link of the kernel's own (/proc/self/fd/1) leads to an open file, whatever its path says.
    let how =
        OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC).resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let opened: nix::Result<OwnedFd> = openat2(AT_FDCWD, path, how);
    opened.map_err(|_| FileError::OpenFile(shown.to_owned()))?;
    local_spot(&fs::canonicalize(path).map_err(|error| FileError::new(shown, error))?)
}

/// Opens a pipe or a device.
fn write_to(path: &Path, shown: &str) -> Result<File, FileError> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    loop {
        let file = match File::options().write(true).custom_flags(flags.bits()).open(path) {
            // The pipe has no reader.
            Err(error) if error.raw_os_error() == Some(Errno::ENXIO as i32) => {
                signals::sleep(signals::CHECK_INTERVAL).map_err(FileError::Stopped)?;
                continue;
            }
            opened => opened.map_err(|error| FileError::new(shown, error))?,
        };
        let kind = file.metadata().map_err(|error| FileError::new(shown, error))?.file_type();
        return if kind.is_file() { Err(FileError::Replaced(shown.to_owned())) } else { Ok(file) };
    }
}
