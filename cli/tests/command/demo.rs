//! `rddp demo`.

use std::process::{Child, Command};

use crate::program::{Ended, command, on_processor, run};

const SLEPT: &str = "Fewer than two processors were idle";
const SPOILED: &str = "Spoiled by load";
const MEASURED: [&str; 3] = ["demo", "--duration", "0.3"];

#[test]
fn everything_comes_out_right_and_is_measured() {
    let found = run(&["demo", "--json", "--duration", "0.06"]).ok().json();
    assert_eq!(found["passed"], true, "{found}");
    let checks = found["checks"].as_array().unwrap();
    assert_eq!(checks.len(), 18);
    for check in checks {
        assert_eq!(check["passed"], true, "{check}");
    }
    assert!(found["octets_compared"].as_u64().unwrap() > 20_000_000);
    assert_eq!(found["results"].as_array().unwrap().len(), 6);
}

#[test]
fn its_tables_are_for_people() {
    let ended = run(&["demo", "--duration", "0.06"]).ok();
    for text in
        ["CRC, markers", "RDMA Write: 0 octets to 1 MiB", "Terminate", "x TCP", "TCP socket", "RDMA Send"]
    {
        assert!(ended.stdout.contains(text), "{text}: {ended:?}");
    }
    assert!(!ended.stdout.contains("FAILED"), "{ended:?}");
    assert!(ended.stdout.lines().all(|line| line.chars().count() <= 100), "{ended:?}");
}

#[test]
fn it_sleeps_on_one_processor() {
    let ended = Ended::from(on_processor(0, &command(&MEASURED)).output().unwrap()).ok();
    assert!(ended.stdout.contains(SLEPT), "{ended:?}");
}

/// Processes that keep all processors busy, until it is dropped.
struct Busy(Vec<Child>);

impl Busy {
    fn everywhere() -> Self {
        let processors = std::thread::available_parallelism().unwrap().get();
        let busy = |number| {
            let mut endless = Command::new("sh");
            endless.args(["-c", "while :; do :; done"]);
            on_processor(number, &endless).spawn().unwrap()
        };
        Busy((0..processors).map(busy).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn on_a_busy_machine_it_sleeps_and_calls_its_figures_spoiled() {
    let _busy = Busy::everywhere();
    let ended = run(&MEASURED).ok();
    for text in [SLEPT, SPOILED] {
        assert!(ended.stdout.contains(text), "{text}: {ended:?}");
    }
    assert!(ended.stdout.lines().all(|line| line.chars().count() <= 100), "{ended:?}");
}
