//! Placement in the kernel: an eBPF program puts payload into registered memory when its segment
//! arrives, also behind a hole in the TCP stream: of RDMA Writes, of Sends and of the Responses to
//! Reads.
//!
//! User-level placement waits for TCP, which hands octets over in order: one lost segment holds up
//! all that follow. DDP does not need that order (RFC 5041 §5.3), and the program, at tc ingress,
//! sees each segment when it comes. Octets still reach user space as a stream. There an FPDU that
//! has been placed counts if TCP has taken the same octets, and one that has not is placed as ever.
//! `README.md` has the whole, `docs/kernel-placement.md` its use.
//!
//! `rddp-rnic` uses it where its feature `kernel` is on.
//!
//! | module | what | |
//! |---|---|---|
//! | [`layout`] | what the program and user space share | pure |
//! | [`segment`] | what the octets of a segment say, as the program reads them | pure |
//! | [`records`] | which placed FPDUs are still good when the stream reaches them | pure |
//! | [`seen`] | octets of the stream that have come by once, more than once, or not at all | pure |
//! | `kernel` | the program, its memory and its maps; only with the feature `kernel` | |
//!
//! ```
//! use rddp_kernel_patch::records::{Placed, Records};
//!
//! let mut records = Records::default();
//! // An FPDU that begins 1,000 octets into the stream, and the place of its payload.
//! records.note(Placed { position: 1_000, at: 4_096..4_196, good: true, detail: () });
//! assert_eq!(records.next(0), Some(1_000));
//! // The engine places something else over it: what the kernel has put there is no longer whole.
//! records.placed_by_user(&(4_100..4_104));
//! assert_eq!(records.placed(1_000), None);
//! ```

#![cfg_attr(not(feature = "kernel"), forbid(unsafe_code))]
#![deny(unsafe_code)]

#[cfg(feature = "kernel")]
pub mod kernel;
pub mod layout;
pub mod records;
pub mod seen;
pub mod segment;
