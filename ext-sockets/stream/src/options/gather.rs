//! The ways in which the pieces of an FPDU reach TCP (`DDP_GATHER`). All but the usual one exist to
//! be measured beside it.

use std::io::IoSlice;

use crate::Errno;
use crate::sys::Kernel;

/// Ways in which the pieces of an FPDU reach TCP: the three of the OSU report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gather {
    /// Copied together, then one write. The only way in which the program may change the octets
    /// while they are sent.
    Copy,
    /// A vectored write of the pieces where they lie, short ones copied together.
    Vectored,
    /// A write for each piece, between `TCP_CORK` on and off.
    Cork,
}

impl Gather {
    /// Returns the way of a number; the usual one where no other has it.
    pub(super) fn of(number: u8) -> Self {
        [Self::Copy, Self::Cork].into_iter().find(|way| *way as u8 == number).unwrap_or(Self::Vectored)
    }

    /// Returns the average size of pieces up to which an FPDU is copied next to its header. 0: each
    /// piece is a [write of its own](write_each).
    #[inline]
    pub(super) fn copies_up_to(self) -> usize {
        match self {
            Self::Copy => usize::MAX,
            // Another piece costs as much as the copy.
            Self::Vectored => 1024,
            Self::Cork => 0,
        }
    }
}

/// Writes each piece by itself; returns how many of their octets TCP took.
#[cold]
pub(crate) fn write_each(kernel: &Kernel<'_>, pieces: &[IoSlice<'_>]) -> Result<usize, Errno> {
    kernel.cork(true)?;
    let mut taken = 0;
    let mut error = Errno::WOULD_BLOCK;
    for piece in pieces {
        let took = match kernel.send(&[IoSlice::new(piece)], 0) {
            Ok(count) => count,
            Err(first) => {
                error = first;
                0
            }
        };
        taken += took;
        if took < piece.len() {
            break;
        }
    }
    kernel.cork(false)?;
    if taken > 0 { Ok(taken) } else { Err(error) }
}
