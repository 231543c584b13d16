//! iWARP over TCP: RDMAP over DDP over MPA.
//!
//! | file | what |
//! |---|---|
//! | `link` | the connection: socket and protocol state |
//! | `arena`, `segments`, `train`, `tx` | sending |
//! | `rx`, `direct`, `parked` | receiving |
//! | `watch` | who is woken for the socket |
//! | `ending` | how it ends |

mod arena;
mod direct;
mod ending;
mod link;
mod parked;
mod rx;
mod segments;
mod train;
mod tx;
mod watch;

pub(crate) use self::link::Link;
pub(crate) use self::rx::Stage;
pub(crate) use self::tx::Outgoing;
#[cfg(test)]
pub(crate) use self::tx::{FEW_RESPONSES, RESPONSES_AHEAD};
