//! Network interfaces: the size of TCP's segments, and so of FPDUs, on them, and their offloads.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Serialize;

use super::finding::{Finding, Level, Topic};

/// Octets of the IPv4 and TCP headers, and of the timestamps that Linux puts into every segment.
const HEADERS: u32 = 40;
const TIMESTAMPS: u32 = 12;

/// The contents of the file `type` for the loopback interface (`ARPHRD_LOOPBACK`).
const LOOPBACK: &str = "772";

/// Octets of payload in a full-size Ethernet frame.
const ETHERNET: u32 = 1500;

/// An interface, for `--json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Interface {
    name: String,
    kind: InterfaceKind,
    /// The driver of a physical interface.
    driver: Option<String>,
    up: bool,
    mtu: u32,
    /// TCP's segment size over IPv4 (20 octets less over IPv6).
    mss: u32,
    /// Mb/s, where the driver reports it.
    speed: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum InterfaceKind {
    Loopback,
    Physical,
    Virtual,
}

pub(super) fn inspect(root: &Path) -> (Vec<Interface>, Vec<Finding>) {
    let interfaces = read_all(root);
    let mut findings: Vec<Finding> = interfaces.iter().map(finding).collect();
    let usable = |interface: &&Interface| interface.up && interface.kind != InterfaceKind::Loopback;
    for interface in interfaces.iter().filter(usable) {
        findings.push(offloads(&interface.name, ethtool(&interface.name).as_deref()));
    }
    if interfaces.is_empty() {
        let none = Finding::ok(Topic::Interfaces, "interfaces", "none to be seen in /sys/class/net");
        findings.push(none.but(Level::Warn, "in a container: mount /sys"));
    }
    (interfaces, findings)
}

fn read_all(root: &Path) -> Vec<Interface> {
    let timestamps = fs::read_to_string(root.join("proc/sys/net/ipv4/tcp_timestamps"));
    let timestamps = timestamps.map_or(true, |value| value.trim() != "0");
    let entries = fs::read_dir(root.join("sys/class/net")).into_iter().flatten().flatten();
    let mut interfaces: Vec<_> = entries.filter_map(|entry| read(&entry.path(), timestamps)).collect();
    interfaces.sort_by(|one, other| (!one.up, &one.name).cmp(&(!other.up, &other.name)));
    interfaces
}

fn read(path: &Path, timestamps: bool) -> Option<Interface> {
    let value = |name: &str| fs::read_to_string(path.join(name)).ok().map(|value| value.trim().to_owned());
    let mtu: u32 = value("mtu")?.parse().ok()?;
    let driver = fs::read_link(path.join("device/driver")).ok();
    let loopback = value("type").as_deref() == Some(LOOPBACK);
    // The state of loopback and of some virtual interfaces is "unknown": their flags tell.
    let up = match value("operstate").as_deref() {
        Some("up") => true,
        Some("unknown") => value("flags").is_some_and(|flags| is_up(&flags)),
        _ => false,
    };
    Some(Interface {
        name: path.file_name()?.to_str()?.to_owned(),
        kind: match () {
            () if loopback => InterfaceKind::Loopback,
            () if path.join("device").exists() => InterfaceKind::Physical,
            () => InterfaceKind::Virtual,
        },
        driver: driver.and_then(|driver| Some(driver.file_name()?.to_str()?.to_owned())),
        up,
        mtu,
        mss: mtu.saturating_sub(HEADERS + if timestamps { TIMESTAMPS } else { 0 }),
        speed: value("speed").and_then(|speed| speed.parse().ok()),
    })
}

/// Returns whether the hexadecimal flags have `IFF_UP`.
fn is_up(flags: &str) -> bool {
    u32::from_str_radix(flags.trim_start_matches("0x"), 16).is_ok_and(|flags| flags & 1 != 0)
}

fn finding(interface: &Interface) -> Finding {
    let Interface { name, kind, driver, up, mtu, mss, speed } = interface;
    let what = match (kind, driver) {
        (InterfaceKind::Loopback, _) => "loopback".to_owned(),
        (InterfaceKind::Physical, Some(driver)) => format!("physical ({driver})"),
        (InterfaceKind::Physical, None) => "physical".to_owned(),
        (InterfaceKind::Virtual, _) => "virtual".to_owned(),
    };
    if !up {
        return Finding::ok(Topic::Interfaces, name, format!("{what}, down"));
    }
    let speed_text = speed.map_or_else(String::new, |speed| format!(", {speed} Mb/s"));
    let value = format!("{what}{speed_text}, MTU {mtu}: TCP segments, and FPDUs, of up to {mss} octets");
    let fast = speed.is_some_and(|speed| speed >= 10_000);
    let small = *mtu < ETHERNET && *kind != InterfaceKind::Loopback;
    Finding::ok(Topic::Interfaces, name, value)
        .but_if(
            fast && *mtu <= ETHERNET,
            Level::Note,
            format!("jumbo frames, where all of the network has them, mean fewer FPDUs: ip link set {name} mtu 9000"),
        )
        .but_if(small, Level::Note, "smaller than Ethernet's 1500, most likely because of a tunnel: nothing to change here")
}

/// Returns the output of `ethtool -k`, where that program is installed.
fn ethtool(name: &str) -> Option<String> {
    let output = Command::new("ethtool").args(["-k", name]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The offloads that matter for trains of FPDUs: their names in ethtool's output and in its
/// options.
const OFFLOADS: [(&str, &str); 3] = [
    ("tcp-segmentation-offload", "tso"),
    ("generic-segmentation-offload", "gso"),
    ("generic-receive-offload", "gro"),
];

fn offloads(name: &str, ethtool: Option<&str>) -> Finding {
    let subject = format!("{name} offloads");
    let Some(text) = ethtool else {
        let unknown = Finding::ok(Topic::Interfaces, subject, "unknown");
        return unknown.but(Level::Note, "install ethtool to have them checked");
    };
    let state = |feature: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(feature)?.strip_prefix(':'));
        line.is_some_and(|state| state.trim().starts_with("on"))
    };
    let states: Vec<_> = OFFLOADS.iter().map(|(feature, short)| (*short, state(feature))).collect();
    let on = |on: bool| if on { "on" } else { "off" };
    let value: Vec<_> = states.iter().map(|(short, state)| format!("{short} {}", on(*state))).collect();
    let off: Vec<_> =
        states.iter().filter(|(_, state)| !state).map(|(short, _)| format!("{short} on")).collect();
    // Without TSO the kernel's GSO does nearly as well.
    let slow = states.iter().any(|(short, state)| *short != "tso" && !state);
    let advice =
        format!("each FPDU then costs as much as a TCP segment: ethtool -K {name} {}", off.join(" "));
    Finding::ok(Topic::Interfaces, subject, value.join(", ")).but_if(slow, Level::Warn, advice)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A /sys with these interfaces: name, type, state, flags, MTU, whether physical.
    fn host(interfaces: &[(&str, &str, &str, &str, &str, bool)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, kind, state, flags, mtu, physical) in interfaces {
            let path = root.path().join("sys/class/net").join(name);
            fs::create_dir_all(&path).unwrap();
            for (file, value) in [("type", kind), ("operstate", state), ("flags", flags), ("mtu", mtu)] {
                fs::write(path.join(file), format!("{value}\n")).unwrap();
            }
            if *physical {
                fs::create_dir(path.join("device")).unwrap();
                symlink("/sys/bus/pci/drivers/mlx5_core", path.join("device/driver")).unwrap();
                fs::write(path.join("speed"), "25000\n").unwrap();
            }
        }
        root
    }

    #[test]
    fn segments_are_what_the_mtu_leaves() {
        let root = host(&[
            ("lo", "772", "unknown", "0x9", "65536", false),
            ("eth0", "1", "up", "0x1003", "1500", true),
            ("tun0", "1", "up", "0x1003", "1400", false),
            ("eth1", "1", "down", "0x1002", "9000", true),
        ]);
        let interfaces = read_all(root.path());
        let found: Vec<_> = interfaces.iter().map(|i| (i.name.as_str(), i.kind, i.up, i.mss)).collect();
        assert_eq!(
            found,
            [
                ("eth0", InterfaceKind::Physical, true, 1448),
                ("lo", InterfaceKind::Loopback, true, 65_484),
                ("tun0", InterfaceKind::Virtual, true, 1348),
                ("eth1", InterfaceKind::Physical, false, 8948),
            ]
        );
        assert_eq!(interfaces[0].driver.as_deref(), Some("mlx5_core"));
        let advice = |at: usize| finding(&interfaces[at]).advice;
        assert!(advice(0).unwrap().contains("ip link set eth0 mtu 9000"));
        assert_eq!(advice(1), None);
        assert!(advice(2).unwrap().contains("tunnel"));
    }

    #[test]
    fn timestamps_cost_twelve_octets() {
        let root = host(&[("eth0", "1", "up", "0x1003", "1500", true)]);
        fs::create_dir_all(root.path().join("proc/sys/net/ipv4")).unwrap();
        fs::write(root.path().join("proc/sys/net/ipv4/tcp_timestamps"), "0\n").unwrap();
        assert_eq!(read_all(root.path())[0].mss, 1460);
    }

    #[test]
    fn offloads_that_are_off_are_named() {
        let text = "Features for eth0:\ntcp-segmentation-offload: off\n\ttx-tcp-segmentation: off\n\
                    generic-segmentation-offload: on\ngeneric-receive-offload: off [requested on]\n";
        let found = offloads("eth0", Some(text));
        assert_eq!((found.value.as_str(), found.level), ("tso off, gso on, gro off", Level::Warn));
        assert!(found.advice.unwrap().ends_with("ethtool -K eth0 tso on gro on"));
        assert_eq!(offloads("eth0", None).level, Level::Note);
    }

    #[test]
    fn a_host_without_sys_has_a_warning() {
        let (interfaces, findings) = inspect(Path::new("/nonexistent"));
        assert!(interfaces.is_empty());
        assert_eq!(findings[0].level, Level::Warn);
    }
}
