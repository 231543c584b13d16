//! Filters in the form of `RUST_LOG`.

use std::ffi::OsStr;
use std::fmt;

use thiserror::Error;
use tracing::Metadata;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

use crate::VARIABLE;

/// Names of levels, from the fewest lines to the most.
pub const LEVELS: &str = "off, error, warn, info, debug, trace";
/// The parts of rddp that log.
pub const PARTS: [&str; 3] = ["rnic", "switch", "verbs"];

/// A choice of events to log: a level for all, and levels for parts (`info,rnic::startup=debug`).
///
/// A directive is a level, a part of rddp, or `PART=LEVEL`; a part without a level is logged whole.
/// A part is `rnic`, `switch` or `verbs`, or something in it, as `rnic::train`; `rddp_rnic` is the
/// same as `rnic`. The directive that names the most counts.
#[derive(Clone, Debug, Default)]
pub struct Filter(Targets);

/// An error in a filter: the directive is left out, and the others count.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// The text is not UTF-8.
    #[error("not UTF-8; nothing is logged")]
    NotText,
    /// A word that is neither.
    #[error("{0:?} is neither a level nor a part of rddp that logs; it is left out")]
    Word(String),
    /// The word behind `=`.
    #[error("{level:?} in {directive:?} is no level; it is left out")]
    Level {
        /// The directive as a whole.
        directive: String,
        /// The word that is wrong in it.
        level: String,
    },
}

/// Returns the remedy for all faults in a filter.
pub fn remedy() -> String {
    let parts = PARTS.join(", ");
    format!("{VARIABLE}=info, or {VARIABLE}=rnic=debug,switch=info; levels: {LEVELS}; parts: {parts}")
}

impl Filter {
    /// Parses the value of a variable. Returns the filter, and an error for each directive that was
    /// left out.
    pub fn parse(text: &OsStr) -> (Self, Vec<Fault>) {
        let Some(text) = text.to_str() else { return (Self::default(), vec![Fault::NotText]) };
        let (mut targets, mut faults) = (Targets::new(), Vec::new());
        for directive in text.split(',').map(str::trim).filter(|directive| !directive.is_empty()) {
            match parse_one(directive) {
                Ok((None, level)) => targets = targets.with_default(level),
                Ok((Some(part), level)) => targets = targets.with_target(full_name(part), level),
                Err(fault) => faults.push(fault),
            }
        }
        (Filter(targets), faults)
    }

    /// Returns whether events with this description are logged.
    pub(crate) fn enables(&self, metadata: &Metadata<'_>) -> bool {
        self.0.would_enable(metadata.target(), metadata.level())
    }

    /// Returns the greatest level of any directive.
    pub(crate) fn most(&self) -> LevelFilter {
        let all = self.0.iter().map(|(_, level)| level).chain(self.0.default_level());
        all.max().unwrap_or(LevelFilter::OFF)
    }
}

/// The filter in its own form, with full names.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Parses a directive, into the part if it names one, and the level.
fn parse_one(directive: &str) -> Result<(Option<&str>, LevelFilter), Fault> {
    let (part, level) = match directive.split_once('=') {
        Some((part, level)) => (part.trim(), Some(level.trim())),
        None => match level(directive) {
            Some(level) => return Ok((None, level)),
            None => (directive, None),
        },
    };
    if !is_part(part) {
        return Err(Fault::Word(part.to_owned()));
    }
    let Some(word) = level else { return Ok((Some(part), LevelFilter::TRACE)) };
    let wrong = || Fault::Level { directive: directive.to_owned(), level: word.to_owned() };
    Ok((Some(part), self::level(word).ok_or_else(wrong)?))
}

fn level(word: &str) -> Option<LevelFilter> {
    // An empty word would be a level, too.
    word.parse().ok().filter(|_| !word.is_empty())
}

fn is_part(name: &str) -> bool {
    let first = name.split("::").next().unwrap_or(name);
    first == "rddp" || PARTS.contains(&first.strip_prefix(PREFIX).unwrap_or(first))
}

/// Returns the name that events have: that of a crate, and what is in it.
fn full_name(part: &str) -> String {
    if part.starts_with("rddp") { part.to_owned() } else { format!("{PREFIX}{part}") }
}

const PREFIX: &str = "rddp_";

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    fn parsed(text: &str) -> (Filter, Vec<Fault>) {
        Filter::parse(OsStr::new(text))
    }

    #[test]
    fn parts_have_levels_of_their_own_by_short_and_full_names() {
        let (filter, faults) = parsed("warn, rnic=debug,rddp_switch=info,rnic::train=off");
        assert_eq!(faults, []);
        let enables = |target, level| filter.0.would_enable(target, &level);
        assert!(enables("rddp_rnic::startup", Level::DEBUG));
        assert!(!enables("rddp_rnic::startup", Level::TRACE));
        assert!(!enables("rddp_rnic::train", Level::ERROR));
        assert!(enables("rddp_switch", Level::INFO));
        assert!(enables("rddp_verbs", Level::WARN) && !enables("rddp_verbs", Level::INFO));
        // Devices of the host are of this part, too.
        assert!(enables("rddp_verbs_device::endpoint", Level::WARN));
        assert!(parsed("verbs=info").0.0.would_enable("rddp_verbs_device::endpoint", &Level::INFO));
        assert_eq!(filter.most(), LevelFilter::DEBUG);
        assert_eq!(parsed("rnic").0.most(), LevelFilter::TRACE);
        assert_eq!(parsed(&filter.to_string()).1, [], "{filter}");
    }

    #[test]
    fn nonsense_is_left_out_and_told() {
        let (filter, faults) = parsed("debgu,rnic=loud,nonsense=info,[span]=info,rnic=,switch=info");
        let level =
            |directive: &str, level: &str| Fault::Level { directive: directive.into(), level: level.into() };
        let word = |word: &str| Fault::Word(word.into());
        let told =
            [word("debgu"), level("rnic=loud", "loud"), word("nonsense"), word("[span]"), level("rnic=", "")];
        assert_eq!(faults, told);
        assert_eq!(filter.most(), LevelFilter::INFO);
        assert_eq!(parsed("nonsense").0.most(), LevelFilter::OFF);
        let octets = std::os::unix::ffi::OsStrExt::from_bytes(b"inf\xff");
        assert_eq!(Filter::parse(octets).1, [Fault::NotText]);
        assert_eq!(parsed("").1, []);
    }
}
