//! An independent reading of RFC 5044 §4 to test against, as plain as possible: it takes complete
//! streams, one octet at a time, and shares no code with the crate.

/// One FPDU found in a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) ulpdu: Vec<u8>,
    /// Every octet but those of the CRC field, markers included.
    pub(crate) covered: Vec<u8>,
    pub(crate) crc: [u8; 4],
    /// FPDUPTR of each marker in the FPDU, and the value that it should have.
    pub(crate) markers: Vec<(u32, u32)>,
}

/// Parses a stream of complete FPDUs whose first octet is the `position`th of Full Operation.
pub(crate) fn parse(stream: &[u8], position: u64, markers: bool) -> Vec<Found> {
    let mut reader = Reader { stream, at: 0, position, markers };
    let mut found = Vec::new();
    while reader.at < stream.len() {
        found.push(reader.fpdu());
    }
    found
}

struct Reader<'a> {
    stream: &'a [u8],
    at: usize,
    position: u64,
    markers: bool,
}

impl Reader<'_> {
    fn fpdu(&mut self) -> Found {
        let mut seen = Vec::new();
        self.skip_marker(&mut seen);
        let start = self.at;
        let length = usize::from(self.octet(&mut seen)) * 256 + usize::from(self.octet(&mut seen));
        let ulpdu = (0..length).map(|_| self.octet(&mut seen)).collect();
        let mut data = 2 + length;
        while data % 4 != 0 {
            assert_eq!(self.octet(&mut seen), 0, "pad is sent as zero");
            data += 1;
        }
        self.skip_marker(&mut seen);
        let covered = self.stream[start - leading(&seen, start)..self.at].to_vec();
        let crc = self.stream[self.at..self.at + 4].try_into().unwrap();
        self.at += 4;
        let markers = seen.iter().map(|&(at, pointer)| (pointer, at.saturating_sub(start) as u32)).collect();
        Found { ulpdu, covered, crc, markers }
    }

    fn octet(&mut self, seen: &mut Vec<(usize, u32)>) -> u8 {
        self.skip_marker(seen);
        self.at += 1;
        self.stream[self.at - 1]
    }

    fn skip_marker(&mut self, seen: &mut Vec<(usize, u32)>) {
        if self.markers && (self.position + self.at as u64).is_multiple_of(512) {
            let marker: [u8; 4] = self.stream[self.at..self.at + 4].try_into().unwrap();
            seen.push((self.at, u32::from_be_bytes(marker)));
            self.at += 4;
        }
    }
}

/// Returns 4 if a marker stands in front of the length field at `start`, or else 0.
fn leading(seen: &[(usize, u32)], start: usize) -> usize {
    if seen.iter().any(|&(at, _)| at < start) { 4 } else { 0 }
}

/// Returns the CRC-32C, computed bit by bit: polynomial 0x1EDC6F41 reflected, all ones before and
/// after.
pub(crate) fn crc32c(data: &[u8]) -> u32 {
    let mut register = u32::MAX;
    for &octet in data {
        register ^= u32::from(octet);
        for _ in 0..8 {
            let low = register & 1;
            register >>= 1;
            if low == 1 {
                register ^= 0x82f6_3b78;
            }
        }
    }
    !register
}
