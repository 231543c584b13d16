//! Registered memory: regions, windows, the STags that name them, and the only code
//! that touches their octets.
//!
//! The rest of the crate is safe code. It asks [`MemTable`] whether an access is allowed and gets a
//! [`Grant`], which only this module can make: proof that a range lies in a live registration which
//! the asker may use (RFC 5041 §7.1, RFC 5042 §6). Octets go in and out through the grant, or
//! through [`send_vectored`] and [`recv_vectored`]. No reference to registered memory leaves this
//! module, because peers and other threads may write there at any time; the CRC library is given
//! one inside of it (`octets`).
//!
//! A grant delays invalidation and deregistration of what it was given for. So it is held for one
//! copy or one system call that does not block, never while waiting for anything, and a thread that
//! holds one calls nothing of [`MemTable`] but the two checks.
//!
//! | file | subject |
//! |---|---|
//! | `region`, `window`, `access`, `status` | regions and windows, their rights and lives |
//! | `stag`, `table`, `slot` | STags: chosen, checked and invalidated, found without a lock |
//! | `grant`, `octets`, `io`, `calls` | copies, sums, atomics and socket calls on what was granted |
//! | `positioned` | files read into a region and written from it |
//! | `map`, `unlisted`, `filesystem`, `writers` | is a range mapped; who else may change it |
//! | `file`, `mapped` | ranges of files: not mapped, and mapped by us |
//! | `alloc`, `shown` | memory of our own; counters that other processes read |
//! | `host`, `lent` | regions and windows as a device of the host has them |
//! | `error` | errors of registering and binding |
#![allow(unsafe_code)] // the one place where the crate does

mod access;
mod alloc;
mod calls;
mod datagrams;
mod error;
mod file;
mod filesystem;
mod grant;
mod host;
mod io;
mod lent;
mod map;
mod mapped;
mod octets;
mod positioned;
mod region;
mod shown;
mod slot;
mod stag;
mod status;
mod table;
mod unlisted;
mod window;
mod writers;

#[cfg(test)]
mod tests;

pub use access::{MemLimits, PdId, RegionOptions};
pub use datagrams::{Inbox, MARGIN, MOST_BUFFERS, Notice, Received, send_datagrams, set_option, take_notice};
pub use error::MemError;
pub use file::ReadAt;
pub(crate) use file::{FilePart, Stop};
pub use grant::{AtomicError, Grant};
pub(crate) use host::HostDevice;
pub use io::{
    MAX_PIECES, Piece, PieceMut, SendFlags, discard, is_fault, peek, recv_vectored, send_octets,
    send_vectored, unacknowledged, unread,
};
pub use mapped::FileMapping;
pub(crate) use octets::POLLED;
pub use rddp_fault_guard::Faulted;
pub use rddp_rdma::{Access, QpNum};
pub use region::Region;
pub use table::MemTable;
pub use window::{BindWindow, Window};

pub(crate) use shown::{Block, Shown};
pub(crate) use writers::{Claim, Verdicts};
