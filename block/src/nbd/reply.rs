//! Replies of a server ("Simple reply message", "Structured reply chunk message").

use super::{ALLOCATION_ID, Terms, number_of};
use crate::export::{DiskError, Extent};

pub(super) const SIMPLE: u32 = 0x6744_6698;
pub(super) const STRUCTURED: u32 = 0x668e_33ef;

/// The chunk is the last of its reply.
pub(super) const DONE: u16 = 1;

pub(super) const NONE: u16 = 0;
pub(super) const OFFSET_DATA: u16 = 1;
pub(super) const BLOCK_STATUS: u16 = 5;
pub(super) const ERROR: u16 = 1 << 15 | 1;

/// The extent is a hole, and it reads as zeroes: the two bits of `base:allocation`.
const HOLE: u32 = 1;
pub(super) const ZERO: u32 = 2;

/// Extents of one reply: more make a reply that the client asks for in vain.
pub const MOST_EXTENTS: usize = 1024;

/// Returns the octets in front of the data of a read that has succeeded.
#[must_use]
pub fn of_read(terms: &Terms, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    match (terms.structured, len) {
        (false, _) => return simple(None, cookie),
        // A chunk of data has at least one octet of them.
        (true, 0) => return chunk(NONE, cookie, 0),
        (true, _) => {}
    }
    let mut octets = chunk(OFFSET_DATA, cookie, len + 8);
    octets.extend(offset.to_be_bytes());
    octets
}

/// Returns the reply to a request that has succeeded and has no data.
#[must_use]
pub fn done(cookie: u64) -> Vec<u8> {
    simple(None, cookie)
}

/// Returns the reply to a request that has failed. A read's is structured where that was agreed on.
#[must_use]
pub fn failed(terms: &Terms, cookie: u64, error: DiskError, is_read: bool) -> Vec<u8> {
    if !(terms.structured && is_read) {
        return simple(Some(error), cookie);
    }
    let mut octets = chunk(ERROR, cookie, 6);
    octets.extend(number_of(error).to_be_bytes());
    // No text behind it.
    octets.extend(0u16.to_be_bytes());
    octets
}

/// Returns the reply that tells where the data are. An extent that a number of 32 bits does not
/// hold is cut, and so is the list: the client asks again for the rest.
#[must_use]
pub fn of_status(cookie: u64, extents: &[Extent], one: bool) -> Vec<u8> {
    let extents = &extents[..extents.len().min(if one { 1 } else { MOST_EXTENTS })];
    let mut octets = chunk(BLOCK_STATUS, cookie, 4 + 8 * extents.len() as u32);
    octets.extend(ALLOCATION_ID.to_be_bytes());
    for Extent { len, hole } in extents {
        octets.extend(u32::try_from(*len).unwrap_or(u32::MAX).to_be_bytes());
        octets.extend((if *hole { HOLE | ZERO } else { 0 }).to_be_bytes());
    }
    octets
}

fn simple(error: Option<DiskError>, cookie: u64) -> Vec<u8> {
    let error = error.map_or(0, number_of);
    [&SIMPLE.to_be_bytes()[..], &error.to_be_bytes(), &cookie.to_be_bytes()].concat()
}

/// Returns the header of a reply of one chunk.
fn chunk(kind: u16, cookie: u64, len: u32) -> Vec<u8> {
    let mut octets = STRUCTURED.to_be_bytes().to_vec();
    octets.extend(DONE.to_be_bytes());
    octets.extend(kind.to_be_bytes());
    octets.extend(cookie.to_be_bytes());
    octets.extend(len.to_be_bytes());
    octets
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [Terms; 2] =
        [Terms { structured: false, allocation: false }, Terms { structured: true, allocation: true }];

    /// The octets as `doc/proto.md` has them.
    #[test]
    fn replies_are_written_as_the_protocol_has_them() {
        let [plain, structured] = BOTH;
        assert_eq!(done(5), b"\x67\x44\x66\x98\0\0\0\0\0\0\0\0\0\0\0\x05");
        assert_eq!(of_read(&plain, 5, 9, 100), done(5));
        assert_eq!(
            of_read(&structured, 5, 9, 100),
            b"\x66\x8e\x33\xef\0\x01\0\x01\0\0\0\0\0\0\0\x05\0\0\0\x6c\0\0\0\0\0\0\0\x09"
        );
        let none = b"\x66\x8e\x33\xef\0\x01\0\0\0\0\0\0\0\0\0\x05\0\0\0\0";
        assert_eq!((of_read(&plain, 5, 9, 0), of_read(&structured, 5, 9, 0)), (done(5), none.to_vec()));
        let io = failed(&structured, 5, DiskError::Io, true);
        assert_eq!(io, b"\x66\x8e\x33\xef\0\x01\x80\x01\0\0\0\0\0\0\0\x05\0\0\0\x06\0\0\0\x05\0\0");
        let simple = b"\x67\x44\x66\x98\0\0\0\x1c\0\0\0\0\0\0\0\x05";
        assert_eq!(failed(&structured, 5, DiskError::NoSpc, false), simple);
        assert_eq!(failed(&plain, 5, DiskError::NoSpc, true), simple);
    }

    #[test]
    fn extents_are_cut_to_what_a_reply_holds() {
        let extents = [Extent { len: 1 << 33, hole: true }, Extent { len: 7, hole: false }];
        let all = of_status(1, &extents, false);
        assert_eq!(all[16..24], *b"\0\0\0\x14\0\0\0\x01");
        assert_eq!(all[24..], *b"\xff\xff\xff\xff\0\0\0\x03\0\0\0\x07\0\0\0\0");
        assert_eq!(of_status(1, &extents, true).len(), 20 + 4 + 8);
        assert_eq!(of_status(1, &[extents[1]; 3000], false).len(), 20 + 4 + 8 * MOST_EXTENTS);
    }
}
