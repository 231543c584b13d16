//! The log of rddp's shared libraries, `librddp_sockets.so` and `librddp_verbs.so`: events of
//! `tracing` as lines on standard error or in a file.
//!
//! `RDDP_LOG` asks for it, in the form of `RUST_LOG` ([`Filter`]); `RDDP_LOG_FILE` names a file, in
//! which `%p` is the process. Without the first variable nothing is installed, and an event costs a
//! load and a comparison.
//!
//! A shared library has a copy of `tracing` of its own, whose symbols it does not export. The
//! dispatch that [`begin`] makes is that copy's: the subscriber of a program in Rust gets none of
//! its events, and this one gets none of the program's. A program that links the crates of rddp
//! itself shares its copy with them, and must not call [`begin`].
//!
//! # Where lines may be written
//!
//! Anywhere: in a signal handler, in a child of `fork` or `vfork`, under a lock of ours. A line is
//! put together on the stack, without the heap and without a lock, and goes out by one write, made
//! by a system call of our own, never through the functions that the socket switch stands in front
//! of. Where that would have to wait (a pipe that nobody reads), or where a peer would read it
//! (standard error that is a connection, as under inetd), the line is dropped; the next one tells
//! how many were. errno stays what it was. What remains is up to the fields of an event: those of
//! the socket switch are numbers, addresses and words.
#![forbid(unsafe_code)]

mod filter;
mod line;
mod output;

use std::ffi::OsString;
use std::path::Path;

use line::Line;
use output::Output;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, Subscriber};
use tracing::{Dispatch, Event, Metadata, dispatcher, level_filters::LevelFilter};

pub use filter::{Fault, Filter, LEVELS, PARTS, remedy};
pub use output::is_on_stderr;

/// The name of the variable that says what is logged.
pub const VARIABLE: &str = "RDDP_LOG";
/// The name of the variable that says to which file.
pub const FILE: &str = "RDDP_LOG_FILE";

/// Begins to log what the environment asks for, once in a process, and writes to standard error
/// what is wrong with it. `variable` returns a variable of the environment; for a program that has
/// the rights of another user than who started it, none.
pub fn begin(variable: impl Fn(&str) -> Option<OsString>) {
    let Some(text) = variable(VARIABLE).filter(|text| !text.is_empty()) else { return };
    let (filter, faults) = Filter::parse(&text);
    faults.iter().for_each(|fault| complain(format_args!("{VARIABLE}: {fault}; try: {}", remedy())));
    let file = variable(FILE).filter(|name| !name.is_empty());
    let to_file = file.map(|name| (output::set_file(Path::new(&name)), name));
    if let Some((Err(error), name)) = to_file {
        complain(format_args!(
            "{FILE}={}: {error}; lines go to standard error; try: a file that can be written",
            name.display()
        ));
    }
    if filter.most() != LevelFilter::OFF {
        // Fails if there is one already: a library is loaded once.
        let _ = dispatcher::set_global_default(Dispatch::new(Lines(filter)));
    }
}

fn complain(what: std::fmt::Arguments<'_>) {
    Output::Stderr.write(Line::complaint(what).octets(), 0);
}

/// A subscriber that writes each event as a line. Spans are left out: events name their connection.
struct Lines(Filter);

impl Subscriber for Lines {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Besides spans and events there are questions: would such an event be logged?
        !metadata.is_span() && self.0.enables(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.0.most())
    }

    fn event(&self, event: &Event<'_>) {
        let dropped = output::dropped();
        output::current().write(Line::of(event, dropped).octets(), dropped);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
