//! Receiving: the octets of one direction of a connection are parsed into ULPDUs (RFC 5044 §4, §6).
//!
//! [`Deframer`] holds no octets and never allocates. Its caller shows it the octets that have
//! arrived and were not used yet; it answers where the ULPDU lies in them, or how many are missing.
//! FPDUs are found by their length fields alone, so it does not matter how TCP cut the stream.
//! Markers are removed, and each is checked against the start of its FPDU. A `Deframer` does not
//! recover: after an `Err` nothing more of this direction may reach DDP (RFC 5044 §8), so every
//! later call returns the same `Err`.

use std::ops::Range;

use crate::crc::crc32c;
use crate::error::MpaError;
use crate::framing::Framing;
use crate::marker::Layout;
use crate::sizes::{CRC_LEN, LENGTH_LEN, MARKER_LEN, fpdu_len};

/// Finds and checks the FPDUs of one direction.
#[derive(Clone, Debug)]
pub struct Deframer {
    framing: Framing,
    position: u64,
    failed: Option<FpduError>,
}

/// The outcome of [`Deframer::step`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// One checked FPDU.
    Fpdu {
        /// The ULPDU's place in the stream that was given, in one piece.
        ulpdu: Range<usize>,
        /// Octets to drop from the front before the next call.
        used: usize,
    },
    /// The FPDU has not arrived completely.
    Need {
        /// Octets that the stream must have, from its front, before another call can say more.
        total: usize,
    },
}

/// The FPDU at the front of a stream, as announced by its length field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peek {
    /// Octets of the ULPDU, which begins behind the two octets of `ULPDU_Length`.
    pub ulpdu_len: usize,
    /// Octets of the FPDU.
    pub fpdu_len: usize,
}

/// A reason why a direction of the stream has ended. The receiver owes the peer a Terminate; MPA
/// itself closes nothing (RFC 5044 §8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FpduError {
    /// The CRC does not match: the octets are not those that were sent.
    #[error("the FPDU's CRC field says {got:#010x}, its octets make {want:#010x}")]
    Crc {
        /// The CRC field, as received.
        got: u32,
        /// The CRC, as computed over the received octets.
        want: u32,
    },
    /// The marker and the length fields disagree on where the FPDU began.
    #[error(
        "the marker at stream octet {position} points {got} octets back, its FPDU began {want} before it"
    )]
    Marker {
        /// The position of the marker's first octet, counted from the start of Full Operation.
        position: u64,
        /// FPDUPTR as received, with its two lowest bits taken as zero.
        got: u16,
        /// The FPDUPTR that would have been right.
        want: u16,
    },
    /// The peer closed the connection in the middle of an FPDU.
    #[error("the stream ended {have} octets into an FPDU")]
    Truncated {
        /// The octets of the FPDU that arrived.
        have: usize,
    },
}

impl FpduError {
    /// Returns the code to report to the ULP and, where a Terminate can still be sent, to put into
    /// it.
    #[must_use]
    pub const fn code(&self) -> MpaError {
        match self {
            Self::Crc { .. } => MpaError::Crc,
            Self::Marker { .. } => MpaError::Marker,
            Self::Truncated { .. } => MpaError::Closed,
        }
    }
}

/// The shortest FPDU: a length of 0, its pad and the CRC.
const MIN_FPDU: usize = fpdu_len(0);

impl Deframer {
    /// A deframer for a direction in which no octet has arrived since startup.
    #[must_use]
    pub const fn new(framing: Framing) -> Self {
        Self { framing, position: 0, failed: None }
    }

    /// A deframer for a direction in which `position` octets of FPDUs and markers have been used.
    ///
    /// # Panics
    /// If `position` is not a multiple of four: no FPDU begins there.
    #[must_use]
    pub const fn at(framing: Framing, position: u64) -> Self {
        assert!(position.is_multiple_of(4), "FPDUs are multiples of four octets");
        Self { framing, position, failed: None }
    }

    /// Returns the framing of this direction.
    #[must_use]
    pub const fn framing(&self) -> Framing {
        self.framing
    }

    /// Returns the octets of FPDUs and markers used so far.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Parses the FPDU at the front of `stream`, which begins with the next FPDU or with the marker
    /// that is due in front of it.
    ///
    /// A complete FPDU is checked; then, with markers, the ULPDU's octets are moved together in
    /// place. When the answer is `Need` or an error, nothing in `stream` has changed.
    ///
    /// # Errors
    /// The CRC or a marker is wrong. The direction has ended.
    #[inline(always)]
    pub fn step(&mut self, stream: &mut [u8]) -> Result<Step, FpduError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let step = if self.framing.markers { self.step_marked(stream) } else { self.step_plain(stream) };
        match step {
            Ok(Step::Fpdu { used, .. }) => self.position = self.position.wrapping_add(used as u64),
            Ok(Step::Need { .. }) => {}
            Err(error) => self.failed = Some(error),
        }
        step
    }

    #[inline(always)]
    fn step_plain(&self, stream: &[u8]) -> Result<Step, FpduError> {
        // RFC 5044 §5.2, §6: the length field alone says where the FPDU ends.
        let Some(ulpdu_len) = length(stream) else {
            // No FPDU is shorter, so fewer octets could not complete one.
            return Ok(Step::Need { total: MIN_FPDU });
        };
        let used = fpdu_len(ulpdu_len);
        let Some(fpdu) = stream.get(..used) else {
            return Ok(Step::Need { total: used });
        };
        // Before the CRC is checked nothing of the FPDU is trusted but its length, which only
        // decides how many octets to wait for.
        self.check_crc(fpdu)?;
        Ok(Step::Fpdu { ulpdu: LENGTH_LEN..LENGTH_LEN + ulpdu_len, used })
    }

    fn step_marked(&self, stream: &mut [u8]) -> Result<Step, FpduError> {
        // The place of the length field depends on whether a marker is due at this position. A
        // layout of the shortest FPDU tells, before the real length is known.
        let shortest = Layout::new(self.position, MIN_FPDU);
        let length_at = shortest.length_at();
        let Some(ulpdu_len) = stream.get(length_at..).and_then(length) else {
            return Ok(Step::Need { total: shortest.wire_len });
        };
        let layout = Layout::new(self.position, fpdu_len(ulpdu_len));
        let used = layout.wire_len;
        let Some(fpdu) = stream.get_mut(..used) else {
            return Ok(Step::Need { total: used });
        };
        // The CRC comes first: it covers the markers, and a marker is at fault only where the
        // octets are those that were sent (RFC 5044 §8, code 3).
        self.check_crc(fpdu)?;
        self.check_markers(layout, fpdu)?;
        let ulpdu = length_at + LENGTH_LEN..length_at + LENGTH_LEN + ulpdu_len;
        layout.close_gaps(fpdu, ulpdu.end);
        Ok(Step::Fpdu { ulpdu, used })
    }

    /// Checks the CRC, which covers everything before its field: also the pad and the markers'
    /// reserved bits, which no other check looks at.
    #[inline(always)]
    fn check_crc(&self, fpdu: &[u8]) -> Result<(), FpduError> {
        // RFC 5044 §4.1, §7.1.1: with CRCs off the field is valid whatever it contains.
        if !self.framing.crc {
            return Ok(());
        }
        let (covered, field) = fpdu.split_at(fpdu.len() - CRC_LEN);
        compare_crc(crc32c(covered), [field[0], field[1], field[2], field[3]])
    }

    fn check_markers(&self, layout: Layout, fpdu: &[u8]) -> Result<(), FpduError> {
        for (at, want) in layout.markers() {
            // RFC 5044 §4.2: the reserved half is ignored, and the two lowest bits of FPDUPTR are
            // taken as zero.
            let got = u16::from_be_bytes([fpdu[at + 2], fpdu[at + MARKER_LEN - 1]]) & !3;
            // RFC 5044 §8: code 3 is for a wrong marker in an FPDU whose CRC is right.
            if got != want {
                let position = self.position.wrapping_add(at as u64);
                return Err(FpduError::Marker { position, got, want });
            }
        }
        Ok(())
    }

    /// Returns the sizes of the FPDU at the front of `stream` once its length field has arrived.
    /// Always `None` for a direction with markers.
    #[inline]
    #[must_use]
    pub fn peek(&self, stream: &[u8]) -> Option<Peek> {
        if self.framing.markers || self.failed.is_some() {
            return None;
        }
        length(stream).map(|ulpdu_len| Peek { ulpdu_len, fpdu_len: fpdu_len(ulpdu_len) })
    }

    /// Accepts an FPDU that the caller received in pieces, with its payload in another place. Only
    /// without markers.
    ///
    /// `crc` is that of `ULPDU_Length`, ULPDU and pad, and is ignored when CRCs are off; `field` is
    /// the CRC field as received. The FPDU counts as used.
    ///
    /// # Errors
    /// The CRC is wrong. The direction has ended.
    #[inline]
    pub fn accept_external(&mut self, ulpdu_len: usize, crc: u32, field: [u8; 4]) -> Result<(), FpduError> {
        debug_assert!(!self.framing.markers, "markers are found by `step` only");
        if let Some(error) = self.failed {
            return Err(error);
        }
        if self.framing.crc
            && let Err(error) = compare_crc(crc, field)
        {
            self.failed = Some(error);
            return Err(error);
        }
        self.position = self.position.wrapping_add(fpdu_len(ulpdu_len) as u64);
        Ok(())
    }

    /// Ends the direction: the peer sends no more. `rest` is what the last [`step`](Self::step) did
    /// not use.
    ///
    /// # Errors
    /// `rest` is not empty: an FPDU was cut off, and nothing of it is delivered. Or the direction
    /// had ended with an error before.
    pub fn finish(&self, rest: &[u8]) -> Result<(), FpduError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        // RFC 5044 §8: code 1 covers a FIN that comes too early.
        if rest.is_empty() { Ok(()) } else { Err(FpduError::Truncated { have: rest.len() }) }
    }
}

/// Returns `ULPDU_Length`, once both of its octets are there.
#[inline]
fn length(stream: &[u8]) -> Option<usize> {
    stream.first_chunk().map(|&octets| usize::from(u16::from_be_bytes(octets)))
}

// RFC 5044 §4.4: a CRC that does not match makes the FPDU invalid, and nothing in it reaches DDP.
// The field is little-endian: it is the one number of MPA that is not sent in network order.
#[inline]
fn compare_crc(want: u32, field: [u8; 4]) -> Result<(), FpduError> {
    let got = u32::from_le_bytes(field);
    if got == want { Ok(()) } else { Err(FpduError::Crc { got, want }) }
}
