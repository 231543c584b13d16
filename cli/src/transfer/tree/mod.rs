//! Trees and many files on one connection of protocol 2: records (docs/files.md) that fill chunks.
//!
//! | file | what |
//! |---|---|
//! | `record` | the records, and names that lead nowhere but down |
//! | `departure` | walks a tree, and packs it |
//! | `arrival`, `short` | unpacks it, below one directory |
//! | `left_out` | what is not sent: links, pipes, long paths |
//! | `unread` | what could not be read, in words |
//! | `wanted` | which of the offered files the receiver wants |
//! | `pipe` | chunks, by the client's Writes or Reads |
//! | `client` | `put` and `get` of trees, and `ls` |

mod arrival;
mod client;
mod departure;
mod left_out;
mod pipe;
mod record;
mod short;
mod unread;
mod wanted;

pub(super) use self::arrival::{Arrival, Counts, Taken};
pub(super) use self::client::{get, ls, put};
pub(super) use self::departure::{Departure, Depth, Named};
pub(super) use self::pipe::GivePipe;
