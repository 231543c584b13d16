//! Pages: the whole file, as a value.

use crate::counter::Counts;
use crate::identity::Identity;
use crate::layout::{COUNTS, HEADER, MAGIC, SLOT, VERSION, WORD, header, slot};
use crate::phase::Phase;

/// Counters of one process, as they were when they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// ID of the process, as it sees itself: in a container another than outside.
    pub pid: u32,
    /// Sums of the counts of connections that have ended.
    pub ended: Counts,
    /// Terminates by code, those of connections that have ended among them.
    pub terminates: Vec<TerminateCount>,
    /// The connections.
    pub connections: Vec<Connection>,
}

/// Numbers of Terminates with one code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TerminateCount {
    /// Layer, error type and error code (RFC 5040 §4.8).
    pub code: u16,
    /// Terminates sent.
    pub sent: u64,
    /// Terminates received.
    pub received: u64,
}

/// Counters of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// The number of its slot.
    pub slot: usize,
    /// Number of changes of the slot's owner; even.
    pub generation: u64,
    /// The connection's identity.
    pub identity: Identity,
    /// State of the connection.
    pub phase: Phase,
    /// Code of the Terminate that this end has sent.
    pub terminate_sent: Option<u16>,
    /// Code of the Terminate that the peer has sent.
    pub terminate_received: Option<u16>,
    /// Counts of the connection.
    pub counts: Counts,
}

/// The reason why octets are no page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    /// There are fewer octets than a header has.
    #[error("{len} octets, of which a header of counters has {}", HEADER * WORD)]
    Short {
        /// The number of octets.
        len: usize,
    },
    /// The first word is another file's.
    #[error("no counters of rddp: the file begins otherwise")]
    Magic,
    /// The layout is that of another version.
    #[error("counters of layout {found}; this rddp reads {VERSION}")]
    Version {
        /// The version found.
        found: u64,
    },
    /// The header contradicts itself.
    #[error("the header is damaged: {0}")]
    Damaged(String),
}

impl Page {
    /// Makes a page of the octets of a file. Slots that are nobody's, are changing, or lie behind
    /// the end of the octets are passed over.
    ///
    /// # Errors
    /// The header is too short, another file's or version's, or names sizes that are not this
    /// version's.
    pub fn parse(octets: &[u8]) -> Result<Self, PageError> {
        if octets.len() < HEADER * WORD {
            return Err(PageError::Short { len: octets.len() });
        }
        let words = Words(octets);
        match (words.at(header::MAGIC), words.at(header::VERSION)) {
            (MAGIC, VERSION) => {}
            (MAGIC, found) => return Err(PageError::Version { found }),
            _ => return Err(PageError::Magic),
        }
        let sizes = (words.at(header::LEN), words.at(header::SLOT_LEN));
        if sizes != (HEADER as u64, SLOT as u64) {
            return Err(PageError::Damaged(format!("header and slots of {} and {} words", sizes.0, sizes.1)));
        }
        let there = (octets.len() / WORD - HEADER) / SLOT;
        let slots = usize::try_from(words.at(header::SLOTS)).unwrap_or(usize::MAX).min(there);
        Ok(Page {
            pid: words.at(header::PID) as u32,
            ended: words.counts(header::ENDED),
            terminates: (0..header::TERMINATES).filter_map(|nth| words.terminate(nth)).collect(),
            connections: (0..slots).filter_map(|nth| words.connection(nth)).collect(),
        })
    }

    /// Drops the connections whose slot has another generation in `later`, the same file read once
    /// more: some of what was read of them may have been the next owner's.
    pub fn keep_unchanged(&mut self, later: &[u8]) {
        let words = Words(later);
        self.connections.retain(|connection| {
            words.get(HEADER + connection.slot * SLOT + slot::GENERATION) == Some(connection.generation)
        });
    }

    /// Returns the sum of all counts, of connections that have ended too.
    #[must_use]
    pub fn total(&self) -> Counts {
        let mut total = self.ended;
        self.connections.iter().for_each(|connection| total.add(&connection.counts));
        total
    }

    /// Returns the octets of a file with this content: each connection stands in the slot that it
    /// names, and no two in one.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let slots = self.connections.iter().map(|connection| connection.slot + 1).max().unwrap_or(0);
        let mut words = vec![0; HEADER + slots * SLOT];
        words[..HEADER].copy_from_slice(&self.emit_header(slots));
        for connection in &self.connections {
            let at = HEADER + connection.slot * SLOT;
            words[at..at + SLOT].copy_from_slice(&connection.emit());
        }
        words.into_iter().flat_map(u64::to_ne_bytes).collect()
    }

    fn emit_header(&self, slots: usize) -> [u64; HEADER] {
        let mut words = [0; HEADER];
        words[..header::PID + 1].copy_from_slice(&[
            MAGIC,
            VERSION,
            HEADER as u64,
            SLOT as u64,
            slots as u64,
            u64::from(self.pid),
        ]);
        words[header::ENDED..][..COUNTS].copy_from_slice(self.ended.words());
        for (entry, count) in words[header::TERMINATES_AT..].chunks_mut(3).zip(&self.terminates) {
            entry.copy_from_slice(&[header::SET | u64::from(count.code), count.sent, count.received]);
        }
        words
    }
}

impl Connection {
    fn emit(&self) -> [u64; SLOT] {
        let mut words = [0; SLOT];
        words[slot::GENERATION] = self.generation;
        words[slot::IDENTITY..][..slot::IDENTITY_LEN].copy_from_slice(&self.identity.words(self.phase));
        words[slot::TERMINATE] = terminates_word(self.terminate_sent, self.terminate_received);
        words[slot::COUNTS..].copy_from_slice(self.counts.words());
        words
    }
}

/// Returns the word [`TERMINATE`](slot::TERMINATE) of the codes of Terminates sent and received.
#[must_use]
pub fn terminates_word(sent: Option<u16>, received: Option<u16>) -> u64 {
    let half = |code: Option<u16>| code.map_or(0, |code| u64::from(slot::SET | u32::from(code)));
    half(sent) << 32 | half(received)
}

fn terminate_of(half: u32) -> Option<u16> {
    (half & slot::SET != 0).then_some(half as u16)
}

/// The octets of a file by words, the last of which may be missing.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn get(&self, at: usize) -> Option<u64> {
        let from = at.checked_mul(WORD)?;
        let octets = self.0.get(from..)?.first_chunk()?;
        Some(u64::from_ne_bytes(*octets))
    }

    /// Returns a word, or 0 behind the end.
    fn at(&self, at: usize) -> u64 {
        self.get(at).unwrap_or(0)
    }

    fn counts(&self, at: usize) -> Counts {
        Counts::of_words((at..at + COUNTS).map(|at| self.at(at)))
    }

    fn terminate(&self, nth: usize) -> Option<TerminateCount> {
        let at = header::TERMINATES_AT + 3 * nth;
        let (code, sent, received) = (self.at(at), self.at(at + 1), self.at(at + 2));
        (code & header::SET != 0).then_some(TerminateCount { code: code as u16, sent, received })
    }

    fn connection(&self, nth: usize) -> Option<Connection> {
        let at = HEADER + nth * SLOT;
        let generation = self.at(at + slot::GENERATION);
        let words = std::array::from_fn(|word| self.at(at + slot::IDENTITY + word));
        let (identity, phase) = Identity::of_words(&words).filter(|_| generation.is_multiple_of(2))?;
        let terminates = self.at(at + slot::TERMINATE);
        Some(Connection {
            slot: nth,
            generation,
            identity,
            phase,
            terminate_sent: terminate_of((terminates >> 32) as u32),
            terminate_received: terminate_of(terminates as u32),
            counts: self.counts(at + slot::COUNTS),
        })
    }
}
