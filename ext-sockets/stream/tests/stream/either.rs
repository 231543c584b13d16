//! A stream of either kind, for tests of both.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::RawFd;
use std::time::Duration;

use rddp_stream::{Calls, Errno, Format, State, sdp};

/// A stream of the kind that its state is of.
pub(crate) enum Stream<'a> {
    Octets(rddp_stream::Stream<'a>),
    Sdp(sdp::Stream<'a>),
}

macro_rules! calls {
    ($($name:ident($($argument:ident: $of:ty),*) -> $result:ty;)*) => {$(
        pub(crate) fn $name(&self, $($argument: $of),*) -> $result {
            match self {
                Self::Octets(stream) => stream.$name($($argument),*),
                Self::Sdp(stream) => stream.$name($($argument),*),
            }
        }
    )*};
}

impl<'a> Stream<'a> {
    pub(crate) fn new(fd: RawFd, state: &'a State, calls: &'a Calls) -> Result<Self, Errno> {
        match state.options().format {
            Format::Octets => rddp_stream::Stream::new(fd, state, calls).map(Self::Octets),
            Format::Sdp(_) => sdp::Stream::new(fd, state, calls).map(Self::Sdp),
        }
    }

    calls! {
        greet() -> Result<bool, Errno>;
        start(timeout: Option<Duration>) -> Result<(), Errno>;
        step() -> ();
        recv(pieces: &mut [IoSliceMut<'_>], flags: i32) -> Result<usize, Errno>;
        send(pieces: &[IoSlice<'_>], flags: i32) -> Result<usize, Errno>;
        shutdown(how: i32) -> Result<(), Errno>;
        finish(timeout: Duration) -> bool;
        owes() -> bool;
        abandon() -> ();
        holds_octets() -> bool;
        interest(want: i16) -> i16;
        revents(ready: i16, want: i16) -> i16;
        deadline() -> Option<Duration>;
        waits_by_edges(want: i16) -> bool;
        has_more_than_a_look() -> bool;
        prepare_to_confine() -> ();
    }

    pub(crate) fn has_obligation(&self) -> bool {
        matches!(self, Self::Sdp(stream) if stream.has_obligation())
    }

    pub(crate) fn meet_obligation(&self) {
        if let Self::Sdp(stream) = self {
            stream.meet_obligation();
        }
    }
}
