//! The names of disks on the command line: files, and URIs of disks far away.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use rddp_command::failure::Failure;

use super::ClientArgs;
use super::desk::Desk;
use super::end::{End, Local};
use super::ls::Shown;
use super::uri::Uri;
use super::{initiator, nbd};

/// The name of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A file or block device of this host.
    File(PathBuf),
    /// An export of an NBD server.
    Nbd(Uri),
    /// A disk of an NVMe target, by RDMA.
    Nvme(Uri),
}

/// Options for the way to a disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way<'a> {
    /// The disk is to be written.
    pub(super) writable: bool,
    /// Connections to a server that allows for several.
    pub(super) connections: NonZeroUsize,
    pub(super) client: &'a ClientArgs,
}

impl Place {
    /// Parses a word of the command line.
    pub(super) fn parse(word: &str) -> Result<Self, Failure> {
        match word.split_once("://") {
            None => Ok(Place::File(word.into())),
            Some(("nbd", rest)) => Ok(Place::Nbd(Uri::parse("nbd", rest)?)),
            Some(("nvme", rest)) => Ok(Place::Nvme(Uri::parse("nvme", rest)?)),
            Some((scheme, _)) => Err(Failure::usage(format!("{word}: no disk is reached by {scheme}://"))
                .remedy("name a file, nbd://HOST[:PORT]/EXPORT or nvme://HOST[:PORT]/NQN")),
        }
    }

    /// Opens the disk.
    pub(super) fn open(&self, desk: &Desk, way: Way<'_>) -> Result<Box<dyn End>, Failure> {
        Ok(match self {
            Place::File(path) => Box::new(Local::open(desk, path, way.writable)?),
            Place::Nbd(uri) => Box::new(nbd::Remote::open(desk, uri, way)?),
            Place::Nvme(uri) => Box::new(initiator::Remote::open(desk, uri, way)?),
        })
    }

    /// Asks the server of the disk for all disks that it has, unless one is named.
    pub(super) fn list(&self, desk: &Desk, client: &ClientArgs) -> Result<Vec<Shown>, Failure> {
        match self {
            Place::File(path) => Err(Failure::usage(format!("{}: a file, and no server", path.display()))
                .remedy("name a server: nbd://HOST[:PORT] or nvme://HOST[:PORT]")),
            Place::Nbd(uri) => nbd::list(desk, uri, client),
            Place::Nvme(uri) => initiator::list(desk, uri, client),
        }
    }
}
