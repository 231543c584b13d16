//! Memory of the program that is lent to the peer, and the party that lends it.

use std::os::fd::RawFd;
use std::time::Duration;

use rddp_sdp::machine::{ADVERTS, SourceId};

use crate::Errno;
use crate::patience::Patience;
use crate::sink::Source;
use crate::sys::{HeldBack, now};

/// The party that lends memory: a blocking call, or operations that go on between calls.
pub(super) trait Owner<'a> {
    /// Returns the next octets to be lent. Called without a lock of the stream.
    fn next(&mut self) -> Option<Source<'a>>;

    /// Learns how many octets, of all that were lent, the peer has or will have from the stream's
    /// memory: their own memory is used no more. Called without a lock of the stream.
    fn told(&mut self, octets: usize);

    /// Returns why all memory is wanted back now, if it is.
    fn reason(&mut self) -> Option<Errno>;

    /// Returns whether the connection is to end rather than that the peer's leave is waited for.
    fn cannot_wait(&self) -> bool;

    /// Returns a descriptor that is readable when there may be a reason, or more octets.
    fn descriptor(&mut self) -> Option<RawFd>;

    /// Returns the time after which there is a reason.
    fn left(&self) -> Option<Duration>;
}

/// A call that lends its memory until it returns.
pub(super) struct Call<'a, 'p> {
    pub(super) source: Option<Source<'a>>,
    pub(super) patience: &'p Patience,
    pub(super) signals: HeldBack,
}

impl<'a> Owner<'a> for Call<'a, '_> {
    fn next(&mut self) -> Option<Source<'a>> {
        self.source.take()
    }

    fn told(&mut self, _: usize) {}

    fn reason(&mut self) -> Option<Errno> {
        match () {
            () if self.signals.is_waiting() => Some(Errno::INTERRUPTED),
            () if self.patience.is_over() => Some(Errno::WOULD_BLOCK),
            () => None,
        }
    }

    fn cannot_wait(&self) -> bool {
        false
    }

    fn descriptor(&mut self) -> Option<RawFd> {
        self.signals.descriptor()
    }

    fn left(&self) -> Option<Duration> {
        self.patience.left()
    }
}

/// Memory of one lender behind adverts of this end.
pub(crate) struct Lent<'a> {
    /// Octets that are not advertised yet: what each send has left of them, front to back.
    waiting: [Option<Source<'a>>; ADVERTS],
    pub(super) parts: [Option<Part<'a>>; ADVERTS],
    /// Octets that are advertised, or were.
    pub(super) advertised: usize,
    /// Octets from the front that the peer has.
    pub(super) read: usize,
    /// Fewer octets than these are not advertised.
    pub(super) least: usize,
    /// Set if several adverts are wanted at a time, though one send may need one alone.
    pub(super) pipelines: bool,
    /// The time at which the peer last asked for something, by [`now`].
    pub(super) since: u64,
    /// Set if no more is to be advertised.
    pub(super) is_full: bool,
}

/// The memory of one advert.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) id: SourceId,
    /// Octets lent in front of it.
    pub(super) at: usize,
    pub(super) memory: Source<'a>,
}

impl Part<'_> {
    /// Returns the number of octets lent up to its end.
    pub(super) fn end(&self) -> usize {
        self.at + self.memory.left()
    }
}

impl<'a> Lent<'a> {
    pub(super) fn new(least: usize, pipelines: bool) -> Self {
        Self {
            waiting: [None; ADVERTS],
            parts: [None; ADVERTS],
            advertised: 0,
            read: 0,
            least,
            pipelines,
            since: now(),
            is_full: false,
        }
    }

    /// Takes what its owner lends besides, as much as adverts might be made for.
    pub(super) fn refill(&mut self, owner: &mut dyn Owner<'a>) {
        while !self.is_full
            && let Some(place) = self.waiting.iter_mut().find(|place| place.is_none())
            && let Some(source) = owner.next()
        {
            *place = Some(source);
        }
    }

    /// Returns the octets of the oldest send that has some left.
    pub(super) fn waiting(&self) -> Option<Source<'a>> {
        self.waiting[0]
    }

    /// Counts octets of the oldest send as advertised.
    pub(super) fn pass(&mut self, id: SourceId, memory: Source<'a>) {
        if let Some(place) = self.parts.iter_mut().find(|part| part.is_none()) {
            *place = Some(Part { id, at: self.advertised, memory });
        }
        self.advertised += memory.left();
        self.since = now();
        let Some(first) = &mut self.waiting[0] else { return };
        first.skip(memory.left());
        if first.left() == 0 {
            self.waiting[0] = None;
            self.waiting.rotate_left(1);
        }
    }

    /// Returns the memory of the advert at a place.
    pub(super) fn memory(&self, place: usize) -> Option<Source<'a>> {
        let part = self.parts.iter().flatten().find(|part| part.id.place() == place)?;
        Some(part.memory)
    }

    /// Returns the place of the advert that is first in the stream.
    pub(super) fn oldest(&mut self) -> Option<&mut Option<Part<'a>>> {
        let out = self.parts.iter_mut().filter(|part| part.is_some());
        out.min_by_key(|part| part.map_or(usize::MAX, |part| part.at))
    }

    pub(super) fn is_out(&self) -> bool {
        self.parts.iter().any(Option::is_some)
    }

    pub(super) fn age(&self) -> Duration {
        Duration::from_nanos(now().saturating_sub(self.since))
    }
}
