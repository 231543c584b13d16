//! The replies of a server to the requests of one connection ("Simple reply message", "Structured
//! reply chunk message").
//!
//! A machine: the client notes what it asks by [`Replies::ask`] and sends that. It reads what
//! [`Replies::wanted`] says: octets for [`Replies::take`], or payload into the buffer of a read and
//! then [`Replies::placed`]. Both say what has come of it.

use std::collections::HashMap;

use super::super::options::{be16, be32};
use super::super::reply::{
    BLOCK_STATUS, DONE, ERROR, MOST_EXTENTS, NONE, OFFSET_DATA, SIMPLE, STRUCTURED, ZERO,
};
use super::super::request::{REQUEST_LEN, Request};
use super::super::{Terms, error_of};
use super::opening::{Open, Said};
use super::pieces::Pieces;
use crate::export::{Command, DiskError, Extent};

/// Octets in front of every reply: all of a simple one.
const HEADER_LEN: usize = 16;

const OFFSET_HOLE: u16 = 2;
const ERROR_OFFSET: u16 = 1 << 15 | 2;

/// Octets of the longest text of an error ("Values"), with the numbers around it.
const LONGEST_ERROR: u32 = 4096 + 14;

/// Extents of the longest answer that is read. Those behind [`MOST_EXTENTS`] are passed over.
const MOST_TOLD: u32 = 1 << 20;

/// Octets of extents that are taken at a time.
const EXTENTS_AT_A_TIME: u32 = 8 * 1024;

/// The replies of one connection.
#[derive(Debug)]
pub struct Replies {
    terms: Terms,
    allocation_id: u32,
    stage: Stage,
    under_way: HashMap<u64, Pending>,
    /// The text of the last error that had one.
    said: Said,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Header,
    /// A chunk's length, and the first numbers of its kind.
    Chunk(Chunk),
    Payload {
        chunk: Chunk,
        at: u32,
        len: u32,
    },
    Extents {
        chunk: Chunk,
        left: u32,
    },
    Error {
        chunk: Chunk,
        len: u32,
    },
}

/// A chunk of a reply. A simple reply is one.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    cookie: u64,
    kind: u16,
    is_last: bool,
}

/// A request without its whole reply.
#[derive(Debug)]
struct Pending {
    asked: Asked,
    error: Option<DiskError>,
}

#[derive(Debug)]
enum Asked {
    Read { offset: u64, len: u32, got: Pieces },
    Status { left: u64, told: Option<Vec<Extent>> },
    Other,
}

/// The next octets of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The next octets for [`Replies::take`]: so many, never none.
    Octets(usize),
    /// Payload, never none, of the read with this cookie.
    Payload {
        /// The read's.
        cookie: u64,
        /// The place of the first octet in the read's buffer.
        at: u32,
        /// Octets.
        len: u32,
    },
}

/// News of some octets.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct News {
    /// A part of a read is zeroes that do not come.
    pub zeroes: Option<Zeroes>,
    /// A request is done, behind that.
    pub done: Option<Answered>,
}

/// Zeroes in the buffer of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zeroes {
    /// The read's cookie.
    pub cookie: u64,
    /// The place of the first in the buffer.
    pub at: u32,
    /// Octets.
    pub len: u32,
}

/// The outcome of a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Answered {
    /// The request's cookie.
    pub cookie: u64,
    /// Extents of a question for them, and else nothing.
    pub result: Result<Vec<Extent>, DiskError>,
}

/// Octets of a server that make no sense. The connection has no place left at which it could go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Nonsense {
    /// The first octets are not those of a reply.
    #[error("what came is no reply")]
    Magic,
    /// A reply to a request that was not made, or that has been answered.
    #[error("a reply to nothing: no request has the cookie {0:#x}")]
    Cookie(u64),
    /// A chunk that was not agreed on, that its request cannot have, or that nobody knows.
    #[error("a chunk of kind {0:#x} where there can be none")]
    Kind(u16),
    /// A chunk of another length than it can have.
    #[error("a chunk of kind {kind:#x} and {len} octets")]
    Length {
        /// The kind.
        kind: u16,
        /// The length that it says.
        len: u32,
    },
    /// Octets of a read that were not asked for, came already, or lie in too many pieces.
    #[error("{len} octets at {at} that a read does not want")]
    Unwanted {
        /// The offset that they are said to have.
        at: u64,
        /// The number of octets.
        len: u32,
    },
    /// A read that is said to be done, and is not.
    #[error("a read that ends before all of it came")]
    Incomplete,
    /// Extents of no octets, of another context, or none at all.
    #[error("an answer of extents that makes no sense")]
    Extents,
}

impl Replies {
    /// Begins with no request under way.
    #[must_use]
    pub fn new(open: &Open) -> Self {
        let Open { terms, allocation_id, .. } = *open;
        Replies {
            terms,
            allocation_id,
            stage: Stage::Header,
            under_way: HashMap::new(),
            said: Said::default(),
        }
    }

    /// Notes a request under a cookie that no other has now. Returns its octets, which a payload
    /// follows if it is a write.
    pub fn ask(&mut self, cookie: u64, command: &Command) -> [u8; REQUEST_LEN] {
        let asked = match *command {
            Command::Read { offset, len } => Asked::Read { offset, len, got: Pieces::default() },
            Command::Status { len, .. } => Asked::Status { left: len.into(), told: None },
            _ => Asked::Other,
        };
        self.under_way.insert(cookie, Pending { asked, error: None });
        Request::of(cookie, command).emit()
    }

    /// Returns the text that the server gave with its last error; an empty one if it gave none.
    #[must_use]
    pub fn said(&self) -> &Said {
        &self.said
    }

    /// Returns what is to be read next.
    #[must_use]
    pub fn wanted(&self) -> Wanted {
        match self.stage {
            Stage::Header => Wanted::Octets(HEADER_LEN),
            Stage::Chunk(Chunk { kind, .. }) => Wanted::Octets(match kind {
                OFFSET_DATA => 12,
                OFFSET_HOLE => 16,
                BLOCK_STATUS => 8,
                _ => 4,
            }),
            Stage::Payload { chunk, at, len } => Wanted::Payload { cookie: chunk.cookie, at, len },
            Stage::Extents { left, .. } => Wanted::Octets(left.min(EXTENTS_AT_A_TIME) as usize),
            Stage::Error { len, .. } => Wanted::Octets(len as usize),
        }
    }

    /// Takes the octets that were wanted.
    ///
    /// # Errors
    /// The connection has to end.
    pub fn take(&mut self, octets: &[u8]) -> Result<News, Nonsense> {
        match self.stage {
            Stage::Header => self.header(octets),
            Stage::Chunk(chunk) => self.chunk(chunk, octets),
            Stage::Extents { chunk, left } => self.extents(chunk, left, octets),
            Stage::Error { chunk, .. } => self.error(chunk, octets),
            Stage::Payload { .. } => Ok(News::default()),
        }
    }

    /// Notes that the payload that was wanted is in its buffer.
    ///
    /// # Errors
    /// The connection has to end.
    pub fn placed(&mut self) -> Result<News, Nonsense> {
        match self.stage {
            Stage::Payload { chunk, .. } => self.over(chunk, None),
            _ => Ok(News::default()),
        }
    }

    fn header(&mut self, octets: &[u8]) -> Result<News, Nonsense> {
        let magic = be32(octets).ok_or(Nonsense::Magic)?;
        let cookie = octets.get(8..).and_then(|rest| rest.first_chunk()).ok_or(Nonsense::Magic)?;
        let cookie = u64::from_be_bytes(*cookie);
        let pending = self.under_way.get_mut(&cookie);
        match magic {
            SIMPLE => {
                let pending = pending.ok_or(Nonsense::Cookie(cookie))?;
                let error = be32(&octets[4..]).filter(|error| *error != 0);
                pending.error = pending.error.or(error.map(error_of));
                let chunk = Chunk { cookie, kind: NONE, is_last: true };
                match &mut pending.asked {
                    _ if pending.error.is_some() => {}
                    // What was agreed on holds: such a reply would have no place for them.
                    Asked::Read { .. } if self.terms.structured => return Err(Nonsense::Kind(NONE)),
                    Asked::Read { len, got, .. } if *len > 0 => {
                        let len = *len;
                        got.add(0..len);
                        self.stage = Stage::Payload { chunk, at: 0, len };
                        return Ok(News::default());
                    }
                    _ => {}
                }
                self.over(chunk, None)
            }
            STRUCTURED => {
                let flags_and_kind = be16(&octets[4..]).zip(be16(&octets[6..]));
                let (flags, kind) = flags_and_kind.ok_or(Nonsense::Magic)?;
                if !self.terms.structured {
                    return Err(Nonsense::Kind(kind));
                }
                pending.ok_or(Nonsense::Cookie(cookie))?;
                self.stage = Stage::Chunk(Chunk { cookie, kind, is_last: flags & DONE != 0 });
                Ok(News::default())
            }
            _ => Err(Nonsense::Magic),
        }
    }

    /// Takes the length of a chunk and the numbers behind it.
    fn chunk(&mut self, chunk: Chunk, octets: &[u8]) -> Result<News, Nonsense> {
        let kind = chunk.kind;
        let len = be32(octets).ok_or(Nonsense::Magic)?;
        let bad = Nonsense::Length { kind, len };
        let number = |at: usize| octets.get(at..).and_then(be32).ok_or(bad);
        match kind {
            NONE if len == 0 && chunk.is_last => self.over(chunk, None),
            OFFSET_DATA | OFFSET_HOLE => {
                let offset = octets.get(4..).and_then(|rest| rest.first_chunk()).ok_or(bad)?;
                let offset = u64::from_be_bytes(*offset);
                let piece = match kind {
                    OFFSET_DATA => len.checked_sub(8),
                    _ => number(12).ok().filter(|_| len == 12),
                };
                let piece = piece.filter(|piece| *piece > 0).ok_or(bad)?;
                let at = self.accept(chunk, offset, piece)?;
                if kind == OFFSET_DATA {
                    self.stage = Stage::Payload { chunk, at, len: piece };
                    return Ok(News::default());
                }
                self.over(chunk, Some(Zeroes { cookie: chunk.cookie, at, len: piece }))
            }
            BLOCK_STATUS => {
                let left =
                    len.checked_sub(4).filter(|left| *left > 0 && left.is_multiple_of(8)).ok_or(bad)?;
                if left / 8 > MOST_TOLD {
                    return Err(bad);
                }
                let is_ours = number(4)? == self.allocation_id && self.terms.allocation;
                match self.under_way.get_mut(&chunk.cookie).map(|pending| &mut pending.asked) {
                    Some(Asked::Status { told, .. }) if is_ours && told.is_none() => *told = Some(Vec::new()),
                    Some(Asked::Status { .. }) => return Err(Nonsense::Extents),
                    _ => return Err(Nonsense::Kind(kind)),
                }
                self.stage = Stage::Extents { chunk, left };
                Ok(News::default())
            }
            // Errors of kinds that are not known begin like the others ("Error chunk types").
            _ if kind & 1 << 15 != 0 => {
                let least = if kind == ERROR_OFFSET { 14 } else { 6 };
                if len < least || len > LONGEST_ERROR {
                    return Err(bad);
                }
                self.stage = Stage::Error { chunk, len };
                Ok(News::default())
            }
            NONE => Err(bad),
            _ => Err(Nonsense::Kind(kind)),
        }
    }

    /// Accepts a part of a read. Returns its place in the read's buffer.
    fn accept(&mut self, chunk: Chunk, offset: u64, piece: u32) -> Result<u32, Nonsense> {
        let unwanted = Nonsense::Unwanted { at: offset, len: piece };
        let asked = self.under_way.get_mut(&chunk.cookie).map(|pending| &mut pending.asked);
        let Some(Asked::Read { offset: from, len, got }) = asked else {
            return Err(Nonsense::Kind(chunk.kind));
        };
        let at = offset.checked_sub(*from).and_then(|at| u32::try_from(at).ok()).ok_or(unwanted)?;
        let end = at.checked_add(piece).filter(|end| end <= len).ok_or(unwanted)?;
        if got.add(at..end) { Ok(at) } else { Err(unwanted) }
    }

    fn extents(&mut self, chunk: Chunk, left: u32, octets: &[u8]) -> Result<News, Nonsense> {
        let asked = self.under_way.get_mut(&chunk.cookie).map(|pending| &mut pending.asked);
        let Some(Asked::Status { left: wanted, told: Some(told) }) = asked else {
            return Err(Nonsense::Extents);
        };
        for words in octets.chunks(8) {
            let (len, state) = be32(words).zip(words.get(4..).and_then(be32)).ok_or(Nonsense::Extents)?;
            if len == 0 {
                return Err(Nonsense::Extents);
            }
            // The last may reach farther than the question.
            let len = u64::from(len).min(*wanted);
            if len > 0 && told.len() < MOST_EXTENTS {
                *wanted -= len;
                told.push(Extent { len, hole: state & ZERO != 0 });
            }
        }
        let left = left - octets.len() as u32;
        if left > 0 {
            self.stage = Stage::Extents { chunk, left };
            return Ok(News::default());
        }
        self.over(chunk, None)
    }

    fn error(&mut self, chunk: Chunk, octets: &[u8]) -> Result<News, Nonsense> {
        let bad = Nonsense::Length { kind: chunk.kind, len: octets.len() as u32 };
        let (error, text) = be32(octets).zip(octets.get(4..).and_then(be16)).ok_or(bad)?;
        let behind = if chunk.kind == ERROR_OFFSET { 8 } else { 0 };
        let is_known = [ERROR, ERROR_OFFSET].contains(&chunk.kind);
        if is_known && octets.len() != 6 + usize::from(text) + behind {
            return Err(bad);
        }
        if is_known {
            self.said = Said::of(&octets[6..6 + usize::from(text)]);
        }
        if let Some(pending) = self.under_way.get_mut(&chunk.cookie) {
            // One of number 0 is an error all the same.
            pending.error.get_or_insert(error_of(error));
        }
        self.over(chunk, None)
    }

    /// Ends a chunk, and with the last one the request.
    fn over(&mut self, chunk: Chunk, zeroes: Option<Zeroes>) -> Result<News, Nonsense> {
        self.stage = Stage::Header;
        if !chunk.is_last {
            return Ok(News { zeroes, done: None });
        }
        let cookie = chunk.cookie;
        let pending = self.under_way.remove(&cookie).ok_or(Nonsense::Cookie(cookie))?;
        let result = match (pending.error, pending.asked) {
            (Some(error), _) => Err(error),
            (None, Asked::Read { len, got, .. }) if !got.is_all_of(len) => return Err(Nonsense::Incomplete),
            (None, Asked::Status { told, .. }) => Ok(told.ok_or(Nonsense::Extents)?),
            (None, _) => Ok(Vec::new()),
        };
        Ok(News { zeroes, done: Some(Answered { cookie, result }) })
    }
}

#[cfg(test)]
mod tests;
