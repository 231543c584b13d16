//! `rddp doctor`.

use crate::program::{Server, free_port, plain_service, run};

#[test]
fn this_host_is_looked_at() {
    let ended = run(&["doctor"]).ok();
    for text in [
        "Interfaces",
        "loopback",
        "TCP",
        "RLIMIT_NOFILE",
        "RLIMIT_MEMLOCK",
        "CRC32c",
        "/dev/shm",
        "Limits of the library rddp-rnic",
        "RDMA devices",
    ] {
        assert!(ended.stdout.contains(text), "{text}: {ended:?}");
    }
}

#[test]
fn findings_have_a_level_and_advice_where_they_are_not_ok() {
    let found = run(&["doctor", "--json"]).ok().json();
    let loopback =
        found["interfaces"].as_array().unwrap().iter().find(|one| one["kind"] == "loopback").unwrap();
    assert!(loopback["mss"].as_u64() < loopback["mtu"].as_u64());
    for one in found["findings"].as_array().unwrap() {
        assert!(one["topic"].is_string() && one["subject"].is_string() && one["value"].is_string(), "{one}");
        assert_eq!(one["advice"].is_null(), one["level"] == "ok", "{one}");
    }
}

#[test]
fn another_host_is_looked_at_when_it_is_named() {
    let ping = Server::start(&["ping", "--server", "--bind", "127.0.0.1", "--port", "0", "--json"]);
    let ended = run(&["doctor", &ping.host()]).ok();
    assert!(
        ended.stdout.contains("port mapper") && ended.stdout.contains("iWARP: MPA revision 2"),
        "{ended:?}"
    );
    let nobody = free_port().to_string();
    run(&["doctor", &nobody]).failed(3, &["nothing listens on"]);
    let other = plain_service(b"SSH-2.0-OpenSSH_9.2\r\n").to_string();
    run(&["doctor", &other]).failed(3, &["MPA"]);
}
