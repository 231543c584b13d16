//! One cell: two namespaces, a process in each, and the path between them.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::middle::Middle;
use crate::path_test::net::{enter_new, ip, set};
use crate::path_test::tap::{self, DEVICE, tap};
use crate::spec::{Cell, Received, Row};

const SENDER: [&str; 2] = ["10.23.0.1/24", "fd23::1/64"];
const RECEIVER: [&str; 2] = ["10.23.0.2/24", "fd23::2/64"];

/// Measures.
pub(crate) fn run(cell: &Cell) -> Row {
    let words = serde_json::to_string(cell).unwrap();
    let (right, mut receiver) = in_new_namespace(cell, RECEIVER, &["receive", &words]);
    let mut said = BufReader::new(receiver.stdout.take().unwrap());
    let mut addr = String::new();
    said.read_line(&mut addr).unwrap();
    let (left, mut sender) = in_new_namespace(cell, SENDER, &["send", &words, addr.trim()]);
    let middle = Middle::start(&left, &right, cell);

    let mut result = String::new();
    said.read_to_string(&mut result).unwrap();
    assert!(receiver.wait().unwrap().success() & sender.wait().unwrap().success(), "{cell:?}");
    let received: Received = serde_json::from_str(&result).unwrap();
    let carried = middle.stop();
    let after_hole_us = carried.again_ns.map(|again| (received.last_ns as f64 - again as f64) / 1e3);
    Row {
        cell: cell.clone(),
        octets_per_second: (received.messages * cell.message as u64) as f64 / received.seconds,
        received,
        segments: carried.segments,
        lost: carried.lost,
        path_cpu_seconds: carried.cpu.as_secs_f64(),
        after_hole_us,
    }
}

/// Makes a network namespace with a TAP device, and starts this program in it.
fn in_new_namespace(cell: &Cell, addrs: [&'static str; 2], words: &[&str]) -> (File, Child) {
    let (mtu, tuned) = (cell.mtu, cell.tuned);
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    let made = std::thread::spawn(move || {
        enter_new();
        if tuned {
            // All of a message may be under way at once, and no segment ends at the window's end.
            set("ipv4/tcp_rmem", "4096 33554432 67108864");
            set("ipv4/tcp_wmem", "4096 16777216 16777216");
            set("ipv4/tcp_slow_start_after_idle", "0");
            set("ipv4/tcp_no_metrics_save", "1");
        }
        let device = tap(addrs, tap::Way::Plain);
        ip(&format!("link set dev {DEVICE} mtu {mtu} txqueuelen 20000"));
        if tuned {
            ip(&format!("route replace 10.23.0.0/24 dev {DEVICE} initcwnd 1000 initrwnd 2000"));
        }
        let program = std::env::current_exe().unwrap();
        let child = Command::new(program).args(words).stdout(Stdio::piped()).spawn().unwrap();
        (device, child)
    });
    made.join().unwrap()
}

/// Returns the processor time of this process, or of this thread.
pub(crate) fn cpu(of: nix::sys::resource::UsageWho) -> Duration {
    let usage = nix::sys::resource::getrusage(of).unwrap();
    let time = |time: nix::sys::time::TimeVal| {
        Duration::from_secs(time.tv_sec() as u64) + Duration::from_micros(time.tv_usec() as u64)
    };
    time(usage.user_time()) + time(usage.system_time())
}

/// Returns the time by `CLOCK_MONOTONIC`, which all processes share, in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).unwrap();
    Duration::from(now).as_nanos() as u64
}
