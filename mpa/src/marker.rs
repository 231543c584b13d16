//! Positions and contents of the markers of one FPDU (RFC 5044 §4.2, §4.3).
//!
//! Positions are counted from the first octet that the sender emits in Full Operation. A marker
//! begins at every multiple of 512, and so at that first octet too. FPDUs are multiples of four
//! octets, with markers and without, so no marker splits the length field or the CRC. A marker due
//! right behind a CRC belongs to the FPDU that follows.

use crate::sizes::{MARKER_LEN, MARKER_SPACING};

/// Octets of FPDUs between the end of one marker and the start of the next.
const SPAN: usize = MARKER_SPACING - MARKER_LEN;

/// The markers in an FPDU that begins at a given octet of a marked stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Offset of the first marker due, from the FPDU's start. It may lie beyond the FPDU.
    first: usize,
    /// Octets of the FPDU on the wire, markers included.
    pub(crate) wire_len: usize,
}

impl Layout {
    /// Returns the layout of an FPDU of `fpdu_len` octets (markers not counted) at this position of
    /// the stream.
    #[inline]
    pub(crate) fn new(position: u64, fpdu_len: usize) -> Self {
        let first = (position.wrapping_neg() % MARKER_SPACING as u64) as usize;
        // The first marker takes its place in front of the octet `first`; each further one follows
        // `SPAN` octets of the FPDU later. An FPDU that ends before `first` has none.
        let markers = fpdu_len.saturating_sub(first).div_ceil(SPAN);
        Self { first, wire_len: fpdu_len + MARKER_LEN * markers }
    }

    /// Returns the offset of `ULPDU_Length`: behind the marker if the FPDU begins with one.
    pub(crate) fn length_at(&self) -> usize {
        if self.first == 0 { MARKER_LEN } else { 0 }
    }

    /// Yields each marker: its offset on the wire, and the FPDUPTR that it must hold.
    pub(crate) fn markers(self) -> impl Iterator<Item = (usize, u16)> {
        (self.first..self.wire_len).step_by(MARKER_SPACING).map(move |at| (at, self.pointer(at)))
    }

    /// Returns the FPDUPTR of the marker at the offset `at`: the distance back to `ULPDU_Length`,
    /// or 0 for a marker in front of it.
    ///
    /// The distance fits into 16 bits for every ULPDU that a sender may form; for longer ones only
    /// its low 16 bits are kept.
    fn pointer(&self, at: usize) -> u16 {
        at.saturating_sub(self.length_at()) as u16
    }

    /// Moves the octets of `fpdu` together over the markers. `end` is the end, after the move, of
    /// the octets to keep; they begin behind `ULPDU_Length`.
    pub(crate) fn close_gaps(&self, fpdu: &mut [u8], end: usize) {
        // A marker in front of `ULPDU_Length` leaves no gap behind it: the caller skips it by
        // `length_at`. So the first gap is then the one of the second marker.
        let mut to = if self.first == 0 { MARKER_SPACING } else { self.first };
        let mut from = to + MARKER_LEN;
        while to < end {
            let len = SPAN.min(end - to);
            fpdu.copy_within(from..from + len, to);
            to += len;
            from += MARKER_SPACING;
        }
    }
}

/// Writes an FPDU from front to back, and the markers where they are due.
pub(crate) struct Writer<'a> {
    fpdu: &'a mut [u8],
    layout: Layout,
    at: usize,
    due: usize,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(fpdu: &'a mut [u8], layout: Layout) -> Self {
        Self { fpdu, layout, at: 0, due: layout.first }
    }

    /// Returns the next octets to write: as many of `want` (which is not 0) as stand before the
    /// next marker.
    pub(crate) fn room(&mut self, want: usize) -> &mut [u8] {
        self.mark_if_due();
        let start = self.at;
        self.at = self.due.min(start + want);
        &mut self.fpdu[start..self.at]
    }

    /// Writes `octets`, around the markers that fall among them.
    pub(crate) fn put(&mut self, mut octets: &[u8]) {
        while !octets.is_empty() {
            let dst = self.room(octets.len());
            let (now, later) = octets.split_at(dst.len());
            dst.copy_from_slice(now);
            octets = later;
        }
    }

    /// Returns all octets before the CRC field, and the field. A marker due between pad and CRC
    /// belongs to this FPDU, and is written first.
    pub(crate) fn split_at_crc(mut self) -> (&'a [u8], &'a mut [u8]) {
        self.mark_if_due();
        let (covered, field) = self.fpdu.split_at_mut(self.at);
        (covered, field)
    }

    fn mark_if_due(&mut self) {
        if self.at == self.due {
            // RFC 5044 §4.2: sixteen reserved bits, sent as zero, then FPDUPTR.
            let marker = u32::from(self.layout.pointer(self.at)).to_be_bytes();
            self.fpdu[self.at..self.at + MARKER_LEN].copy_from_slice(&marker);
            self.at += MARKER_LEN;
            self.due += MARKER_SPACING;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn markers(position: u64, fpdu_len: usize) -> Vec<(usize, u16)> {
        Layout::new(position, fpdu_len).markers().collect()
    }

    // RFC 5044 §4.3: the first octets of a marked stream are the marker 0, and all markers of an
    // FPDU point at the same ULPDU_Length.
    #[test]
    fn markers_of_one_fpdu_point_at_its_length_field() {
        assert_eq!(markers(0, 1436), [(0, 0), (512, 508), (1024, 1020)]);
        assert_eq!(markers(512, 28), [(0, 0)]);
        assert_eq!(markers(500, 1436), [(12, 12), (524, 524), (1036, 1036)]);
    }

    // RFC 5044 §4.3: a marker between two FPDUs belongs to the second.
    #[test]
    fn a_marker_due_behind_the_crc_is_left_to_the_next_fpdu() {
        assert_eq!(markers(480, 32), []);
        assert_eq!(markers(0, 508), [(0, 0)]);
        assert_eq!(markers(4, 508), []);
        assert_eq!(markers(8, 508), [(504, 504)]);
    }

    // RFC 5044 §4.3: a marker between pad and CRC is in the FPDU.
    #[test]
    fn a_marker_due_before_the_crc_is_in_the_fpdu() {
        assert_eq!(markers(480, 36), [(32, 32)]);
    }

    #[test]
    fn wire_length_counts_each_marker_once() {
        for position in (0..1024).step_by(4) {
            for fpdu_len in (8..2100).step_by(4) {
                let layout = Layout::new(position, fpdu_len);
                assert_eq!(layout.wire_len, fpdu_len + 4 * layout.markers().count());
            }
        }
    }
}
