//! Events on standard error: those that `RDDP_LOG` asks for, or else `RUST_LOG`, or else `-v`.

use std::env::{VarError, var, var_os};
use std::ffi::OsString;
use std::io::IsTerminal;

use rddp_log::{Filter, VARIABLE, remedy};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::out;

/// Begins to print events. Nonsense in a variable is told, once, with what to write instead.
pub(crate) fn begin(verbose: u8) {
    let default = match verbose {
        0 => "error",
        1 => "info",
        _ => "debug",
    };
    let filter = match (asked(), var(EnvFilter::DEFAULT_ENV)) {
        (Some(filter), _) => EnvFilter::new(filter.to_string_lossy()),
        (None, Ok(text)) => chosen(&text, default),
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
