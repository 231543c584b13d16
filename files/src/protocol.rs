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
//! Either end may send `Busy` while it reads a long file, and at any time the server `Refused`, and
//! the client `Leave`.
//! Where there is a token, a request (`Put`, `Get`) is wrapped in `Signed`. Fields of a message
//! that the receiver does not know are ignored.
//!
//! Where `Give` says `range`, the window is the file itself, from the first octet that the client
//! lacks, and no `Chunk` comes: the client Reads it, says with `At` now and then how far it is, and
//! then `Done`, which the server answers with `End` if the file is still the same. Of a file with
//! holes it asks by `Where` for the extents first, and is told some of them by `Extents`.
//!
//! Of a file, or the rest of one, of at most [`SHORT`] octets these stand behind `Give`, which says
//! so by `here`. The client answers `Done`, when the file has its name.
//!
//! Requests have [`Terms`], chunks their CRC, and offsets may leave out holes. `Same` in place of
//! `Take`, or as the answer to `Give`, says that the receiver has the file already.

use rddp_command::failure::{Failure, FailureKind};
use rddp_rnic::{MemoryRegion, Remote, Stag};
use serde::{Deserialize, Serialize};

use super::checksum::Check;
use super::part::Part;
use super::wishes::Wishes;

/// Pieces of a file that are under way at a time, and the octets of each. Both limit the memory
/// that one client can make the server use.
pub(super) const SLOTS: usize = 8;
pub(super) const SLOT: usize = 512 * 1024;

/// Files that are offered, and directories that are named, before the receiver is asked; of the
/// files, the most that it has begun, and the most runs of files that it has already.
pub(super) const OFFERS: usize = 512;
pub(super) const BEGUN: usize = 16;
pub(super) const RUNS: usize = OFFERS / 2;

/// Octets of the longest file, or rest of one, that comes in the answer.
pub(super) const SHORT: usize = 16 * 1024;

/// Extents of a file that one message names.
pub(super) const EXTENTS: usize = 128;

/// Octets of the largest file: Linux has no offsets beyond.
pub(super) const LARGEST: u64 = i64::MAX as u64;

/// Octets of the longest path.
pub(super) const MAX_PATH: usize = 1024;

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToServer {
    Put {
        path: String,
        size: u64,
        mode: u32,
        /// A file that exists is kept.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        no_clobber: bool,
        #[serde(default)]
        terms: Terms,
    },
    Get {
        path: String,
        have: u64,
        /// The proof of what the client has.
        sha256: String,
        #[serde(default)]
        terms: Terms,
    },
    /// A tree for the directory `path`, which is made if need be.
    PutTree {
        path: String,
        no_clobber: bool,
        #[serde(default)]
        wishes: Wishes,
        #[serde(default)]
        terms: Terms,
    },
    /// Files and directories, or only their names.
    GetTree {
        paths: Vec<String>,
        recursive: bool,
        names_only: bool,
        #[serde(default)]
        wishes: Wishes,
        #[serde(default)]
        terms: Terms,
    },
    /// A request, as its text, with the proof that the client has the token.
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
        /// The size of a file that was not known before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
    },
    /// The client has so many octets of the range that it Reads.
    At {
        octets: u64,
    },
    /// The client asks for the extents of the range from this offset on.
    Where {
        from: u64,
    },
    /// The client has all of it.
    Done,
    /// The answer of a client that receives to offers of files.
    Want(Want),
    Same,
    /// The client goes before the end, as it wants to.
    Leave,
    Busy,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToClient {
    Take {
        have: u64,
        sha256: String,
        window: Window,
        /// A file with this name exists.
        replaces: bool,
    },
    Give {
        size: u64,
        mode: u32,
        from: u64,
        /// Without one, the octets are `here`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        window: Option<Window>,
        modified: Time,
        /// The file's size does not say how much space it needs.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        has_holes: bool,
        /// The window is the file from `from` on.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        range: bool,
        /// The octets from `from` on stand behind this message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        here: Option<Here>,
    },
    /// The memory of a tree, to write to or to read from.
    Tree {
        window: Window,
    },
    Chunk(Chunk),
    Free {
        slot: usize,
    },
    /// The extents of the range, as far as `to`: the rest are holes.
    Extents {
        list: Vec<Extent>,
        to: u64,
    },
    End {
        sha256: String,
    },
    /// The answer of a server that receives to offers of files.
    Want(Want),
    Same,
    Busy,
    Refused {
        reason: String,
        remedy: Option<String>,
        mismatch: bool,
        /// The file changed during the transfer.
        changed: bool,
        /// There is no place for the client at the moment.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        turned_away: bool,
    },
}

/// Wishes of a client about a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Terms {
    pub(super) check: Check,
    /// Files are sent that the other end has already, by their size and time.
    pub(super) again: bool,
    /// The time of the last change, of one file that is put.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) modified: Option<Time>,
    /// The size of the file that is put is known at its end.
    pub(super) unknown_size: bool,
    /// The file that is put has holes, so that its size does not say how much space it needs.
    pub(super) has_holes: bool,
    /// The part of a tree that goes over this connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) share: Option<Share>,
}

/// A point in time, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Time {
    pub(super) seconds: i64,
    pub(super) nanos: u32,
}

impl Time {
    /// Returns whether a file can have this time.
    pub(super) fn is_valid(self) -> bool {
        self.nanos < 1_000_000_000
    }
}

/// A connection's share of a tree whose files go over several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Share {
    pub(super) number: u32,
    pub(super) of: u32,
}

/// The answer to the offers since the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Want {
    /// The number of files that were offered.
    pub(super) offered: usize,
    /// The files that the receiver has already, in rising order.
    pub(super) same: Vec<Run>,
    /// The files of which it has the first octets, in rising order.
    pub(super) begun: Vec<Begun>,
    /// Files that it is not to be sent, since something else stays in their place, and the number
    /// of its kind; and such directories since the last answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) refused: Vec<(usize, u8)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) refused_dirs: Vec<(usize, u8)>,
    /// Directories and links since the last answer that would be made, where nothing is changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) made: Vec<usize>,
    /// The files in `same` that would get other permissions, and such directories.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) permitted: Vec<usize>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) permitted_dirs: Vec<usize>,
    /// Entries that were removed since the last answer, or as much of it as there is room for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) removed: Vec<Removed>,
}

/// An entry that the sender does not have, and the reason if it could not be removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Removed {
    pub(super) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

/// Files that were offered one after the other: the number of the first, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Run(pub(super) usize, pub(super) usize);

/// The first octets of a file, and the proof that they are the right ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Begun {
    pub(super) number: usize,
    pub(super) have: u64,
    pub(super) proof: String,
}

/// Octets of the file, in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Chunk {
    pub(super) slot: usize,
    pub(super) offset: u64,
    pub(super) len: usize,
    /// For one file: the CRC-32C of the octets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) crc: Option<u32>,
}

/// Octets of a file between holes: the offset of the first, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Extent(pub(super) u64, pub(super) u64);

/// The checksums of octets that stand behind their message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Here {
    /// CRC-32C of the octets, unless `check` is `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) crc: Option<u32>,
    /// SHA-256 of the file.
    pub(super) sha256: String,
}

/// The server's memory: `SLOTS` slots of `SLOT` octets, or a range of a file.
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
        self.at((slot * SLOT) as u64)
    }

    /// Returns the place of an octet.
    pub(super) fn at(self, offset: u64) -> Remote {
        Remote { stag: Stag(self.stag), to: self.to }.at(offset)
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

    /// Returns how many octets of a file stand behind the message.
    fn behind(&self) -> u64 {
        0
    }
}

/// Returns the message that a Send of the peer's is, and the octets of a file behind it.
pub(super) fn parse<T: Message>(octets: &[u8]) -> Result<(T, &[u8]), Failure> {
    let mut stream = serde_json::Deserializer::from_slice(octets).into_iter::<T>();
    let message = stream.next().and_then(Result::ok).ok_or_else(out_of_step)?;
    let behind = &octets[stream.byte_offset()..];
    if behind.len() as u64 == message.behind() { Ok((message, behind)) } else { Err(out_of_step()) }
}

impl Message for ToServer {
    const BUSY: Option<u32> = Some(30);

    fn is_busy(&self) -> bool {
        matches!(self, ToServer::Busy)
    }

    fn failure(&self) -> Option<Failure> {
        let left = || Failure::new(FailureKind::NobodyReads, "the client has left before the end");
        matches!(self, ToServer::Leave).then(left)
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
            ToClient::Refused { reason, remedy, mismatch, changed, turned_away } => {
                let kind = match (mismatch, changed) {
                    (true, _) => FailureKind::Mismatch,
                    (false, true) => FailureKind::Changed,
                    (false, false) if *turned_away => FailureKind::TurnedAway,
                    (false, false) => FailureKind::Refused,
                };
                let failure = Failure::new(kind, format!("the server: {}", bounded(reason)));
                Some(remedy.as_deref().map(bounded).into_iter().fold(failure, Failure::remedy))
            }
            _ => None,
        }
    }

    fn behind(&self) -> u64 {
        match self {
            ToClient::Give { size, from, here: Some(_), .. } => size.saturating_sub(*from),
            _ => 0,
        }
    }
}

impl Chunk {
    /// Checks a chunk as described by the peer: it must fit into its slot, and be the next of
    /// `size` octets, where `offset` have arrived.
    pub(super) fn check(&self, offset: u64, size: u64) -> Result<(), Failure> {
        if self.offset == offset { self.check_ahead(offset, size) } else { Err(out_of_step()) }
    }

    /// Checks a chunk as [`Chunk::check`] does, where there may be a hole before it.
    pub(super) fn check_ahead(&self, offset: u64, size: u64) -> Result<(), Failure> {
        let fits = self.slot < SLOTS
            && (1..=SLOT).contains(&self.len)
            && self.offset >= offset
            && self.offset <= size
            && self.len as u64 <= size - self.offset;
        if fits { Ok(()) } else { Err(out_of_step()) }
    }

    /// Returns the octets of the chunk in the memory of this end.
    pub(super) fn part<'a>(&self, slots: &'a MemoryRegion) -> Part<'a> {
        Part::of_slot(slots, self.slot, self.len)
    }

    /// Checks the octets of the chunk, where it has a CRC that `check` asks for.
    pub(super) fn check_octets(&self, octets: &Part<'_>, check: Check) -> Result<(), Failure> {
        if check.of_chunk(octets)? == self.crc { Ok(()) } else { Err(wrong_crc()) }
    }
}

impl Here {
    /// Checks the octets behind the message, where they have a CRC that `check` asks for.
    pub(super) fn check_octets(&self, octets: &[u8], check: Check) -> Result<(), Failure> {
        if check.of(octets) == self.crc { Ok(()) } else { Err(wrong_crc()) }
    }
}

fn wrong_crc() -> Failure {
    Failure::mismatch("octets changed on their way: their crc32c does not match")
}

/// Returns a peer's text, cut to a length that suffices.
fn bounded(text: &str) -> String {
    text.chars().take(2 * MAX_PATH).collect()
}

/// The remedy where the other end speaks another version of the protocol.
pub(super) const SAME_VERSION: &str = "run the same version of rddp at both ends";

/// The failure of a peer that says what does not come at this point.
pub(super) fn out_of_step() -> Failure {
    Failure::peer("the other end is out of step: it sent what the protocol has not at this point").remedy(
        concat!(
            "run the same version of rddp at both ends (rddp --version; rddp ",
            env!("CARGO_PKG_VERSION"),
            " says this); if it is the same, the program at the other end is at fault"
        ),
    )
}

#[cfg(test)]
mod tests {
    use rddp_rnic::{Access, Rnic};

    use super::*;

    #[test]
    fn a_chunk_is_the_next_and_fits() {
        let good = Chunk { slot: 7, offset: 100, len: SLOT, crc: None };
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

    #[test]
    fn a_chunk_behind_a_hole_fits_too() {
        let good = Chunk { slot: 7, offset: 100, len: SLOT, crc: None };
        let size = 100 + SLOT as u64;
        assert!(good.check_ahead(0, size).is_ok() && good.check(0, size).is_err());
        for (bad, size) in [
            (good, size - 1),
            (good, 99),
            (Chunk { offset: u64::MAX, ..good }, size),
            (Chunk { offset: 49, ..good }, size),
        ] {
            assert!(bad.check_ahead(50, size).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn octets_have_the_crc_that_was_agreed_on() {
        let slots = Rnic::open().unwrap().alloc_pd().allocate(2 * SLOT, Access::LOCAL_WRITE).unwrap();
        slots.write(SLOT, b"123456789").unwrap();
        let checked = |crc, check| {
            let chunk = Chunk { slot: 1, offset: 0, len: 9, crc };
            chunk.check_octets(&chunk.part(&slots), check)
        };
        assert!(checked(Some(0xe306_9283), Check::Crc32c).is_ok());
        assert!(checked(Some(0xe306_9284), Check::Crc32c).is_err());
        assert!(checked(None, Check::Sha256).is_err());
        assert!(checked(None, Check::None).is_ok());
    }

    #[test]
    fn a_message_has_behind_it_what_it_says_and_nothing_else() {
        let modified = Time { seconds: 7, nanos: 0 };
        let here = Some(Here { crc: None, sha256: String::new() });
        let (size, mode, from) = (9, 0o644, 4);
        let (window, has_holes, range) = (None, false, false);
        let give = ToClient::Give { size, mode, from, window, modified, has_holes, range, here };
        let octets = [&serde_json::to_vec(&give).unwrap()[..], b"{\"\0\xff}"].concat();
        let (parsed, behind) = parse::<ToClient>(&octets).unwrap();
        assert!(matches!(parsed, ToClient::Give { here: Some(_), .. }));
        assert_eq!(behind, b"{\"\0\xff}");
        for bad in [&octets[..octets.len() - 1], &[&octets[..], b" "].concat(), b"\"Same\" ", b"", b"{"] {
            assert!(parse::<ToClient>(bad).is_err());
        }
        assert!(matches!(parse::<ToClient>(b"\"Same\"").unwrap(), (ToClient::Same, b"")));
    }

    #[test]
    fn the_most_extents_fit_into_one_message() {
        let list = vec![Extent(u64::MAX, u64::MAX); EXTENTS];
        let message = serde_json::to_string(&ToClient::Extents { list, to: u64::MAX }).unwrap();
        assert!(message.len() <= super::super::talk::LONGEST, "{}", message.len());
    }

    /// A `Want` about all that may be offered at a time fits into one message.
    #[test]
    fn a_want_fits_into_one_message() {
        let begun = Begun { number: OFFERS - 1, have: u64::MAX, proof: "0".repeat(64) };
        let fits =
            |want| serde_json::to_string(&ToClient::Want(want)).unwrap().len() <= super::super::talk::LONGEST;
        let begun = vec![begun; BEGUN];
        let want = Want { offered: OFFERS, begun, ..Want::default() };
        // Refused files are among those that the receiver is not to be sent.
        let last = OFFERS - 1;
        let refused = |count| vec![(last, 7); count];
        assert!(fits(Want { refused: refused(OFFERS), same: vec![Run(0, OFFERS)], ..want.clone() }));
        assert!(fits(Want { refused: refused(RUNS), same: vec![Run(last, 1); RUNS], ..want.clone() }));
        assert!(fits(Want { refused_dirs: refused(OFFERS), ..want }));
    }
}
