//! The file of a capture, which a child of `fork` opens anew.

use std::ffi::CStr;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use once_cell::race::OnceBox;
use rustix::fs::{Access, Mode, OFlags};

use crate::frame::{Frame, section};

/// An open file of a capture.
pub(crate) struct File {
    fd: OwnedFd,
    /// Device and number of the file: its descriptor may have been closed by a program that closes
    /// what it did not open, and be another file by now.
    identity: (u64, u64),
    process: i32,
}

/// Files that one process, and its parents before it, have opened one after the other.
const MOST: usize = 32;

static NAME: OnceBox<Vec<u8>> = OnceBox::new();
static FILES: [OnceBox<File>; MOST] = [const { OnceBox::new() }; MOST];
static CURRENT: AtomicUsize = AtomicUsize::new(0);

/// Takes the name of the file, which is opened for the first record: most programs of a script have
/// no connection. Its folder must be there, and allow that.
pub(crate) fn begin(name: &Path) -> io::Result<()> {
    let name = std::path::absolute(name)?;
    let folder = name.parent().filter(|_| !name.is_dir()).ok_or(io::ErrorKind::IsADirectory)?;
    rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK)?;
    // A second call has no other name: the first one counts.
    let _ = NAME.set(Box::new(name.into_os_string().into_vec()));
    Ok(())
}

/// Returns the file of this process.
pub(crate) fn current() -> io::Result<&'static File> {
    let process = rustix::process::getpid().as_raw_nonzero().get();
    let at = CURRENT.load(Ordering::Acquire);
    let open = FILES.get(at).and_then(OnceBox::get);
    if let Some(file) = open.filter(|file| file.process == process && file.is_same()) {
        return Ok(file);
    }
    let next = if open.is_some() { at + 1 } else { at };
    let place = FILES.get(next).ok_or(io::ErrorKind::QuotaExceeded)?;
    // Another thread may open it at the same time: then one of the two goes.
    let file = place.get_or_try_init(|| File::open(process).map(Box::new))?;
    let _ = CURRENT.compare_exchange(at, next, Ordering::Release, Ordering::Relaxed);
    Ok(file)
}

impl File {
    /// Opens the file and begins a section in it, behind those of other processes.
    fn open(process: i32) -> io::Result<Self> {
        let name = NAME.get().ok_or(io::ErrorKind::NotFound)?;
        let mut room = [0; LONGEST_NAME];
        let name = expand(name, process, &mut room)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOCTTY;
        let low = rustix::fs::open(name, flags, Mode::RUSR | Mode::WUSR)?;
        // Out of the way of programs that count on low numbers.
        let fd = rustix::io::fcntl_dupfd_cloexec(&low, HIGH).unwrap_or(low);
        let state = rustix::fs::fstat(&fd)?;
        rustix::io::write(&fd, &section())?;
        Ok(File { fd, identity: (state.st_dev, state.st_ino), process })
    }

    fn is_same(&self) -> bool {
        rustix::fs::fstat(&self.fd).is_ok_and(|state| (state.st_dev, state.st_ino) == self.identity)
    }

    /// Appends a frame with its octets, by one call, so that those of other threads and processes
    /// are in front of it or behind it.
    pub(crate) fn append(&self, frame: &Frame, octets: &[IoSlice<'_>]) -> io::Result<()> {
        let around = frame.around(SystemTime::now());
        let mut list = [IoSlice::new(&[]); crate::PIECES + 2];
        list[0] = IoSlice::new(around.front());
        list[1..=octets.len()].copy_from_slice(octets);
        list[octets.len() + 1] = IoSlice::new(around.back());
        let all = around.front().len() + frame.len + around.back().len();
        let written = rustix::io::writev(self.fd.as_fd(), &list[..octets.len() + 2])?;
        // The disk is full, or the octets have gone meanwhile.
        if written == all { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }
}

/// The lowest number that the descriptor has, where the process may have so many.
const HIGH: i32 = 700;

/// Octets of the longest name, and its end (`PATH_MAX`).
const LONGEST_NAME: usize = 4096;

/// Writes the name with the process in the place of `%p`.
fn expand<'a>(name: &[u8], process: i32, room: &'a mut [u8]) -> io::Result<&'a CStr> {
    let mut len = 0;
    let mut push = |octet: u8| -> io::Result<()> {
        // One octet is left for the end.
        let at = room.len() - 1;
        let place = room[..at].get_mut(len).ok_or(io::ErrorKind::InvalidFilename)?;
        *place = octet;
        len += 1;
        Ok(())
    };
    let mut rest = name;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first == b'%' && rest.first() == Some(&b'p') {
            rest = &rest[1..];
            let digits = (0..10).map(|n| 10i32.pow(9 - n)).filter(|unit| process >= *unit);
            for unit in digits {
                push(b'0' + (process / unit % 10) as u8)?;
            }
        } else {
            push(*first)?;
        }
    }
    CStr::from_bytes_until_nul(room).map_err(|_| io::ErrorKind::InvalidFilename.into())
}
