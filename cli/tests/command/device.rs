//! `--device`, with fake devices: of a library that stands where libibverbs and librdmacm would.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::program::{Ended, Server, command, run, under};

/// Returns a folder with these files as the libraries of a host.
fn libraries(verbs: &Path, manager: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    symlink(verbs, folder.path().join("libibverbs.so.1")).unwrap();
    symlink(manager, folder.path().join("librdmacm.so.1")).unwrap();
    folder
}

/// Returns the command on a host whose libraries are in a folder, and play two devices.
pub(crate) fn on(folder: &tempfile::TempDir, args: &[&str]) -> Command {
    let mut command = command(args);
    command.env("LD_LIBRARY_PATH", folder.path()).env("FAKE_DEVICES", "siw0=0,rxe0=1");
    command
}

/// Returns the libraries of a host with fake devices.
pub(crate) fn fakes() -> tempfile::TempDir {
    let fake = std::env::current_exe().unwrap().with_file_name("libfake_verbs.so");
    libraries(&fake, &fake)
}

fn with_devices(args: &[&str]) -> Ended {
    Ended::from(on(&fakes(), args).output().unwrap())
}

#[test]
fn a_device_that_is_not_there_is_told_with_those_that_are() {
    for args in [
        &["ping", "192.0.2.1"][..],
        &["put", "/dev/null", "192.0.2.1/"],
        &["get", "192.0.2.1/f"],
        &["ls", "192.0.2.1/"],
        &["serve", "."],
        &["demo"],
        &["perf", "local"],
        &["perf", "client", "192.0.2.1"],
        &["perf", "server", "--port", "0"],
        &["ping", "--server", "--port", "0"],
    ] {
        let ended = with_devices(&[args, &["--device", "mlx5_0"]].concat());
        ended.failed(1, &["there is no RDMA device mlx5_0: there are siw0, rxe0", "--device soft"]);
    }
}

/// A program would be told by an errno, at its first connection.
#[test]
fn a_program_does_not_start_without_its_device() {
    let by = |device| with_devices(&["run", "--sdp", "--device", device, "--", "echo", "ran"]);
    let ended = by("mlx5_0");
    assert_eq!(ended.stdout, "");
    ended.failed(1, &["there is no RDMA device mlx5_0: there are siw0, rxe0", "--device soft"]);
    by("a/b").failed(2, &["rdma link"]);
    assert_eq!(by("rxe0").ok().stdout, "ran\n");
}

#[test]
fn libraries_that_cannot_be_used_are_told_with_what_helps() {
    let folder = libraries("/dev/null".as_ref(), "/dev/null".as_ref());
    let ended = Ended::from(on(&folder, &["ping", "192.0.2.1", "--device", "siw0"]).output().unwrap());
    ended.failed(1, &["no RDMA devices without libibverbs.so.1", "install", "--device soft"]);
    // Without a device that is asked for, nobody loads them.
    let ended = Ended::from(on(&folder, &["demo", "--duration", "0", "--json"]).output().unwrap()).ok();
    assert_eq!(ended.json()["device"], "soft");
    let doctor = Ended::from(on(&folder, &["doctor"]).output().unwrap());
    assert_eq!(doctor.stdout.matches("no RDMA devices without").count(), 1, "{doctor:?}");
}

#[test]
fn without_a_device_its_libraries_are_not_in_memory() {
    const NAMES: [&str; 3] = ["libibverbs", "librdmacm", "libfake_verbs"];
    let fake = std::env::current_exe().unwrap().with_file_name("libfake_verbs.so");
    let folder = libraries(&fake, &fake);
    let server = |more: &[&str]| {
        let args = [&["ping", "--server", "--port", "0", "--json"], more].concat();
        Server::by(&mut on(&folder, &args))
    };
    let has_any = |text: &str| NAMES.iter().any(|name| text.contains(name));
    let has_loaded =
        |server: &Server| has_any(&std::fs::read_to_string(format!("/proc/{}/maps", server.id())).unwrap());
    let soft = server(&["--bind", "127.0.0.1"]);
    run(&["ping", &soft.host(), "--count", "1"]).ok();
    assert!(!has_loaded(&soft));
    assert!(has_loaded(&server(&["--bind", "127.101.0.1", "--device", "rxe0"])));
    // What `ldd` does.
    let needed = Ended::from(on(&folder, &[]).env("LD_TRACE_LOADED_OBJECTS", "1").output().unwrap()).ok();
    assert!(needed.stdout.contains("libc.so") && !has_any(&needed.stdout), "{needed:?}");
}

#[test]
fn nobody_at_a_devices_address_is_told_with_what_helps() {
    let ended = with_devices(&["ping", "127.101.0.1", "--device", "rxe0"]);
    ended.failed(3, &["nothing listens for RDMA", "rddp ping --server", "--device soft"]);
    // The way to that address leads through the other device, and this one has none but those of
    // the loopback.
    let ended = with_devices(&["ping", "127.101.0.1", "--device", "siw0"]);
    ended.failed(1, &["siw0 has no IP address", "ip address add"]);
    let ended = with_devices(&["ping", "127.101.0.1", "--device", "siw0", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&ended.stderr).unwrap();
    let of = |field: &str| told["error"][field].as_str().unwrap().to_owned();
    assert!(of("cause").ends_with("siw0 has no IP address") && of("remedy").contains("ip address add"));
    // A RoCE device speaks no MPA.
    let ended = with_devices(&["ping", "127.101.0.200", "--device", "rxe0"]);
    let ended = ended.failed(3, &["did not answer within", "RoCE has UDP port 4791"]);
    assert!(!ended.stderr.contains("MPA"), "{ended:?}");
}

#[test]
fn a_server_whose_device_cannot_listen_says_once_what_helps() {
    for server in [&["ping", "--server"][..], &["perf", "server"], &["serve", "."]] {
        let bound = ["--bind", "127.100.0.1", "--port", "0", "--device", "rxe0"];
        let ended = with_devices(&[server, &bound].concat());
        let ended =
            ended.failed(1, &["listening on 127.100.0.1:0: rxe0 has no IP address\n", "  try: give its"]);
        assert_eq!(ended.stderr.matches("ip address add").count(), 1, "{ended:?}");
    }
}

#[test]
fn a_demo_on_a_device_without_an_address_fails_once() {
    let ended = with_devices(&["demo", "--device", "rxe0"]).failed(1, &["rxe0 has no IPv4 address"]);
    assert_eq!(ended.stderr.matches("rddp: ").count(), 1, "{ended:?}");
}

#[test]
fn a_command_without_descriptors_for_its_device_says_what_helps() {
    let folder = fakes();
    let ping = on(&folder, &["ping", "127.101.0.1", "--device", "rxe0"]);
    for most in 6..=10 {
        let ended = under(&["prlimit", &format!("--nofile={most}")], &ping).output().unwrap();
        Ended::from(ended).failed(1, &["Too many open files", "try: raise the limit", "ulimit -n"]);
    }
}

#[test]
fn the_result_says_by_which_device_it_came() {
    let server = Server::start(&["ping", "--server", "--bind", "127.0.0.1", "--port", "0", "--json"]);
    for device in ["auto", "soft"] {
        let found =
            with_devices(&["ping", &server.host(), "--count", "1", "--json", "--device", device]).ok();
        assert_eq!((&found.json()["device"], &found.json()["transport"]), (&"soft".into(), &"iwarp".into()));
    }
    let found = with_devices(&["ping", &server.host(), "--count", "1", "--device", "auto"]).ok();
    assert!(found.stderr.contains("--device auto: soft"), "{found:?}");
    let local = ["perf", "local", "--op", "write", "-n", "10", "--device", "auto"];
    let found = with_devices(&local).ok();
    assert!(found.stderr.contains("--device auto: soft"), "{found:?}");
}

#[test]
fn servers_have_devices_by_name_and_no_two_for_one_tcp_port() {
    let servers = [&["ping", "--server"][..], &["perf", "server"], &["serve", "."]];
    for args in servers {
        let with = |device| with_devices(&[args, &["--port", "0", "--device", device]].concat());
        with("auto").failed(2, &["there is no peer yet", "soft,rxe0"]);
        with("soft,siw0").failed(2, &["siw0 speaks iWARP", "software answers RNICs"]);
    }
    with_devices(&["ping", "192.0.2.1", "--device", "soft,rxe0"]).failed(2, &["one device"]);
    run(&["ping", "192.0.2.1", "--device", "a/b"]).failed(2, &["rdma link"]);
    run(&["put", "/dev/null", "192.0.2.1/", "--device", "soft,rxe0"]).failed(2, &["one device"]);
}

/// A server loses a device of two, and with the last of them its purpose.
#[test]
fn a_server_goes_on_with_the_devices_that_are_left() {
    let fake = std::env::current_exe().unwrap().with_file_name("libfake_verbs.so");
    let folder = libraries(&fake, &fake);
    let removals = folder.path().join("removals");
    mkfifo(&removals, Mode::S_IRWXU).unwrap();
    for (server, client, path) in [
        (&["ping", "--server"][..], &["ping", "--count", "1"][..], ""),
        (&["perf", "server"], &["perf", "client", "--op", "write", "-n", "100"], ""),
        (&["serve", "."], &["ls"], "/"),
    ] {
        for devices in ["soft,rxe0", "rxe0"] {
            let args = ["--bind", "127.101.0.1", "--port", "0", "--json", "--device", devices];
            let mut command = on(&folder, &[server, &args].concat());
            let mut server = Server::by(command.env("FAKE_REMOVALS", &removals));
            std::fs::write(&removals, "1").unwrap();
            if devices == "rxe0" {
                assert_eq!(server.ended(), 1, "{client:?}");
                continue;
            }
            let told = std::iter::repeat_with(|| server.complaint());
            let told = told.take(4).find(|line| line.contains("nobody can connect by rxe0 (roce) any more"));
            assert!(told.is_some_and(|line| line.contains("was removed")), "{client:?}");
            run(&[client, &[&(server.host() + path)]].concat()).ok();
            assert_eq!(server.stop(), 1, "{client:?}: the end tells of it, too");
        }
    }
}

/// Neither NBD nor NVMe over RDMA is carried by a device here.
#[test]
fn disks_are_served_by_software_whatever_the_variable_says() {
    let disk = tempfile::NamedTempFile::new().unwrap();
    disk.as_file().set_len(1 << 20).unwrap();
    let with = |args: &[&str]| {
        let mut command = command(args);
        command.env("RDDP_DEVICE", "siw77");
        command
    };
    let path = disk.path().to_str().unwrap();
    let server = Server::by(&mut with(&["block", "serve", path, "--port", "0", "--json"]));
    let uri = format!("nbd://{}/", server.addr);
    Ended::from(with(&["block", "bench", "-t", "0.1", &uri]).output().unwrap()).ok();
    assert_eq!(server.stop(), 0);
}

#[test]
fn doctor_shows_what_each_device_has() {
    let shown = with_devices(&["doctor"]).stdout;
    let line = |beginning: &str| {
        let lines = shown.lines().map(|line| line.trim_start_matches(['*', ' ']));
        let found = lines.into_iter().find(|line| line.starts_with(beginning));
        found.unwrap_or_else(|| panic!("{beginning}: {shown}")).to_owned()
    };
    assert!(line("siw0 transport").ends_with("iwarp") && line("rxe0 transport").ends_with("roce"), "{shown}");
    assert!(line("siw0 Reads and atomics").contains("no atomics"), "{shown}");
    assert!(line("rxe0 messages").contains("8388608 octets; 4 of Immediate"), "{shown}");
    assert!(line("rxe0 private data").contains("56 octets to connect, 196 to accept, 148"), "{shown}");
    assert!(line("siw0 port").ends_with("active"), "{shown}");
    // Their addresses are those of the loopback, which no device has for itself.
    assert!(line("siw0 addresses").ends_with("none") && shown.contains("ip address add"), "{shown}");
}
