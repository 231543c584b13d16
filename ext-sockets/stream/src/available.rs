//! Looks at the octets that a read would give, without taking them: `MSG_PEEK` and `FIONREAD`.

use std::io::IoSliceMut;

use rddp_octets::{Incoming, Step};

use super::duties::Duties;
use super::kind::Kind;
use super::rx::{Hold, Next, Pull, STEPS};
use super::sink::Sink;
use super::state::Rx;
use super::sys::{Guard, Scratch};
use super::{Errno, Framed};

impl<K: Kind> Framed<'_, K> {
    /// Returns how many octets a read would give at once (`FIONREAD`): at most as many as fit the
    /// buffer of one look. 0 on a broken connection: as with TCP the error is for the next call
    /// that moves octets.
    ///
    /// # Errors
    /// `EBADF` when the descriptor is no longer the stream's socket; [`Errno::PLAIN`] when the C
    /// library is to make the call.
    pub fn available(&self) -> Result<usize, Errno> {
        match self.count_available() {
            Err(error) if ![Errno::PLAIN, Errno(libc::EBADF), Errno(libc::ENOTSOCK)].contains(&error) => {
                self.remember(error);
                Ok(0)
            }
            other => other,
        }
    }

    /// Returns how many octets of the FPDU in front are left to read. A read gives them at once,
    /// and those of whole FPDUs behind it.
    #[must_use]
    pub fn left_in_front(&self) -> usize {
        self.lock_rx().map_or(0, |rx| rx.left as usize + rx.held.len())
    }

    fn count_available(&self) -> Result<usize, Errno> {
        let mut moment = None;
        loop {
            let octets = self.count_now(|counter| K::glimpse_all(self, counter, &mut moment))?;
            if octets > 0 || !K::response_comes(self, &mut moment) {
                return Ok(octets);
            }
        }
    }

    /// Returns how many octets a `look` finds.
    fn count_now(&self, look: impl FnOnce(&mut Sink<'_, '_>) -> Result<Pull, Errno>) -> Result<usize, Errno> {
        // As TCP counts, up to the mark.
        if !self.establish()? || K::stops_in_front(self) {
            return Ok(0);
        }
        let mut counter = Sink::counter();
        look(&mut counter).map(|_| counter.done())
    }

    /// Returns whether fewer octets can be read than so many, all of which a look can find.
    pub(super) fn has_fewer_than(&self, octets: usize) -> bool {
        let count = self.count_now(|counter| self.glimpse(counter));
        count.inspect_err(|error| self.remember(*error)).is_ok_and(|count| count < octets)
            && !self.has_more_than_a_look()
    }

    /// Copies octets to the program's buffers without taking them and without waiting (`MSG_PEEK`).
    pub(super) fn glimpse(&self, sink: &mut Sink<'_, '_>) -> Result<Pull, Errno> {
        let mut rx = self.lock_rx()?;
        K::glimpse(self, &mut rx, sink)
    }

    /// Copies octets that are in the kernel, or in front of those that are.
    pub(super) fn glimpse_octets(
        &self,
        rx: &mut Guard<'_, Rx>,
        sink: &mut Sink<'_, '_>,
    ) -> Result<Pull, Errno> {
        let mut steps = 0;
        // A CRC must be checked before octets are shown, however large the FPDU is.
        rx.guess.bulk = false;
        while rx.left == 0 {
            steps += 1;
            match K::advance(self, rx, &mut Sink::new(&mut [], false))? {
                Next::Nothing(hold) => return Ok(Pull::Nothing(hold)),
                Next::End => return Ok(Pull::End),
                // A look leaves the octets in front where they are.
                Next::Full if rx.left == 0 => break,
                // As in `pull`: the lock is not held for a peer that sends only FPDUs without
                // octets for the program.
                _ if rx.left == 0 && steps >= STEPS => return Ok(Pull::Nothing(Hold::Idle)),
                Next::More | Next::Drained | Next::Full => {}
            }
        }
        if let Some(shown) = K::show_apart(self, rx, sink)? {
            return Ok(shown);
        }
        let mut scratch = Scratch::take()?;
        let seen = self.kernel.peek(&mut [IoSliceMut::new(&mut scratch)]).unwrap_or(0);
        let mut place = K::Place::default();
        let mut format = K::format(rx, &mut place);
        let mut incoming = format.incoming(self, rx);
        show(rx, &mut scratch[..seen], &mut incoming, &mut format, sink);
        Ok(Pull::Some)
    }
}

/// Copies the rest of the FPDU in front, and those behind it that are whole and good.
fn show(
    rx: &Rx,
    octets: &mut [u8],
    incoming: &mut Incoming,
    format: &mut impl Duties,
    sink: &mut Sink<'_, '_>,
) {
    let (left, trailer) = (rx.left as usize, rx.trailer as usize);
    let mut at = if rx.left_is_kept {
        let from = rx.kept.at as usize;
        sink.fill(rx.kept().get(from..from + left).unwrap_or_default());
        trailer
    } else {
        sink.fill(&octets[..left.min(octets.len())]);
        left + trailer
    };
    let mut shown = rx.shown as usize;
    while at < octets.len() && sink.room() > 0 {
        match incoming.step(&mut octets[at..], format) {
            Ok(Step::Data { payload, used }) => {
                let from = at + payload.start + std::mem::take(&mut shown).min(payload.len());
                let stop = format.before_stop();
                let to = stop.map_or(usize::MAX, |before| from + before).min(at + payload.end);
                sink.fill(&octets[from..to]);
                at += used;
                if stop.is_some() {
                    break;
                }
            }
            Ok(Step::Silent { used, .. }) => at += used,
            _ => break,
        }
    }
}
