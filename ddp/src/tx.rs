//! Cutting a message into segments (RFC 5041 §5.2).
//!
//! The caller asks for one segment at a time with the MULPDU of that moment, so that a change of MULPDU touches only the
//! segments not yet handed to the LLP (RFC 5041 chapter 3). Segments come in rising order without gaps and never carry octets
//! of two messages; exactly one, the final one, has L set.

/// One segment of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Where in the message its payload begins: the MO, or what is added to the first TO.
    pub offset: u64,
    /// Octets of payload.
    pub len: usize,
    /// L: nothing of the message is behind it.
    pub last: bool,
}

/// The segment that begins at `offset` in a message of `total` octets, no longer than `mulpdu` with its header of
/// `header_len` octets. A message of zero octets is one empty segment (RFC 5041 §5.2).
///
/// # Panics
/// When no payload fits behind the header (`mulpdu <= header_len`), or `offset` lies behind the message: mistakes of
/// the caller, whatever a peer does.
#[must_use]
#[inline]
pub fn cut(total: u64, offset: u64, mulpdu: usize, header_len: usize) -> Cut {
    assert!(mulpdu > header_len, "a MULPDU of {mulpdu} leaves no room behind a header of {header_len}");
    assert!(offset <= total, "offset {offset} is behind a message of {total}");
    let room = mulpdu - header_len;
    let rest = total - offset;
    match usize::try_from(rest) {
        Ok(rest) if rest <= room => Cut { offset, len: rest, last: true },
        _ => Cut { offset, len: room, last: false },
    }
}
