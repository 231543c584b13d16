//! Settings of placement in the kernel (`docs/kernel-placement.md`): those of a policy's
//! `placement` line, and those of the environment.

use super::bad_line::Reason;
use super::keys::{self, Key, SWITCH, VariableFault, switch};

/// The level at which the payload of what a peer sends is put into its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlacementLevel {
    /// By the process.
    #[default]
    User,
    /// By the kernel where TCP would have to wait for a missing segment, else by the process.
    Auto,
    /// By the kernel.
    Kernel,
}

/// Settings of placement for a process; `None` where nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementSettings {
    /// The level of sockets in raw mode that choose none themselves.
    pub level: Option<PlacementLevel>,
    /// Names of the interfaces on which the kernel places.
    pub interfaces: Option<Vec<String>>,
    /// The peers on these interfaces are on this machine, and what they send is taken for sound
    /// where nobody has summed it.
    pub trusted: Option<bool>,
}

/// The level is the first: a line has it without a word.
const KEYS: [Key<PlacementSettings>; 3] = [
    Key {
        word: "placement",
        variable: "RDDP_PLACEMENT",
        takes: "user, auto or kernel",
        set: |settings, word| level(word).map(|level| settings.level = Some(level)),
    },
    Key {
        word: "interfaces",
        variable: "RDDP_PLACEMENT_INTERFACES",
        takes: "names of interfaces with commas between them",
        set: |settings, word| interfaces(word).map(|names| settings.interfaces = Some(names)),
    },
    Key {
        word: "trusted",
        variable: "RDDP_PLACEMENT_TRUSTED",
        takes: SWITCH,
        set: |settings, word| switch(word).map(|on| settings.trusted = Some(on)),
    },
];

impl PlacementSettings {
    /// Returns the settings that variables of the environment make, and the variables whose values
    /// they do not take. One without a value counts as not set.
    pub fn of_variables(variable: impl Fn(&str) -> Option<Vec<u8>>) -> (Self, Vec<VariableFault>) {
        keys::of_variables(&KEYS, variable)
    }

    /// Returns these settings, with those of `others` where nothing is said.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        PlacementSettings {
            level: self.level.or(others.level),
            interfaces: self.interfaces.or(others.interfaces),
            trusted: self.trusted.or(others.trusted),
        }
    }

    /// Parses what is behind the line's first word.
    pub(super) fn parse<'a>(words: &mut impl Iterator<Item = &'a str>) -> Result<Self, Reason> {
        let [level, others @ ..] = &KEYS;
        let mut settings = PlacementSettings::default();
        level.take(&mut settings, words.next().ok_or(Reason::Missing("level of placement"))?)?;
        let rest = keys::words(words);
        keys::take_all(
            others,
            &mut settings,
            rest,
            Reason::PlacementSetting,
            "value of placement's setting",
        )?;
        Ok(settings)
    }
}

fn level(word: &str) -> Option<PlacementLevel> {
    match word {
        "user" => Some(PlacementLevel::User),
        "auto" => Some(PlacementLevel::Auto),
        "kernel" => Some(PlacementLevel::Kernel),
        _ => None,
    }
}

/// The kernel's limit for the name of an interface (`IFNAMSIZ`), without the nul.
const MAX_NAME: usize = 15;

fn interfaces(words: &str) -> Option<Vec<String>> {
    let is_name = |name: &str| (1..=MAX_NAME).contains(&name.len()) && !name.contains(['/', ' ']);
    words.split(',').map(|name| is_name(name).then(|| name.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;

    fn kernel_on(interfaces: &[&str]) -> PlacementSettings {
        PlacementSettings {
            level: Some(PlacementLevel::Kernel),
            interfaces: Some(interfaces.iter().map(|name| (*name).to_owned()).collect()),
            trusted: None,
        }
    }

    #[test]
    fn a_line_sets_the_level_and_the_interfaces() {
        let settings = |text: &str| {
            let (policy, faults) = Policy::parse(text.as_bytes());
            assert_eq!(faults, [], "{text}");
            policy.placement().clone()
        };
        assert_eq!(settings("placement kernel interfaces=eth0,eth1"), kernel_on(&["eth0", "eth1"]));
        let trusted = PlacementSettings { trusted: Some(true), ..kernel_on(&["lo"]) };
        assert_eq!(settings("placement kernel trusted = on interfaces = lo # here"), trusted);
        // The last line that names a setting counts for it.
        let auto = PlacementSettings { level: Some(PlacementLevel::Auto), ..kernel_on(&["lo"]) };
        assert_eq!(settings("placement kernel interfaces=lo\nplacement auto"), auto);
        assert_eq!(settings("use ddp client * *:*"), PlacementSettings::default());
    }

    #[test]
    fn lines_that_make_no_sense_are_left_out_with_a_remedy() {
        let value = |setting, value: &str, takes| Reason::Value { value: value.into(), setting, takes };
        for (line, reason) in [
            ("placement", Reason::Missing("level of placement")),
            ("placement all", value("placement", "all", "user, auto or kernel")),
            ("placement auto on", Reason::PlacementSetting("on".into())),
            ("placement auto trusted", Reason::Missing("value of placement's setting")),
            ("placement auto trusted=yes", value("trusted", "yes", SWITCH)),
            ("placement auto interfaces=a,,b", value("interfaces", "a,,b", KEYS[1].takes)),
            ("placement auto interfaces=a/b", value("interfaces", "a/b", KEYS[1].takes)),
            ("placement auto interfaces=0123456789abcdef", {
                value("interfaces", "0123456789abcdef", KEYS[1].takes)
            }),
        ] {
            let (policy, faults) = Policy::parse(line.as_bytes());
            assert_eq!((policy, faults[0].reason.clone()), (Policy::default(), reason), "{line}");
            assert!(!faults[0].remedy().starts_with("write: use"), "{line}: {}", faults[0].remedy());
        }
        let (_, faults) = Policy::parse_libsdp(b"placement user");
        assert_eq!(faults[0].reason, Reason::Statement("placement".into()), "libsdp has no such line");
    }

    #[test]
    fn variables_come_before_the_policy_and_their_faults_are_named() {
        let variables = |of: &'static [(&str, &str)]| {
            PlacementSettings::of_variables(move |name| {
                of.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_bytes().to_vec())
            })
        };
        let (settings, faults) = variables(&[("RDDP_PLACEMENT", "auto"), ("RDDP_PLACEMENT_TRUSTED", "")]);
        assert!(faults.is_empty());
        let both = settings.or(kernel_on(&["eth0"]));
        assert_eq!((both.level, both.interfaces), (Some(PlacementLevel::Auto), Some(vec!["eth0".into()])));
        let (settings, faults) = variables(&[("RDDP_PLACEMENT", "yes")]);
        assert_eq!(settings, PlacementSettings::default());
        assert_eq!(faults[0].to_string(), "RDDP_PLACEMENT=yes: not a value of this variable");
        assert_eq!(faults[0].remedy(), "user, auto or kernel");
    }
}
