//! The kernel's own RDMA devices: programs with libibverbs see them, and rddp uses those that it is
//! told to.

use std::fs;
use std::path::Path;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use rddp_command::device::Choice;
use rddp_command::units::about;
use rddp_verbs_device::{Device, DeviceError};

use super::finding::{Finding, Level, Topic};
use super::software;

/// Octets of locked memory that a server with some clients registers.
const LOCKED: u64 = 256 << 20;

/// The UDP port of iWARP port mappers (3935), as /proc/net/udp writes it.
const PORT_MAPPER: &str = ":0F5F";

pub(super) fn inspect(root: &Path) -> Vec<Finding> {
    let entries = fs::read_dir(root.join("sys/class/infiniband")).into_iter().flatten().flatten();
    let mut findings: Vec<_> = entries.filter_map(|entry| device(&entry.path())).collect();
    findings.sort_by(|one, other| one.subject.cmp(&other.subject));
    if findings.is_empty() {
        findings.push(Finding::ok(Topic::RdmaDevices, "devices", "none"));
    }
    findings.extend(by_libraries(Device::names()));
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
        "rddp --device NAME; a listener on it and one of software cannot have the same port, and peers may \
         connect to either"
    } else {
        "rddp --device NAME reaches programs that listen on such a device; software speaks iWARP alone"
    };
    let advice = advice.replace("NAME", name);
    Some(Finding::ok(Topic::RdmaDevices, name, value).but(Level::Note, advice))
}

/// Looks at the devices as the libraries have them. Without libraries there is one finding.
fn by_libraries(names: Result<Vec<String>, DeviceError>) -> Vec<Finding> {
    match names {
        Ok(names) if names.is_empty() => Vec::new(),
        Ok(names) => names.iter().flat_map(|name| look_at(name)).chain(lockable()).collect(),
        Err(error) => {
            let found = Finding::ok(Topic::RdmaDevices, "libraries", "none that could be used");
            vec![found.but(Level::Note, error.to_string())]
        }
    }
}

/// Returns what a device has, and what would keep rddp from using it.
fn look_at(name: &str) -> Vec<Finding> {
    let say =
        |subject: &str, value: String| Finding::ok(Topic::RdmaDevices, format!("{name} {subject}"), value);
    let opened = Choice::Named(name.to_owned()).open();
    let rnic = match opened {
        Ok(rnic) => rnic,
        Err(error) => {
            let advice = "who may use it: the rights of /dev/infiniband";
            return vec![say("device", format!("cannot be opened: {error}")).but(Level::Warn, advice)];
        }
    };
    let (limits, own) = (rnic.capabilities(), rnic.own_addresses().unwrap_or_default());
    let addresses: Vec<_> = own.iter().map(ToString::to_string).collect();
    let addresses = if own.is_empty() { "none".to_owned() } else { addresses.join(", ") };
    let is_active = Device::named(name).is_ok_and(|device| device.is_active());
    let port = if is_active { "active" } else { "down" };
    let mut findings = vec![
        say("transport", limits.protocol.to_string()),
        say("port", port.to_owned()).but_if(
            !is_active,
            Level::Warn,
            "nothing goes through it: is its interface up (ip link), and its cable in?",
        ),
        say("addresses", addresses).but_if(
            own.is_empty(),
            Level::Warn,
            "a device is reached by an address of its interface: ip address add (rdma link shows the interface)",
        ),
    ];
    findings.extend(software::findings(&limits, Topic::RdmaDevices, &format!("{name} ")));
    findings
}

/// Returns the limit of locked memory, where it would stop a server on a device.
fn lockable() -> Option<Finding> {
    let (soft, _) = getrlimit(Resource::RLIMIT_MEMLOCK).ok()?;
    (soft != RLIM_INFINITY && soft < LOCKED).then(|| {
        let value = format!("{}: registered memory is locked", about(soft));
        Finding::ok(Topic::RdmaDevices, "locked memory", value)
            .but(Level::Warn, "ulimit -l unlimited, or LimitMEMLOCK=infinity of a systemd unit")
    })
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
    fn without_libraries_there_is_one_line() {
        let absent = DeviceError::Library(rddp_verbs_device::LoadError::Absent {
            library: "libibverbs.so.1".to_owned(),
            why: "no such file".to_owned(),
        });
        let found = by_libraries(Err(absent));
        assert_eq!((found.len(), found[0].level), (1, Level::Note));
        assert!(found[0].advice.as_ref().unwrap().contains("install"));
        assert!(by_libraries(Ok(Vec::new())).is_empty());
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
