//! The work of an operation, and the doing of as much of it as needs no waiting.

use std::ffi::c_int;

use libc::{MSG_MORE, POLLOUT, off_t};
use rddp_real::Errno;

use super::event::EventType;
use super::memory::Used;
use crate::as_program::{self, Address, Pieces, Places, would_block};
use crate::sys::exs::Event;
use crate::threads::Direction;

/// The calls that an operation makes, with their arguments.
#[derive(Debug)]
#[expect(missing_docs, reason = "each is what the call of its name was given")]
pub enum Work {
    Send {
        pieces: Pieces,
        flags: c_int,
        used: Used,
        is_message: bool,
    },
    Receive {
        pieces: Pieces,
        flags: c_int,
        used: Used,
        is_message: bool,
        arrived: c_int,
    },
    /// `parts` are in reverse order: the last is the next to be sent.
    SendFile {
        parts: Vec<Part>,
        flags: c_int,
        used: Used,
    },
    Connect {
        addr: Address,
        begun: bool,
    },
    Accept {
        places: Places,
        own_ahandle: bool,
    },
}

/// The result of one try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The socket is not ready: to be tried again when it is.
    Later,
    /// The operation has ended, with success or an error.
    Ended(Result<(), Errno>),
}

/// A part of a file, or memory.
#[derive(Debug)]
pub enum Part {
    /// A piece of memory.
    Memory(Pieces),
    /// A range of a file, from an offset on.
    File { fd: c_int, offset: off_t, left: usize, staged: Staged },
}

/// Octets that were read from a file and not sent yet.
#[derive(Debug, Default)]
pub struct Staged {
    octets: Vec<u8>,
    sent: usize,
}

/// Octets that are read from a file at a time.
const STAGE: usize = 64 << 10;
/// Stages of one try, so that other operations have their turn.
const STAGES: usize = 16;

impl Work {
    pub(super) fn event_type(&self) -> EventType {
        match self {
            Work::Send { is_message: false, .. } => EventType::Send,
            Work::Send { .. } => EventType::SendMsg,
            Work::Receive { is_message: false, .. } => EventType::Recv,
            Work::Receive { .. } => EventType::RecvMsg,
            Work::SendFile { .. } => EventType::SendFile,
            Work::Connect { .. } => EventType::Connect,
            Work::Accept { .. } => EventType::Accept,
        }
    }

    /// Returns the direction whose order of events the operation keeps (EX2).
    pub(super) fn direction(&self) -> Direction {
        match self {
            Work::Send { .. } | Work::SendFile { .. } | Work::Connect { .. } => Direction::Send,
            Work::Receive { .. } | Work::Accept { .. } => Direction::Receive,
        }
    }

    /// Returns the memory of a send from memory alone.
    pub(super) fn to_send(&self) -> Option<&Pieces> {
        if let Work::Send { pieces, .. } = self { Some(pieces) } else { None }
    }

    /// Counts off octets of such a send; returns how many there were.
    pub(super) fn pass(&mut self, octets: usize) -> usize {
        let Work::Send { pieces, .. } = self else { return 0 };
        let count = octets.min(pieces.left());
        pieces.pass(count);
        count
    }

    /// Returns for how many octets that come next a receive has room.
    pub(super) fn room(&self) -> usize {
        match self {
            Work::Receive { pieces, flags, .. } if flags & libc::MSG_PEEK == 0 => pieces.left(),
            _ => 0,
        }
    }

    /// Does as much as needs no waiting, and adds the octets or sockets to `moved`.
    pub(super) fn attempt(&mut self, fd: c_int, moved: &mut usize) -> Outcome {
        let tried = match self {
            Work::Send { pieces, flags, .. } => send(fd, pieces, *flags, moved),
            Work::Receive { pieces, flags, arrived, .. } => receive(fd, pieces, *flags, arrived, moved),
            Work::SendFile { parts, flags, .. } => send_file(fd, parts, *flags, moved),
            Work::Connect { addr, begun } => connect(fd, addr, begun),
            Work::Accept { places, .. } => accept(fd, places, moved),
        };
        match tried {
            Ok(true) => Outcome::Ended(Ok(())),
            Ok(false) => Outcome::Later,
            Err(errno) if would_block(errno) => Outcome::Later,
            Err(errno) => Outcome::Ended(Err(errno)),
        }
    }

    /// Fills the fields of the event that depend on the kind of operation (EX9).
    pub(super) fn describe(&self, event: &mut Event) {
        match self {
            Work::Send { pieces, .. } => event.at = pieces.start().expose_provenance(),
            Work::Receive { pieces, arrived, .. } => {
                event.at = pieces.start().expose_provenance();
                event.detail = *arrived;
            }
            Work::Accept { places, own_ahandle } => {
                event.at = places.start().expose_provenance();
                if *own_ahandle {
                    event.ahandle = places.first_ahandle();
                }
            }
            Work::SendFile { .. } | Work::Connect { .. } => {}
        }
    }
}

impl Part {
    /// Makes a part of a file, or of as much of it as there is; a length of 0 goes to the file's
    /// end.
    pub(crate) fn file(fd: c_int, offset: off_t, len: usize) -> Result<Self, Errno> {
        let there = as_program::file_length(fd, offset)?;
        let left = if len == 0 { there } else { len.min(there) };
        Ok(Part::File { fd, offset, left, staged: Staged::default() })
    }
}

/// Sends what the socket takes. `Ok(true)`: everything has been sent.
fn send(fd: c_int, pieces: &mut Pieces, flags: c_int, moved: &mut usize) -> Result<bool, Errno> {
    let count = as_program::send(fd, pieces, flags)?;
    pieces.pass(count);
    *moved += count;
    Ok(pieces.left() == 0)
}

/// Receives what is there; with `MSG_WAITALL`, until the memory is full (EX5).
fn receive(
    fd: c_int,
    pieces: &mut Pieces,
    flags: c_int,
    arrived: &mut c_int,
    moved: &mut usize,
) -> Result<bool, Errno> {
    let waits = flags & libc::MSG_WAITALL != 0;
    loop {
        let (count, with) = as_program::receive(fd, pieces, flags & !libc::MSG_WAITALL)?;
        *moved += count;
        *arrived |= with;
        pieces.pass(count);
        if count == 0 || !waits || pieces.left() == 0 {
            return Ok(true);
        }
    }
}

fn send_file(fd: c_int, parts: &mut Vec<Part>, flags: c_int, moved: &mut usize) -> Result<bool, Errno> {
    for _ in 0..STAGES {
        let more = if parts.len() > 1 { flags | MSG_MORE } else { flags };
        let done = match parts.last_mut() {
            None => return Ok(true),
            Some(Part::Memory(pieces)) => send(fd, pieces, more, moved)?,
            Some(Part::File { fd: file, offset, left, staged }) => {
                staged.fill(*file, offset, left)?;
                // There are more octets of this file to come.
                let more = if *left == 0 { more } else { more | MSG_MORE };
                staged.send(fd, more, moved)? && *left == 0
            }
        };
        if done {
            parts.pop();
        }
    }
    Ok(parts.is_empty())
}

impl Staged {
    /// Reads the next stage once all of the last was sent. A file that has become shorter ends
    /// early.
    fn fill(&mut self, file: c_int, offset: &mut off_t, left: &mut usize) -> Result<(), Errno> {
        if self.sent < self.octets.len() {
            return Ok(());
        }
        self.sent = 0;
        self.octets.resize(STAGE.min(*left), 0);
        let count = match as_program::read_at(file, &mut self.octets, *offset) {
            // Reading the file failed; the operation waits for the socket alone.
            Err(errno) if would_block(errno) => return Err(Errno(libc::EIO)),
            read => read?,
        };
        self.octets.truncate(count);
        *offset += count as off_t;
        *left = if count == 0 { 0 } else { *left - count };
        Ok(())
    }

    fn send(&mut self, fd: c_int, flags: c_int, moved: &mut usize) -> Result<bool, Errno> {
        if self.octets.is_empty() {
            return Ok(true);
        }
        let count = as_program::send_octets(fd, &self.octets[self.sent..], flags)?;
        self.sent += count;
        *moved += count;
        Ok(self.sent == self.octets.len())
    }
}

fn connect(fd: c_int, addr: &Address, begun: &mut bool) -> Result<bool, Errno> {
    if *begun {
        if !as_program::is_ready(fd, POLLOUT)? {
            return Ok(false);
        }
        return as_program::socket_error(fd).map(|()| true);
    }
    match as_program::connect(fd, addr) {
        Ok(()) => Ok(true),
        Err(Errno(libc::EINPROGRESS) | Errno::INTERRUPTED) => {
            *begun = true;
            Ok(false)
        }
        Err(errno) => Err(errno),
    }
}

/// Accepts as many connections as wait, at least one.
fn accept(fd: c_int, places: &mut Places, moved: &mut usize) -> Result<bool, Errno> {
    while !places.are_full() {
        match as_program::accept(fd, places) {
            Ok(()) => {}
            // This connection is gone; another may wait.
            Err(Errno::ABORTED) => continue,
            Err(_) if places.filled() > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    *moved = places.filled();
    Ok(true)
}
