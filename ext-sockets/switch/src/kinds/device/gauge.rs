//! The readiness of a descriptor in the kernel.
//!
//! The program has one end of a pair. A token at that end makes it readable, and tokens that fill
//! its buffer make it not writable. The thread that drives streams gives tokens, and takes those
//! that fill, at the other end; what takes readiness away happens in the program's own calls, after
//! which alone there may be less than before.

use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rddp_real::{self as real, hidden};
use rddp_sdp::socket::Ready;
use rddp_sdp_rnic::Watcher;
use rddp_stream::Errno;

/// The most tokens that wait at a time. Each beyond the first is an edge for a program that waits
/// by `EPOLLET`.
const MOST: usize = 8;

/// The library's end of a pair, and what the program's shows.
#[derive(Debug)]
pub(super) struct Gauge {
    marks: Mutex<Marks>,
}

#[derive(Debug)]
struct Marks {
    /// The number of the library's end; `None` once the socket is closed.
    end: Option<c_int>,
    ready: Ready,
    /// Something has come since the program was last shown that something is there.
    has_news: bool,
    /// Calls at work, which show what there is when they are over.
    calls: usize,
    /// Tokens that make the program's end readable.
    tokens: usize,
    /// Tokens that make it not writable.
    filling: usize,
    has_shown_end: bool,
    has_shown_over: bool,
}

impl Gauge {
    /// Makes a pair, whose program's end is returned and is ready for nothing.
    pub(super) fn new() -> Result<(Self, c_int), Errno> {
        let (programs, end) = real::pair()?;
        let mut marks = Marks {
            end: Some(end),
            ready: Ready::default(),
            has_news: false,
            calls: 0,
            tokens: 0,
            filling: 0,
            has_shown_end: false,
            has_shown_over: false,
        };
        marks.take_away(programs);
        Ok((Gauge { marks: Mutex::new(marks) }, programs))
    }

    /// Begins a call of the program.
    pub(super) fn enter(&self) {
        self.marks().calls += 1;
    }

    /// Ends a call on `fd`, the program's end, and shows what is there and what is not.
    pub(super) fn settle(&self, fd: c_int) {
        let mut marks = self.marks();
        marks.calls = marks.calls.saturating_sub(1);
        marks.take_away(fd);
        marks.show();
    }

    /// Shows a descriptor that is of no use any more: whatever the program waits for, it is told.
    pub(super) fn show_over(&self) {
        let reads = Ready { reads: true, writes: true, peer_has_closed: true, ..Ready::default() };
        let mut marks = self.marks();
        marks.ready = Ready { over: Some(rddp_sdp::socket::Error::Closed), ..reads };
        marks.show();
    }

    /// Shows that the program's end receives no more: it has shut that direction down.
    pub(super) fn show_end(&self) {
        let mut marks = self.marks();
        marks.ready.peer_has_closed = true;
        marks.show();
    }

    /// Closes the library's end.
    pub(super) fn close(&self) {
        if let Some(end) = self.marks().end.take() {
            hidden::close(end);
        }
    }

    /// Closes the copy of the library's end in a child of `fork`.
    pub(super) fn close_inherited(&self) {
        // A thread that is the parent's alone may have had the lock.
        if let Ok(mut marks) = self.marks.try_lock()
            && let Some(end) = marks.end.take()
        {
            hidden::close(end);
        }
    }

    fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watcher for Gauge {
    fn now(&self, ready: Ready) {
        let mut marks = self.marks();
        marks.has_news |= ready.octets > marks.ready.octets;
        let peer_has_closed = ready.peer_has_closed | marks.ready.peer_has_closed;
        marks.ready = Ready { peer_has_closed, ..ready };
        if marks.calls == 0 {
            marks.show();
        }
    }
}

impl Marks {
    /// Shows what has become possible.
    fn show(&mut self) {
        let Some(end) = self.end else { return };
        if self.ready.writes {
            take(end, &mut self.filling);
        }
        // An end is an event of its own, and readable by itself.
        if self.ready.over.is_some() && !std::mem::replace(&mut self.has_shown_over, true) {
            real::shut(end, libc::SHUT_RDWR);
        } else if self.ready.peer_has_closed && !std::mem::replace(&mut self.has_shown_end, true) {
            real::shut(end, libc::SHUT_WR);
        }
        let is_shown = self.has_shown_over || self.has_shown_end;
        let is_edge = std::mem::take(&mut self.has_news) && self.tokens < MOST;
        if !is_shown && self.ready.reads && (self.tokens == 0 || is_edge) && real::give_token(end) {
            self.tokens += 1;
        }
    }

    /// Takes away at the program's end what is no longer possible.
    fn take_away(&mut self, fd: c_int) {
        if self.end.is_none() {
            return;
        }
        if !self.ready.reads {
            take(fd, &mut self.tokens);
        }
        if !self.ready.writes && self.filling == 0 && !self.has_shown_over {
            self.filling = std::iter::repeat_with(|| real::give_token(fd)).take_while(|given| *given).count();
        }
    }
}

/// Takes so many tokens that have come to this end.
fn take(end: c_int, count: &mut usize) {
    for _ in 0..std::mem::take(count) {
        real::take_token(end);
    }
}
