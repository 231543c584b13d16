//! `rddp serve` on a socket that a service manager has opened.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::Command;

use crate::program::{Ended, Server, run};

/// Returns the command that starts `rddp serve DIR` as systemd would, with a socket as descriptor 3
/// in `LISTEN_FDS`.
fn activated(dir: &str, socket: impl Into<OwnedFd>, pid: &str) -> Command {
    let script = format!("exec 3<&0 0</dev/null; LISTEN_PID={pid} LISTEN_FDS=1 exec \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_rddp"), "serve", dir, "--port", "0", "--json"]);
    command.stdin(socket.into());
    command
}

#[test]
fn a_client_that_came_before_the_server_is_served() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(path("served")).unwrap();
    fs::write(path("served/file"), "by a socket of another").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (from, to) = (format!("{addr}/file"), path("got"));
    let client = std::thread::spawn(move || run(&["get", &from, &to]));
    let server = Server::by(&mut activated(&path("served"), listener, "$$"));
    assert_eq!(server.addr, addr);
    client.join().unwrap().ok();
    assert_eq!(fs::read_to_string(path("got")).unwrap(), "by a socket of another");
    assert_eq!(server.stop(), 0);
}

#[test]
fn a_socket_for_another_process_is_left_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = Server::by(&mut activated(scratch.path().to_str().unwrap(), listener, "1"));
    assert_ne!(server.addr, addr);
    assert_eq!(server.stop(), 0);
}

#[test]
fn a_socket_that_is_not_tcp_is_named_with_what_to_write() {
    let scratch = tempfile::tempdir().unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let ended = activated(scratch.path().to_str().unwrap(), socket, "$$").output().unwrap();
    Ended::from(ended).failed(1, &["LISTEN_FDS", "ListenStream="]);
}
