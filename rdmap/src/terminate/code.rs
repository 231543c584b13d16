//! Layer, error type and error code of a Terminate, with their names (RFC 5040 §4.8 Figure 9,
//! RFC 5041 §7.2, RFC 5044 chapter 8, RFC 6581 chapter 8).

use core::fmt;

/// The error that a Terminate reports: 0xLECC, layer and error type a nibble each, then the error
/// code.
///
/// ```
/// use rddp_rdmap::TerminateCode;
/// assert_eq!(TerminateCode(0x0101), TerminateCode::BOUNDS);
/// assert_eq!(TerminateCode::BOUNDS.name(), Some("base or bounds violation"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TerminateCode(pub u16);

/// Declares the codes, their names, and the list of all of them.
macro_rules! codes {
    ($($(#[$doc:meta])* $ident:ident = $value:literal, $name:literal;)*) => {
        impl TerminateCode {
            $($(#[$doc])* pub const $ident: TerminateCode = TerminateCode($value);)*

            /// Every code of the tables.
            pub const ALL: &'static [TerminateCode] = &[$(TerminateCode::$ident),*];

            /// The name in the tables; `None` when it is in none of them.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($name),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// RDMAP: a failure at the sender, or its ULP gave up. Any error code may stand behind this
    /// type.
    LOCAL_CATASTROPHIC = 0x0000, "local catastrophic error";
    /// RDMAP: the STag of a Read's or an atomic's target is invalid.
    INVALID_STAG = 0x0100, "invalid STag";
    /// RDMAP: base or bounds violation.
    BOUNDS = 0x0101, "base or bounds violation";
    /// RDMAP: access rights violation.
    ACCESS_RIGHTS = 0x0102, "access rights violation";
    /// RDMAP: the STag is not associated with the stream.
    STAG_NOT_ASSOCIATED = 0x0103, "STag not associated with RDMAP stream";
    /// RDMAP: the TO wraps.
    TO_WRAP = 0x0104, "TO wrap";
    /// RDMAP: the STag cannot be invalidated, as a protection error.
    CANNOT_INVALIDATE_PROTECTION = 0x0109, "STag cannot be invalidated";
    /// RDMAP: an unspecified protection error.
    UNSPECIFIED_PROTECTION = 0x01ff, "unspecified error";
    /// RDMAP: invalid RDMAP version.
    RDMAP_VERSION = 0x0205, "invalid RDMAP version";
    /// RDMAP: unexpected opcode.
    UNEXPECTED_OPCODE = 0x0206, "unexpected opcode";
    /// RDMAP: a catastrophic error of this stream.
    CATASTROPHIC_STREAM = 0x0207, "catastrophic error, localized to RDMAP stream";
    /// RDMAP: a catastrophic error of the whole peer.
    CATASTROPHIC_GLOBAL = 0x0208, "catastrophic error, global";
    /// RDMAP: the STag cannot be invalidated, as an operation error.
    CANNOT_INVALIDATE_OPERATION = 0x0209, "STag cannot be invalidated";
    /// RDMAP: an unspecified operation error.
    UNSPECIFIED_OPERATION = 0x02ff, "unspecified error";
    /// DDP: local catastrophic error.
    DDP_LOCAL_CATASTROPHIC = 0x1000, "local catastrophic error";
    /// DDP, tagged buffer: invalid STag.
    TAGGED_INVALID_STAG = 0x1100, "invalid STag";
    /// DDP, tagged buffer: base or bounds violation.
    TAGGED_BOUNDS = 0x1101, "base or bounds violation";
    /// DDP, tagged buffer: the STag is not associated with the stream.
    TAGGED_STAG_NOT_ASSOCIATED = 0x1102, "STag not associated with DDP stream";
    /// DDP, tagged buffer: the TO wraps.
    TAGGED_TO_WRAP = 0x1103, "TO wrap";
    /// DDP, tagged buffer: invalid DDP version.
    TAGGED_VERSION = 0x1104, "invalid DDP version";
    /// DDP, untagged buffer: invalid QN.
    UNTAGGED_INVALID_QN = 0x1201, "invalid QN";
    /// DDP, untagged buffer: invalid MSN, no buffer available.
    UNTAGGED_NO_BUFFER = 0x1202, "invalid MSN, no buffer available";
    /// DDP, untagged buffer: invalid MSN, its range is not valid.
    UNTAGGED_MSN_RANGE = 0x1203, "invalid MSN, MSN range is not valid";
    /// DDP, untagged buffer: invalid MO.
    UNTAGGED_INVALID_MO = 0x1204, "invalid MO";
    /// DDP, untagged buffer: the message is too long for the buffer.
    UNTAGGED_TOO_LONG = 0x1205, "DDP message too long for available buffer";
    /// DDP, untagged buffer: invalid DDP version.
    UNTAGGED_VERSION = 0x1206, "invalid DDP version";
    /// MPA: the TCP connection is closed, terminated or lost.
    MPA_CLOSED = 0x2001, "TCP connection closed, terminated or lost";
    /// MPA: the CRC does not match.
    MPA_CRC = 0x2002, "MPA CRC error";
    /// MPA: marker and ULPDU length disagree on the start of an FPDU.
    MPA_MARKER = 0x2003, "MPA marker and ULPDU length mismatch";
    /// MPA: invalid Request or Reply frame.
    MPA_STARTUP = 0x2004, "invalid MPA Request or Reply frame";
    /// MPA: local catastrophic error (RFC 6581).
    MPA_LOCAL_CATASTROPHIC = 0x2005, "local catastrophic error";
    /// MPA: insufficient IRD resources (RFC 6581).
    MPA_INSUFFICIENT_IRD = 0x2006, "insufficient IRD resources";
    /// MPA: no matching RTR option (RFC 6581).
    MPA_NO_MATCHING_RTR = 0x2007, "no matching RTR option";
}

impl TerminateCode {
    /// Makes a code from its parts; of layer and error type the low nibbles count.
    #[must_use]
    pub const fn new(layer: u8, etype: u8, ecode: u8) -> Self {
        TerminateCode(u16::from_be_bytes([(layer & 0xf) << 4 | (etype & 0xf), ecode]))
    }

    /// Returns the layer: 0 RDMAP, 1 DDP, 2 LLP.
    #[must_use]
    pub const fn layer(self) -> u8 {
        (self.0 >> 12) as u8
    }

    /// Returns the error type, whose meaning depends on the layer.
    #[must_use]
    pub const fn etype(self) -> u8 {
        (self.0 >> 8) as u8 & 0xf
    }

    /// Returns the error code, whose meaning depends on layer and error type.
    #[must_use]
    pub const fn ecode(self) -> u8 {
        self.0 as u8
    }

    /// Returns the names of layer and error type.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match (self.layer(), self.etype()) {
            (0, 0) => "RDMAP local catastrophic error",
            (0, 1) => "RDMAP remote protection error",
            (0, 2) => "RDMAP remote operation error",
            (0, _) => "RDMAP error",
            (1, 0) => "DDP local catastrophic error",
            (1, 1) => "DDP tagged buffer error",
            (1, 2) => "DDP untagged buffer error",
            (1, 3) => "DDP error reserved for the LLP",
            (1, _) => "DDP error",
            (2, 0) => "MPA error",
            (2, _) => "LLP error",
            _ => "error of an unknown layer",
        }
    }
}

impl fmt::Display for TerminateCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x} ({}", self.0, self.kind())?;
        match self.name() {
            // For a local catastrophic error the code octet means nothing, so only the type is
            // printed.
            _ if self.etype() == 0 && self.layer() < 2 => f.write_str(")"),
            Some(name) => write!(f, ": {name})"),
            None => write!(f, ": code {:#04x})", self.ecode()),
        }
    }
}

impl fmt::Debug for TerminateCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_layer_type_and_code() {
        // RFC 5040 §4.8 Figure 8
        let code = TerminateCode::new(1, 2, 3);
        assert_eq!(code, TerminateCode::UNTAGGED_MSN_RANGE);
        assert_eq!((code.layer(), code.etype(), code.ecode()), (1, 2, 3));
    }

    #[test]
    fn every_code_of_the_tables_has_a_name_of_its_own() {
        // RFC 5040 §4.8 Figure 9, RFC 5041 §7.2
        for (at, code) in TerminateCode::ALL.iter().enumerate() {
            assert!(code.name().is_some());
            for other in &TerminateCode::ALL[at + 1..] {
                assert_ne!(code, other);
                assert_ne!(code.to_string(), other.to_string());
            }
        }
        assert_eq!(TerminateCode::ALL.len(), 33);
    }

    #[test]
    fn codes_show_number_layer_and_name() {
        let show = |code| TerminateCode(code).to_string();
        assert_eq!(show(0x0101), "0x0101 (RDMAP remote protection error: base or bounds violation)");
        assert_eq!(show(0x1202), "0x1202 (DDP untagged buffer error: invalid MSN, no buffer available)");
        assert_eq!(show(0x2002), "0x2002 (MPA error: MPA CRC error)");
    }

    #[test]
    fn codes_of_no_table_show_as_far_as_they_are_known() {
        let show = |code| TerminateCode(code).to_string();
        assert_eq!(show(0x00ff), "0x00ff (RDMAP local catastrophic error)");
        assert_eq!(show(0x0200), "0x0200 (RDMAP remote operation error: code 0x00)");
        assert_eq!(show(0xf7aa), "0xf7aa (error of an unknown layer: code 0xaa)");
        assert_eq!(show(0x0301), "0x0301 (RDMAP error: code 0x01)");
        assert_eq!(show(0x10ff), "0x10ff (DDP local catastrophic error)");
        assert_eq!(show(0x11ff), "0x11ff (DDP tagged buffer error: code 0xff)");
        assert_eq!(show(0x1301), "0x1301 (DDP error reserved for the LLP: code 0x01)");
        assert_eq!(show(0x1401), "0x1401 (DDP error: code 0x01)");
        assert_eq!(show(0x2101), "0x2101 (LLP error: code 0x01)");
    }
}
