//! Trees and many files on one connection: records (docs/files.md) that fill chunks.
//!
//! | file | what |
//! |---|---|
//! | `record` | the records, and names that lead nowhere but down |
//! | `departure`, `walk` | walks a tree, and packs it |
//! | `arrival`, `arriving`, `short` | unpacks it, below one directory |
//! | `below` | what is below a directory, by paths that follow no symbolic link |
//! | `left_out` | what is not sent: links, pipes, long paths |
//! | `refused` | what is not taken: something else is in its place |
//! | `widened` | directories that the receiver may not write to by their permissions |
//! | `unread` | what could not be read, in words |
//! | `wanted` | which of the offered files the receiver wants |
//! | `pipe` | chunks, by the client's Writes or Reads |
//! | `client` | `put` and `get` of trees |
//! | `listing` | `ls` |

mod arrival;
mod arriving;
mod below;
mod client;
mod departure;
mod left_out;
mod listing;
mod pipe;
mod record;
mod refused;
mod short;
mod unread;
mod walk;
mod wanted;
mod widened;

pub(super) use self::arrival::{Arrival, Counts, Taken};
pub(super) use self::client::{get, put};
pub(super) use self::departure::{Departure, Depth, Named};
pub use self::listing::ls;
pub(super) use self::pipe::GivePipe;
