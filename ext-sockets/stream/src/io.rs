//! The calls of a byte stream, with the results that POSIX and TCP give.

use std::ffi::c_int;
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::kind::Kind;
use super::options::Role;
use super::patience::Patience;
use super::rx::{Hold, Pull};
use super::sink::{Sink, Source};
use super::sys::lent::guard;
use super::sys::raise_sigpipe;
use super::{Errno, Framed};

impl<K: Kind> Framed<'_, K> {
    /// Receives into `pieces` from front to back (`recv`, `read`, `readv`, `recvmsg`). Returns 0 at
    /// the end of the peer's octets.
    ///
    /// The `flags` `MSG_DONTWAIT`, `MSG_PEEK`, `MSG_WAITALL` and `MSG_TRUNC` (the octets are
    /// dropped) mean what they mean to TCP; there is no error queue. `MSG_OOB` receives the urgent
    /// octet of a connection of SDP; a stream of plain octets has none.
    ///
    /// # Errors
    /// Those of TCP's calls: `EAGAIN`, `EINTR`, `ECONNRESET`, ...; and, while the startup is not
    /// over, the reason why it failed.
    pub fn recv(&self, pieces: &mut [IoSliceMut<'_>], flags: c_int) -> Result<usize, Errno> {
        if flags & libc::MSG_ERRQUEUE != 0 {
            return Err(Errno::WOULD_BLOCK);
        }
        guard();
        let mut sink = Sink::new(pieces, flags & libc::MSG_TRUNC != 0);
        if flags & libc::MSG_OOB != 0 {
            return K::recv_urgent(self, &mut sink, flags & libc::MSG_PEEK != 0);
        }
        let patience = Patience::new(flags & libc::MSG_DONTWAIT != 0, self.state.receive_timeout());
        // As over TCP, octets that came before a reset are read before it is told.
        let tells = self.state.flow.pending.load(Ordering::Relaxed) != 0 && !K::is_reset_behind_more(self);
        if tells && let Err(error) = self.tell_pending() {
            K::reset_is_told(self);
            return Err(error);
        }
        let enough = if flags & libc::MSG_WAITALL != 0 { usize::MAX } else { self.state.low_water() };
        let (mut limit, mut start, mut moment) = (patience, None, None);
        while sink.room() > 0 {
            let behind = start.filter(|_| enough < usize::MAX).map(|(_, received)| received);
            match self.recv_once(&mut sink, flags, &limit, behind) {
                Ok(None) => {}
                // The call goes on for the rest: else a message of the peer's program would come in
                // two pieces, the first of one octet.
                Ok(Some(received)) => {
                    start = Some((sink.done(), received));
                    if sink.done() >= enough {
                        limit = patience.at_most(FOR_THE_REST);
                    }
                }
                Err(Some(Errno::WOULD_BLOCK)) if K::response_comes(self, &mut moment) => {}
                Err(error) => return self.so_far(sink.done(), self.unless_ended(error)),
            }
            if start.is_some_and(|(done, _)| sink.done() > done) {
                (limit, start) = (patience, None);
            }
            if sink.done() >= enough && start.is_none() {
                break;
            }
        }
        if sink.is_bad() && sink.done() == 0 { Err(Errno::FAULT) } else { Ok(sink.done()) }
    }

    /// Takes octets that are there, or waits. Returns how many the program has received in all if
    /// those are the start of an advert, the rest of which is being Read; `behind` is that number
    /// for a call that waits for the rest. `Err(None)` is the end.
    fn recv_once(
        &self,
        sink: &mut Sink<'_, '_>,
        flags: c_int,
        patience: &Patience,
        behind: Option<u64>,
    ) -> Result<Option<u64>, Option<Errno>> {
        let peeks = flags & libc::MSG_PEEK != 0;
        let pull = match self.establish() {
            Ok(true) if peeks => K::glimpse_all(self, sink, &mut None),
            Ok(true) => match behind {
                None => self.pull(sink),
                Some(received) => K::pull_rest(self, sink, received),
            },
            Ok(false) => match self.glance_unconnected() {
                Some(Ok(0)) => Ok(Pull::End),
                Some(answer) => answer.and(Err(Errno::RESET)),
                None => Ok(Pull::Nothing(Hold::Partial)),
            },
            Err(_) if self.is_closed_at_once() || self.was_told_of_startup() => Ok(Pull::End),
            Err(error) => Err(error),
        };
        match pull? {
            Pull::Nothing(_) if self.is_shut_early() && !K::is_offered_more(self) => Err(None),
            // A look shows the octets that are there, and does not wait for more.
            Pull::Some if peeks && sink.room() > 0 && sink.done() > 0 => Err(None),
            Pull::Some => Ok(None),
            Pull::Start { received } => Ok(Some(received)),
            Pull::End => Err(None),
            Pull::Nothing(hold) => {
                if hold == Hold::Idle && !peeks {
                    K::before_wait(self, sink.room(), patience);
                }
                self.wait_to_receive(hold, patience).map(|()| None).map_err(Some)
            }
        }
    }

    /// Sends the octets of `pieces` from front to back (`send`, `write`, `writev`, `sendmsg`).
    /// Octets that the result counts are taken by TCP, or will be when it has room, by whichever
    /// call comes next.
    ///
    /// The `flags` `MSG_DONTWAIT`, `MSG_NOSIGNAL` and `MSG_MORE` mean what they mean to TCP.
    ///
    /// # Errors
    /// Those of TCP's calls: `EAGAIN`, `EINTR`, `EPIPE` (with `SIGPIPE`), `ECONNRESET`, ...;
    /// `EOPNOTSUPP` for `MSG_OOB`, but for SDP, where the last octet is urgent then.
    pub fn send(&self, pieces: &[IoSlice<'_>], flags: c_int) -> Result<usize, Errno> {
        if flags & libc::MSG_OOB != 0 && !K::HAS_URGENT {
            return Err(Errno::UNSUPPORTED);
        }
        guard();
        let sent = self.send_all(Source::new(pieces), flags);
        let sent = sent.map_err(|error| K::error_of_send(self, error));
        if sent == Err(Errno::BROKEN_PIPE) && flags & libc::MSG_NOSIGNAL == 0 {
            raise_sigpipe();
        }
        sent
    }

    fn send_all(&self, mut source: Source<'_>, flags: c_int) -> Result<usize, Errno> {
        let patience = Patience::new(flags & libc::MSG_DONTWAIT != 0, self.state.send_timeout());
        let all = source.left();
        self.tell_pending()?;
        let is_urgent = flags & libc::MSG_OOB != 0;
        if !is_urgent && let Err(end) = K::lend(self, &mut source, &patience) {
            return self.so_far(all - source.left(), end);
        }
        loop {
            let more = flags & libc::MSG_MORE != 0 || self.state.flow.corked.load(Ordering::Relaxed);
            let error = match self.send_once(&source, more, is_urgent) {
                Ok(count) => {
                    source.skip(count);
                    if source.left() > 0 {
                        continue;
                    }
                    self.pay_in_time(&patience);
                    return Ok(all);
                }
                Err(Errno::WOULD_BLOCK) => match self.wait_to_send(&patience) {
                    Ok(()) => continue,
                    Err(error) => error,
                },
                Err(error) => error,
            };
            K::after_part(self);
            return self.so_far(all - source.left(), Some(error));
        }
    }

    /// Gives TCP what is owed before a call that may wait returns: the program may exit next. For a
    /// startup it waits a short time only, since TCP would not wait: the peer may be one that this
    /// thread is yet to accept. An error is left to the next call.
    fn pay_in_time(&self, patience: &Patience) {
        let moment = patience.at_most(match self.state.asked.role() {
            Role::Initiator => A_MOMENT,
            // A peer that says nothing costs a responder no more than this.
            Role::Responder => A_MOMENT / 4,
        });
        while self.owes() && !self.pays() {
            let patience = if self.state.may_send() { patience } else { &moment };
            if let Err(error) = self.wait_for_owed(patience) {
                return self.remember(error);
            }
        }
    }

    /// Sends octets before FPDUs may flow, if that is not over by now.
    fn send_early(&self, source: &Source<'_>, more: bool) -> Result<usize, Errno> {
        match self.keep_early(source)? {
            Some(count) => Ok(count),
            None if self.establish()? => K::push(self, *source, more, false),
            None => Err(Errno::WOULD_BLOCK),
        }
    }

    fn send_once(&self, source: &Source<'_>, more: bool, urgent: bool) -> Result<usize, Errno> {
        if self.state.flow.shut_send.load(Ordering::Acquire) {
            return Err(Errno::BROKEN_PIPE);
        }
        if self.state.end.is_set() {
            // TCP reports an error once; after that sending fails with `EPIPE`.
            return Err(if self.state.end.first_told() { self.ended_errno() } else { Errno::BROKEN_PIPE });
        }
        if !self.establish().inspect_err(|_| self.note_told())? {
            // A write without octets moves nothing, even if TCP is connected by now.
            return match self.unconnected(|kernel| kernel.send(&[IoSlice::new(&[])], 0)) {
                Some(Err(error)) => Err(error),
                None if self.is_connected() => self.send_early(source, more),
                Some(Ok(_)) | None => Err(Errno::WOULD_BLOCK),
            };
        }
        match self.has_leave_to_send() {
            Ok(true) if source.left() > 0 => K::push(self, *source, more, urgent),
            // The peer has closed its receiving side: to TCP a write without octets still succeeds.
            Ok(true) | Err(Errno::BROKEN_PIPE) if source.left() == 0 => Ok(0),
            Ok(_) => self.send_early(source, more),
            Err(error) => Err(error),
        }
    }

    /// Returns whether this end may send: a responder sends no FPDU before a good one has come
    /// (RFC 5044 §7.1.2 r4).
    pub(super) fn has_leave_to_send(&self) -> Result<bool, Errno> {
        if self.state.may_send() {
            return Ok(true);
        }
        match self.look()? {
            // The FPDU that lets this end send will never come.
            Pull::End if !self.state.may_send() => Err(Errno::BROKEN_PIPE),
            _ => Ok(self.state.may_send()),
        }
    }

    /// Returns what a read would find, after taking everything that is not for the program.
    pub(super) fn look(&self) -> Result<Pull, Errno> {
        self.pull(&mut Sink::new(&mut [], false))
    }
}

/// Time for which a call that may wait does so for a startup.
const A_MOMENT: Duration = Duration::from_millis(200);
/// Time for which a receive waits for the rest of an advert whose first octets it has.
const FOR_THE_REST: Duration = Duration::from_secs(1);
