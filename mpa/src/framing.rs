//! How one direction of a connection is framed.

/// Settled at startup, for one direction, until the connection ends (RFC 5044 §4.4, §7.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    /// CRCs are generated and checked. The CRC field is there either way.
    pub crc: bool,
    /// A marker stands at every 512th octet of the stream.
    pub markers: bool,
}
