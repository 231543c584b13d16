//! `rddp gateway`, as far as it comes without an RDMA device, or with a fake one.

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;

use crate::device::{fakes, on};
use crate::program::{Server, run};

#[test]
fn a_gateway_has_a_device_on_one_side_and_says_how_to_name_it() {
    let says = ["none of the two is a device's", "try: name the device in front"];
    run(&["gateway", "--listen", "127.0.0.1:0", "--to", "192.0.2.1:7174"]).failed(2, &says);
    let both = ["gateway", "--listen", "a/127.0.0.1:0", "--to", "b/192.0.2.1:7174"];
    run(&both).failed(2, &["both are a device's"]);
    run(&["gateway", "--listen", "127.0.0.1:0"]).failed(2, &["--to"]);
    run(&["gateway", "--listen", "127.0.0.1:0", "--to", "x/h:1", "--to", "x/h:2"])
        .failed(2, &["1 times --listen and 2 times --to"]);
    run(&["gateway", "--listen", "127.0.0.1", "--to", "x/h:1"]).failed(2, &["not ADDR:PORT"]);
    run(&["gateway", "--listen", "127.0.0.1:0", "--to", "x/h"]).failed(2, &["not HOST:PORT"]);
    let words = ["gateway", "--listen", "soft/127.0.0.1:0", "--to", "rxe0/192.0.2.1:7174"];
    run(&words).failed(2, &["for TCP, leave out soft/"]);
    for wrong in [["--allow", "192.0.2.0/33"], ["--max-message", "17M"], ["--max-pairs", "0"]] {
        let args = ["gateway", "--listen", "127.0.0.1:0", "--to", "x/h:1"];
        run(&[&args[..], &wrong].concat()).failed(2, &[wrong[0]]);
    }
    let none = ["gateway", "--listen", "127.0.0.1:0", "--to", "x/h:1", "--max-pairs", "0"];
    run(&none).failed(2, &["at least 1"]);
}

/// No host has such a device, with the libraries or without.
#[test]
fn a_device_that_is_not_there_is_named_with_what_to_do() {
    let args = ["gateway", "--listen", "127.0.0.1:0", "--to", "no-such-device/192.0.2.1:7174"];
    run(&args).failed(1, &["no RDMA device", "try: "]);
    run(&[&args[..], &["--json"]].concat()).failed(1, &["\"kind\":\"failed\"", "\"remedy\":"]);
}

#[test]
fn the_remedy_of_a_device_that_cannot_listen_is_said_once() {
    let args = ["gateway", "--listen", "rxe0/192.0.2.1:7", "--to", "127.0.0.1:7174", "--json"];
    let failed = on(&fakes(), &args).output().unwrap();
    let said: Value = serde_json::from_slice(&failed.stderr).unwrap();
    let [cause, remedy] = ["cause", "remedy"].map(|field| said["error"][field].as_str().unwrap_or_default());
    assert!(failed.status.code() == Some(1) && !remedy.is_empty(), "{said}");
    assert!(cause.contains("no IP address") && !cause.contains(remedy), "{said}");
}

#[test]
fn the_end_of_a_gateway_whose_last_device_is_removed_says_what_helps() {
    let folder = fakes();
    let removals = folder.path().join("removals");
    mkfifo(&removals, Mode::S_IRWXU).unwrap();
    let args = ["gateway", "--listen", "rxe0/127.101.0.1:0", "--to", "127.0.0.1:7", "--json"];
    let mut gateway = Server::by(on(&folder, &args).env("FAKE_REMOVALS", &removals));
    std::fs::write(&removals, "1").unwrap();
    let said: Value = serde_json::from_str(&gateway.complaint()).unwrap();
    let [cause, remedy] = ["cause", "remedy"].map(|field| said["error"][field].as_str().unwrap_or_default());
    assert!(cause.contains("no listener is left") && remedy.contains("when the device is back"), "{said}");
    assert_eq!(gateway.ended(), 1);
}

/// Returns how many sockets a process has open.
fn sockets_of(id: &str) -> usize {
    let open = std::fs::read_dir(format!("/proc/{id}/fd")).unwrap();
    let links = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
}

/// A peer that it could not take then is taken when there are descriptors again.
#[test]
fn a_gateway_without_descriptors_says_so_with_what_helps_and_goes_on() {
    let args = ["gateway", "--listen", "127.0.0.1:0", "--to", "rxe0/127.101.0.1:7", "--json"];
    let folder = fakes();
    let mut gateway = Server::by(&mut on(&folder, &args));
    let id = gateway.id().to_string();
    // A peer that it has taken shows that it has all that it waits with.
    let _silent = TcpStream::connect(gateway.addr).unwrap();
    while sockets_of(&id) < 2 {
        std::thread::yield_now();
    }
    let limit = |count| {
        let args = ["--pid", &id, &format!("--nofile={count}:")];
        assert!(Command::new("prlimit").args(args).status().unwrap().success());
    };
    limit(4);
    let mut peer = TcpStream::connect(gateway.addr).unwrap();
    let says = ["taking connections: Too many open files", "raise the limit of open files", "ulimit -n"];
    peer.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let complaint = gateway.complaint();
    assert!(says.iter().all(|part| complaint.contains(part)), "{complaint}");
    limit(1000);
    let complaint = gateway.complaint();
    assert!(complaint.contains("MPA startup"), "{complaint}");
    assert_eq!(gateway.stop(), 0);
}

/// Status 3 would have its user look at the peer, which has done nothing.
#[test]
fn what_this_host_lacks_for_a_connection_is_told_as_its_own_with_what_helps() {
    let (to, folder) = ("127.100.0.1:7", fakes());
    let args = ["gateway", "--listen", "127.0.0.1:0", "--to", &format!("rxe0/{to}"), "--json"];
    // Memory of a device that registers no more than 64 KiB.
    let mut gateway = Server::by(on(&folder, &args).env("FAKE_DEVICES", "rxe0=1:4"));
    let limit = ["--pid", &gateway.id().to_string(), "--memlock=65536:65536"];
    assert!(Command::new("prlimit").args(limit).status().unwrap().success());
    let mut peer = TcpStream::connect(gateway.addr).unwrap();
    // Revision 1, no private data.
    peer.write_all(b"MPA ID Req Frame\x40\x01\0\0").unwrap();
    let complaint = gateway.complaint();
    let said: Value = serde_json::from_str(&complaint).unwrap();
    let error = &said["error"];
    assert_eq!((&error["kind"], &error["exit_code"]), (&"failed".into(), &1.into()), "{said}");
    let of = |field: &str| error[field].as_str().unwrap_or_default();
    assert!(of("cause").starts_with(&format!("not connected to {to}: registering ")), "{said}");
    assert!(of("remedy").contains("ulimit -l") && !of("cause").contains("ulimit"), "{said}");
    assert_eq!(gateway.stop(), 0);
}
