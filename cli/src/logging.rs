//! Events on standard error: those that `RDDP_LOG` asks for, or else `RUST_LOG`, or else `-v`; or
//! else warnings, each of them seldom.

use std::collections::HashMap;
use std::env::{VarError, var, var_os};
use std::ffi::OsString;
use std::fmt::{Debug, Write};
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use rddp_command::out;
use rddp_command::seldom::Seldom;
use rddp_log::{Filter, VARIABLE, remedy};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// Begins to print events. Nonsense in a variable is told, once, with what to write instead.
pub(crate) fn begin(verbose: u8) {
    let default = match verbose {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    let filter = match (asked(), var(EnvFilter::DEFAULT_ENV)) {
        (Some(filter), _) => EnvFilter::new(filter.to_string_lossy()),
        (None, Ok(text)) => chosen(&text, default),
        (None, Err(VarError::NotPresent)) if verbose == 0 => {
            tracing_subscriber::registry().with(Warnings::default().with_filter(LevelFilter::WARN)).init();
            return;
        }
        (None, Err(VarError::NotPresent)) => EnvFilter::new(default),
        (None, Err(VarError::NotUnicode(_))) => chosen("not UTF-8 =", default),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // An error of logging would be reported on standard error, and by a panic if that is
        // closed.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
}

/// Shows warnings as a server's lines are shown, and seldom, unless the user asks for all.
#[derive(Default)]
struct Warnings(Mutex<HashMap<Identifier, Seldom>>);

impl Warnings {
    /// Returns the end of an event's line, if it is to be shown.
    fn due(&self, kind: Identifier, now: Instant) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(kind).or_default().due(now)
    }
}

impl<S: Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if let Some(more) = self.due(event.metadata().callsite(), Instant::now()) {
            let mut text = Text::default();
            event.record(&mut text);
            out::server_warns(format_args!("{}{}{more}", text.message, text.fields));
        }
    }
}

/// The message of an event, and its fields behind it.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, "; {name}: {value:?}"),
        };
    }
}

/// Returns what `RDDP_LOG` asks for, and tells what is wrong in it.
fn asked() -> Option<OsString> {
    let text = var_os(VARIABLE).filter(|text| !text.is_empty())?;
    let (filter, faults) = Filter::parse(&text);
    for fault in faults {
        out::warn(format_args!("{VARIABLE}: {fault}; try: {}", remedy()));
    }
    Some(filter.to_string().into())
}

/// Returns the value of `RDDP_LOG` for a program that `rddp run` starts, so that what is wrong in
/// it is told here alone; without the variable, that of `-v`.
pub(crate) fn of_program(verbose: u8) -> Option<OsString> {
    let of_verbose = match verbose {
        0 => None,
        1 => Some("switch=info,rnic=info,verbs=info"),
        _ => Some("debug"),
    };
    match var_os(VARIABLE).filter(|text| !text.is_empty()) {
        Some(text) => Some(Filter::parse(&text).0.to_string().into()),
        None => of_verbose.map(OsString::from),
    }
}

/// Returns the filter that `RUST_LOG` asks for. A text with an error in it counts for nothing, and
/// what names neither a level nor a part of rddp is told of, since it shows nothing.
fn chosen(text: &str, default: &str) -> EnvFilter {
    let directives = text.split(',').map(str::trim).filter(|directive| !directive.is_empty());
    for name in directives.filter(|directive| !directive.contains(['=', '['])) {
        if name.parse::<LevelFilter>().is_err() && !name.starts_with("rddp") {
            out::warn(format_args!(
                "RUST_LOG: {name:?} is no level, and nothing of rddp has that name; {REMEDY}"
            ));
        }
    }
    EnvFilter::try_new(text).unwrap_or_else(|error| {
        out::warn(format_args!("RUST_LOG: {error}; it is ignored; {REMEDY}"));
        EnvFilter::new(default)
    })
}

const REMEDY: &str = "try: RUST_LOG=debug, or RUST_LOG=info,rddp_rnic=debug";
