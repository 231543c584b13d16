//! MPA: Marker PDU Aligned framing for TCP (RFC 5044), with the enhanced startup of RFC 6581.
//!
//! MPA is the lowest layer of iWARP. It puts the records of DDP (ULPDUs) into a TCP stream and
//! finds them again. Each ULPDU travels in an FPDU: a length, the ULPDU, a pad to a multiple of
//! four octets and a CRC-32C. Where the receiver asks for it, a marker at every 512th octet of the
//! stream points back at the start of the FPDU in which it stands. Before the first FPDU, one
//! Request and one Reply settle what both ends do.
//!
//! This crate owns no socket and no clock. Octets and values go in, octets and values come out:
//!
//! - [`Initiator`] and [`Responder`] make and read the startup frames and end in a [`Negotiated`];
//! - [`Framer`] and [`Deframer`] turn ULPDUs into FPDUs and back, one of each for each end of a
//!   connection;
//! - [`mulpdu`] says how large a ULPDU may be for a segment size, [`crc32c()`] computes the CRC.
//!
//! The caller who reads a stream keeps the octets that were not used, and calls again when there
//! are more: an incomplete FPDU is reported as [`Step::Need`], not as an error. An error is final,
//! and names the code that the Terminate to the peer carries, if one is due.
//!
//! # Example
//! Two ends start up, and one sends a ULPDU to the other.
//!
//! ```
//! use rddp_mpa::{
//!   Deframer, Framer, Initiator, InitiatorStep, Responder, ResponderStep, StartupConfig, Step,
//! };
//!
//! // The initiator asks for a peer-to-peer connection and for markers in what it receives.
//! let config = StartupConfig { markers: true, ..StartupConfig::default() };
//! let mut initiator = Initiator::new(&config, b"hello")?;
//! let to_responder = initiator.request().to_vec();
//!
//! // The responder wants neither CRCs nor markers, and gets both because the initiator wants them.
//! let config = StartupConfig { crc: false, ..StartupConfig::default() };
//! let ResponderStep::Request { request, used } = Responder::new().handle(&to_responder)? else {
//!   panic!("the Request is all there");
//! };
//! assert_eq!((&request.private_data[..], used), (&b"hello"[..], to_responder.len()));
//! let (to_initiator, responder) = request.accept(&config, b"welcome")?;
//! assert!(responder.crc && responder.markers_tx && !responder.markers_rx);
//!
//! // The initiator has its answer: what was negotiated, and the RTR to send first.
//! assert_eq!(initiator.handle(&to_initiator[..30])?, InitiatorStep::Need { total: to_initiator.len() });
//! let InitiatorStep::Accepted { negotiated, private_data, .. } = initiator.handle(&to_initiator)? else {
//!   panic!("the Reply accepts");
//! };
//! assert_eq!((&private_data[..], negotiated.rtr), (&b"welcome"[..], Some(rddp_mpa::Rtr::Read)));
//!
//! // Full Operation: one FPDU from the initiator.
//! let mut stream = Vec::new();
//! let mut framer = Framer::new(negotiated.tx());
//! framer.emit(b"a DDP header", 5, |_, dst| dst.copy_from_slice(b" + 5!"), &mut stream);
//! let mut deframer = Deframer::new(responder.rx());
//! let Step::Fpdu { ulpdu, used } = deframer.step(&mut stream)? else {
//!   panic!("the FPDU is all there");
//! };
//! assert_eq!((&stream[ulpdu], used), (&b"a DDP header + 5!"[..], 24));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used)]

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
    CRC_LEN, LARGE_FPDU, LENGTH_LEN, MARKER_LEN, MARKER_SPACING, MAX_ULPDU, MIN_MULPDU, fpdu_len, mulpdu,
    pad_len,
};
pub use startup::{
    DEPTH_MAX, EnhancedData, Frame, FrameKind, FrameOctets, Initiator, InitiatorStep,
    MAX_ENHANCED_PRIVATE_DATA, MAX_PRIVATE_DATA, Negotiated, Parsed, Request, Responder, ResponderStep,
    Revision, Rtr, RtrSet, StartupConfig, StartupError, StartupMisuse, ULP_NEGOTIATES,
};
pub use tx::{Framer, Trailer};
