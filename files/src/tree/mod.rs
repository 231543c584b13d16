//! Trees and many files on one connection: records (docs/files.md) that fill chunks.
//!
//! | file | what |
//! |---|---|
//! | `record` | the records, and names that lead nowhere but down |
//! | `departure`, `walk` | walks a tree, and packs it |
//! | `arrival`, `arriving`, `short`, `dirs` | unpacks it, below one directory |
//! | `asked` | what may come from a server |
//! | `below` | what is below a directory, by paths that follow no symbolic link |
//! | `links` | symbolic links |
//! | `exclude` | patterns of what is left out |
//! | `counts` | what has moved, and who names the rest |
//! | `left_out` | what is not sent: pipes, long paths, links that lead out |
//! | `refused` | what is not taken: something else is in its place |
//! | `widened` | directories that the receiver may not write to by their permissions |
//! | `closing`, `removed` | the end: times of directories, and what is removed |
//! | `would` | what would happen, for `--dry-run` |
//! | `unread` | what could not be read, in words |
//! | `wanted` | which of the offered files the receiver wants |
//! | `pipe` | chunks, by the client's Writes or Reads |
//! | `client` | `put` and `get` of trees |
//! | `listing` | `ls` |

mod arrival;
mod arriving;
mod asked;
mod below;
mod client;
mod closing;
mod counts;
mod departure;
mod dirs;
mod exclude;
mod left_out;
mod links;
mod listing;
mod pipe;
mod record;
mod refused;
mod rehearsal;
mod removed;
mod short;
mod unread;
mod walk;
mod wanted;
mod widened;
mod would;

pub(super) use self::arrival::{Arrival, Taken, Top};
pub(super) use self::asked::{name_of, place_of};
pub(super) use self::client::{get, put};
pub(super) use self::counts::{Counts, Named};
pub(super) use self::departure::{Departure, Depth};
pub(super) use self::exclude::Excluded;
pub use self::listing::ls;
pub(super) use self::pipe::GivePipe;
use self::record::Record;
use crate::checksum::Check;

/// Parses the records that a peer's octets begin with, and panics if one is not emitted as it came.
pub(super) fn reads_back(mut octets: &[u8], check: Check) {
    while let Ok((record, behind)) = Record::parse(octets, check) {
        let (mut again, came) = (Vec::new(), &octets[..octets.len() - behind.len()]);
        record.emit(check, &mut again);
        // Without a checksum, that of a record is not looked at.
        assert!(again == came || check == Check::None && again.len() == came.len(), "{record:?}");
        octets = behind;
    }
}
