//! The framing of one direction of a connection: with or without CRCs and markers.

/// The framing that startup settled for one direction. It holds until the connection ends
/// (RFC 5044 §4.4, §7.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    /// CRCs are generated and checked. The CRC field is present in every FPDU either way.
    pub crc: bool,
    /// A marker stands at every 512th octet of the stream.
    pub markers: bool,
}
