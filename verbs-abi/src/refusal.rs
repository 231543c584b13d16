//! Refused calls: the reason in words, for the program's user.
//!
//! Where a call is refused, [`because`] notes the reason beside the error number; where the number
//! goes to the program, [`told`] makes one event of both. A reason counts for its number and thread
//! alone, so that one whose error came to nothing is not told of another, and is put in words only
//! where somebody listens. What programs can do on other devices and not on this one ([`Cause`])
//! has a line on standard error besides, once a process.

use std::cell::Cell;
use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicU8, Ordering};

use nix::errno::Errno;
use socket2::SockRef;
use tracing::Level;

thread_local! {
    static REASON: Cell<Option<(Errno, String)>> = const { Cell::new(None) };
}

/// The part of the log that refusals are in.
const TARGET: &str = "rddp_verbs::refused";

/// Returns the error number of a refusal, whose reason it notes.
pub(crate) fn because(error: Errno, why: impl Display) -> Errno {
    if tracing::enabled!(target: TARGET, Level::INFO) {
        REASON.set(Some((error, why.to_string())));
    }
    error
}

/// Returns the error number that the program gets from `verb`, and makes an event of the refusal.
/// A call that would have to wait, or that a signal has interrupted, is not refused.
pub(crate) fn told(verb: &str, error: Errno) -> Errno {
    if !matches!(error, Errno::EAGAIN | Errno::EINTR) && tracing::enabled!(target: TARGET, Level::INFO) {
        let noted = REASON.take().filter(|(of, _)| *of == error).map(|(_, why)| why);
        let why = noted.as_deref().unwrap_or_else(|| error.desc());
        tracing::info!(target: TARGET, "{verb}: {error:?}: {why}");
    }
    error
}

/// Things that programs ask of other RDMA devices, and this one has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Numbers,
    Extensions,
    Datagrams,
    Xrc,
    /// A network adapter sums octets as they leave, whatever becomes of them in memory.
    Changed,
}

impl Cause {
    fn text(self) -> &'static str {
        match self {
            Cause::Numbers => {
                "this device connects by librdmacm alone, not by numbers of queue pairs; \
                 perftest: -R at both ends; qperf: -cm1; or rddp run --roce at both ends"
            }
            Cause::Extensions => {
                "atomics and immediate values need a setting at both ends: RDDP_VERBS_EXTENSIONS=on"
            }
            Cause::Datagrams => {
                "this device has no datagrams (UD, RDMA_PS_UDP): use connections (RC, RDMA_PS_TCP)"
            }
            Cause::Xrc => "this device has no XRC: use RC queue pairs, and shared receive queues",
            Cause::Changed => {
                "the peer found a wrong CRC: if the program changes memory while it is sent, \
                 set RDDP_VERBS_CRC=off at both ends"
            }
        }
    }

    /// Tells the user of the cause, once.
    pub(crate) fn tell(self) {
        static TOLD: AtomicU8 = AtomicU8::new(0);
        let bit = 1 << self as u8;
        if TOLD.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            complain(&format!("rddp: {}\n", self.text()));
        }
    }

    /// Returns the error number of a refusal for this cause.
    pub(crate) fn refuse(self, error: Errno) -> Errno {
        self.tell();
        because(error, self.text())
    }
}

/// Writes lines for the user, unless standard error is a connection, as in programs started by
/// inetd: the peer would read it.
pub(crate) fn complain(lines: &str) {
    let stderr = std::io::stderr();
    let is_connection = SockRef::from(&stderr).local_addr().is_ok_and(|addr| addr.as_socket().is_some());
    if !is_connection {
        // Where nothing can be written, the error number has to say enough.
        let _ = stderr.lock().write_all(lines.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    /// Takes the texts of events.
    #[derive(Clone, Default)]
    struct Texts(Arc<Mutex<Vec<String>>>);

    impl Visit for Texts {
        fn record_debug(&mut self, _: &Field, value: &dyn std::fmt::Debug) {
            self.0.lock().unwrap().push(format!("{value:?}"));
        }
    }

    impl Subscriber for Texts {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            event.record(&mut self.clone());
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn a_refusal_is_one_event_with_its_own_reason() {
        let texts = Texts::default();
        // With one subscriber only, a place that another test's thread comes to first is switched
        // off by that thread, which has none.
        let _second = tracing::Dispatch::new(Texts::default());
        tracing::subscriber::with_default(texts.clone(), || {
            told("one", because(Errno::EINVAL, "it is odd"));
            // An error that came to nothing, one without words, and one that is no refusal.
            because(Errno::EBUSY, "others use it");
            told("two", Errno::ENOMEM);
            told("three", because(Errno::EAGAIN, "there is none yet"));
        });
        let wanted = ["one: EINVAL: it is odd", "two: ENOMEM: Out of memory"];
        assert_eq!(*texts.0.lock().unwrap(), wanted);
    }
}
