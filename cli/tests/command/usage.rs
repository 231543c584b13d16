//! Arguments, help and exit codes.

use crate::program::run;

#[test]
fn bad_arguments_have_an_exit_code_of_their_own() {
    for args in [
        &[][..],
        &["fly"],
        &["ping"],
        &["ping", "host", "--server"],
        &["ping", "host", "--size", "1"],
        &["ping", "host", "--size", "1M"],
        &["ping", "host:port"],
        &["ping", "[::1"],
        &["ping", "--server", "--bind", "nowhere"],
        &["perf"],
        &["perf", "local", "--op", "swim"],
        &["perf", "local", "--size", "0"],
        &["perf", "local", "--size", "4M..64"],
        &["perf", "local", "--size", "1G", "--qps", "200"],
        &["perf", "local", "--duration", "0"],
        &["perf", "local", "--crc", "maybe"],
        &["perf", "server", "--port", "65535"],
        &["put", "file"],
        &["put", "/etc/hostname", "host-without-path"],
        &["put", "/etc/hostname", "host:/path"],
        &["get", "127.0.0.1/"],
        &["get", "127.0.0.1/sub/.."],
        &["get", "127.0.0.1/file", "--limit", "0"],
        &["serve"],
        &["run"],
        &["run", "--ddp"],
        &["run", "--ddp", "--tcp", "true"],
        &["run", "--policy", "file", "--ddp", "true"],
    ] {
        let ended = run(args);
        assert_eq!(ended.code, 2, "{args:?}: {ended:?}");
        assert!(!ended.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn help_has_examples_and_exit_codes() {
    for command in ["demo", "perf", "ping", "serve", "put", "get", "gateway", "doctor"] {
        let help = run(&[command, "--help"]).ok().stdout;
        for text in ["Examples:", &format!("rddp {command}"), "Exit codes:", "  3    the peer"] {
            assert!(help.contains(text), "{command}: nothing of {text:?} in {help}");
        }
        assert!(help.lines().all(|line| line.chars().count() <= 120), "{help}");
    }
    for command in ["server", "client", "local"] {
        let help = run(&["perf", command, "--help"]).ok().stdout;
        assert!(help.contains("Examples:") && help.contains("Exit codes:"), "{command}: {help}");
    }
    let help = run(&["--help"]).ok().stdout;
    assert!(help.contains("rddp demo") && !help.contains("demo-passive"), "{help}");
}

#[test]
fn help_has_only_what_a_command_knows() {
    for command in ["install", "doctor"] {
        let help = run(&[command, "--help"]).ok().stdout;
        for text in ["peer's program refused", "data differ", "--quiet"] {
            assert!(!help.contains(text), "{command}: {text:?} in {help}");
        }
    }
    for (command, shows) in [
        ("run", false),
        ("perf server", true),
        ("gateway", true),
        ("portmap", true),
        ("perf client", true),
        ("ping", true),
        ("serve", true),
    ] {
        let words: Vec<_> = command.split(' ').chain(["--help"]).collect();
        assert_eq!(run(&words).ok().stdout.contains("--quiet"), shows, "{command}");
    }
    assert!(run(&["run", "--help"]).ok().stdout.contains("speaks-first"));
    run(&["--quiet", "doctor"]).ok();
    run(&["doctor", "--quiet"]).ok();
}

#[test]
fn what_this_host_refuses_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let says = ["Address already in use", "try: something listens there already"];
    run(&["ping", "--server", "--bind", "127.0.0.1", "--port", &port]).failed(1, &says);
    run(&["serve", ".", "--bind", "127.0.0.1", "--port", &port]).failed(1, &says);
    run(&["serve", "/etc/passwd"]).failed(1, &["/etc/passwd: not a directory", "try: "]);
    run(&["serve", "/nonexistent"]).failed(1, &["/nonexistent: no such directory"]);
    run(&["ping", "--server", "--bind", "192.0.2.1", "--port", "0"]).failed(1, &["192.0.2.1"]);
    for args in
        [&["serve", "."][..], &["get", "127.0.0.1/file"], &["put", "file", "127.0.0.1/"], &["perf", "local"]]
    {
        let unknown = [args, &["--congestion", "of-no-host"]].concat();
        run(&unknown).failed(2, &["of-no-host", "this host has none of that name; available: ", "reno"]);
    }
}

#[test]
fn a_name_that_is_not_known_is_a_matter_of_the_peer() {
    run(&["ping", "no-such-host.invalid"]).failed(3, &["no-such-host.invalid"]);
}
