//! Facts about an export that a server has told.

use super::super::super::MAX_PAYLOAD;
use super::super::super::options::*;
use super::failed::Failed;

/// Sizes of a server that names none.
pub(super) const NO_SIZES: (u32, u32) = (1, MAX_PAYLOAD);

/// Facts about an export that a server has told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Described {
    /// Octets of it.
    pub size: u64,
    flags: u16,
    /// Octets of which requests are multiples: a power of two.
    pub minimum: u32,
    /// Octets of the longest read or write.
    pub maximum: u32,
}

/// An export of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name by which it is asked for.
    pub name: String,
    /// A text for people, or nothing.
    pub description: String,
    /// More about it, where the server tells that.
    pub described: Option<Described>,
}

impl Described {
    pub(super) fn new(size: u64, flags: u16) -> Result<Self, Failed> {
        // Offsets of files have 63 bits.
        if size > i64::MAX as u64 {
            return Err(Failed::Nonsense("an export of more octets than there can be"));
        }
        Ok(Described { size, flags, minimum: 1, maximum: MAX_PAYLOAD })
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & HAS_FLAGS != 0 && self.flags & flag != 0
    }

    /// Returns whether clients may write.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        !self.has(READ_ONLY)
    }

    /// Returns whether the server knows `NBD_CMD_FLUSH`.
    #[must_use]
    pub fn flushes(&self) -> bool {
        self.has(SEND_FLUSH)
    }

    /// Returns whether the server knows the flag FUA.
    #[must_use]
    pub fn has_fua(&self) -> bool {
        self.has(SEND_FUA)
    }

    /// Returns whether the server knows `NBD_CMD_TRIM`.
    #[must_use]
    pub fn trims(&self) -> bool {
        self.has(SEND_TRIM)
    }

    /// Returns whether the server knows `NBD_CMD_WRITE_ZEROES`.
    #[must_use]
    pub fn zeroes(&self) -> bool {
        self.has(SEND_WRITE_ZEROES)
    }

    /// Returns whether several connections see each other's writes.
    #[must_use]
    pub fn is_for_many(&self) -> bool {
        self.has(CAN_MULTI_CONN)
    }
}

/// Returns the least and the most octets of `NBD_INFO_BLOCK_SIZE` ("Block size constraints").
pub(super) fn sizes_of(sizes: &[u8]) -> Result<(u32, u32), Failed> {
    let (minimum, maximum) =
        be32(sizes).zip(sizes.get(8..).and_then(be32)).ok_or(Failed::Nonsense("sizes of blocks"))?;
    if !minimum.is_power_of_two() || minimum > 64 * 1024 || maximum < minimum {
        return Err(Failed::Nonsense("sizes of blocks that cannot be"));
    }
    Ok((minimum, maximum.min(MAX_PAYLOAD) / minimum * minimum))
}
