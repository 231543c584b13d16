//! The kernel, the processors, their instruction for CRC, and the clock.

use std::fs;
use std::path::Path;

use super::finding::{Finding, Level, Topic};

/// The first kernel with `openat2`, by which `rddp serve` stays inside its directory.
const OPENAT2: (u32, u32) = (5, 6);

/// Clocks that are read without a system call.
const FAST_CLOCKS: [&str; 4] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];

pub(super) fn inspect(root: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Ok(release) = fs::read_to_string(root.join("proc/sys/kernel/osrelease")) {
        findings.push(kernel(release.trim()));
    }
    findings.push(processors(std::thread::available_parallelism().map_or(1, usize::from)));
    findings.push(crc(crc_instruction()));
    let clock = root.join("sys/devices/system/clocksource/clocksource0/current_clocksource");
    if let Ok(clock) = fs::read_to_string(clock) {
        let clock = clock.trim();
        let slow = !FAST_CLOCKS.contains(&clock);
        let advice =
            "each look at the clock is a system call, which shows in latencies that are measured here";
        findings.push(Finding::ok(Topic::Processor, "clock", clock).but_if(slow, Level::Note, advice));
    }
    findings
}

fn kernel(release: &str) -> Finding {
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse::<u32>().ok());
    let old =
        matches!((numbers.next(), numbers.next()), (Some(major), Some(minor)) if (major, minor) < OPENAT2);
    Finding::ok(Topic::Processor, "Linux", release).but_if(
        old,
        Level::Warn,
        "rddp serve needs 5.6 or later, everything else works",
    )
}

fn processors(count: usize) -> Finding {
    let advice = "two ends that spin keep each other from running: rddp perf local --wait event";
    Finding::ok(Topic::Processor, "processors", count.to_string()).but_if(count < 2, Level::Note, advice)
}

fn crc(instruction: Option<&str>) -> Finding {
    match instruction {
        Some(name) => Finding::ok(Topic::Processor, "CRC32c", format!("by instruction ({name})")),
        None => Finding::ok(Topic::Processor, "CRC32c", "by table, some 1 GB/s")
            .but(Level::Warn, "where both ends agree, do without CRC: rddp perf --crc off"),
    }
}

#[cfg(target_arch = "x86_64")]
fn crc_instruction() -> Option<&'static str> {
    std::arch::is_x86_feature_detected!("sse4.2").then_some("sse4.2")
}

#[cfg(target_arch = "aarch64")]
fn crc_instruction() -> Option<&'static str> {
    std::arch::is_aarch64_feature_detected!("crc").then_some("crc")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn crc_instruction() -> Option<&'static str> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_before_openat2_are_named() {
        for (release, level) in [
            ("6.18.44-fc", Level::Ok),
            ("5.6.0", Level::Ok),
            ("5.10.0-28-amd64", Level::Ok),
            ("5.4.0-150-generic", Level::Warn),
            ("4.19.0", Level::Warn),
            ("unheard of", Level::Ok),
        ] {
            assert_eq!(kernel(release).level, level, "{release}");
        }
    }

    #[test]
    fn one_processor_and_no_instruction_have_their_advice() {
        assert_eq!(processors(1).level, Level::Note);
        assert_eq!(crc(None).level, Level::Warn);
        assert_eq!(crc(Some("sse4.2")).level, Level::Ok);
    }
}
