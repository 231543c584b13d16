//! The error codes of MPA (RFC 5044 §8, registry of RFC 6580 §3.3, extended by RFC 6581 §8).

use std::fmt;

/// A fault of MPA, with the number by which it is reported to the ULP and in a Terminate (layer 2,
/// error type 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MpaError {
    /// The TCP connection is closed, reset or lost.
    Closed = 1,
    /// The CRC received does not match that of the FPDU.
    Crc = 2,
    /// A marker and the `ULPDU_Length` fields disagree on where the FPDU began.
    Marker = 3,
    /// The peer sent something else than a valid Request or Reply frame.
    Startup = 4,
    /// A failure at the sender of the Terminate, during the startup of RFC 6581.
    LocalCatastrophic = 5,
    /// The peer wants to have more Reads outstanding than this end can take.
    InsufficientIrd = 6,
    /// The two ends have no kind of RTR in common.
    NoMatchingRtr = 7,
}

impl MpaError {
    /// Returns the error code, one octet of a Terminate.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for MpaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "TCP connection closed, terminated or lost",
            Self::Crc => "octets have come that do not match their CRC",
            Self::Marker => "octets have come whose markers do not stand where they belong",
            Self::Startup => "invalid MPA Request or Reply frame",
            Self::LocalCatastrophic => "local catastrophic error",
            Self::InsufficientIrd => "insufficient IRD resources",
            Self::NoMatchingRtr => "no matching RTR option",
        })
    }
}
