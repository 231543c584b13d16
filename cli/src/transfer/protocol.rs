//! The messages between client and server: JSON in Sends.
//!
//! | put | get |
//! |---|---|
//! | `Put` | `Get`, with what the client has already |
//! | `Take`: memory to write to, and what the server has already | `Give`: memory to read from, and where it begins |
//! | `From`: where the client begins | |
//! | a Write and `Chunk`, many times | `Chunk`, many times |
//! | `Free` for each, when it is in the file | a Read and `Free` for each |
//! | `End` with the checksum | `End` with the checksum |
//! | `Same`, when the file has its name | `Same`, when the file has its name |
//!
//! Either end may send `Busy` while it reads a long file, and the server `Refused` at any time.
//! Where there is a token, a request (`Put`, `Get`) is wrapped in `Signed`. Fields of a message
//! that the receiver does not know are ignored; all fields that are newer than protocol 1 may be
//! missing.

use rddp_rnic::{MemoryRegion, Remote, Stag};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Kind};

/// Pieces of a file that are under way at a time, and the octets of each. Both limit the memory
/// that one client can make the server use.
pub(super) const SLOTS: usize = 8;
pub(super) const SLOT: usize = 512 * 1024;

/// Octets of the longest path.
pub(super) const MAX_PATH: usize = 1024;

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToServer {
    Put {
        path: String,
        size: u64,
        mode: u32,
        /// Protocol 2: keep a file that exists.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        no_clobber: bool,
    },
    Get {
        path: String,
        have: u64,
        sha256: String,
    },
    /// Protocol 2, flag 4: a tree for the directory `path`, which is made if need be.
    PutTree {
        path: String,
        no_clobber: bool,
    },
    /// Protocol 2, flag 4: files and directories, or only their names.
    GetTree {
        paths: Vec<String>,
        recursive: bool,
        names_only: bool,
    },
    /// Protocol 2: a request, as its text, with the proof that the client has the token.
    Signed {
        mac: String,
        request: String,
    },
    From {
        offset: u64,
    },
    Chunk(Chunk),
    Free {
        slot: usize,
    },
    End {
        sha256: String,
    },
    Same,
    Busy,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToClient {
    Take {
        have: u64,
        sha256: String,
        window: Window,
        /// A file with this name exists; servers of protocol 1 leave this out.
        #[serde(default)]
        replaces: Option<bool>,
    },
    Give {
        size: u64,
        mode: u32,
        from: u64,
        window: Window,
    },
    /// The memory of a tree, to write to or to read from.
    Tree {
        window: Window,
    },
    Chunk(Chunk),
    Free {
        slot: usize,
    },
    End {
        sha256: String,
    },
    Same,
    Busy,
    Refused {
        reason: String,
        remedy: Option<String>,
        mismatch: bool,
        /// The file changed during the transfer; older servers leave this out.
        #[serde(default)]
        changed: bool,
    },
}

/// Octets of the file, in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Chunk {
    pub(super) slot: usize,
    pub(super) offset: u64,
    pub(super) len: usize,
}

/// The server's memory: `SLOTS` slots of `SLOT` octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Window {
    stag: u32,
    to: u64,
}

impl Window {
    pub(super) fn of(region: &MemoryRegion) -> Self {
        let Remote { stag, to } = region.remote(0);
        Window { stag: stag.0, to }
    }

    pub(super) fn slot(self, slot: usize) -> Remote {
        Remote { stag: Stag(self.stag), to: self.to }.at((slot * SLOT) as u64)
    }
}

/// The side of a message that both directions have in common: signs of life, and failures.
pub(super) trait Message: Serialize + serde::de::DeserializeOwned {
    /// Limit for how long a peer may be busy before the next step, as a multiple of the time for
    /// which it may be silent, if there is such a limit.
    const BUSY: Option<u32>;

    /// Returns whether the message only says that the peer is alive.
    fn is_busy(&self) -> bool;

    /// Returns the failure that the message reports.
    fn failure(&self) -> Option<Failure>;
}

impl Message for ToServer {
    const BUSY: Option<u32> = Some(30);

    fn is_busy(&self) -> bool {
        matches!(self, ToServer::Busy)
    }

    fn failure(&self) -> Option<Failure> {
        None
    }
}

/// A client waits for as long as its user likes.
impl Message for ToClient {
    const BUSY: Option<u32> = None;

    fn is_busy(&self) -> bool {
        matches!(self, ToClient::Busy)
    }

    fn failure(&self) -> Option<Failure> {
        match self {
            ToClient::Refused { reason, remedy, mismatch, changed } => {
                let kind = match (mismatch, changed) {
                    (true, _) => Kind::Mismatch,
                    (false, true) => Kind::Changed,
                    (false, false) => Kind::Refused,
                };
                let failure = Failure::new(kind, format!("the server: {}", bounded(reason)));
                Some(remedy.as_deref().map(bounded).into_iter().fold(failure, Failure::remedy))
            }
            _ => None,
        }
    }
}

impl Chunk {
    /// Checks a chunk as described by the peer: it must fit into its slot, and be the next of
    /// `size` octets, where `offset` have arrived.
    pub(super) fn check(&self, offset: u64, size: u64) -> Result<(), Failure> {
        let fits = self.slot < SLOTS
            && (1..=SLOT).contains(&self.len)
            && self.offset == offset
            && self.len as u64 <= size - offset;
        if fits { Ok(()) } else { Err(out_of_step()) }
    }
}

/// Returns a peer's text, cut to a length that suffices.
fn bounded(text: &str) -> String {
    text.chars().take(2 * MAX_PATH).collect()
}

pub(super) fn out_of_step() -> Failure {
    Failure::peer("the other end is out of step").remedy("run the same version of rddp at both ends")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_the_next_and_fits() {
        let good = Chunk { slot: 7, offset: 100, len: SLOT };
        assert!(good.check(100, 100 + SLOT as u64).is_ok());
        for bad in [
            Chunk { slot: SLOTS, ..good },
            Chunk { offset: 99, ..good },
            Chunk { offset: u64::MAX, ..good },
            Chunk { len: 0, ..good },
            Chunk { len: SLOT + 1, ..good },
            Chunk { len: usize::MAX, ..good },
        ] {
            assert!(bad.check(100, 100 + SLOT as u64).is_err(), "{bad:?}");
        }
        assert!(good.check(100, 99 + SLOT as u64).is_err());
    }
}
