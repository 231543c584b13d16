//! Far ends that know nothing of this library: `nc`, `socat`, `curl`.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use rddp_rnic::{Access, ConnectOptions, RecvWr, SendWr, Status, Transport};
use rddp_test_support::pattern;

use super::common::{End, PATIENCE};
use super::end;

const LEN: usize = 200_000;

/// Starts a program, unless there is none of that name.
pub(crate) fn start(program: &str, arguments: &[&str]) -> Option<Child> {
    let started = Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    if started.is_err() {
        eprintln!("skipped: there is no {program}");
    }
    started.ok()
}

/// Connects `end` to a program that is started with the address to connect to.
fn joined(end: &End, start: impl FnOnce(&str, &str) -> Option<Child>) -> Option<Child> {
    let options = ConnectOptions::default();
    let listener = end.rnic.listen_by(Transport::Tcp, "127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let addr = listener.local_addr().unwrap();
    let child = start(&addr.ip().to_string(), &addr.port().to_string())?;
    let request = listener.accept(Some(PATIENCE)).unwrap().expect("the program did not come");
    request.accept(&end.qp, b"").unwrap();
    Some(child)
}

/// Receives until the peer's FIN.
fn receive_all(end: &End) -> Vec<u8> {
    let inbox = end.region(64 * 1024, Access::LOCAL_WRITE);
    let mut octets = Vec::new();
    loop {
        end.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
        let done = end.next();
        octets.extend(inbox.read(0, done.byte_len as usize).unwrap());
        if done.status == Status::Flushed {
            return octets;
        }
    }
}

/// Talks to a program that copies its input to the connection, and that to its output.
fn talk(child: Option<Child>, end: &End) {
    let Some(mut child) = child else { return };
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(&pattern(LEN, 1)).unwrap());
    assert!(receive_all(end) == pattern(LEN, 1));
    writer.join().unwrap();
    let source = end.region(LEN, Access::empty());
    source.write(0, &pattern(LEN, 2)).unwrap();
    end.qp.post_send(&SendWr::send(2, source.whole())).unwrap();
    end.qp.disconnect();
    let mut output = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut output).unwrap();
    assert!(output == pattern(LEN, 2));
    assert_eq!(end.success().wr_id, 2);
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_far_end_is_nc() {
    let end = end();
    let child = joined(&end, |host, port| start("nc.openbsd", &["-N", host, port]));
    talk(child, &end);
}

#[test]
fn the_far_end_is_socat() {
    let end = end();
    let child = joined(&end, |host, port| start("socat", &["-t", "60", "-", &format!("TCP:{host}:{port}")]));
    talk(child, &end);
}

#[test]
fn the_far_end_is_curl() {
    let end = end();
    let child = joined(&end, |host, port| {
        start("curl", &["--silent", "--fail", "--noproxy", "*", &format!("http://{host}:{port}/file")])
    });
    let Some(mut child) = child else { return };
    let inbox = end.region(4096, Access::LOCAL_WRITE);
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        end.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
        let done = end.success();
        request.extend(inbox.read(0, done.byte_len as usize).unwrap());
    }
    assert!(request.starts_with(b"GET /file HTTP/1.1\r\n"));
    let body = end.region(LEN, Access::empty());
    body.write(0, &pattern(LEN, 3)).unwrap();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LEN}\r\nConnection: close\r\n\r\n");
    end.qp.post_sends(&[SendWr::send_inline(2, head.as_bytes()), SendWr::send(3, body.whole())]).unwrap();
    end.qp.disconnect();
    let mut output = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut output).unwrap();
    assert!(output == pattern(LEN, 3));
    assert!(child.wait().unwrap().success());
}
