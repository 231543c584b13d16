//! ULPDUs to FPDUs, one direction of a connection (RFC 5044 §4).
//!
//! [`Framer`] holds nothing but how the direction is framed and how far it has come, which is what the markers are
//! counted from. [`Framer::emit_into`] writes a whole FPDU into a buffer; a sender that gathers its FPDUs from pieces
//! (length, header, payload where it lies) takes only what comes behind the ULPDU from [`Framer::trailer`].
//! FPDUs that were emitted must be sent, in that order; a caller that may have to take one back keeps a clone.

use crate::crc::{crc32c, crc32c_append};
use crate::framing::Framing;
use crate::marker::{Layout, Writer};
use crate::sizes::{CRC_LEN, LENGTH_LEN, fpdu_len, pad_len};

/// Makes the FPDUs of one direction.
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
    /// A direction in which no octet has been sent since startup.
    #[must_use]
    pub const fn new(framing: Framing) -> Self {
        Self { framing, position: 0 }
    }

    /// A direction in which `position` octets of FPDUs and markers have been sent.
    ///
    /// # Panics
    /// If `position` is no multiple of four: no FPDU ends there.
    #[must_use]
    pub const fn at(framing: Framing, position: u64) -> Self {
        assert!(position.is_multiple_of(4), "FPDUs are multiples of four octets");
        Self { framing, position }
    }

    /// How this direction is framed.
    #[must_use]
    pub const fn framing(&self) -> Framing {
        self.framing
    }

    /// Octets of FPDUs and markers made so far.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Octets that the next FPDU takes on the wire if its ULPDU has `ulpdu_len`, markers included.
    #[inline]
    #[must_use]
    pub fn fpdu_len(&self, ulpdu_len: usize) -> usize {
        let plain = fpdu_len(ulpdu_len);
        if self.framing.markers { Layout::new(self.position, plain).wire_len } else { plain }
    }

    /// Appends one FPDU to `out`: see [`emit_into`](Self::emit_into).
    ///
    /// # Panics
    /// If the ULPDU has more than 65535 octets, which its length field cannot say.
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

    /// Writes one FPDU over all of `out`, whatever that held. The ULPDU is `header` and then `payload_len` octets that
    /// `fill(offset, dst)` writes: pieces of the payload in order, cut where markers stand, none of them empty.
    ///
    /// The limit of 64768 octets for a ULPDU (RFC 5044 §3) is the caller's to keep, through
    /// [`mulpdu`](crate::mulpdu).
    ///
    /// # Panics
    /// If the ULPDU has more than 65535 octets, which its length field cannot say, or if `out` has not the length that
    /// [`fpdu_len`](Self::fpdu_len) tells.
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
        if payload_len > 0 {
            fill(0, &mut out[payload..end]);
        }
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
        let mut offset = 0;
        while offset < payload_len {
            let dst = writer.room(payload_len - offset);
            fill(offset, dst);
            offset += dst.len();
        }
        writer.put(&[0; 3][..pad_len(ulpdu_len)]);
        // RFC 5044 §4.4: the CRC covers every octet before it, the FPDU's markers included.
        let (covered, field) = writer.split_at_crc();
        let crc = if self.framing.crc { crc32c(covered) } else { 0 };
        field.copy_from_slice(&crc.to_le_bytes());
    }

    /// What follows the ULPDU of an FPDU that is sent as a gather list: pad and CRC. Without markers only.
    ///
    /// `crc` is that of `ULPDU_Length` and the ULPDU, as the octets will be sent; it is not looked at when CRCs are
    /// off. The FPDU counts as made.
    #[inline]
    pub fn trailer(&mut self, ulpdu_len: usize, crc: u32) -> Trailer {
        debug_assert!(!self.framing.markers, "a gathered FPDU has no place for markers");
        self.position = self.position.wrapping_add(fpdu_len(ulpdu_len) as u64);
        self.tail(ulpdu_len, crc)
    }

    #[inline]
    fn tail(&self, ulpdu_len: usize, crc: u32) -> Trailer {
        let pad = pad_len(ulpdu_len);
        let mut octets = [0; 3 + CRC_LEN];
        // RFC 5044 §4.4: with CRCs off the field is still there, with any value; ours is zero.
        if self.framing.crc {
            // To sum nothing costs as much as a short message.
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
