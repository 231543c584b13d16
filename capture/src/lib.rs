//! Captures without root: what this process hands to TCP and UDP and takes from them, as a pcapng
//! file.
//!
//! `RDDP_CAPTURE=FILE` asks for it; `%p` in the name is the process. Each run of octets becomes one
//! TCP frame or several, with the socket's addresses and ports and with sequence numbers from 1 for
//! each direction, so that Wireshark and `rddp decode` read them like any capture. The frames are
//! made up: retransmissions, sizes of segments and times on the wire are TCP's, and are not seen.
//!
//! Nothing here allocates once the file is open, takes a lock or waits, except for the file
//! itself: records are made in signal handlers and behind `fork`, too. A record that cannot be
//! written ends the capture, and never the program's call.

mod file;
mod flows;
mod frame;

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use file::File;
use flows::{Flow, Names};
use frame::{Frame, LONGEST, Transport};

/// Directions of octets, as this process sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// TCP has taken them.
    Sent,
    /// TCP has given them.
    Received,
}

/// The name of the interface to which frames of plain TCP belong; those of iWARP have one of their
/// own.
pub const PLAIN: &str = "rddp-tcp";

/// The name of the interface to which frames of UDP belong.
pub const DATAGRAMS: &str = "rddp-udp";

/// The name of the variable that asks for a capture.
pub const VARIABLE: &str = "RDDP_CAPTURE";

static IS_ON: AtomicBool = AtomicBool::new(false);

/// Returns whether octets are recorded.
#[inline]
#[must_use]
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Begins to record where the environment asks for it, unless this process does so already. A
/// program with the rights of another user than who started it writes no file.
///
/// # Errors
/// The file's folder is not there, or not to be written to. The text names the file.
pub fn begin() -> io::Result<()> {
    let Some(name) = std::env::var_os(VARIABLE).filter(|name| !name.is_empty()) else { return Ok(()) };
    if is_on() || has_foreign_rights() {
        return Ok(());
    }
    let of_file = |error: io::Error| io::Error::new(error.kind(), format!("{name:?}: {error}"));
    begin_at(Path::new(&name)).map_err(of_file)
}

/// Returns whether the program has rights that who started it has not, by its file's owner or
/// capabilities (`AT_SECURE` of getauxval(3)).
fn has_foreign_rights() -> bool {
    const AT_SECURE: usize = 23;
    const WORD: usize = size_of::<usize>();
    // A process that may not look is one of those.
    let Ok(octets) = std::fs::read("/proc/self/auxv") else { return true };
    let words: Vec<usize> =
        octets.chunks_exact(WORD).map(|word| word.try_into().map_or(0, usize::from_ne_bytes)).collect();
    words.chunks_exact(2).any(|pair| pair[0] == AT_SECURE && pair[1] != 0)
}

/// Begins to record to a file of this name.
///
/// # Errors
/// See [`begin`].
fn begin_at(name: &Path) -> io::Result<()> {
    file::begin(name)?;
    IS_ON.store(true, Ordering::Relaxed);
    Ok(())
}

/// Marks a connection as plain TCP, before its first octets: nothing in them would tell.
#[inline]
pub fn is_plain(fd: impl AsFd) {
    if is_on()
        && let Some((flow, _)) = flows::find(fd.as_fd())
    {
        flow.set_plain();
    }
}

/// Records octets that TCP has taken.
#[inline]
pub fn sent(fd: impl AsFd, octets: &[u8]) {
    if is_on() {
        record(fd.as_fd(), Direction::Sent, &[IoSlice::new(octets)], octets.len());
    }
}

/// Records octets that TCP has given.
#[inline]
pub fn received(fd: impl AsFd, octets: &[u8]) {
    if is_on() {
        record(fd.as_fd(), Direction::Received, &[IoSlice::new(octets)], octets.len());
    }
}

/// Records the end of what this process sends, or of what it receives.
#[inline]
pub fn ended(fd: impl AsFd, direction: Direction) {
    if is_on() {
        record_end(fd.as_fd(), direction);
    }
}

/// Records `count` octets of a TCP connection, the first ones of these pieces; of none that have
/// come, the end of the stream.
#[cold]
pub fn record(fd: BorrowedFd<'_>, direction: Direction, pieces: &[IoSlice<'_>], count: usize) {
    if count == 0 && direction == Direction::Received {
        return record_end(fd, direction);
    }
    let written = flows::find(fd).map(|(flow, names)| {
        let file = file::current()?;
        write(file, flow, names, direction, pieces, count)
    });
    if written.is_some_and(|written| written.is_err()) {
        IS_ON.store(false, Ordering::Relaxed);
    }
}

#[cold]
fn record_end(fd: BorrowedFd<'_>, direction: Direction) {
    if let Some((flow, names)) = flows::find(fd)
        && flow.end(direction)
        && let Ok(file) = file::current()
    {
        let (seq, ack) = flow.advance(direction, 1);
        let transport = Transport::Tcp { seq, ack, is_end: true, is_plain: flow.is_plain() };
        let frame = Frame { names, direction, transport, len: 0 };
        let _ = file.append(&frame, &[]);
    }
}

/// Pieces of one frame at most; a program's list of 1,024 goes in several.
const PIECES: usize = 64;

fn write(
    file: &File,
    flow: &Flow,
    names: Names,
    direction: Direction,
    pieces: &[IoSlice<'_>],
    count: usize,
) -> io::Result<()> {
    cut(pieces, count, LONGEST, |list, len| {
        let (seq, ack) = flow.advance(direction, len as u32);
        let transport = Transport::Tcp { seq, ack, is_end: false, is_plain: flow.is_plain() };
        file.append(&Frame { names, direction, transport, len }, list)
    })
}

/// Records `count` octets of UDP that have gone from one end to the other, the first ones of these
/// pieces: datagrams of `segment` octets, of which the last may be shorter.
#[cold]
pub fn datagrams(
    [local, peer]: [SocketAddr; 2],
    direction: Direction,
    pieces: &[IoSlice<'_>],
    count: usize,
    segment: usize,
) {
    let names = Names { local, peer };
    let frame = |len| Frame { names, direction, transport: Transport::Udp, len };
    let written = file::current().and_then(|file| match count {
        0 => file.append(&frame(0), &[]),
        _ => cut(pieces, count, segment.max(1), |list, len| file.append(&frame(len), list)),
    });
    if written.is_err() {
        IS_ON.store(false, Ordering::Relaxed);
    }
}

/// Calls `each` with the first `count` octets of the pieces, up to `longest` at a time.
fn cut(
    pieces: &[IoSlice<'_>],
    count: usize,
    longest: usize,
    mut each: impl FnMut(&[IoSlice<'_>], usize) -> io::Result<()>,
) -> io::Result<()> {
    let mut left = count;
    let mut rest = pieces.iter();
    let mut open: &[u8] = &[];
    while left > 0 {
        let mut list = [IoSlice::new(&[]); PIECES];
        let (mut len, mut used) = (0, 0);
        while used < PIECES && len < longest.min(left) {
            if open.is_empty() {
                let Some(piece) = rest.next() else { break };
                open = piece;
                continue;
            }
            let (part, behind) = open.split_at(open.len().min(longest.min(left) - len));
            (list[used], open) = (IoSlice::new(part), behind);
            (len, used) = (len + part.len(), used + 1);
        }
        if len == 0 {
            break;
        }
        each(&list[..used], len)?;
        left -= len;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
