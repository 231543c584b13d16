//! Parsing of lines into rules. The crate's doc has the grammar.

use super::address::{Destination, digits};
use super::bad_line::{BadLine, Reason};
use super::faults::{FaultLine, FaultRule};
use super::placement::PlacementSettings;
use super::verbs::VerbsRule;
use super::{Family, Log, LogTo, NO_THRESHOLD, Policy, Rule, Side, Thresholds, glob};

/// The grammars of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// The grammar of the crate's doc.
    Own,
    /// The grammar of libsdp.
    Libsdp,
}

pub(super) fn parse(octets: &[u8], dialect: Dialect) -> (Policy, Vec<BadLine>) {
    let mut policy = Policy::default();
    let mut faults = Vec::new();
    for (number, line) in octets.split(|octet| *octet == b'\n').enumerate() {
        if let Err(reason) = parse_line(number + 1, line, dialect, &mut policy) {
            faults.push(BadLine { line: number + 1, reason });
        }
    }
    (policy, faults)
}

fn parse_line(number: usize, line: &[u8], dialect: Dialect, policy: &mut Policy) -> Result<(), Reason> {
    let code = line.split(|octet| *octet == b'#').next().unwrap_or_default();
    let code = std::str::from_utf8(code).map_err(|_| Reason::NotText)?;
    let mut words = code.split_ascii_whitespace();
    match words.next() {
        None => Ok(()),
        Some("use") => {
            policy.rules.push(Rule { line: Some(number), ..rule(&mut words, dialect)? });
            Ok(())
        }
        Some("log") => {
            // A line of the log counts as a whole or not at all.
            policy.log = log(&mut words, dialect, policy.log.clone())?;
            Ok(())
        }
        Some("threshold") => {
            policy.thresholds = thresholds(&mut words, policy.thresholds)?;
            Ok(())
        }
        Some("placement") if dialect == Dialect::Own => {
            policy.placement = PlacementSettings::parse(&mut words)?.or(policy.placement.clone());
            Ok(())
        }
        Some("verbs") if dialect == Dialect::Own => {
            policy.verbs.push(VerbsRule::parse(&mut words)?);
            Ok(())
        }
        Some("fault") if dialect == Dialect::Own => {
            let program = pattern(words.next().ok_or(Reason::Missing("program of the fault"))?)?;
            let rule = words.collect::<Vec<_>>().join(" ");
            policy.faults.push(FaultLine { program, rule: FaultRule::parse(&rule).map_err(Reason::Rule)? });
            Ok(())
        }
        Some(other) => Err(Reason::Statement(other.into())),
    }
}

fn rule<'a>(words: &mut impl Iterator<Item = &'a str>, dialect: Dialect) -> Result<Rule, Reason> {
    let family = match family(words.next().ok_or(Reason::Missing("family"))?)? {
        Family::Both if dialect == Dialect::Libsdp => Family::SdpOrTcp,
        family => family,
    };
    let side = side(words.next().ok_or(Reason::Missing("role"))?)?;
    let program = pattern(words.next().ok_or(Reason::Missing("program"))?)?;
    let destination = Destination::parse(words.next().ok_or(Reason::Missing("address"))?, dialect)?;
    match words.next() {
        Some(more) => Err(Reason::TooMuch(more.into())),
        None => Ok(Rule { line: None, family, side, program, destination }),
    }
}

/// Returns a pattern for the names of programs.
pub(super) fn pattern(word: &str) -> Result<Vec<u8>, Reason> {
    let is_one = glob::is_one(word.as_bytes()) && !word.contains('/');
    if is_one { Ok(word.into()) } else { Err(Reason::Program(word.into())) }
}

pub(super) fn family(word: &str) -> Result<Family, Reason> {
    match word {
        "tcp" => Ok(Family::Tcp),
        "ddp" => Ok(Family::Ddp),
        "both" | "auto" => Ok(Family::Both),
        "sdp" => Ok(Family::Sdp),
        "sdp-or-tcp" => Ok(Family::SdpOrTcp),
        _ => Err(Reason::Family(word.into())),
    }
}

fn side(word: &str) -> Result<Side, Reason> {
    match word {
        "server" | "listen" => Ok(Side::Server),
        "client" | "connect" => Ok(Side::Client),
        _ => Err(Reason::Role(word.into())),
    }
}

fn thresholds<'a>(
    words: &mut impl Iterator<Item = &'a str>,
    mut thresholds: Thresholds,
) -> Result<Thresholds, Reason> {
    let end = words.next().ok_or(Reason::Missing("end of a transfer"))?;
    let octets = words.next().ok_or(Reason::Missing("threshold"))?;
    let octets = Some(threshold(octets).ok_or_else(|| Reason::Threshold(octets.into()))?);
    match end {
        "source" => thresholds.source = octets,
        "sink" => thresholds.sink = octets,
        other => return Err(Reason::ThresholdOf(other.into())),
    }
    words.next().map_or(Ok(thresholds), |more| Err(Reason::TooMuch(more.into())))
}

pub(super) fn threshold(word: &str) -> Option<u32> {
    match word {
        "all" => Some(0),
        "none" => Some(NO_THRESHOLD),
        number => digits(number),
    }
}

fn log<'a>(words: &mut impl Iterator<Item = &'a str>, dialect: Dialect, mut log: Log) -> Result<Log, Reason> {
    while let Some(word) = words.next() {
        match word {
            "destination" => log.destination = destination(words, dialect)?,
            "min-level" => log.min_level = level(words.next().ok_or(Reason::Missing("level"))?)?,
            other => return Err(Reason::LogSetting(other.into())),
        }
    }
    Ok(log)
}

fn destination<'a>(words: &mut impl Iterator<Item = &'a str>, dialect: Dialect) -> Result<LogTo, Reason> {
    match words.next().ok_or(Reason::Missing("destination"))? {
        "stderr" => Ok(LogTo::Stderr),
        "syslog" => Ok(LogTo::Syslog),
        "file" => {
            let name = words.next().ok_or(Reason::Missing("name of the file"))?;
            // libsdp takes the last part of a path; here a path is refused, so that nobody looks
            // for the file in that folder.
            let name = match dialect {
                Dialect::Own => name,
                Dialect::Libsdp => name.rsplit('/').next().unwrap_or(name),
            };
            let plain = !name.contains('/') && !["", ".", ".."].contains(&name);
            if plain { Ok(LogTo::File(name.into())) } else { Err(Reason::LogFile(name.into())) }
        }
        other => Err(Reason::LogDestination(other.into())),
    }
}

fn level(word: &str) -> Result<u8, Reason> {
    let level = digits(word).filter(|level| (1..=9).contains(level));
    level.map(|level| level as u8).ok_or_else(|| Reason::LogLevel(word.into()))
}
