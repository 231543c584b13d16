//! Adverts of both ends.

/// Places for adverts of each kind.
pub const ADVERTS: usize = 8;

/// An own `SrcAvail`, by its place in the tables, which it keeps until it is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceId(pub(super) u8);

/// An own `SinkAvail`, by its place in the tables, which it keeps until it is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SinkId(pub(super) u8);

macro_rules! places {
    ($($id:ident),*) => {$(
        impl $id {
            /// Returns the place: below [`ADVERTS`], so that a binding may keep memory beside it.
            #[must_use]
            pub fn place(self) -> usize {
                self.0.into()
            }

            /// Returns the advert at a place; one past the last has none, and reads as free.
            #[must_use]
            pub fn at(place: usize) -> Self {
                Self(u8::try_from(place).unwrap_or(u8::MAX))
            }
        }
    )*};
}
places!(SourceId, SinkId);

/// Adverts of both ends. Zeroed, there is none.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tables {
    pub(super) sources: [OwnSource; ADVERTS],
    pub(super) sinks: [OwnSink; ADVERTS],
    pub(super) peer_sources: [ReadFrom; ADVERTS],
    pub(super) peer_sinks: [WriteTo; ADVERTS],
}

/// An own `SrcAvail`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct OwnSource {
    /// The state of the advert, of those in [`state`].
    pub(super) state: u32,
    pub(super) mseq: u32,
    pub(super) len: u32,
    pub(super) inline: u32,
    /// Octets that the peer has or that were sent again, the inline ones among them.
    pub(super) done: u32,
    /// 1 if there was never an advert: the octets wait behind others.
    pub(super) queued: u32,
}

/// An own `SinkAvail`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct OwnSink {
    /// The state of the advert, of those in [`state`].
    pub(super) state: u32,
    pub(super) mseq: u32,
    pub(super) len: u32,
    /// Octets that the peer wrote, once it is [`state::DONE`].
    pub(super) done: u32,
}

/// A `SrcAvail` of the peer. Counts leave out the inline octets.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ReadFrom {
    pub(super) to: u64,
    pub(super) state: u32,
    pub(super) mseq: u32,
    pub(super) stag: u32,
    /// Octets behind the inline ones.
    pub(super) len: u32,
    /// Octets for which a Read was begun.
    pub(super) asked: u32,
    /// Octets read.
    pub(super) read: u32,
    /// Octets reported.
    pub(super) reported: u32,
    pub(super) reserved: u32,
}

/// A `SinkAvail` of the peer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct WriteTo {
    pub(super) to: u64,
    /// [`state::OUT`], or [`state::DONE`] while its `RdmaWrCompl` is due.
    pub(super) state: u32,
    pub(super) mseq: u32,
    pub(super) stag: u32,
    pub(super) len: u32,
    pub(super) written: u32,
    pub(super) reserved: u32,
}

/// States of an advert.
pub(super) mod state {
    pub(in crate::machine) const FREE: u32 = 0;
    pub(in crate::machine) const OUT: u32 = 1;
    /// The peer is through with it.
    pub(in crate::machine) const DONE: u32 = 2;
    /// The advert came back.
    pub(in crate::machine) const RETURNED: u32 = 3;
    /// A Data came for it (a sink).
    pub(in crate::machine) const DISCARDED: u32 = 4;
}

/// An entry of a table that has its turn by the number of the message that made it.
pub(super) trait Entry: Copy + Default {
    fn state(&self) -> u32;
    fn mseq(&self) -> u32;
}

macro_rules! entries {
    ($($entry:ty),*) => {$(
        impl Entry for $entry {
            fn state(&self) -> u32 { self.state }
            fn mseq(&self) -> u32 { self.mseq }
        }
    )*};
}
entries!(OwnSource, OwnSink, ReadFrom, WriteTo);

/// Returns the place of the oldest entry that `wanted` names; `now` is a number that no entry's
/// exceeds.
pub(super) fn oldest<E: Entry>(table: &[E], now: u32, wanted: impl Fn(&E) -> bool) -> Option<usize> {
    let here = table.iter().enumerate().filter(|(_, entry)| wanted(entry));
    // The entry's age decides; numbers wrap.
    here.max_by_key(|(_, entry)| now.wrapping_sub(entry.mseq())).map(|(place, _)| place)
}

/// Returns how many entries are in a state.
pub(super) fn count<E: Entry>(table: &[E], state: u32) -> usize {
    table.iter().filter(|entry| entry.state() == state).count()
}

/// Returns how many entries are not free.
pub(super) fn used<E: Entry>(table: &[E]) -> usize {
    table.len() - count(table, state::FREE)
}

pub(super) fn free<E: Entry>(table: &[E]) -> Option<usize> {
    table.iter().position(|entry| entry.state() == state::FREE)
}

/// The adverts of a connection to look at; empty without tables, so that a connection that
/// advertises nothing looks at nothing.
#[derive(Clone, Copy)]
pub(super) struct Adverts<'a> {
    pub(super) sources: &'a [OwnSource],
    pub(super) sinks: &'a [OwnSink],
    pub(super) peer_sources: &'a [ReadFrom],
    pub(super) peer_sinks: &'a [WriteTo],
}

impl super::Machine<'_> {
    /// Returns the adverts as they are: none without tables.
    pub(super) fn adverts(&self) -> Adverts<'_> {
        match self.tables.as_deref() {
            None => Adverts { sources: &[], sinks: &[], peer_sources: &[], peer_sinks: &[] },
            Some(Tables { sources, sinks, peer_sources, peer_sinks }) => {
                Adverts { sources, sinks, peer_sources, peer_sinks }
            }
        }
    }

    /// Returns how many adverts of this end are out, which the peer's `MaxAdverts` bounds together.
    pub(super) fn own_adverts(&self) -> usize {
        count(self.adverts().sources, state::OUT) + count(self.adverts().sinks, state::OUT)
    }

    /// Returns how many adverts of the peer are here.
    pub(super) fn peer_adverts(&self) -> usize {
        let Adverts { peer_sources, peer_sinks, .. } = self.adverts();
        used(peer_sources) + used(peer_sinks)
    }
}
