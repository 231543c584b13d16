//! Disks of NBD servers, as a client has them.
//!
//! | module | what |
//! |---|---|
//! | `connection` | one connection: its handshake, its requests under way |
//! | `remote` | an export, by one connection or several |
//! | `list` | the exports of a server |

mod connection;
mod list;
mod remote;

pub(super) use self::list::list;
pub(super) use self::remote::Remote;
