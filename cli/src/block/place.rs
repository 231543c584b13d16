//! The names of disks on the command line: files, and URIs of disks far away.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use rddp_command::failure::Failure;

use super::desk::Desk;
use super::end::{End, Local};
use super::ls::Shown;
use super::nbd::{self, Remote, Uri};

/// The name of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A file or block device of this host.
    File(PathBuf),
    /// An export of an NBD server.
    Nbd(Uri),
}

/// Options for the way to a disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// The disk is to be written.
    pub(super) writable: bool,
    /// Connections to a server that allows for several.
    pub(super) connections: NonZeroUsize,
    /// Time for which a server may owe an answer and say nothing.
    pub(super) patience: Duration,
}

impl Place {
    /// Parses a word of the command line.
    pub(super) fn parse(word: &str) -> Result<Self, Failure> {
        match word.split_once("://") {
            None => Ok(Place::File(word.into())),
            Some(("nbd", rest)) => Ok(Place::Nbd(Uri::parse(rest)?)),
            Some((scheme, _)) => Err(Failure::usage(format!("{word}: no disk is reached by {scheme}://"))
                .remedy("name a file, or nbd://HOST[:PORT]/EXPORT")),
        }
    }

    /// Opens the disk.
    pub(super) fn open(&self, desk: &Desk, way: Way) -> Result<Box<dyn End>, Failure> {
        Ok(match self {
            Place::File(path) => Box::new(Local::open(desk, path, way.writable)?),
            Place::Nbd(uri) => Box::new(Remote::open(desk, uri, way)?),
        })
    }

    /// Asks the server of the disk for all disks that it has, unless one is named.
    pub(super) fn list(&self, desk: &Desk) -> Result<Vec<Shown>, Failure> {
        match self {
            Place::File(path) => Err(Failure::usage(format!("{}: a file, and no server", path.display()))
                .remedy("name a server: nbd://HOST[:PORT]")),
            Place::Nbd(uri) => nbd::list(desk, uri),
        }
    }
}
