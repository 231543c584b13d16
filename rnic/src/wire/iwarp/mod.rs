//! iWARP over TCP: RDMAP over DDP over MPA.
//!
//! | file | what |
//! |---|---|
//! | `link` | the connection: socket and protocol state |
//! | `opening` | the MPA startup |
//! | `first`, `ending` | how it begins and ends |
//! | `build`, `responses`, `train` | requests and Responses become FPDUs, FPDUs a train |
//! | `lend`, `ahead` | Responses become a train without a copy; they are read out of files |
//! | `emss` | the size of segments, and when TCP is asked for it |
//! | `tx`, `out`, `arena` | the train is handed to TCP; what TCP does not take is kept |
//! | `short` | a short message is handed to TCP without any of these |
//! | `rx`, `staging`, `parked`, `held` | octets become FPDUs, or wait |
//! | `deliver`, `place`, `direct` | FPDUs become placed payload and completions |
//! | `acknowledge`, `late` | the peer learns which of its messages were executed, and when |
//! | `in_kernel` | payload that the kernel has placed is confirmed |

mod acknowledge;
mod ahead;
mod arena;
mod build;
mod deliver;
mod direct;
mod emss;
mod ending;
mod first;
mod held;
mod in_kernel;
mod late;
mod lend;
mod link;
pub(super) mod opening;
mod out;
mod parked;
mod place;
mod responses;
mod rx;
mod short;
mod train;
mod tx;

pub(crate) use self::link::Link;
#[cfg(test)]
pub(crate) use self::responses::{FEW_RESPONSES, RESPONSES_AHEAD};
pub(crate) use self::short::Sent;
#[cfg(test)]
pub(crate) use self::tx::Outgoing;
