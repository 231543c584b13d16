use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use super::*;

#[test]
fn a_full_pipe_or_one_that_nobody_reads_takes_no_line_and_holds_nobody_up() {
    let (mut read, write) = io::pipe().unwrap();
    write_now(write.as_fd(), b"one\n").unwrap();
    let mut octets = [0; 4];
    read.read_exact(&mut octets).unwrap();
    assert_eq!(&octets, b"one\n");
    let full = (0..1_000_000).find(|_| write_now(write.as_fd(), &[b'x'; 1000]).is_err());
    assert!(full.is_some(), "a write would have slept");
    drop(read);
    // SIGPIPE is ignored here; the call does not get as far.
    assert_eq!(write_now(write.as_fd(), b"two\n").unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_connection_to_a_peer_gets_no_line_and_a_local_socket_does() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    assert_eq!(write_now(stream.as_fd(), b"one\n").unwrap_err().kind(), ErrorKind::PermissionDenied);
    let (here, mut there) = UnixStream::pair().unwrap();
    write_now(here.as_fd(), b"one\n").unwrap();
    let mut octets = [0; 4];
    there.read_exact(&mut octets).unwrap();
    assert_eq!(&octets, b"one\n");
}

#[test]
fn a_file_has_the_process_in_its_name_and_a_link_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let part = |text: &str| text.as_bytes().to_vec();
    let front = format!("{}/log-", folder.path().display());
    let parts = [part(&front), part(".txt")];
    for line in [&b"one\n"[..], b"two\n"] {
        write_now(open(&parts).unwrap().as_fd(), line).unwrap();
    }
    let name = format!("{front}{}.txt", std::process::id());
    assert_eq!(std::fs::read_to_string(&name).unwrap(), "one\ntwo\n");
    let link = format!("{}/link", folder.path().display());
    std::os::unix::fs::symlink(&name, &link).unwrap();
    assert!(open(&[part(&link)]).is_err());
    assert!(open(&[part(&"x".repeat(5000))]).is_err());
}
