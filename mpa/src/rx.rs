//! The octet stream to ULPDUs, one direction of a connection (RFC 5044 §4, §6).
//!
//! [`Deframer`] holds no octets: it is shown what has come and not yet been used, says where the ULPDU lies in it or
//! how much is missing, and never allocates. FPDUs are found by their length fields alone, so it does not matter how
//! TCP cut the stream; markers are taken out, and checked where they point. It does not recover: after an `Err`
//! nothing more of this direction may reach DDP (RFC 5044 §8), so every later call gives the same `Err`.

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

/// What [`Deframer::step`] made of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// One checked FPDU.
    Fpdu {
        /// Where its ULPDU lies in the stream that was given, in one piece.
        ulpdu: Range<usize>,
        /// Octets to drop from the front before the next call.
        used: usize,
    },
    /// Not all here yet.
    Need {
        /// Octets from the front of the stream without which another call cannot say more.
        total: usize,
    },
}

/// The FPDU at the front of a stream, as its length field announces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peek {
    /// Octets of the ULPDU, which begins behind the two octets of `ULPDU_Length`.
    pub ulpdu_len: usize,
    /// Octets of the FPDU.
    pub fpdu_len: usize,
}

/// Why a direction of the stream is over. Its end owes the peer a Terminate, and MPA closes nothing (RFC 5044 §8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FpduError {
    /// The octets are not those that were sent.
    #[error("the FPDU's CRC field says {got:#010x}, its octets make {want:#010x}")]
    Crc {
        /// As received.
        got: u32,
        /// As computed.
        want: u32,
    },
    /// The marker and the length fields disagree on where the FPDU began.
    #[error(
        "the marker at stream octet {position} points {got} octets back, its FPDU began {want} before it"
    )]
    Marker {
        /// Of the marker's first octet, counted from the start of Full Operation.
        position: u64,
        /// FPDUPTR as received, its two lowest bits taken as zero.
        got: u16,
        /// What it had to be.
        want: u16,
    },
    /// The peer closed in the middle of an FPDU.
    #[error("the stream ended {have} octets into an FPDU")]
    Truncated {
        /// What came of it.
        have: usize,
    },
}

impl FpduError {
    /// The code to report and, where one can still be sent, to Terminate with.
    #[must_use]
    pub const fn code(&self) -> MpaError {
        match self {
            Self::Crc { .. } => MpaError::Crc,
            Self::Marker { .. } => MpaError::Marker,
            Self::Truncated { .. } => MpaError::Closed,
        }
    }
}

/// The shortest FPDU there is room for: a length of 0, its pad and the CRC.
const MIN_FPDU: usize = fpdu_len(0);

impl Deframer {
    /// A direction in which no octet has come since startup.
    #[must_use]
    pub const fn new(framing: Framing) -> Self {
        Self { framing, position: 0, failed: None }
    }

    /// A direction in which `position` octets of FPDUs and markers have been used.
    ///
    /// # Panics
    /// If `position` is no multiple of four: no FPDU begins there.
    #[must_use]
    pub const fn at(framing: Framing, position: u64) -> Self {
        assert!(position.is_multiple_of(4), "FPDUs are multiples of four octets");
        Self { framing, position, failed: None }
    }

    /// How this direction is framed.
    #[must_use]
    pub const fn framing(&self) -> Framing {
        self.framing
    }

    /// Octets of FPDUs and markers used so far.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Looks at `stream`, whose front is the start of the next FPDU (its leading marker, if one is due there).
    ///
    /// A whole FPDU is checked; then, with markers, the ULPDU's octets are moved together in place. As long as
    /// `Need` or an error is the answer, nothing in `stream` changes.
    ///
    /// # Errors
    /// The CRC or a marker is wrong. The direction is over.
    #[inline]
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

    #[inline]
    fn step_plain(&self, stream: &[u8]) -> Result<Step, FpduError> {
        // RFC 5044 §5.2, §6: the length field alone says where the FPDU ends.
        let Some(ulpdu_len) = length(stream) else {
            return Ok(Step::Need { total: MIN_FPDU });
        };
        let used = fpdu_len(ulpdu_len);
        let Some(fpdu) = stream.get(..used) else {
            return Ok(Step::Need { total: used });
        };
        self.check_crc(fpdu)?;
        Ok(Step::Fpdu { ulpdu: LENGTH_LEN..LENGTH_LEN + ulpdu_len, used })
    }

    fn step_marked(&self, stream: &mut [u8]) -> Result<Step, FpduError> {
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
        self.check_crc(fpdu)?;
        self.check_markers(layout, fpdu)?;
        let ulpdu = length_at + LENGTH_LEN..length_at + LENGTH_LEN + ulpdu_len;
        layout.close_gaps(fpdu, ulpdu.end);
        Ok(Step::Fpdu { ulpdu, used })
    }

    /// Everything before the CRC field is covered: pad and markers too, which are not looked at otherwise.
    #[inline]
    fn check_crc(&self, fpdu: &[u8]) -> Result<(), FpduError> {
        // RFC 5044 §4.1, §7.1.1: with CRCs off the field is valid whatever it holds.
        if !self.framing.crc {
            return Ok(());
        }
        let (covered, field) = fpdu.split_at(fpdu.len() - CRC_LEN);
        compare_crc(crc32c(covered), [field[0], field[1], field[2], field[3]])
    }

    fn check_markers(&self, layout: Layout, fpdu: &[u8]) -> Result<(), FpduError> {
        for (at, want) in layout.markers() {
            // RFC 5044 §4.2: the reserved half is ignored, the two lowest bits of FPDUPTR are taken as zero.
            let got = u16::from_be_bytes([fpdu[at + 2], fpdu[at + MARKER_LEN - 1]]) & !3;
            // RFC 5044 §8: code 3, with a good CRC.
            if got != want {
                let position = self.position.wrapping_add(at as u64);
                return Err(FpduError::Marker { position, got, want });
            }
        }
        Ok(())
    }

    /// What the FPDU at the front of `stream` will be, as soon as its length field is there. `None` with markers.
    #[inline]
    #[must_use]
    pub fn peek(&self, stream: &[u8]) -> Option<Peek> {
        if self.framing.markers || self.failed.is_some() {
            return None;
        }
        length(stream).map(|ulpdu_len| Peek { ulpdu_len, fpdu_len: fpdu_len(ulpdu_len) })
    }

    /// Takes an FPDU that the caller received piecewise, its payload elsewhere. Without markers only.
    ///
    /// `crc` is that of `ULPDU_Length`, ULPDU and pad, and is not looked at when CRCs are off; `field` is the CRC
    /// field as it came. The FPDU counts as used.
    ///
    /// # Errors
    /// The CRC is wrong. The direction is over.
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

    /// The peer sends no more, and `rest` is what the last [`step`](Self::step) left or wanted more of.
    ///
    /// # Errors
    /// There is a rest: an FPDU was cut off, and nothing of it is delivered. Or the direction was over before.
    pub fn finish(&self, rest: &[u8]) -> Result<(), FpduError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        // RFC 5044 §8: code 1 covers a FIN that comes too early.
        if rest.is_empty() { Ok(()) } else { Err(FpduError::Truncated { have: rest.len() }) }
    }
}

#[inline]
fn length(stream: &[u8]) -> Option<usize> {
    stream.first_chunk().map(|&octets| usize::from(u16::from_be_bytes(octets)))
}

// RFC 5044 §4.4: a CRC that does not match makes the FPDU invalid, and nothing in it reaches DDP.
#[inline]
fn compare_crc(want: u32, field: [u8; 4]) -> Result<(), FpduError> {
    let got = u32::from_le_bytes(field);
    if got == want { Ok(()) } else { Err(FpduError::Crc { got, want }) }
}
