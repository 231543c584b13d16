//! `rddp demo`.

use crate::program::run;

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
