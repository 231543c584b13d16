//! Settings that have a word in a policy and a variable in the environment.

use core::fmt;

use super::bad_line::Reason;

/// A setting in `S`: its word in a policy, its variable, and the values it takes.
pub(super) struct Key<S> {
    pub(super) word: &'static str,
    pub(super) variable: &'static str,
    pub(super) takes: &'static str,
    pub(super) set: fn(&mut S, &str) -> Option<()>,
}

impl<S> Key<S> {
    /// Takes a value of a policy.
    pub(super) fn take(&self, settings: &mut S, value: &str) -> Result<(), Reason> {
        let refused = || Reason::Value { value: value.into(), setting: self.word, takes: self.takes };
        (self.set)(settings, value).ok_or_else(refused)
    }
}

/// Returns the settings that variables of the environment make, and the variables whose values they
/// do not take. One without a value counts as not set.
pub(super) fn of_variables<S: Default>(
    keys: &[Key<S>],
    variable: impl Fn(&str) -> Option<Vec<u8>>,
) -> (S, Vec<VariableFault>) {
    let (mut settings, mut faults) = (S::default(), Vec::new());
    for key in keys {
        let Some(value) = variable(key.variable).filter(|value| !value.is_empty()) else { continue };
        let text = std::str::from_utf8(&value).ok();
        if text.and_then(|word| (key.set)(&mut settings, word)).is_none() {
            faults.push(VariableFault::new(key.variable, &value, key.takes));
        }
    }
    (settings, faults)
}

/// Returns the words of settings, each with its value behind it. Blanks around the = are as good as
/// none.
pub(super) fn words<'a>(words: &mut impl Iterator<Item = &'a str>) -> impl Iterator<Item = &'a str> {
    words.flat_map(|word| word.split('=')).filter(|word| !word.is_empty())
}

/// Takes all settings of a line.
pub(super) fn take_all<'a, S>(
    keys: &[Key<S>],
    settings: &mut S,
    mut words: impl Iterator<Item = &'a str>,
    unknown: fn(String) -> Reason,
    missing: &'static str,
) -> Result<(), Reason> {
    while let Some(word) = words.next() {
        let key = keys.iter().find(|key| key.word == word).ok_or_else(|| unknown(word.into()))?;
        key.take(settings, words.next().ok_or(Reason::Missing(missing))?)?;
    }
    Ok(())
}

/// A variable of the environment with a value that it does not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableFault {
    variable: &'static str,
    value: String,
    takes: &'static str,
}

impl VariableFault {
    pub(super) fn new(variable: &'static str, value: &[u8], takes: &'static str) -> Self {
        VariableFault { variable, value: String::from_utf8_lossy(value).into_owned(), takes }
    }

    /// Returns what the variable takes.
    pub fn remedy(&self) -> &'static str {
        self.takes
    }
}

impl fmt::Display for VariableFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}: not a value of this variable", self.variable, self.value)
    }
}

pub(super) const SWITCH: &str = "on or off (or 1, or 0)";

pub(super) fn switch(word: &str) -> Option<bool> {
    match word {
        "on" | "1" => Some(true),
        "off" | "0" => Some(false),
        _ => None,
    }
}
