//! The shared state of zero copy. Integers alone, any value of which is one; zeros: unused.

use std::mem::offset_of;

use rddp_ddp::{OpenTagged, RangeError, Stag, check_range};
use rddp_rdmap::AccessError;
use rddp_sdp::machine::{ADVERTS, Tables};

use crate::fields::{Structure, fields};
use crate::rooms::{Room, Runs};
use crate::state::Rx;
use crate::sys::{Chain, Chains, Guard, Lease, parts};

/// Most Reads that are outstanding, of this end (ORD) and of the peer (IRD).
pub(crate) const READS: usize = 8;

/// The contents of a stream's block of tables, under the lock of [`Rx`].
#[repr(C)]
pub(crate) struct Zcopy {
    pub(crate) adverts: Adverts,
    /// Memory of own `SrcAvail`s, by their places in the tables.
    pub(crate) sources: [Backing; ADVERTS],
    /// Octets that the peer has written behind a gap into the own `SinkAvail`.
    pub(crate) written: Chain,
    pub(crate) runs: Runs,
}

/// The part that FPDUs of the peer change: it is copied for a look at some, and stored when they
/// are taken.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Adverts {
    pub(crate) tables: Tables,
    pub(crate) open: OpenMessage,
    pub(crate) reads: Reads,
    pub(crate) requests: Requests,
    pub(crate) sink: OwnSink,
    unused: u32,
}

/// The tagged message of the peer that has begun and not ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenMessage {
    next_to: u64,
    stag: u32,
    /// `RsvdULP`, which is never 0 in a message that was accepted; 0: none is open.
    rsvd_ulp: u32,
    /// 1 if the message has reached 2^64.
    is_full: u32,
    unused: u32,
}

/// The Reads of this end, oldest first.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reads {
    list: [Read; READS],
    count: u32,
    unused: u32,
}

/// A Read of this end. Its sink begins at Tagged Offset 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) sink_stag: u32,
    pub(crate) size: u32,
    /// Octets of the Response that have been taken.
    pub(crate) done: u32,
    /// The number of the room to which the rest is charged.
    room: u32,
}

/// The own `SinkAvail`: one at a time. Its buffer begins at Tagged Offset 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnSink {
    /// 0: there is none. Never 0 on the wire.
    pub(crate) stag: u32,
    pub(crate) len: u32,
    /// Octets from the front on that have come, and are with the program or in the queue.
    pub(crate) come: u32,
    /// Octets behind those of which some are put aside: the chain `written` is so long.
    pub(crate) aside: u32,
    /// The place in the tables.
    pub(crate) place: u32,
}

/// The Read Requests of the peer that are not answered, oldest first.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requests {
    pub(crate) list: [Request; READS],
    pub(crate) count: u32,
    pub(crate) unused: u32,
}

/// A Read Request of the peer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) sink_to: u64,
    pub(crate) source_to: u64,
    pub(crate) sink_stag: u32,
    pub(crate) source_stag: u32,
    pub(crate) size: u32,
    /// Octets that have been answered.
    pub(crate) done: u32,
    pub(crate) msn: u32,
    pub(crate) unused: u32,
}

/// Memory behind an own `SrcAvail`.
#[repr(C)]
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Backing {
    pub(crate) stag: u32,
    /// One of the constants of `serve.rs`.
    pub(crate) kind: u32,
    pub(crate) chain: Chain,
    /// Octets of the advert in front of the chain's first one.
    pub(crate) from: u32,
    /// Octets of the advert from there on, which are charged to a [room](Self::room).
    pub(crate) len: u32,
}

impl OpenMessage {
    pub(crate) fn of(open: Option<OpenTagged>) -> Self {
        open.map_or(Self::default(), |open| Self {
            next_to: open.next_to.unwrap_or_default(),
            stag: open.stag.0,
            rsvd_ulp: open.rsvd_ulp.into(),
            is_full: open.next_to.is_none().into(),
            unused: 0,
        })
    }

    pub(crate) fn get(self) -> Option<OpenTagged> {
        (self.rsvd_ulp != 0).then_some(OpenTagged {
            rsvd_ulp: self.rsvd_ulp as u8,
            stag: Stag(self.stag),
            next_to: (self.is_full == 0).then_some(self.next_to),
        })
    }
}

impl Reads {
    /// Returns the Reads, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Read> {
        self.list.iter().take(self.count as usize)
    }

    pub(crate) fn len(&self) -> usize {
        self.count as usize
    }

    /// Adds a Read. `false`: there is no place.
    #[must_use]
    pub(crate) fn push(&mut self, sink_stag: u32, size: u32, room: Room) -> bool {
        let Some(place) = self.list.get_mut(self.count as usize) else { return false };
        *place = Read { sink_stag, size, done: 0, room: room as u32 };
        self.count += 1;
        true
    }

    /// Returns the oldest Read.
    pub(crate) fn first(&mut self) -> Option<&mut Read> {
        self.list[..].first_mut().filter(|_| self.count > 0)
    }

    /// Removes the oldest Read, which is done.
    pub(crate) fn end_first(&mut self) {
        if self.count > 0 {
            self.list.copy_within(1.., 0);
            self.list[READS - 1] = Read::default();
            self.count -= 1;
        }
    }

    fn is_sound(&self) -> bool {
        let sound = |read: &Read| read.done <= read.size && read.room().is_some();
        self.count as usize <= READS && self.iter().all(sound)
    }
}

impl Read {
    /// Returns the room to which what is outstanding is charged.
    pub(crate) fn room(&self) -> Option<Room> {
        [Room::Reads, Room::Sinks].into_iter().find(|room| *room as u32 == self.room)
    }
}

impl OwnSink {
    /// Checks the memory that a Write names.
    ///
    /// # Errors
    /// It is not this, or not inside it (RFC 5041 §7.1).
    pub(crate) fn check(&self, stag: u32, to: u64, len: usize) -> Result<(), AccessError> {
        if self.stag == 0 || stag != self.stag {
            return Err(AccessError::Stag);
        }
        check_range(0, self.len.into(), to, len as u64).map(drop).map_err(|error| match error {
            RangeError::Wrap => AccessError::Wrap,
            RangeError::Bounds => AccessError::Bounds,
        })
    }

    /// Returns whether a Write is one of the next octets of the stream.
    pub(crate) fn is_next(&self, stag: u32, to: u64, len: usize) -> bool {
        self.check(stag, to, len).is_ok() && to == u64::from(self.come) && self.aside == 0
    }
}

impl Adverts {
    /// Returns whether there are none, and nothing is outstanding.
    pub(crate) fn is_idle(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether the values fit together: another process may have written anything.
    pub(crate) fn is_sound(&self) -> bool {
        let OwnSink { stag, len, come, aside, place } = self.sink;
        self.tables.is_sound()
            && self.reads.is_sound()
            && self.open.rsvd_ulp <= u8::MAX.into()
            && self.requests.count as usize <= READS
            && self.requests.list.iter().all(|request| request.done <= request.size)
            && (stag != 0 || self.sink == OwnSink::default())
            && come <= len
            && aside <= len - come
            && (place as usize) < ADVERTS
    }
}

impl Zcopy {
    /// The structures by their offsets in the block, without those of [`Tables`] and [`Runs`].
    pub(crate) const STRUCTURES: [Structure; 11] = [
        (0, fields!(Zcopy: adverts, sources, written, runs)),
        (Self::ADVERTS, fields!(Adverts: tables, open, reads, requests, sink, unused)),
        (
            Self::ADVERTS + offset_of!(Adverts, open),
            fields!(OpenMessage: next_to, stag, rsvd_ulp, is_full, unused),
        ),
        (Self::ADVERTS + offset_of!(Adverts, reads), fields!(Reads: list, count, unused)),
        (Self::ADVERTS + offset_of!(Adverts, reads.list), fields!(Read: sink_stag, size, done, room)),
        (Self::ADVERTS + offset_of!(Adverts, requests), fields!(Requests: list, count, unused)),
        (
            Self::ADVERTS + offset_of!(Adverts, requests.list),
            fields!(Request: sink_to, source_to, sink_stag, source_stag, size, done, msn, unused),
        ),
        (Self::ADVERTS + offset_of!(Adverts, sink), fields!(OwnSink: stag, len, come, aside, place)),
        (Self::SOURCES, fields!(Backing: stag, kind, chain, from, len)),
        (Self::SOURCES + offset_of!(Backing, chain), Chain::FIELDS),
        (offset_of!(Self, written), Chain::FIELDS),
    ];
    const ADVERTS: usize = offset_of!(Self, adverts);
    const SOURCES: usize = offset_of!(Self, sources);

    /// Returns whether nothing but the runs is in use.
    pub(crate) fn is_idle(&self) -> bool {
        self.adverts.is_idle()
            && self.written == Chain::default()
            && self.sources.iter().all(|source| *source == Backing::default())
    }
}

/// Splits what the lock of [`Rx`] guards, if the stream has a block of tables whose adverts are
/// sound: the value, the chains, the contents of the block.
pub(crate) fn zcopy<'a>(guard: &'a mut Guard<'_, Rx>) -> Option<(&'a mut Rx, Chains<'a>, &'a mut Zcopy)> {
    if guard.tables == Lease::NONE {
        return None;
    }
    let (rx, chains, table) = parts(guard);
    let zcopy = table.into_value::<Zcopy>(rx.tables).filter(|zcopy| zcopy.adverts.is_sound())?;
    Some((rx, chains, zcopy))
}

/// Splits as [`zcopy`] does, and reserves the block if there is none yet. `None`: there is no
/// memory for one.
pub(crate) fn reserve_zcopy<'a>(
    guard: &'a mut Guard<'_, Rx>,
) -> Option<(&'a mut Rx, Chains<'a>, &'a mut Zcopy)> {
    let (rx, _, mut table) = parts(guard);
    if !table.reserve(&mut rx.tables) {
        return None;
    }
    zcopy(guard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_end_in_their_order_and_have_a_bound() {
        let mut reads = Reads::default();
        for number in 1..=READS as u32 {
            assert!(reads.push(number, 10 * number, Room::Sinks));
        }
        assert!(!reads.push(9, 9, Room::Reads));
        assert_eq!((reads.len(), reads.first().unwrap().size), (8, 10));
        reads.end_first();
        assert_eq!((reads.len(), reads.first().unwrap().sink_stag), (7, 2));
        (0..9).for_each(|_| reads.end_first());
        assert_eq!(reads, Reads::default());
    }

    #[test]
    fn an_open_message_is_kept_as_it_is() {
        let open = OpenTagged { rsvd_ulp: 0x42, stag: Stag(0), next_to: Some(0) };
        for open in [None, Some(open), Some(OpenTagged { next_to: None, ..open })] {
            assert_eq!(OpenMessage::of(open).get(), open);
        }
    }

    #[test]
    fn values_that_do_not_fit_together_are_not_believed() {
        let changes: [fn(&mut Adverts); 6] = [
            |adverts| adverts.reads.count = 9,
            |adverts| (adverts.reads.count, adverts.reads.list[0].room) = (1, Room::Data as u32),
            |adverts| adverts.reads.list[0].done = 1,
            |adverts| adverts.requests.count = 9,
            |adverts| adverts.sink = OwnSink { stag: 1, len: 4, come: 5, ..OwnSink::default() },
            |adverts| adverts.sink = OwnSink { stag: 1, len: 4, place: 8, ..OwnSink::default() },
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut adverts = Adverts::default();
            assert!(adverts.reads.push(7, 0, Room::Reads) && adverts.is_sound());
            change(&mut adverts);
            assert!(!adverts.is_sound(), "change {number}");
        }
    }
}
