//! Warnings of a server in trouble: shown whatever `-v`, and seldom enough that a crowd of clients
//! cannot fill the operator's log.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};

use rddp_command::failure::{Failure, printable_name};
use rddp_command::seldom::Seldom;

#[derive(Default)]
pub(super) struct Warnings {
    away: Mutex<Seldom>,
    refused: Mutex<Seldom>,
    waits: Mutex<Seldom>,
    memory: Mutex<Seldom>,
}

impl Warnings {
    /// Warns that a client was turned away.
    pub(super) fn turned_away(&self, cause: &dyn Display) {
        warn(&self.away, format_args!("a client is turned away: {cause}"));
    }

    /// Warns that a client was told, at its greeting, that it is no client of this server.
    pub(super) fn refused(&self, peer: &str, reason: &str) {
        warn(&self.refused, format_args!("{peer}: refused, and told: {reason}"));
    }

    /// Warns that there is no memory for the strategy that was asked for.
    pub(super) fn no_memory(&self, file: &str, strategy: &str) {
        let name = printable_name(file);
        warn(&self.memory, format_args!("{name}: no memory for the strategy {strategy}: given by another"));
    }

    /// Warns that a thread cannot wait for completions.
    pub(super) fn cannot_wait(&self, failure: &Failure) {
        warn(&self.waits, format_args!("{failure}"));
    }
}

/// Shows a warning, unless one of its kind was shown just now.
fn warn(kind: &Mutex<Seldom>, text: std::fmt::Arguments<'_>) {
    kind.lock().unwrap_or_else(PoisonError::into_inner).warn(text);
}
