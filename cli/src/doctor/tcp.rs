//! The kernel's TCP settings.

use std::fs;
use std::path::Path;

use rddp_command::units::about;

use super::finding::{Finding, Level, Topic};

/// The buffer size below which one connection does not fill a fast or a long path.
const BUFFER: u64 = 4 << 20;

/// Connections that the kernel keeps ready for a listener; rddp asks for this many.
const BACKLOG: u64 = 1024;

/// A number of local ports; fewer are used up by a client with many connections.
const PORTS: u64 = 16_384;

pub(super) fn inspect(root: &Path) -> Vec<Finding> {
    let sys = root.join("proc/sys/net");
    let read = |name: &str| fs::read_to_string(sys.join(name)).ok();
    let numbers = |name: &str| -> Option<Vec<u64>> {
        read(name)?.split_whitespace().map(|number| number.parse().ok()).collect()
    };
    let first = |name: &str| numbers(name)?.first().copied();
    let mut findings = Vec::new();
    for (name, what) in [("tcp_wmem", "sent"), ("tcp_rmem", "received")] {
        if let Some(&[min, default, max]) = numbers(&format!("ipv4/{name}")).as_deref() {
            findings.push(buffers(name, what, (min, default, max)));
        }
    }
    for name in ["wmem_max", "rmem_max"] {
        if let Some(max) = first(&format!("core/{name}")) {
            let value = format!("{}; has no effect: rddp leaves buffers to TCP", about(max));
            findings.push(Finding::ok(Topic::Tcp, format!("net.core.{name}"), value));
        }
    }
    if let Some(max) = first("core/somaxconn") {
        let advice = format!(
            "many connections at the same moment are made to wait: sysctl -w net.core.somaxconn={BACKLOG}"
        );
        let found = Finding::ok(Topic::Tcp, "net.core.somaxconn", max.to_string());
        findings.push(found.but_if(max < BACKLOG, Level::Note, advice));
    }
    if let Some(&[from, to]) = numbers("ipv4/ip_local_port_range").as_deref() {
        let advice =
            "a client with many connections runs out: sysctl -w net.ipv4.ip_local_port_range='10240 65535'";
        let found = Finding::ok(Topic::Tcp, "local ports", format!("{from} to {to}"));
        findings.push(found.but_if(to.saturating_sub(from) < PORTS, Level::Note, advice));
    }
    if let Some(algorithm) = read("ipv4/tcp_congestion_control") {
        findings.push(Finding::ok(Topic::Tcp, "congestion control", algorithm.trim()));
    }
    findings
}

fn buffers(name: &str, what: &str, (min, default, max): (u64, u64, u64)) -> Finding {
    let value = format!("up to {} may wait to be {what} on a connection", about(max));
    let advice = format!(
        "more lets one connection fill a long path: sysctl -w net.ipv4.{name}='{min} {default} {BUFFER}'"
    );
    Finding::ok(Topic::Tcp, format!("net.ipv4.{name}"), value).but_if(max < BUFFER, Level::Warn, advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_buffers_are_named_with_what_to_set() {
        assert_eq!(buffers("tcp_wmem", "sent", (4096, 16_384, 4 << 20)).level, Level::Ok);
        let small = buffers("tcp_wmem", "sent", (4096, 16_384, 65_536));
        assert_eq!(small.level, Level::Warn);
        assert!(small.advice.unwrap().ends_with("sysctl -w net.ipv4.tcp_wmem='4096 16384 4194304'"));
    }

    #[test]
    fn settings_that_the_kernel_does_not_tell_are_left_out() {
        assert!(inspect(Path::new("/nonexistent")).is_empty());
    }
}
