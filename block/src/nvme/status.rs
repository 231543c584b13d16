//! The status of a command (Base, "Status Field Definition").

use std::fmt;

use crate::export::DiskError;

/// A status: its code in bits 7:0, the code's type in bits 10:8, and "Do Not Retry" in bit 14.
/// Other bits ("More", the retry delay) are kept as they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u16);

/// "Do Not Retry": the same command would fail again.
const DNR: u16 = 1 << 14;

impl Status {
    /// The command has succeeded.
    pub const SUCCESS: Status = Status(0);
    /// No such command.
    pub const INVALID_OPCODE: Status = Status(0x01 | DNR);
    /// A field of the command makes no sense.
    pub const INVALID_FIELD: Status = Status(0x02 | DNR);
    /// There is no memory; the host may try again.
    pub const INTERNAL: Status = Status(0x06);
    /// The queue has been deleted.
    pub const QUEUE_DELETED: Status = Status(0x08);
    /// No such namespace.
    pub const INVALID_NAMESPACE: Status = Status(0x0b | DNR);
    /// The command is not allowed at this moment.
    pub const SEQUENCE_ERROR: Status = Status(0x0c | DNR);
    /// The host's memory is not as long as the command's data.
    pub const DATA_LENGTH: Status = Status(0x0f | DNR);
    /// The host's memory is described in a way that is not supported.
    pub const SGL_TYPE: Status = Status(0x11 | DNR);
    /// Data are said to be in the capsule where it has none.
    pub const SGL_OFFSET: Status = Status(0x16 | DNR);
    /// The namespace may not be written.
    pub const WRITE_PROTECTED: Status = Status(0x20 | DNR);
    /// The blocks are not on the disk.
    pub const LBA_RANGE: Status = Status(0x80 | DNR);
    /// The disk is full.
    pub const CAPACITY_EXCEEDED: Status = Status(0x81 | DNR);
    /// More requests for asynchronous events than are held.
    pub const EVENT_LIMIT: Status = Status(0x105 | DNR);
    /// No such log page.
    pub const INVALID_LOG_PAGE: Status = Status(0x109 | DNR);
    /// A Connect of a format that is not known.
    pub const CONNECT_FORMAT: Status = Status(0x180 | DNR);
    /// The target has no place for another controller.
    pub const CONTROLLER_BUSY: Status = Status(0x181);
    /// A parameter of a Connect is wrong; the answer's result names its place.
    pub const CONNECT_PARAMETERS: Status = Status(0x182 | DNR);
    /// A command for blocks that the disk below does not take, though it was announced: Linux's
    /// target says so (in NVM 1.0c the code is "Command Size Limit Exceeded").
    pub const NOT_BY_DISK: Status = Status(0x183 | DNR);
    /// The host is not allowed to connect.
    pub const INVALID_HOST: Status = Status(0x184 | DNR);
    /// The disk has failed as it was written.
    pub const WRITE_FAULT: Status = Status(0x280 | DNR);
    /// The disk has failed as it was read.
    pub const READ_ERROR: Status = Status(0x281 | DNR);
    /// The host has no right to that.
    pub const ACCESS_DENIED: Status = Status(0x286 | DNR);

    /// Returns code and type alone.
    #[must_use]
    pub fn code(self) -> u16 {
        self.0 & 0x7ff
    }

    /// Returns whether the command has succeeded.
    #[must_use]
    pub fn is_success(self) -> bool {
        self.code() == 0
    }

    /// Returns the status that tells a host why its disk did not do what it asked.
    #[must_use]
    pub fn of(error: DiskError, is_read: bool) -> Self {
        match error {
            DiskError::Perm => Status::WRITE_PROTECTED,
            DiskError::Io if is_read => Status::READ_ERROR,
            DiskError::Io => Status::WRITE_FAULT,
            DiskError::NoMem => Status::INTERNAL,
            DiskError::NoSpc => Status::CAPACITY_EXCEEDED,
            DiskError::Inval | DiskError::Overflow => Status::INVALID_FIELD,
            DiskError::NotSup => Status::INVALID_OPCODE,
            DiskError::Shutdown => Status::QUEUE_DELETED,
        }
    }

    /// Returns the error that the status is to a program; `None` of success.
    #[must_use]
    pub fn error(self) -> Option<DiskError> {
        let is = |status: Status| self.code() == status.code();
        Some(match self {
            _ if self.is_success() => return None,
            _ if is(Status::WRITE_PROTECTED) || is(Status::ACCESS_DENIED) => DiskError::Perm,
            _ if is(Status::CAPACITY_EXCEEDED) => DiskError::NoSpc,
            _ if is(Status::INVALID_OPCODE) || is(Status::NOT_BY_DISK) => DiskError::NotSup,
            _ if is(Status::INVALID_FIELD) || is(Status::LBA_RANGE) => DiskError::Inval,
            _ if is(Status::QUEUE_DELETED) => DiskError::Shutdown,
            _ => DiskError::Io,
        })
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = NAMES.iter().find(|(status, _)| status.code() == self.code());
        let name = known.map_or("another status", |(_, name)| name);
        write!(f, "{name} (status {:#05x})", self.code())
    }
}

const NAMES: &[(Status, &str)] = &[
    (Status::SUCCESS, "success"),
    (Status::INVALID_OPCODE, "no such command"),
    (Status::INVALID_FIELD, "a field of the command makes no sense"),
    (Status::INTERNAL, "an internal error"),
    (Status::QUEUE_DELETED, "the queue was deleted"),
    (Status::INVALID_NAMESPACE, "no such namespace"),
    (Status::SEQUENCE_ERROR, "not allowed at this moment"),
    (Status::DATA_LENGTH, "the data have another length"),
    (Status::SGL_TYPE, "this description of memory is not supported"),
    (Status::SGL_OFFSET, "no such data in the capsule"),
    (Status::WRITE_PROTECTED, "the namespace may not be written"),
    (Status::LBA_RANGE, "no such blocks"),
    (Status::CAPACITY_EXCEEDED, "the disk is full"),
    (Status::EVENT_LIMIT, "too many requests for events"),
    (Status::INVALID_LOG_PAGE, "no such log page"),
    (Status::CONNECT_FORMAT, "the format of the Connect is not known"),
    (Status::CONTROLLER_BUSY, "no controller is free"),
    (Status::CONNECT_PARAMETERS, "a parameter of the Connect is wrong"),
    (Status::NOT_BY_DISK, "the disk does not take such a command"),
    (Status::INVALID_HOST, "the host is not allowed"),
    (Status::WRITE_FAULT, "the disk failed as it was written"),
    (Status::READ_ERROR, "the disk failed as it was read"),
    (Status::ACCESS_DENIED, "the host has no right to that"),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Each status that a host is told has words for its program.
    #[test]
    fn errors_of_disks_have_a_status_and_come_back_from_it() {
        use DiskError::*;
        for error in [Perm, Io, Inval, NoSpc, NotSup, Shutdown] {
            for is_read in [false, true] {
                assert_eq!(Status::of(error, is_read).error(), Some(error));
            }
        }
        assert_eq!(Status::of(NoMem, false), Status::INTERNAL);
        assert_eq!(Status::of(Overflow, false), Status::INVALID_FIELD);
        assert_eq!(Status::SUCCESS.error(), None);
        assert_eq!(Status::NOT_BY_DISK.error(), Some(NotSup));
        // Success with "More".
        assert_eq!(Status(1 << 13).error(), None);
    }

    /// Base, "Status Code": the numbers as Linux's target sends them.
    #[test]
    fn a_status_says_what_it_is() {
        assert_eq!(Status(0x6081).error(), Some(DiskError::NoSpc));
        assert_eq!(Status::LBA_RANGE.0, 0x4080);
        assert_eq!(Status(0x6081).to_string(), "the disk is full (status 0x081)");
        assert_eq!(Status(0x7ff).to_string(), "another status (status 0x7ff)");
    }
}
