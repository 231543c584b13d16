//! Parsing of the words of a rule.

use core::time::Duration;

use super::{
    BadRule, CallEffect, Count, Fault, FaultOperation, FaultStatus, Moment, PortEffect, RequestEffect,
};
use crate::glob;

/// Parses the words of a rule.
pub(super) fn fault(words: &[&str]) -> Result<Fault, BadRule> {
    let mut words = Words::of(words)?;
    let fault = match words.place()? {
        "call" => call(&mut words),
        "op" => request(&mut words),
        "qp" => connection(&mut words),
        "port" => port(&mut words),
        _ => device(&mut words),
    }?;
    words.end().map(|()| fault)
}

fn call(words: &mut Words<'_>) -> Result<Fault, BadRule> {
    let functions = words.take("call", FUNCTION, function)?.ok_or(BadRule::NoPlace)?;
    let effect = match (words.take("errno", ERRNO, errno)?, words.take("delay", TIME, time)?) {
        (Some(_), Some(_)) => return Err(BadRule::Both("errno", "delay")),
        (Some(error), None) => CallEffect::Error(error),
        (None, Some(delay)) => CallEffect::Delay(delay),
        (None, None) => return Err(BadRule::Missing("what becomes of a call")),
    };
    Ok(Fault::Call { functions, count: count(words)?, effect })
}

fn request(words: &mut Words<'_>) -> Result<Fault, BadRule> {
    let (name, operation) = words.take("op", OPERATION, operation)?.ok_or(BadRule::NoPlace)?;
    let status = words.take("status", STATUS, status)?;
    let effect = match (status, words.take("delay", TIME, time)?, words.flag("drop")) {
        (Some(_), Some(_), _) => return Err(BadRule::Both("status", "delay")),
        (Some(_), _, true) => return Err(BadRule::Both("status", "drop")),
        (_, Some(_), true) => return Err(BadRule::Both("delay", "drop")),
        (Some((status, text)), ..) if !can_have(operation, status) => {
            return Err(BadRule::Status { operation: name, status: text.into() });
        }
        (Some((status, _)), ..) => RequestEffect::Status(status),
        (None, None, false) => return Err(BadRule::Missing("what becomes of a request")),
        _ if operation == FaultOperation::Recv => return Err(BadRule::Receive),
        (None, Some(delay), false) => RequestEffect::Delay(delay),
        (None, None, true) => RequestEffect::Drop,
    };
    Ok(Fault::Request { operation, qp: words.take("qp", PLACE, place)?, count: count(words)?, effect })
}

fn connection(words: &mut Words<'_>) -> Result<Fault, BadRule> {
    let qp = words.take("qp", PLACE, place)?.ok_or(BadRule::NoPlace)?;
    let moment = match (words.take("after", SIZE, size)?, words.take("at", TIME, time)?) {
        (Some(_), Some(_)) => return Err(BadRule::Both("after", "at")),
        (Some(octets), None) => Moment::After(octets),
        (None, Some(at)) => Moment::At(at),
        (None, None) => return Err(BadRule::Missing("when in the life of the queue pair")),
    };
    if !words.flag("reset") {
        return Err(BadRule::Missing("what becomes of a connection"));
    }
    Ok(Fault::Connection { qp, moment })
}

fn port(words: &mut Words<'_>) -> Result<Fault, BadRule> {
    words.flag("port");
    let effect = match (words.take("down", TIME, time)?, words.flag("gid")) {
        (Some(_), true) => return Err(BadRule::Both("down", "gid")),
        (Some(down), false) => PortEffect::Down(down),
        (None, true) => PortEffect::Gid,
        (None, false) => return Err(BadRule::Missing("what becomes of the port")),
    };
    Ok(Fault::Port { at: at(words)?, effect })
}

fn device(words: &mut Words<'_>) -> Result<Fault, BadRule> {
    words.flag("device");
    if !words.flag("fatal") {
        return Err(BadRule::Missing("what becomes of the device"));
    }
    Ok(Fault::Device { at: at(words)? })
}

fn at(words: &mut Words<'_>) -> Result<Duration, BadRule> {
    words.take("at", TIME, time)?.ok_or(BadRule::Missing("at which time"))
}

fn count(words: &mut Words<'_>) -> Result<Count, BadRule> {
    let (nth, every) = (words.take("nth", NTH, nth)?, words.take("every", NUMBER, positive)?);
    let (rate, seed) = (words.take("rate", RATE, rate)?, words.take("seed", SEED, |word| word.parse().ok())?);
    match (nth, every, rate) {
        (Some((first, last)), None, None) if seed.is_none() => Ok(Count::Nth(first, last)),
        (None, Some(every), None) if seed.is_none() => Ok(Count::Every(every)),
        (None, None, Some(of)) => Ok(Count::Rate { of, seed: seed.unwrap_or(0) }),
        (None, None, None) => Err(BadRule::Missing("when")),
        (Some(_), Some(_), _) => Err(BadRule::Both("nth", "every")),
        (_, _, Some(_)) => Err(BadRule::Both("rate", "nth or every")),
        _ => Err(BadRule::Word("seed".into())),
    }
}

/// The words of a rule, each with its value, which are taken one by one.
struct Words<'a>(Vec<(&'a str, Option<&'a str>)>);

impl<'a> Words<'a> {
    fn of(words: &[&'a str]) -> Result<Self, BadRule> {
        let mut all: Vec<(&str, Option<&str>)> = Vec::with_capacity(words.len());
        for word in words {
            let (name, value) =
                word.split_once('=').map_or((*word, None), |(name, value)| (name, Some(value)));
            if all.iter().any(|(other, _)| *other == name) {
                return Err(BadRule::Twice(name.into()));
            }
            all.push((name, value));
        }
        Ok(Words(all))
    }

    /// Returns the word that says where.
    fn place(&self) -> Result<&'static str, BadRule> {
        let has = |name: &&str| self.0.iter().any(|(word, _)| word == name);
        let mut found = ["call", "op", "port", "device"].into_iter().filter(has);
        match (found.next(), found.next()) {
            (Some(one), Some(other)) => Err(BadRule::Both(one, other)),
            (Some(place), None) => Ok(place),
            (None, _) if has(&"qp") => Ok("qp"),
            (None, _) => Err(BadRule::NoPlace),
        }
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|(word, _)| *word == name)
    }

    /// Takes a word with its value.
    fn take<T>(
        &mut self,
        name: &'static str,
        takes: &'static str,
        read: impl Fn(&'a str) -> Option<T>,
    ) -> Result<Option<T>, BadRule> {
        let Some(at) = self.position(name) else { return Ok(None) };
        let value = self.0.remove(at).1.ok_or(BadRule::Missing(name))?;
        let refused = || BadRule::Value { value: value.into(), word: name, takes };
        read(value).map(Some).ok_or_else(refused)
    }

    /// Takes a word without a value. Returns whether it was there.
    fn flag(&mut self, name: &str) -> bool {
        let at = self.0.iter().position(|word| *word == (name, None));
        at.map(|at| self.0.remove(at)).is_some()
    }

    /// Refuses what nobody has taken.
    fn end(self) -> Result<(), BadRule> {
        self.0.first().map_or(Ok(()), |(word, _)| Err(BadRule::Word((*word).into())))
    }
}

fn function(word: &str) -> Option<String> {
    (!word.is_empty() && glob::is_one(word.as_bytes())).then(|| word.into())
}

fn errno(word: &str) -> Option<String> {
    let is_one = word.starts_with('E') && word.len() > 1;
    let is_good = |letter: u8| letter.is_ascii_uppercase() || letter.is_ascii_digit();
    (is_one && word.bytes().all(is_good)).then(|| word.into())
}

fn operation(word: &str) -> Option<(&'static str, FaultOperation)> {
    OPERATIONS.into_iter().find(|(name, _)| *name == word)
}

fn status(word: &str) -> Option<(FaultStatus, &str)> {
    STATUSES.iter().find(|(name, _)| *name == word).map(|(_, status)| (*status, word))
}

/// Returns whether requests of a kind can have a status (InfiniBand Architecture, tables of
/// completion errors).
fn can_have(operation: FaultOperation, status: FaultStatus) -> bool {
    use FaultStatus as S;
    match (operation, status) {
        (FaultOperation::Recv, status) => matches!(status, S::LocalLength | S::LocalProtection),
        (_, S::LocalLength) => false,
        (FaultOperation::Send, status) => status != S::RemoteAccess,
        (_, status) => status != S::RnrRetryExceeded,
    }
}

fn place(word: &str) -> Option<u32> {
    word.parse().ok().filter(|place| *place > 0)
}

fn positive(word: &str) -> Option<u64> {
    word.parse().ok().filter(|number| *number > 0)
}

fn nth(word: &str) -> Option<(u64, u64)> {
    let (first, last) = word.split_once("..").unwrap_or((word, word));
    let (first, last) = (positive(first)?, positive(last)?);
    (first <= last).then_some((first, last))
}

fn rate(word: &str) -> Option<u64> {
    positive(word.strip_prefix("1/")?)
}

/// Returns a number and what is behind it.
fn number(word: &str) -> Option<(u64, &str)> {
    let end = word.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(word.len());
    let (digits, rest) = word.split_at(end);
    Some((digits.parse().ok()?, rest))
}

fn time(word: &str) -> Option<Duration> {
    let (number, unit) = number(word)?;
    let time = match unit {
        "us" => Duration::from_micros(number),
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        _ => return None,
    };
    (time <= DAY).then_some(time)
}

fn size(word: &str) -> Option<u64> {
    let (number, unit) = number(word)?;
    let octets = match unit {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(octets).filter(|octets| *octets > 0)
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

const OPERATIONS: [(&str, FaultOperation); 5] = [
    ("send", FaultOperation::Send),
    ("write", FaultOperation::Write),
    ("read", FaultOperation::Read),
    ("atomic", FaultOperation::Atomic),
    ("recv", FaultOperation::Recv),
];

const STATUSES: [(&str, FaultStatus); 8] = [
    ("LOC_LEN_ERR", FaultStatus::LocalLength),
    ("LOC_QP_OP_ERR", FaultStatus::LocalOperation),
    ("LOC_PROT_ERR", FaultStatus::LocalProtection),
    ("REM_INV_REQ_ERR", FaultStatus::RemoteInvalidRequest),
    ("REM_ACCESS_ERR", FaultStatus::RemoteAccess),
    ("REM_OP_ERR", FaultStatus::RemoteOperation),
    ("RETRY_EXC_ERR", FaultStatus::RetryExceeded),
    ("RNR_RETRY_EXC_ERR", FaultStatus::RnrRetryExceeded),
];

const FUNCTION: &str = "a function of libibverbs or librdmacm, or a pattern of * ? [a-z]; a [ needs its ]";
const ERRNO: &str = "a name of errno.h, for example ENOMEM";
const OPERATION: &str = "send, write, read, atomic or recv";
const STATUS: &str = "LOC_LEN_ERR, LOC_QP_OP_ERR, LOC_PROT_ERR, REM_INV_REQ_ERR, REM_ACCESS_ERR, REM_OP_ERR, \
                      RETRY_EXC_ERR or RNR_RETRY_EXC_ERR";
const PLACE: &str = "1 for the queue pair that is made first, 2 for the next, and so on";
const NTH: &str = "a number from 1 on, or two with .. between them, the lower one first";
const NUMBER: &str = "a number from 1 on";
const RATE: &str = "1/N, for one of N on average";
const SEED: &str = "a number";
const TIME: &str = "a number with us, ms or s behind it, a day at most: 20ms";
const SIZE: &str = "a number of octets, or one with K, M or G behind it: 1M";
