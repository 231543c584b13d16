//! Sending: ULPDUs are framed as FPDUs, for one direction of a connection (RFC 5044 §4).
//!
//! [`Framer`] holds only the framing of its direction and the position reached in it, from which
//! the markers are counted. [`Framer::emit_into`] writes a complete FPDU into a buffer. A sender
//! that gathers an FPDU from pieces (length, header, payload where it lies) takes only the octets
//! behind the ULPDU from [`Framer::trailer`]. FPDUs that were emitted must be sent, in the order in
//! which they were emitted; a caller that may have to take one back keeps a clone.

use crate::crc::{crc32c, crc32c_append};
use crate::framing::Framing;
use crate::marker::{Layout, Writer};
use crate::sizes::{CRC_LEN, LENGTH_LEN, fpdu_len, pad_len};

/// Frames the ULPDUs of one direction.
///
/// ```
/// use rddp_mpa::{Framer, Framing};
///
/// let mut framer = Framer::new(Framing { crc: true, markers: true });
/// let mut out = Vec::new();
/// framer.emit(b"header", 600, |_offset, dst| dst.fill(7), &mut out);
/// assert_eq!(out[..6], [0, 0, 0, 0, 0x02, 0x5e]);    // the first marker, then `ULPDU_Length`
/// assert_eq!(out[512..516], [0, 0, 0x01, 0xfc]);     // the second one points 508 octets back
/// assert_eq!(framer.position(), out.len() as u64);
/// ```
#[derive(Clone, Debug)]
pub struct Framer {
    framing: Framing,
    position: u64,
}

impl Framer {
    /// A framer for a direction in which no octet has been sent since startup.
    #[must_use]
    pub const fn new(framing: Framing) -> Self {
        Self { framing, position: 0 }
    }

    /// A framer for a direction in which `position` octets of FPDUs and markers have been sent.
    ///
    /// # Panics
    /// If `position` is not a multiple of four: no FPDU ends there.
    #[must_use]
    pub const fn at(framing: Framing, position: u64) -> Self {
        assert!(position.is_multiple_of(4), "FPDUs are multiples of four octets");
        Self { framing, position }
    }

    /// Returns the framing of this direction.
    #[must_use]
    pub const fn framing(&self) -> Framing {
        self.framing
    }

    /// Returns the octets of FPDUs and markers made so far.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Returns the octets, markers included, that the next FPDU takes on the wire if its ULPDU has
    /// `ulpdu_len` octets.
    #[inline]
    #[must_use]
    pub fn fpdu_len(&self, ulpdu_len: usize) -> usize {
        let plain = fpdu_len(ulpdu_len);
        if self.framing.markers { Layout::new(self.position, plain).wire_len } else { plain }
    }

    /// Appends one FPDU to `out`; see [`emit_into`](Self::emit_into).
    ///
    /// # Panics
    /// If the ULPDU has more than 65535 octets, which its length field cannot express.
    #[inline]
    pub fn emit(
        &mut self,
        header: &[u8],
        payload_len: usize,
        fill: impl FnMut(usize, &mut [u8]),
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        out.resize(start + self.fpdu_len(header.len() + payload_len), 0);
        self.emit_into(header, payload_len, fill, &mut out[start..]);
    }

    /// Writes one FPDU over all of `out`, whatever that contained. The ULPDU is `header` and then
    /// `payload_len` octets that `fill(offset, dst)` writes: it is called for pieces of the payload
    /// in order, cut where markers stand, none of them empty.
    ///
    /// The caller keeps the limit of 64768 octets for a ULPDU (RFC 5044 §3), through
    /// [`mulpdu`](crate::mulpdu).
    ///
    /// # Panics
    /// If the ULPDU has more than 65535 octets, which its length field cannot express, or if the
    /// length of `out` is not what [`fpdu_len`](Self::fpdu_len) returns.
    #[inline]
    pub fn emit_into(
        &mut self,
        header: &[u8],
        payload_len: usize,
        fill: impl FnMut(usize, &mut [u8]),
        out: &mut [u8],
    ) {
        let ulpdu_len = header.len() + payload_len;
        let length = u16::try_from(ulpdu_len).expect("a ULPDU has at most 65535 octets").to_be_bytes();
        assert_eq!(out.len(), self.fpdu_len(ulpdu_len), "the room for an FPDU is just its length");
        if self.framing.markers {
            self.emit_marked(length, header, payload_len, fill, out);
        } else {
            self.emit_plain(length, header, payload_len, fill, out);
        }
        self.position = self.position.wrapping_add(out.len() as u64);
    }

    #[inline]
    fn emit_plain(
        &self,
        length: [u8; 2],
        header: &[u8],
        payload_len: usize,
        mut fill: impl FnMut(usize, &mut [u8]),
        out: &mut [u8],
    ) {
        let payload = LENGTH_LEN + header.len();
        let end = payload + payload_len;
        out[..LENGTH_LEN].copy_from_slice(&length);
        out[LENGTH_LEN..payload].copy_from_slice(header);
        // `fill` is promised that no piece is empty.
        if payload_len > 0 {
            fill(0, &mut out[payload..end]);
        }
        // The CRC of the pad is added by `tail`.
        let crc = if self.framing.crc { crc32c(&out[..end]) } else { 0 };
        out[end..].copy_from_slice(self.tail(header.len() + payload_len, crc).as_ref());
    }

    fn emit_marked(
        &self,
        length: [u8; 2],
        header: &[u8],
        payload_len: usize,
        mut fill: impl FnMut(usize, &mut [u8]),
        out: &mut [u8],
    ) {
        let ulpdu_len = header.len() + payload_len;
        let layout = Layout::new(self.position, fpdu_len(ulpdu_len));
        let mut writer = Writer::new(out, layout);
        writer.put(&length);
        writer.put(header);
        // Payload goes around the markers: `room` ends where the next one is due, so that each call
        // of `fill` gets contiguous octets and nothing is moved afterwards.
        let mut offset = 0;
        while offset < payload_len {
            let dst = writer.room(payload_len - offset);
            fill(offset, dst);
            offset += dst.len();
        }
        // The buffer may hold old octets, so the pad is written too. A marker may fall between pad
        // and CRC; it is inside the CRC.
        writer.put(&[0; 3][..pad_len(ulpdu_len)]);
        // RFC 5044 §4.4: the CRC covers every octet before it, the FPDU's markers included.
        let (covered, field) = writer.split_at_crc();
        let crc = if self.framing.crc { crc32c(covered) } else { 0 };
        field.copy_from_slice(&crc.to_le_bytes());
    }

    /// Returns the pad and CRC that follow the ULPDU of an FPDU that is sent as a gather list. Only
    /// without markers.
    ///
    /// `crc` is that of `ULPDU_Length` and the ULPDU as they will be sent; it is ignored when CRCs
    /// are off. The FPDU counts as made.
    #[inline]
    pub fn trailer(&mut self, ulpdu_len: usize, crc: u32) -> Trailer {
        debug_assert!(!self.framing.markers, "a gathered FPDU has no place for markers");
        self.position = self.position.wrapping_add(fpdu_len(ulpdu_len) as u64);
        self.tail(ulpdu_len, crc)
    }

    // `inline(always)`: a call costs each short FPDU as much as the tail itself.
    #[inline(always)]
    fn tail(&self, ulpdu_len: usize, crc: u32) -> Trailer {
        let pad = pad_len(ulpdu_len);
        let mut octets = [0; 3 + CRC_LEN];
        // RFC 5044 §4.4: with CRCs off the field is still present, with any value; this end sends
        // zero.
        if self.framing.crc {
            // A short FPDU without a pad is spared even the slice of it.
            let crc = if pad == 0 { crc } else { crc32c_append(crc, &[0; 3][..pad]) };
            octets[pad..pad + CRC_LEN].copy_from_slice(&crc.to_le_bytes());
        }
        Trailer { octets, len: pad + CRC_LEN }
    }
}

/// Pad and CRC of an FPDU, 4 to 7 octets.
#[derive(Clone, Copy, Debug)]
pub struct Trailer {
    octets: [u8; 3 + CRC_LEN],
    len: usize,
}

impl AsRef<[u8]> for Trailer {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.octets[..self.len]
    }
}
