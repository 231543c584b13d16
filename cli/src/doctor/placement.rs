//! Placement in the kernel (`docs/kernel-placement.md`): whether this build, this kernel and this
//! user can.

use std::fs;
use std::path::Path;

use super::finding::{Finding, Level, Topic};

/// The rights that the eBPF program needs, with their numbers in `CapEff`.
const RIGHTS: [(&str, u32); 3] = [("CAP_NET_ADMIN", 12), ("CAP_PERFMON", 38), ("CAP_BPF", 39)];

/// `/proc/self/uid_map` of the initial user namespace.
const INITIAL: [&str; 3] = ["0", "0", "4294967295"];

/// The commands that measure it, one on each host.
const MEASURES: [&str; 2] =
    ["rddp perf server --placement", "rddp perf client HOST --op write --size 1M --placement auto"];

pub(super) fn inspect(root: &Path) -> Finding {
    let lacks = lacks(root, cfg!(feature = "kernel"));
    let finding = |value: &str| Finding::ok(Topic::Processor, "placement in the kernel", value);
    match lacks {
        None => finding(&format!("possible: {}", MEASURES.join(", and on the other host "))).but(
            Level::Note,
            "an eBPF program in front of ours on an interface (bpftool net shows them) can keep segments from it: \
             these are placed at user level, and QueuePair::kernel_counts has their octets as octets_unseen",
        ),
        Some(why) => finding("no").but(Level::Note, format!("everything is placed at user level: {why}")),
    }
}

/// Returns what is missing first.
fn lacks(root: &Path, is_built: bool) -> Option<String> {
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap_or_default();
    if !is_built {
        return Some("this build lacks it (cargo build --features kernel, which needs clang)".into());
    }
    if !root.join("sys/kernel/btf/vmlinux").exists() {
        return Some("the kernel does not describe its types (/sys/kernel/btf/vmlinux)".into());
    }
    if !read("proc/self/uid_map").split_whitespace().eq(INITIAL) {
        return Some("this is a user namespace, in which no such program is loaded".into());
    }
    let status = read("proc/self/status");
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = held.and_then(|held| u64::from_str_radix(held.trim(), 16).ok()).unwrap_or_default();
    let missing: Vec<_> =
        RIGHTS.iter().filter(|(_, bit)| held >> bit & 1 == 0).map(|(name, _)| *name).collect();
    (!missing.is_empty()).then(|| format!("without {} (root has them)", missing.join(", ")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn the_commands_that_are_named_exist() {
        for command in MEASURES {
            crate::Cli::try_parse_from(command.split(' ')).unwrap();
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let root = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let says = |built: bool| lacks(root.path(), built).unwrap_or_default();
        assert!(says(false).contains("--features kernel"));
        assert!(says(true).contains("btf"));
        write("sys/kernel/btf/vmlinux", "");
        write("proc/self/uid_map", "         0       1000          1\n");
        assert!(says(true).contains("user namespace"));
        write("proc/self/uid_map", "         0          0 4294967295\n");
        write("proc/self/status", "Name:\trddp\nCapEff:\t000001bfffffefff\n");
        assert_eq!(says(true), "without CAP_NET_ADMIN, CAP_PERFMON (root has them)");
        write("proc/self/status", "CapEff:\t000001ffffffffff\n");
        assert_eq!(lacks(root.path(), true), None);
    }
}
