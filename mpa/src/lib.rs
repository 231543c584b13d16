//! MPA: Marker PDU Aligned framing for TCP (RFC 5044, and the enhanced startup of RFC 6581).
#![forbid(unsafe_code)]

mod crc;
mod error;
mod framing;
mod marker;
mod rx;
mod sizes;
mod startup;
mod tx;

pub use crc::{crc32c, crc32c_append};
pub use error::MpaError;
pub use framing::Framing;
pub use rx::{Deframer, FpduError, Peek, Step};
pub use sizes::{
    CRC_LEN, LENGTH_LEN, MARKER_LEN, MARKER_SPACING, MAX_ULPDU, MIN_MULPDU, fpdu_len, mulpdu, pad_len,
};
pub use startup::{
    DEPTH_MAX, EnhancedData, Frame, FrameKind, Initiator, InitiatorStep, MAX_ENHANCED_PRIVATE_DATA,
    MAX_PRIVATE_DATA, Negotiated, Parsed, Request, Responder, ResponderStep, Revision, Rtr, RtrSet,
    StartupConfig, StartupError, StartupMisuse, ULP_NEGOTIATES,
};
pub use tx::{Framer, Trailer};
