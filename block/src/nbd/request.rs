//! Requests of a client ("Request message").

use super::{MAX_PAYLOAD, Terms};
use crate::export::{Command, DiskError, Export};

/// Octets of a request, without its payload.
pub const REQUEST_LEN: usize = 28;

const MAGIC: u32 = 0x2560_9513;

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;
const BLOCK_STATUS: u16 = 7;

const FUA: u16 = 1;
const NO_HOLE: u16 = 2;
const DONT_FRAGMENT: u16 = 4;
const REQ_ONE: u16 = 8;

/// A request as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The number by which the client knows the reply.
    pub cookie: u64,
    flags: u16,
    kind: u16,
    offset: u64,
    len: u32,
}

/// Octets that are no request, or one whose payload is so long that it is not read: the connection
/// has no place left at which it could go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRequest {
    /// The first octets are not those of a request.
    #[error("what came is no request")]
    Magic,
    /// The payload is longer than [`MAX_PAYLOAD`].
    #[error("a write of {0} octets, where {MAX_PAYLOAD} are the most")]
    TooLong(u32),
}

impl Request {
    /// Parses a request.
    ///
    /// # Errors
    /// The connection has to end.
    pub fn parse(octets: &[u8; REQUEST_LEN]) -> Result<Self, NoRequest> {
        let number = |from: usize, len: usize| {
            octets[from..from + len].iter().fold(0u64, |value, octet| value << 8 | u64::from(*octet))
        };
        if number(0, 4) != u64::from(MAGIC) {
            return Err(NoRequest::Magic);
        }
        let request = Request {
            flags: number(4, 2) as u16,
            kind: number(6, 2) as u16,
            cookie: number(8, 8),
            offset: number(16, 8),
            len: number(24, 4) as u32,
        };
        if request.payload_len() > MAX_PAYLOAD {
            return Err(NoRequest::TooLong(request.len));
        }
        Ok(request)
    }

    /// Makes the request for a command.
    #[must_use]
    pub fn of(cookie: u64, command: &Command) -> Self {
        let flag = |flag: u16, is_set: bool| if is_set { flag } else { 0 };
        let (kind, flags, offset, len) = match *command {
            Command::Read { offset, len } => (READ, 0, offset, len),
            Command::Write { offset, len, fua } => (WRITE, flag(FUA, fua), offset, len),
            Command::Zero { offset, len, fua, may_trim } => {
                (WRITE_ZEROES, flag(FUA, fua) | flag(NO_HOLE, !may_trim), offset, len)
            }
            Command::Trim { offset, len, fua } => (TRIM, flag(FUA, fua), offset, len),
            Command::Flush => (FLUSH, 0, 0, 0),
            Command::Status { offset, len, one } => (BLOCK_STATUS, flag(REQ_ONE, one), offset, len),
        };
        Request { cookie, flags, kind, offset, len }
    }

    /// Makes the last request of a client.
    #[must_use]
    pub fn disconnect() -> Self {
        Request { cookie: 0, flags: 0, kind: DISCONNECT, offset: 0, len: 0 }
    }

    /// Returns the octets of the request, without its payload.
    #[must_use]
    pub fn emit(&self) -> [u8; REQUEST_LEN] {
        let mut octets = [0; REQUEST_LEN];
        octets[..4].copy_from_slice(&MAGIC.to_be_bytes());
        octets[4..6].copy_from_slice(&self.flags.to_be_bytes());
        octets[6..8].copy_from_slice(&self.kind.to_be_bytes());
        octets[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        octets[16..24].copy_from_slice(&self.offset.to_be_bytes());
        octets[24..].copy_from_slice(&self.len.to_be_bytes());
        octets
    }

    /// Returns whether the client goes. There is no reply to that.
    #[must_use]
    pub fn is_disconnect(&self) -> bool {
        self.kind == DISCONNECT
    }

    /// Returns whether the reply is one of a read, structured or not.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.kind == READ
    }

    /// Returns the first octet that it is about.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns how many octets it is about.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a length of octets on a disk")]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns whether the client wants to know of one extent alone.
    #[must_use]
    pub fn wants_one(&self) -> bool {
        self.flags & REQ_ONE != 0
    }

    /// Returns the octets of payload behind the request.
    #[must_use]
    pub fn payload_len(&self) -> u32 {
        if self.kind == WRITE { self.len } else { 0 }
    }

    /// Checks the request against the disk and what was agreed on.
    ///
    /// # Errors
    /// What the reply is to tell.
    pub fn check(&self, export: &Export, terms: &Terms) -> Result<Command, DiskError> {
        let Request { offset, len, .. } = *self;
        let fua = self.flags & FUA != 0;
        let (command, flags) = match self.kind {
            READ => (Command::Read { offset, len }, DONT_FRAGMENT | FUA),
            WRITE => (Command::Write { offset, len, fua }, FUA),
            WRITE_ZEROES => {
                let may_trim = self.flags & NO_HOLE == 0;
                (Command::Zero { offset, len, fua, may_trim }, FUA | NO_HOLE)
            }
            TRIM => (Command::Trim { offset, len, fua }, FUA),
            FLUSH => (Command::Flush, FUA),
            BLOCK_STATUS if terms.allocation => {
                (Command::Status { offset, len, one: self.wants_one() }, REQ_ONE | FUA)
            }
            _ => return Err(DiskError::Inval),
        };
        let writes = matches!(command, Command::Write { .. } | Command::Zero { .. } | Command::Trim { .. });
        match command {
            _ if self.flags & !flags != 0 => Err(DiskError::Inval),
            Command::Flush => Ok(command),
            _ if writes && !export.writable => Err(DiskError::Perm),
            // A question about nothing has no answer: one of no extent is not allowed.
            Command::Status { len: 0, .. } => Err(DiskError::Inval),
            Command::Read { len, .. } if len > MAX_PAYLOAD => Err(DiskError::Overflow),
            _ if export.has(offset, len) => Ok(command),
            Command::Write { .. } | Command::Zero { .. } => Err(DiskError::NoSpc),
            _ => Err(DiskError::Inval),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kind: u16, flags: u16, offset: u64, len: u32) -> [u8; REQUEST_LEN] {
        Request { cookie: 77, flags, kind, offset, len }.emit()
    }

    /// The octets as `doc/proto.md` has them.
    #[test]
    fn requests_are_written_as_the_protocol_has_them() {
        let command = Command::Write { offset: 0x0102, len: 0x0304, fua: true };
        let wanted = b"\x25\x60\x95\x13\0\x01\0\x01\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\x01\x02\0\0\x03\x04";
        assert_eq!(Request::of(5, &command).emit(), *wanted);
        let last = Request::parse(&Request::disconnect().emit()).unwrap();
        assert!(last.is_disconnect() && !last.is_read());
    }

    #[test]
    fn requests_tell_what_they_are_about() {
        for (kind, flags, is_read, one, payload) in [
            (READ, 0, true, false, 0),
            (WRITE, FUA, false, false, 7),
            (BLOCK_STATUS, REQ_ONE, false, true, 0),
        ] {
            let parsed = Request::parse(&request(kind, flags, 1 << 40, 7)).unwrap();
            assert_eq!((parsed.offset(), parsed.len(), parsed.payload_len()), (1 << 40, 7, payload));
            assert_eq!((parsed.is_read(), parsed.wants_one(), parsed.is_disconnect()), (is_read, one, false));
        }
    }

    fn checked(kind: u16, flags: u16, offset: u64, len: u32, writable: bool) -> Result<Command, DiskError> {
        let export = Export { name: "disk".into(), size: 4096, writable };
        let parsed = Request::parse(&request(kind, flags, offset, len)).unwrap();
        assert_eq!(parsed.cookie, 77);
        parsed.check(&export, &Terms { structured: true, allocation: true })
    }

    #[test]
    fn requests_are_what_they_say() {
        assert_eq!(checked(READ, 0, 1, 4095, false), Ok(Command::Read { offset: 1, len: 4095 }));
        assert_eq!(
            checked(WRITE, FUA, 0, 4096, true),
            Ok(Command::Write { offset: 0, len: 4096, fua: true })
        );
        let zero = Command::Zero { offset: 0, len: 9, fua: false, may_trim: false };
        assert_eq!(checked(WRITE_ZEROES, NO_HOLE, 0, 9, true), Ok(zero));
        assert_eq!(checked(TRIM, 0, 5, 6, true), Ok(Command::Trim { offset: 5, len: 6, fua: false }));
        assert_eq!(checked(FLUSH, 0, 0, 0, false), Ok(Command::Flush));
        // Where and how much means nothing for it.
        assert_eq!(checked(FLUSH, 0, 4096, 1, false), Ok(Command::Flush));
        let status = Command::Status { offset: 0, len: 8, one: true };
        assert_eq!(checked(BLOCK_STATUS, REQ_ONE, 0, 8, false), Ok(status));
    }

    /// "Error values": EPERM of a disk that is not to be written, ENOSPC of octets that are written
    /// beyond the end, EINVAL of all else that is not there.
    #[test]
    fn requests_that_cannot_be_are_refused() {
        let (no_space, no_place) = (Err(DiskError::NoSpc), Err(DiskError::Inval));
        for (kind, beyond) in [(WRITE, no_space), (WRITE_ZEROES, no_space), (TRIM, no_place)] {
            assert_eq!(checked(kind, 0, 0, 1, false), Err(DiskError::Perm));
            assert_eq!(checked(kind, 0, 4096, 1, true), beyond);
            assert_eq!(checked(kind, 0, u64::MAX, 2, true), beyond);
        }
        assert_eq!(checked(READ, 0, 4000, 97, true), Err(DiskError::Inval));
        assert_eq!(checked(READ, 0, u64::MAX, u32::MAX, true), Err(DiskError::Overflow));
        assert_eq!(checked(BLOCK_STATUS, 0, 0, 0, true), Err(DiskError::Inval));
        for kind in [5, 8, 9, u16::MAX] {
            assert_eq!(checked(kind, 0, 0, 1, true), Err(DiskError::Inval), "{kind}");
        }
        for flag in [NO_HOLE, REQ_ONE, 16, 1 << 15] {
            assert_eq!(checked(READ, flag, 0, 1, true), Err(DiskError::Inval), "{flag}");
        }
        let without = Request::parse(&request(BLOCK_STATUS, 0, 0, 1)).unwrap();
        let export = Export { name: String::new(), size: 4096, writable: true };
        assert_eq!(without.check(&export, &Terms::default()), Err(DiskError::Inval));
    }

    #[test]
    fn what_is_no_request_ends_the_connection() {
        let mut octets = request(READ, 0, 0, 1);
        octets[3] ^= 1;
        assert_eq!(Request::parse(&octets), Err(NoRequest::Magic));
        let long = MAX_PAYLOAD + 1;
        assert_eq!(Request::parse(&request(WRITE, 0, 0, long)), Err(NoRequest::TooLong(long)));
        assert!(Request::parse(&request(WRITE, 0, 0, MAX_PAYLOAD)).is_ok());
        assert!(Request::parse(&request(READ, 0, 0, long)).is_ok());
        assert!(Request::parse(&request(DISCONNECT, 0, 0, 0)).unwrap().is_disconnect());
    }
}
