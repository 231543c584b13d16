//! NVMe over Fabrics by RDMA, as far as disks need it: values of both ends, and
//! the target as a machine.
//!
//! | module | what |
//! |---|---|
//! | [`private_data`] | what the ends of a queue tell each other as they connect |
//! | [`capsule`] | commands, their places of data, and answers |
//! | [`status`] | what an answer says of its command |
//! | [`connect`] | Fabrics commands: Connect, and the controller's properties |
//! | [`identify`] | data structures that describe controllers and disks |
//! | [`log`] | log pages, that of discovery among them |
//! | [`io`] | commands for a disk |
//! | [`step`] | what a target's caller has to do for a command |
//! | [`host`] | the host: from its Connect to commands for a disk |
//! | [`target`] | the target: its subsystems, and the controllers of its hosts |
//!
//! Sections are named by their titles: those of the NVM Express Base Specification 2.0 ("Base"), of
//! the NVM Command Set Specification 1.0 ("NVM") and of the RDMA Transport Specification 1.0
//! ("RDMA"). All numbers are little-endian.

pub mod capsule;
pub mod connect;
mod controller;
pub mod host;
pub mod identify;
pub mod io;
pub mod log;
mod octets;
pub mod private_data;
pub mod status;
pub mod step;
pub mod target;
#[cfg(test)]
mod tests;

/// The port of NVMe over RDMA where none is named.
pub const PORT: u16 = 4420;

/// The name of the subsystem of discovery that every target has (Base, "NVMe Qualified Names").
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// Octets of the longest name of a host or subsystem (Base, "NVMe Qualified Names").
pub const MAX_NQN: usize = 223;

/// Octets of data in the capsule of a command that the target takes.
pub const IN_CAPSULE: usize = 4096;

/// The logarithm of the octets of a block.
pub const BLOCK_SHIFT: u8 = 9;

/// Octets of the longest read or write that the target takes.
pub const MAX_TRANSFER: u32 = 1 << 20;

/// Commands of a queue that are under way at a time: the most that the target allows for.
pub const MAX_COMMANDS: u16 = 128;

/// Commands of an admin queue that are under way at a time: the most that the target allows for.
pub const ADMIN_COMMANDS: u16 = 32;

/// The most I/O queues that the target allows a controller.
pub const MAX_QUEUES: u16 = 8;

/// Requests for asynchronous events that a controller holds.
const EVENTS: usize = 4;
