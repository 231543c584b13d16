//! `rddp run`: programs with the socket switch.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::program::{self, Ended, run};

/// Returns a shell command that connects to the port and prints the result.
fn connecting_to(port: u16) -> String {
    format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected")
}

/// Starts a listener to connect to.
fn service() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

fn file(scratch: &TempDir, name: &str, text: &str) -> String {
    let path = scratch.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn the_program_has_its_arguments_its_exit_code_and_its_signals() {
    let ended = run(&["run", "--", "sh", "-c", "echo \"$0 $@\"; exit 7", "-v", "--ddp", "--"]);
    assert_eq!((ended.code, &*ended.stdout), (7, "-v --ddp --\n"), "{ended:?}");
    let status = program::command(&["run", "sh", "-c", "kill -TERM $$"]).status().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(Signal::SIGTERM as i32));
    // The program's signals are as if the command had not changed its own.
    let own = run(&["run", "--", "grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"]).ok().stdout;
    let bare = Command::new("grep").args(["-E", "Sig(Blk|Ign)", "/proc/self/status"]).output().unwrap();
    assert_eq!(own.as_bytes(), bare.stdout);
}

#[test]
fn the_library_is_loaded_before_others() {
    let shown = run(&["run", "--", "sh", "-c", "echo $LD_PRELOAD; cat /proc/self/maps"]).ok().stdout;
    assert!(shown.lines().next().unwrap().ends_with("/librddp_sockets.so"), "{shown}");
    assert!(shown.lines().skip(1).any(|line| line.ends_with("/librddp_sockets.so")), "{shown}");
    let mut command = program::command(&["run", "--", "sh", "-c", "echo $LD_PRELOAD"]);
    let output = command.env("LD_PRELOAD", "libc.so.6").output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.ends_with("/librddp_sockets.so:libc.so.6\n"), "{shown}");
}

#[test]
fn without_a_policy_nothing_changes() {
    let (_listener, port) = service();
    for how in [&["run"][..], &["run", "--tcp"], &["run", "--both"]] {
        let script = connecting_to(port);
        let ended = run(&[how, &["--", "bash", "-c", &script]].concat()).ok();
        assert_eq!(ended.stdout, "connected\n", "{how:?}");
    }
}

#[test]
fn a_run_that_switches_nothing_says_so() {
    let said = |how: &[&str], variables: &[(&str, &str)]| {
        let mut command = program::command(&[how, &["--", "true"]].concat());
        Ended::from(command.envs(variables.iter().copied()).output().unwrap()).ok().stderr
    };
    assert!(said(&["run"], &[]).contains("try: rddp run --ddp"));
    for how in ["--tcp", "--ddp", "--sdp", "--both", "--sdp-or-tcp"] {
        assert_eq!(said(&["run", how], &[]), "", "{how}");
    }
    assert_eq!(said(&["run"], &[("RDDP_FAMILY", "tcp")]), "");
}

#[test]
fn the_policy_says_which_connections_are_switched() {
    let scratch = tempfile::tempdir().unwrap();
    let ((_one, tcp), (_other, sdp)) = (service(), service());
    let policy = file(
        &scratch,
        "policy",
        &format!(
            "log min-level 7\nuse sdp client bas* 127.0.0.0/8:{sdp} # that one\nuse sdp client other *:*\n"
        ),
    );
    let with = |port| run(&["run", "--policy", &policy, "--", "bash", "-c", &connecting_to(port)]);
    let plain = with(tcp).ok();
    assert_eq!(plain.stdout, "connected\n");
    assert!(plain.stderr.contains(&format!("bash: connect 127.0.0.1:{tcp}: tcp")), "{plain:?}");
    let switched = with(sdp).ok();
    assert_eq!(switched.stdout, "connected\n", "TCP is");
    assert!(switched.stderr.contains(&format!("bash: connect 127.0.0.1:{sdp}: sdp\n")), "{switched:?}");
}

#[test]
fn thresholds_are_checked_and_passed_on() {
    let show = "echo $RDDP_FAMILY $RDDP_SDP_SOURCE_THRESHOLD $RDDP_SDP_SINK_THRESHOLD $RDDP_SDP_DEVICE";
    let options =
        ["run", "--sdp", "--device", "soft", "--zcopy-threshold", "all", "--zcopy-sink-threshold", "4096"];
    let ended = run(&[&options[..], &["--", "sh", "-c", show]].concat()).ok();
    assert_eq!(ended.stdout, "sdp all 4096 soft\n");
    run(&["run", "--sdp", "--zcopy-threshold", "64K", "--", "echo"])
        .failed(2, &["64K", "octets, all or none"]);
}

#[test]
fn a_device_is_named_and_not_looked_for() {
    let ended = run(&["run", "--sdp", "--device", "auto", "--", "echo", "ran"]);
    assert_eq!(ended.stdout, "");
    ended.failed(2, &["auto", "many peers", "name the device"]);
}

#[test]
fn thresholds_without_sdp_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let without = file(&scratch, "without", "use both client * *:*\n");
    let with = file(&scratch, "with", "use tcp client * *:1\nuse sdp-or-tcp server * *:*\n");
    let none = file(&scratch, "libsdp.conf", "");
    let threshold = ["--zcopy-threshold", "all"];
    let sink = ["--zcopy-sink-threshold", "none"];
    let device = ["--device", "soft"];
    for family in [&[][..], &["--ddp"], &["--both"], &["--tcp"], &["--policy", &without]] {
        for option in [threshold, sink, device] {
            let ended = run(&[&["run"], family, &option, &["--", "echo", "ran"]].concat());
            assert_eq!(ended.stdout, "", "{family:?}");
            ended.failed(2, &[option[0], "no connection", "try: add --sdp or --sdp-or-tcp"]);
        }
    }
    for family in [&["--sdp"][..], &["--sdp-or-tcp"], &["--policy", &with]] {
        run(&[&["run"], family, &threshold, &["--", "true"]].concat()).ok();
    }
    for (name, value, is_good) in [
        ("RDDP_FAMILY", "sdp", true),
        ("RDDP_FAMILY", "ddp", false),
        ("RDDP_POLICY", &*with, true),
        ("RDDP_POLICY", &*without, false),
        ("LIBSDP_CONFIG_FILE", &*none, true),
    ] {
        let mut command = program::command(&["run", "--zcopy-threshold", "all", "--", "true"]);
        assert_eq!(command.env(name, value).output().unwrap().status.success(), is_good, "{name}={value}");
    }
}

#[test]
fn variables_of_sdp_and_placement_are_checked_before_anything_runs() {
    let with = |name: &str, value: &str| {
        let mut command = program::command(&["run", "--tcp", "--", "echo", "ran"]);
        command.env(name, value).output().unwrap()
    };
    for (name, value, takes) in [
        ("RDDP_SDP_SOURCE_THRESHOLD", "64K", "a number of octets, all or none"),
        ("RDDP_SDP_SINK_THRESHOLD", "-1", "a number of octets, all or none"),
        ("RDDP_SDP_BUFS", "0", "a number from 1 to 65535"),
        ("RDDP_SDP_BCOPY", "yes", "0 or 1"),
        ("RDDP_SDP_FAMILIES", "no", "0 or 1"),
        ("RDDP_SDP_JOINS", "2", "0 or 1"),
        ("RDDP_SDP_MODE", "Buffered", "buffered, combined, pipelined or auto"),
        ("RDDP_PLACEMENT", "yes", "user, auto or kernel"),
        ("RDDP_PLACEMENT_INTERFACES", "eth0,", "names of interfaces with commas between them"),
    ] {
        let ended = with(name, value);
        let told = String::from_utf8(ended.stderr).unwrap();
        assert_eq!((ended.status.code(), &*ended.stdout), (Some(2), &b""[..]), "{name}: {told}");
        let told_once = told.matches(name).count() == 1;
        assert!(told_once && told.contains(&format!("{name}={value}: ")), "{told}");
        assert!(told.contains(&format!("try: {takes}")), "{told}");
        let ended = with(name, "");
        assert_eq!((ended.stdout, ended.stderr), (b"ran\n".to_vec(), vec![]), "{name} without a value");
    }
}

#[test]
fn a_file_of_libsdp_counts_unless_a_policy_is_given() {
    let scratch = tempfile::tempdir().unwrap();
    let (_listener, port) = service();
    let file = file(&scratch, "libsdp.conf", "log min-level 7 destination stderr\nuse tcp client bash *:*\n");
    let with = |options: &[&str], variable: &str, value: &str| {
        let script = connecting_to(port);
        let mut command = program::command(&[&["run"], options, &["--", "bash", "-c", &script]].concat());
        let output = command.env(variable, value).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "connected\n", "{variable}={value}");
        String::from_utf8(output.stderr).unwrap()
    };
    let connect = format!("rddp: bash: connect 127.0.0.1:{port}: tcp\n");
    assert_eq!(with(&[], "LIBSDP_CONFIG_FILE", &file), connect);
    assert_eq!(with(&["--tcp"], "LIBSDP_CONFIG_FILE", &file), "");
    assert_eq!(with(&["--tcp"], "SIMPLE_LIBSDP", ""), "");
    // The server says nothing, and its client falls back.
    std::fs::write(&file, "log min-level 7 destination stderr\nuse sdp server * *:*\n").unwrap();
    let told = with(&[], "LIBSDP_CONFIG_FILE", &file);
    assert!(told.contains(&format!("connect 127.0.0.1:{port}: sdp-or-tcp\n")), "{told}");
}

#[test]
fn a_server_that_does_not_speak_mpa_is_logged_as_a_plain_one() {
    let scratch = tempfile::tempdir().unwrap();
    let (_listener, port) = service();
    let policy = file(&scratch, "policy", "log min-level 8\nuse both client * *:*\n");
    let script = format!("{}; {}", connecting_to(port), connecting_to(port));
    let ended = run(&["run", "--policy", &policy, "--", "bash", "-c", &script]).ok();
    assert_eq!(ended.stdout, "connected\nconnected\n");
    let connect = format!("rddp: bash: connect 127.0.0.1:{port}");
    let wanted = [
        format!("{connect}: the peer does not speak MPA; connected again in plain TCP"),
        format!("{connect}: both: plain TCP, as the peer did not speak MPA before"),
    ];
    assert!(ended.stderr.lines().eq(wanted), "{ended:?}");
}

#[test]
fn a_policy_that_makes_no_sense_is_refused_before_anything_runs() {
    let scratch = tempfile::tempdir().unwrap();
    let policy =
        file(&scratch, "policy", "use ddp client * *:*\nuse rdma client * *:*\nuse ddp client * *:80-70\n");
    let ended = run(&["run", "--policy", &policy, "--", "echo", "ran"]);
    assert_eq!(ended.stdout, "");
    let told = |line, what: &str, how: &str| format!("rddp: {policy}: line {line}: {what}\n  try: {how}\n");
    let wanted = [
        told(2, "\"rdma\" is no family", "it is one of tcp, ddp, both, sdp, sdp-or-tcp"),
        told(3, "the ports \"80-70\" end before they begin", "write the lower port first"),
    ];
    assert_eq!(ended.stderr, wanted.concat());
    ended.failed(2, &[]);
    run(&["run", "--policy", "/nonexistent", "--", "echo"]).failed(1, &["/nonexistent: No such file"]);
}

/// The library would report it, and the program would go on in plain TCP.
#[test]
fn an_environment_that_makes_no_sense_is_refused_unless_an_option_takes_its_place() {
    let scratch = tempfile::tempdir().unwrap();
    let policy = file(&scratch, "policy", "threshold source 1k\n");
    let cases = [
        ("RDDP_FAMILY", "spd", ["RDDP_FAMILY=spd: not a family", "try: it is one of ddp, sdp, both"]),
        (
            "RDDP_POLICY",
            &policy,
            ["\"1k\" is no threshold", "try: write: threshold source|sink and a number"],
        ),
    ];
    for (name, value, told) in cases {
        let with = |args| Ended::from(program::command(args).env(name, value).output().unwrap());
        with(&["run", "--", "echo"]).failed(2, &told);
        assert_eq!(with(&["run", "--sdp", "--", "echo", "ran"]).ok().stdout, "ran\n");
    }
}

#[test]
fn an_option_that_there_is_not_is_no_program() {
    for (typed, meant) in
        [("--spd", "--sdp"), ("--zcopy-treshold=5", "--zcopy-threshold"), ("--polcy", "--policy")]
    {
        let told = format!("rddp: unknown option {typed}: did you mean {meant}?");
        run(&["run", typed, "--", "echo"]).failed(2, &[&told]);
    }
    run(&["run", "-z", "echo"]).failed(2, &["unknown option -z", "try: rddp run --help"]);
    // Behind the program, and behind the dashes, options are the program's.
    for words in [&["run", "echo", "--spd", "-z"][..], &["run", "--", "echo", "--spd", "-z"]] {
        assert_eq!(run(words).ok().stdout, "--spd -z\n");
    }
}

#[test]
fn programs_that_the_library_cannot_reach_are_named() {
    let scratch = tempfile::tempdir().unwrap();
    let source = file(&scratch, "program.c", "int main(void) { return 0; }\n");
    let fixed = compiled(&source, scratch.path(), &["-static"]);
    run(&["run", "--ddp", "--", &fixed]).failed(126, &["is linked statically", "try: "]);
    let script = file(&scratch, "script", &format!("#!{fixed}\n"));
    make_executable(&script, 0o755);
    run(&["run", "--", &script]).failed(126, &["is linked statically"]);
    let musl = compiled(&source, scratch.path(), &["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"]);
    run(&["run", "--ddp", "--", &musl]).failed(126, &["is linked with musl", "try: "]);
    let text = file(&scratch, "text", "no program\n");
    run(&["run", "--", &text]).failed(126, &["not a file that may be run"]);
    make_executable(&text, 0o755);
    run(&["run", "--", &text]).failed(126, &["neither a program nor a script"]);
    run(&["run", "--", "no-such-program"]).failed(127, &["no-such-program", "try: "]);
    run(&["run", "--", "/nonexistent/program"]).failed(127, &["/nonexistent/program"]);
}

#[test]
fn programs_that_become_somebody_else_are_named() {
    let scratch = tempfile::tempdir().unwrap();
    let source = file(&scratch, "program.c", "int main(void) { return 0; }\n");
    let program = compiled(&source, scratch.path(), &[]);
    run(&["run", "--", &program]).ok();
    // A program that is setuid to another user: root can make one, others search for one.
    let theirs = if nix::unistd::getuid().is_root() {
        std::os::unix::fs::chown(&program, Some(12345), None).unwrap();
        make_executable(&program, 0o4755);
        PathBuf::from(program)
    } else {
        PathBuf::from("/usr/bin/su")
    };
    if theirs.exists() {
        run(&["run", "--", theirs.to_str().unwrap()]).failed(126, &["is setuid", "try: "]);
    }
}

#[test]
fn help_has_examples_and_exit_codes() {
    let help = run(&["run", "--help"]).ok().stdout;
    for text in ["Examples:", "rddp run --ddp", "use ddp client", "Exit codes:", "  126  PROGRAM"] {
        assert!(help.contains(text), "nothing of {text:?} in {help}");
    }
    assert!(help.lines().all(|line| line.chars().count() <= 120), "{help}");
}

fn compiled(source: &str, folder: &Path, options: &[&str]) -> String {
    let program = folder.join("program").to_str().unwrap().to_owned();
    let status = Command::new("cc").args(options).args([source, "-o", &program]).status();
    assert!(status.expect("these tests need a C compiler (cc)").success());
    program
}

fn make_executable(path: &str, mode: u32) {
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
}
