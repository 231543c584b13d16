//! The file or descriptor to which lines are written.
//!
//! A file is opened for each line: a program that closes what it did not open would close it, and
//! its number would be another file's by then. In a child of `fork`, `%p` is the child.

use std::ffi::CStr;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use once_cell::race::OnceBox;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, FileType, Mode, OFlags};
use rustix::io::ReadWriteFlags;
use rustix::net::{AddressFamily, SendFlags};

/// A destination of lines.
#[derive(Clone, Copy)]
pub(crate) enum Output {
    Stderr,
    /// The parts of the file's name, between which the number of the process stands.
    File(&'static [Vec<u8>]),
}

static FILE: OnceBox<Vec<Vec<u8>>> = OnceBox::new();
/// Lines that were dropped since the last one that was written.
static DROPPED: AtomicU32 = AtomicU32::new(0);

/// Takes the name of the file, which the first line makes. Its folder must be there, and allow
/// that.
pub(crate) fn set_file(name: &Path) -> io::Result<()> {
    let name = std::path::absolute(name)?;
    let folder = name.parent().filter(|_| !name.is_dir()).ok_or(ErrorKind::IsADirectory)?;
    rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK)?;
    let octets = name.as_os_str().as_bytes();
    let mut parts = vec![Vec::new()];
    let mut rest = octets;
    while let Some((first, behind)) = rest.split_first() {
        if let Some(behind) = rest.strip_prefix(b"%p") {
            parts.push(Vec::new());
            rest = behind;
        } else {
            parts.last_mut().into_iter().for_each(|part: &mut Vec<u8>| part.push(*first));
            rest = behind;
        }
    }
    // A second call has no other name: the first one counts.
    let _ = FILE.set(Box::new(parts));
    Ok(())
}

/// Returns the destination of this process's lines.
pub(crate) fn current() -> Output {
    FILE.get().map_or(Output::Stderr, |parts| Output::File(parts))
}

/// Returns whether lines go to standard error.
pub fn is_on_stderr() -> bool {
    FILE.get().is_none()
}

/// Returns the number of lines that were dropped since the last one that was written.
pub(crate) fn dropped() -> u32 {
    DROPPED.load(Ordering::Relaxed)
}

impl Output {
    /// Writes a line that tells of `dropped` lines, or drops it where that would have to wait or
    /// fails.
    pub(crate) fn write(self, line: &[u8], dropped: u32) {
        let written = match self {
            Output::Stderr => write_now(rustix::stdio::stderr(), line),
            Output::File(parts) => open(parts).and_then(|file| write_now(file.as_fd(), line)),
        };
        let left = |before: u32| match written {
            // Another thread's line may have told of the same ones.
            Ok(()) => before.saturating_sub(dropped),
            Err(_) => before.saturating_add(1),
        };
        let _ = DROPPED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| Some(left(before)));
    }
}

/// Octets of the longest name, with its end (`PATH_MAX`).
const LONGEST_NAME: usize = 4096;

fn open(parts: &[Vec<u8>]) -> io::Result<std::os::fd::OwnedFd> {
    let mut room = [0; LONGEST_NAME];
    // The last octet is left as the end.
    let mut rest = &mut room[..LONGEST_NAME - 1];
    let process = rustix::process::getpid().as_raw_nonzero();
    for (number, part) in parts.iter().enumerate() {
        if number > 0 {
            write!(rest, "{process}")?;
        }
        rest.write_all(part)?;
    }
    let name = CStr::from_bytes_until_nul(&room).map_err(|_| ErrorKind::InvalidFilename)?;
    // Whoever can write to the folder can make a link: it is not followed.
    let flags = OFlags::WRONLY
        | OFlags::CREATE
        | OFlags::APPEND
        | OFlags::CLOEXEC
        | OFlags::NOCTTY
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK;
    Ok(rustix::fs::open(name, flags, Mode::RUSR | Mode::WUSR)?)
}

/// Writes a line by one call, which does not sleep and raises no signal.
fn write_now(fd: BorrowedFd<'_>, line: &[u8]) -> io::Result<()> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode);
    let count = match kind {
        FileType::RegularFile => rustix::io::retry_on_intr(|| rustix::io::write(fd, line))?,
        FileType::Socket => send(fd, line)?,
        _ => {
            await_nothing(fd)?;
            match rustix::io::pwritev2(fd, &[io::IoSlice::new(line)], CURRENT, ReadWriteFlags::NOWAIT) {
                // Terminals, and pipes of old kernels, do not know this flag.
                Err(rustix::io::Errno::OPNOTSUPP) => rustix::io::write(fd, line)?,
                written => written?,
            }
        }
    };
    if count == line.len() { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
}

/// `pwritev2` of no offset.
const CURRENT: u64 = u64::MAX;

/// Sends to a local socket. A connection to another host is somebody's who must not read lines.
fn send(fd: BorrowedFd<'_>, line: &[u8]) -> io::Result<usize> {
    if rustix::net::sockopt::socket_domain(fd)? != AddressFamily::UNIX {
        return Err(ErrorKind::PermissionDenied.into());
    }
    Ok(rustix::net::send(fd, line, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
}

/// Fails unless a line can be written now: a pipe that is full, or that nobody reads, would make
/// the caller sleep, or get SIGPIPE.
fn await_nothing(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    poll(&mut fds, Some(&Timespec::default()))?;
    if fds[0].revents() == PollFlags::OUT { Ok(()) } else { Err(ErrorKind::WouldBlock.into()) }
}

#[cfg(test)]
mod tests;
