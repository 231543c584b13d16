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
        let is = |scheme: &str, known: &str| scheme.eq_ignore_ascii_case(known);
        match word.split_once("://") {
            None if word == "-" => {
                Err(Failure::usage("-: a stream is no disk, which has room for any place")
                    .remedy("name a file (./- if that is its name)"))
            }
            None => Ok(Place::File(word.into())),
            Some((scheme, rest)) if is(scheme, "nbd") => Ok(Place::Nbd(Uri::parse("nbd", rest)?)),
            Some((scheme, rest)) if is(scheme, "nvme") => Ok(Place::Nvme(Uri::parse("nvme", rest)?)),
            Some((scheme, _)) => Err(Failure::usage(format!("{word}: no disk is reached by {scheme}://"))
                .remedy("name a file, nbd://HOST[:PORT]/EXPORT or nvme://HOST[:PORT]/NQN")),
        }
    }

    /// Opens the disk.
    pub(super) fn open(&self, desk: &Desk, way: Way<'_>) -> Result<Box<dyn End>, Failure> {
        Ok(match self {
            Place::File(path) => Box::new(Local::open(desk, path, way.writable)?),
            Place::Nbd(uri) => Box::new(nbd::Remote::open(desk, uri, way)?),
            Place::Nvme(uri) if uri.export.is_empty() => {
                return Err(Failure::usage(format!("{uri}: no subsystem is named"))
                    .remedy(format!("rddp block ls {uri} shows their names")));
            }
            Place::Nvme(uri) => Box::new(initiator::Remote::open(desk, uri, way)?),
        })
    }

    /// Returns what it means that the server of the disk tells of none.
    pub(super) fn none(&self) -> &'static str {
        match self {
            Place::Nvme(_) => {
                "the target shows this host no disks; try: --host-nqn, with a name that it allows"
            }
            _ => "the server shows no disks",
        }
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
