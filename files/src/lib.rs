//! `rddp serve`, `rddp put`, `rddp get`, `rddp ls`: files by RDMA Writes and Reads.
//!
//! The command `rddp` has their arguments. Nothing of this crate is promised to other users.
//!
//! | file | what |
//! |---|---|
//! | `greeting`, `token` | the protocol's version, and who may use the server |
//! | `protocol`, `talk` | the messages, and the connection on which they are sent |
//! | `tasks` | many transfers on one thread |
//! | `files`, `checksum` | paths that stay inside; CRC-32C and SHA-256 |
//! | `source`, `stdin`, `partial` | files that are sent, files that arrive |
//! | `part` | their octets, in registered memory |
//! | `extents` | their octets between holes, as the server names them |
//! | `target`, `sink`, `stream` | the destination of a get: a file, or something else |
//! | `put`, `get` | the client |
//! | `tree`, `wishes` | several files and trees, and `ls` |
//! | `serve`, `strategy` | the server; the ways in which it gives a file |
//! | `patience` | commands that begin anew when they are turned away |
//! | `fuzzed` | all that parses a peer's octets, for the fuzzer |
//! | `remote`, `show` | `HOST[:PORT]/PATH`; progress and results |
#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used)]

mod checksum;
mod extents;
mod files;
#[doc(hidden)]
pub mod fuzzed;
mod get;
mod greeting;
mod part;
mod partial;
mod patience;
mod protocol;
mod put;
mod remote;
mod serve;
mod show;
mod sink;
mod source;
mod stdin;
mod strategy;
mod stream;
mod talk;
mod target;
mod tasks;
mod token;
mod tree;
mod wishes;

use std::path::PathBuf;
use std::time::Duration;

use rddp_command::device;
use rddp_command::failure::Failure;

pub use self::checksum::Check;
use self::remote::Asks;
pub use self::serve::{Serving, serve};
pub use self::strategy::{Choice, LARGEST_CHUNK, MOST_CHUNKS, Plan};
use self::token::Token;
pub use self::token::make as make_token;
pub use self::tree::ls;
pub use self::wishes::Links;

/// The port of rddp serve.
pub const PORT: u16 = 7177;

/// The wishes of a user who puts or gets files.
#[derive(Clone, Debug)]
pub struct Options {
    /// The device of this end.
    pub device: device::Choice,
    /// The result is printed as JSON.
    pub json: bool,
    /// At most so many octets a second.
    pub limit: Option<u64>,
    /// Fail rather than replace a file that exists.
    pub no_clobber: bool,
    /// Time for which a command comes back when the server has no place, since the last progress.
    pub retry: Duration,
    /// Leave special files out without complaint.
    pub skip_special: bool,
    /// The file with the server's token; if none is named, that of the environment.
    pub token: Option<PathBuf>,
    /// FPDUs longer than TCP's segments.
    pub large_fpdus: bool,
    /// TCP's congestion control; the host's without one.
    pub congestion: Option<String>,
    /// Send files that the other end has already, with the same size and time.
    pub again: bool,
    /// The checksum of the octets.
    pub check: Check,
    /// Connections for several files.
    pub parallel: u32,
    /// Time limit for each answer of the server.
    pub timeout: Duration,
    /// The symbolic links of trees that are kept.
    pub links: Links,
    /// Patterns of what is left out of trees.
    pub exclude: Vec<String>,
    /// Entries that the sender of a tree has not are removed.
    pub delete: bool,
    /// Nothing is changed: it is only told what would be.
    pub dry_run: bool,
    /// The disk is left alone at the end of a tree.
    pub no_sync: bool,
}

/// The wishes of a user who lists files.
#[derive(Clone, Debug)]
pub struct Listing {
    /// A directory, or a file: `HOST[:PORT]/PATH`.
    pub remote: String,
    /// The device of this end.
    pub device: device::Choice,
    /// List directories with all that is in them.
    pub recursive: bool,
    /// Each entry is printed as JSON.
    pub json: bool,
    /// Time for which the command comes back when the server has no place.
    pub retry: Duration,
    /// Leave special files out without complaint.
    pub skip_special: bool,
    /// The file with the server's token; if none is named, that of the environment.
    pub token: Option<PathBuf>,
    /// Time limit for each answer of the server.
    pub timeout: Duration,
}

impl Options {
    /// Reads the token, if one is named.
    fn token(&self) -> Result<Option<Token>, Failure> {
        Token::of(self.token.as_deref())
    }

    /// Returns what the user asks of each connection.
    fn asks<'a>(&'a self, token: Option<&'a Token>) -> Asks<'a> {
        let (large, congestion) = (self.large_fpdus, self.congestion.as_deref());
        Asks { token, large, congestion, timeout: self.timeout }
    }

    /// Fails if the user asks of one file what is for trees.
    fn one_file(&self) -> Result<(), Failure> {
        let asked = [
            ("--links", self.links != Links::default()),
            ("--exclude", !self.exclude.is_empty()),
            ("--delete", self.delete),
            ("--dry-run", self.dry_run),
            ("--no-sync", self.no_sync),
        ];
        if let Some((option, _)) = asked.iter().find(|(_, is_asked)| *is_asked) {
            return Err(Failure::usage(format!("{option} is for trees and several files"))
                .remedy("leave it out, or name several files or a directory with --recursive"));
        }
        if self.parallel == 1 {
            return Ok(());
        }
        Err(Failure::usage("-P is for several files: one goes over one connection")
            .remedy("leave -P out, or name several files or a directory with --recursive"))
    }
}

/// Sends files and directories: all names but the last, which is the destination.
pub fn put(names: &[PathBuf], recursive: bool, options: &Options) -> Result<(), Failure> {
    put::run(names, recursive, options)
}

/// Fetches files and directories to the last name, or to the working directory.
pub fn get(names: &[PathBuf], recursive: bool, options: &Options) -> Result<(), Failure> {
    get::run(names, recursive, options)
}
