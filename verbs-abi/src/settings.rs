//! Settings of connections, which the environment and the policy file make.
//!
//! The variables `RDDP_VERBS_*` hold for all connections; `RDDP_POLICY` names a file whose `verbs`
//! lines hold for those with some peers. A variable counts before a line. Where either makes no
//! sense, it is told once with a remedy, and no device opens: a program does not run with other
//! settings than its user meant.

use std::ffi::OsStr;
use std::fmt;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rddp_policy::{FaultRule, Policy, RtrKinds, VerbsSettings};
use rddp_rnic::{ConnectOptions, Revision, RtrSet};

use crate::faults;
use crate::refusal::complain;

/// The variable that names a policy file.
const POLICY: &str = "RDDP_POLICY";

/// The settings of a program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    of_variables: VerbsSettings,
    policy: Policy,
    program: Vec<u8>,
    /// The program's devices are as strict as hardware.
    pub(crate) strict: bool,
    /// Faults on demand: those of the variable, and then those of lines.
    faults: Vec<FaultRule>,
}

/// Faults in the settings: lines for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Faults(Vec<String>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| writeln!(f, "rddp: {line}"))
    }
}

impl Settings {
    /// Reads the settings of `program`, from its environment and the file that this names.
    pub(crate) fn read(
        program: &[u8],
        variable: impl Fn(&str) -> Option<Vec<u8>>,
    ) -> Result<Settings, Faults> {
        let (of_variables, faults) = VerbsSettings::of_variables(&variable);
        let strict = VerbsSettings::is_strict(&variable);
        let faults = faults.iter().chain(strict.as_ref().err());
        let mut lines: Vec<_> = faults.map(|fault| told(fault, fault.remedy())).collect();
        let path = variable(POLICY).filter(|path| !path.is_empty());
        let policy = match path {
            Some(path) => policy(Path::new(OsStr::from_bytes(&path)), &mut lines),
            None => Policy::default(),
        };
        let faults = demanded(program, variable(FaultRule::VARIABLE), &policy, &mut lines);
        if lines.is_empty() {
            let strict = strict.unwrap_or_default();
            Ok(Settings { of_variables, policy, program: program.to_vec(), strict, faults })
        } else {
            Err(Faults(lines))
        }
    }

    /// Tells the user what is wrong.
    pub(crate) fn tell(faults: &Faults) {
        complain(&faults.to_string());
    }

    /// Returns whether any connection may use the extensions of RFC 7306.
    pub(crate) fn may_give_extensions(&self) -> bool {
        self.of_variables.extensions.unwrap_or_else(|| self.policy.may_give_extensions(&self.program))
    }

    /// Returns the rules of faults on demand.
    pub(crate) fn faults(&self) -> &[FaultRule] {
        &self.faults
    }

    /// Returns whether connections with this peer are to have a CRC, if anything says so.
    pub(crate) fn crc(&self, peer: SocketAddr) -> Option<bool> {
        self.of_variables.or(self.policy.verbs(&self.program, peer)).crc
    }

    /// Returns the options of a connection with `peer`, whose port is that of the server. Its
    /// depths are the most that the settings allow.
    pub(crate) fn options(&self, peer: SocketAddr, most: u8) -> ConnectOptions {
        let said = self.of_variables.or(self.policy.verbs(&self.program, peer));
        let usual = ConnectOptions::default();
        ConnectOptions {
            revision: if said.mpa == Some(1) { Revision::One } else { usual.revision },
            crc: said.crc.unwrap_or(usual.crc),
            markers: said.markers.unwrap_or(usual.markers),
            peer_to_peer: said.peer_to_peer.unwrap_or(usual.peer_to_peer),
            rtr: said.rtr.map_or(usual.rtr, |RtrKinds { send, write, read }| RtrSet { send, write, read }),
            ird: said.ird.unwrap_or(most).into(),
            ord: said.ord.unwrap_or(most).into(),
            // RFC 7306 has no capability bit, and peers without it end the connection.
            extensions: said.extensions.unwrap_or(false),
            speaks_first: said.speaks_first.unwrap_or(usual.speaks_first),
            large_fpdus: said.large_fpdus.unwrap_or(usual.large_fpdus),
            ..usual
        }
    }
}

/// Returns the rules of faults on demand: those of the variable, and then those of lines.
fn demanded(
    program: &[u8],
    variable: Option<Vec<u8>>,
    policy: &Policy,
    lines: &mut Vec<String>,
) -> Vec<FaultRule> {
    let name = FaultRule::VARIABLE;
    let (mut rules, bad) = FaultRule::list(&String::from_utf8_lossy(&variable.unwrap_or_default()));
    lines.extend(bad.iter().map(|bad| told(format_args!("{name}: {bad}"), bad.remedy())));
    rules.extend(policy.faults(program).cloned());
    let unfit = rules.iter().filter_map(|rule| Some((rule, faults::check(rule)?)));
    lines.extend(unfit.map(|(rule, (what, remedy))| told(format_args!("fault {rule}: {what}"), remedy)));
    rules
}

/// Reads a policy. A fault in any line counts: a line that begins no other may be meant for here.
fn policy(path: &Path, lines: &mut Vec<String>) -> Policy {
    match std::fs::read(path) {
        Ok(octets) => {
            let (policy, faults) = Policy::parse(&octets);
            let at = |fault| format!("{}: {fault}", path.display());
            lines.extend(faults.iter().map(|fault| told(at(fault), fault.remedy())));
            policy
        }
        Err(error) => {
            lines.push(told(format_args!("{}: {error}", path.display()), "name a policy file, or none"));
            Policy::default()
        }
    }
}

fn told(what: impl fmt::Display, remedy: &str) -> String {
    format!("{what}; the RDMA device is not opened; try: {remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, Faults> {
        Settings::read(b"rping", |name| {
            let found = pairs.iter().find(|(one, _)| *one == name);
            found.map(|(_, value)| value.as_bytes().to_vec())
        })
    }

    fn options(settings: &Settings, peer: &str) -> ConnectOptions {
        settings.options(peer.parse().unwrap(), 128)
    }

    /// Writes a policy, under a name of this process's own.
    fn file(name: &str, text: &str) -> String {
        let path = std::env::temp_dir().join(format!("rddp-verbs-{name}-{}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    #[test]
    fn without_settings_extensions_are_off_and_depths_the_most() {
        let settings = read(&[]).unwrap();
        let options = options(&settings, "192.0.2.1:7174");
        assert!(!options.extensions && !settings.may_give_extensions());
        assert_eq!((options.ird, options.ord, options.revision), (128, 128, Revision::Two));
        assert!(options.crc && !options.markers && options.peer_to_peer);
        assert!(!options.speaks_first && !options.large_fpdus && !settings.strict);
    }

    #[test]
    fn each_setting_has_its_effect() {
        let settings = read(&[
            ("RDDP_VERBS_MPA", "1"),
            ("RDDP_VERBS_CRC", "off"),
            ("RDDP_VERBS_MARKERS", "1"),
            ("RDDP_VERBS_PEER_TO_PEER", "0"),
            ("RDDP_VERBS_RTR", "send"),
            ("RDDP_VERBS_IRD", "3"),
            ("RDDP_VERBS_ORD", "2"),
            ("RDDP_VERBS_EXTENSIONS", "on"),
            ("RDDP_VERBS_SPEAKS_FIRST", "on"),
            ("RDDP_VERBS_LARGE_FPDUS", "1"),
            ("RDDP_VERBS_STRICT", "on"),
        ]);
        let settings = settings.unwrap();
        let options = options(&settings, "192.0.2.1:7174");
        assert_eq!((options.ird, options.ord, options.revision), (3, 2, Revision::One));
        assert_eq!((options.crc, options.markers, options.peer_to_peer), (false, true, false));
        assert_eq!(options.rtr, RtrSet { send: true, write: false, read: false });
        assert!(options.extensions && settings.may_give_extensions());
        assert!(options.speaks_first && options.large_fpdus && settings.strict);
    }

    #[test]
    fn a_policy_sets_for_its_peers_and_a_variable_counts_before_it() {
        let path = file("peers", "verbs rping 192.0.2.0/24:* extensions=on crc=off\nuse ddp client * *:*\n");
        let settings = read(&[(POLICY, &path), ("RDDP_VERBS_CRC", "1")]).unwrap();
        let near = options(&settings, "192.0.2.1:7174");
        assert!(near.extensions && near.crc && settings.may_give_extensions());
        assert!(!options(&settings, "198.51.100.1:7174").extensions);
        let settings = read(&[(POLICY, &path), ("RDDP_VERBS_EXTENSIONS", "0")]).unwrap();
        assert!(!settings.may_give_extensions());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn faults_on_demand_are_those_of_the_variable_and_of_the_programs_lines() {
        let path = file("demand", "fault rping device at=1s fatal\nfault fio port at=1s gid\n");
        let settings = read(&[(POLICY, &path), (FaultRule::VARIABLE, "call=rdma_* nth=1 errno=EIO")]);
        std::fs::remove_file(path).unwrap();
        let rules: Vec<_> = settings.unwrap().faults().iter().map(ToString::to_string).collect();
        assert_eq!(rules, ["call=rdma_* nth=1 errno=EIO", "device at=1s fatal"]);
    }

    #[test]
    fn faults_are_told_with_their_remedies() {
        let path = file("faults", "verbs * *:* crc=yes\n");
        let said = read(&[(POLICY, &path), ("RDDP_VERBS_IRD", "many")]).unwrap_err().to_string();
        std::fs::remove_file(&path).unwrap();
        let refused = "; the RDMA device is not opened; try: ";
        let first = "rddp: RDDP_VERBS_IRD=many: not a value of this variable";
        let wanted = format!(
            "{first}{refused}a number from 0 to 128\n\
             rddp: {path}: line 1: \"yes\" is no value of crc{refused}on or off (or 1, or 0)\n"
        );
        assert_eq!(said, wanted);
        let said = read(&[("RDDP_VERBS_STRICT", "yes")]).unwrap_err().to_string();
        assert!(said.ends_with("try: on or off (or 1, or 0)\n"), "{said}");
        let of_faults = |text| read(&[(FaultRule::VARIABLE, text)]).unwrap_err().to_string();
        let said = of_faults("op=recv nth=1 drop; call=ibv_nothing nth=1 errno=EIO");
        assert!(said.starts_with("rddp: RDDP_VERBS_FAULTS: a receive is not late"), "{said}");
        assert!(said.contains("rddp: fault call=ibv_nothing nth=1 errno=EIO: no function"), "{said}");
        let said = read(&[(POLICY, "/nonexistent/policy")]).unwrap_err().to_string();
        assert!(said.starts_with("rddp: /nonexistent/policy: No such file"), "{said}");
    }
}
