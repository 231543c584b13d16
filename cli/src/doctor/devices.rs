//! The kernel's own RDMA devices: programs with libibverbs see them, and rddp does not use them.

use std::fs;
use std::path::Path;

use super::finding::{Finding, Level, Topic};

/// The UDP port of iWARP port mappers (3935), as /proc/net/udp writes it.
const PORT_MAPPER: &str = ":0F5F";

pub(super) fn inspect(root: &Path) -> Vec<Finding> {
    let entries = fs::read_dir(root.join("sys/class/infiniband")).into_iter().flatten().flatten();
    let mut findings: Vec<_> = entries.filter_map(|entry| device(&entry.path())).collect();
    findings.sort_by(|one, other| one.subject.cmp(&other.subject));
    if findings.is_empty() {
        findings.push(Finding::ok(Topic::RdmaDevices, "devices", "none"));
    }
    if has_port_mapper(root) {
        let found = Finding::ok(Topic::RdmaDevices, "port mapper (UDP 3935)", "runs on this host");
        findings.push(
            found
                .but(Level::Note, "it maps ports of RNICs; rddp's listeners are on the ports that they name"),
        );
    }
    findings
}

fn device(path: &Path) -> Option<Finding> {
    let name = path.file_name()?.to_str()?;
    let value = |file: &str| fs::read_to_string(path.join(file)).ok().map(|value| value.trim().to_owned());
    let driver = fs::read_link(path.join("device/driver")).ok();
    let driver = driver.and_then(|driver| Some(driver.file_name()?.to_str()?.to_owned()));
    // Software devices have a parent interface and no driver.
    let made_of = driver.map(|driver| format!("driver {driver}"));
    let made_of = made_of.or_else(|| value("parent").map(|parent| format!("software, on {parent}")));
    let iwarp = value("node_type").is_some_and(|kind| kind.contains("RNIC"));
    let speaks = if iwarp { "iWARP" } else { "InfiniBand or RoCE" };
    let value = [Some(speaks.to_owned()), made_of].into_iter().flatten().collect::<Vec<_>>().join(", ");
    let advice = if iwarp {
        "a listener on it and one of rddp's cannot have the same port; peers may connect to either"
    } else {
        "does not speak iWARP: rddp cannot reach programs that listen on it"
    };
    Some(Finding::ok(Topic::RdmaDevices, name, value).but(Level::Note, advice))
}

fn has_port_mapper(root: &Path) -> bool {
    ["proc/net/udp", "proc/net/udp6"].iter().any(|file| {
        let table = fs::read_to_string(root.join(file)).unwrap_or_default();
        table
            .lines()
            .any(|line| line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(PORT_MAPPER)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_with_what_they_speak() {
        let root = tempfile::tempdir().unwrap();
        for (name, file, value) in
            [("siw0", "node_type", "4: RNIC"), ("siw0", "parent", "eth0"), ("rxe0", "node_type", "1: CA")]
        {
            let path = root.path().join("sys/class/infiniband").join(name);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join(file), format!("{value}\n")).unwrap();
        }
        let found = inspect(root.path());
        assert_eq!((found[0].subject.as_str(), found[0].value.as_str()), ("rxe0", "InfiniBand or RoCE"));
        assert_eq!(
            (found[1].subject.as_str(), found[1].value.as_str()),
            ("siw0", "iWARP, software, on eth0")
        );
    }

    #[test]
    fn a_port_mapper_is_seen_by_its_port() {
        let root = tempfile::tempdir().unwrap();
        assert!(!has_port_mapper(root.path()));
        fs::create_dir_all(root.path().join("proc/net")).unwrap();
        let table = "  sl  local_address rem_address\n   1: 00000000:0F5F 00000000:0000 07\n";
        fs::write(root.path().join("proc/net/udp"), table).unwrap();
        assert!(has_port_mapper(root.path()));
    }
}
