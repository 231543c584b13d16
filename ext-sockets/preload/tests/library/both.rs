//! A peer that does not speak MPA: under `ddp` a clean error, under `both` plain TCP. A peer that
//! does, and speaks SDP where this end is in DDPMODE, or the other way round: an error with a hint.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rddp_mpa::{Responder, ResponderStep, StartupConfig};
use tempfile::TempDir;

use crate::support::{command, compile};

/// Behaviour of a plain server that gets octets which mean nothing to it.
#[derive(Clone, Copy, Debug)]
enum Nature {
    /// The server sends something before it reads.
    SpeaksFirst,
    /// The server answers that the octets make no sense.
    Answers,
    /// The server closes.
    Closes,
    /// The server closes with octets unread, which is a reset.
    Resets,
    /// The server waits for more octets.
    Waits,
}

/// Starts a server of the "hello" protocol; returns its port and the number of its connections.
fn plain_server(nature: Nature) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    std::thread::spawn(move || {
        for peer in listener.incoming() {
            count.fetch_add(1, Ordering::SeqCst);
            std::thread::spawn(move || serve(peer.unwrap(), nature));
        }
    });
    (port, connections)
}

fn serve(mut peer: TcpStream, nature: Nature) {
    if matches!(nature, Nature::SpeaksFirst) {
        let _ = peer.write_all(b"220 ready; ");
    }
    let mut octets = [0; 100];
    let few = if matches!(nature, Nature::Resets) { 5 } else { octets.len() };
    let Ok(count) = peer.read(&mut octets[..few]) else { return };
    if matches!(nature, Nature::Resets) && octets.starts_with(b"MPA I") {
        return;
    }
    if octets[..count].starts_with(b"MPA ID Req Frame") {
        match nature {
            Nature::SpeaksFirst | Nature::Waits => {
                let _ = peer.read(&mut octets);
            }
            Nature::Answers => {
                let _ = peer.write_all(b"-ERR unknown command\r\n");
                let _ = peer.read(&mut octets);
            }
            Nature::Closes | Nature::Resets => {}
        }
        return;
    }
    if count > 0 {
        peer.write_all(&octets[..count]).unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
    }
}

fn client(program: &Path, port: u16, family: &str, nonblocking: bool, scratch: &Path) -> String {
    let mut command = command(program, true, scratch);
    command.arg(port.to_string()).env("RDDP_FAMILY", family);
    if nonblocking {
        command.arg("nonblocking");
    }
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

#[test]
fn under_both_a_plain_server_is_spoken_to_in_plain_tcp_and_is_remembered() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["client.c"], scratch.path(), &[]);
    let natures = [Nature::SpeaksFirst, Nature::Answers, Nature::Closes, Nature::Resets, Nature::Waits];
    for (family, nonblocking) in [("both", false), ("both", true), ("sdp-or-tcp", true)] {
        for nature in natures {
            let (port, connections) = plain_server(nature);
            let said = client(&program, port, family, nonblocking, scratch.path());
            let wanted = match nature {
                Nature::SpeaksFirst => "220 ready; hello\n220 ready; hello\n",
                _ => "hello\nhello\n",
            };
            assert_eq!(said, wanted, "{nature:?}, {family}, nonblocking {nonblocking}");
            // One spoiled by an MPA Request, and two that are plain.
            assert_eq!(
                connections.load(Ordering::SeqCst),
                3,
                "{nature:?}, {family}, nonblocking {nonblocking}"
            );
        }
    }
}

#[test]
fn under_ddp_a_plain_server_is_an_error() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["client.c"], scratch.path(), &[]);
    let (foreign, closed) = ("what the server said is not MPA", "closed before the MPA startup");
    for (nature, errno, why) in [
        (Nature::SpeaksFirst, "EPROTO", foreign),
        (Nature::Answers, "EPROTO", foreign),
        (Nature::Closes, "ECONNRESET", closed),
        (Nature::Resets, "ECONNRESET", closed),
    ] {
        for (family, remedy) in [("ddp", "both"), ("sdp", "sdp-or-tcp")] {
            let (port, _) = plain_server(nature);
            let mut client = command(&program, true, scratch.path());
            let ended = client.arg(port.to_string()).env("RDDP_FAMILY", family).output().unwrap();
            let said = String::from_utf8(ended.stdout).unwrap();
            // TCP takes the first octets; the next call tells how the connection ended.
            let errnos = said.lines().map(|line| line.split_once(": ").unwrap().1);
            assert_eq!(errnos.collect::<Vec<_>>(), [errno, errno], "{nature:?}, {family}");
            // The second connection's line has a lower level.
            let wanted = format!(
                "rddp: program: connect 127.0.0.1:{port}: {why}; is it a plain server? try: rddp run \
                 --{remedy}, or a policy without this server (reported once)\n"
            );
            assert_eq!(String::from_utf8(ended.stderr).unwrap(), wanted, "{nature:?}, {family}");
        }
    }
}

#[test]
fn a_connection_that_is_refused_is_an_error_under_any_family() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["client.c"], scratch.path(), &[]);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for family in ["both", "sdp-or-tcp", "ddp", "sdp"] {
        for (nonblocking, call) in [(false, "connect"), (true, "SO_ERROR")] {
            let said = client(&program, port, family, nonblocking, scratch.path());
            assert_eq!(said, format!("{call}: ECONNREFUSED\n").repeat(2), "{family}, {nonblocking}");
        }
    }
}

/// Runs a client against an echoing program in DDPMODE under the policy's `family`.
fn under_rddp(family: &str, scratch: &Path, client: impl FnOnce(u16)) {
    beside_server(family, &[], scratch, client);
}

/// Runs a client as [`under_rddp`] does, beside a server with these arguments.
fn beside_server(family: &str, args: &[&str], scratch: &Path, client: impl FnOnce(u16)) {
    let program = compile(&["server.c"], scratch, &[]);
    let mut server = command(&program, true, &scratch.join("server"));
    let log = std::fs::File::create(scratch.join("server.log")).unwrap();
    server.args(args).env("RDDP_FAMILY", family).stdout(std::process::Stdio::piped()).stderr(log);
    let mut server = server.spawn().unwrap();
    let mut line = String::new();
    let mut out = std::io::BufReader::new(server.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    client(line.trim().parse().unwrap());
    server.kill().unwrap();
    server.wait().unwrap();
}

fn plain_client(port: u16, first: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut peer = TcpStream::connect(("127.0.0.1", port))?;
    peer.set_read_timeout(Some(Duration::from_secs(20)))?;
    peer.write_all(first)?;
    peer.shutdown(Shutdown::Write)?;
    let mut said = Vec::new();
    peer.read_to_end(&mut said)?;
    Ok(said)
}

#[test]
fn under_both_a_plain_client_is_served_in_plain_octets() {
    let scratch = TempDir::new().unwrap();
    under_rddp("both", scratch.path(), |port| {
        assert_eq!(plain_client(port, b"hello").unwrap(), b"hello");
        assert_eq!(plain_client(port, b"MPA ID Req?").unwrap(), b"MPA ID Req?");
        // A client that waits for the server to speak, for longer than a framed one would.
        let mut silent = TcpStream::connect(("127.0.0.1", port)).unwrap();
        std::thread::sleep(Duration::from_millis(1500));
        silent.write_all(b"at last").unwrap();
        silent.shutdown(Shutdown::Write).unwrap();
        let mut said = Vec::new();
        silent.read_to_end(&mut said).unwrap();
        assert_eq!(said, b"at last");
    });
}

#[test]
fn under_ddp_a_plain_client_is_reset_and_the_server_reads_nothing() {
    let scratch = TempDir::new().unwrap();
    under_rddp("ddp", scratch.path(), |port| {
        let error = plain_client(port, b"GET / HTTP/1.0\r\n\r\n").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        let error = plain_client(port, b"MPA ID Rep Frame0123456789").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    });
    let told = std::fs::read_to_string(scratch.path().join("server.log")).unwrap();
    let wanted = "rddp: program: accept: what a client said is not MPA; is it a plain client? try: rddp run \
                  --both here, or rddp run at the client (reported once)\n";
    assert_eq!(told, wanted);
}

/// The server's Reply says that it goes on in plain TCP, and the client does so, too: the server
/// accepts once.
#[test]
fn ends_that_allow_plain_tcp_go_on_in_it_where_one_has_ddpmode_and_the_other_sdp() {
    let (scratch, of_client) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let program = compile(&["client.c"], of_client.path(), &[]);
    for (server, family) in [("both", "sdp-or-tcp"), ("sdp-or-tcp", "both")] {
        for nonblocking in [false, true] {
            let case = format!("{family} to {server}, nonblocking {nonblocking}");
            under_rddp(server, scratch.path(), |port| {
                let said = client(&program, port, family, nonblocking, of_client.path());
                assert_eq!(said, "hello\nhello\n", "{case}");
            });
            beside_server(server, &["once"], scratch.path(), |port| {
                let said = client(&program, port, family, nonblocking, of_client.path());
                let refused = if nonblocking { "SO_ERROR" } else { "connect" };
                assert_eq!(said, format!("hello\n{refused}: ECONNREFUSED\n"), "{case}");
            });
        }
    }
}

#[test]
fn ends_in_ddpmode_and_of_sdp_are_told_of_each_other() {
    let (scratch, of_client) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let program = compile(&["client.c"], of_client.path(), &[]);
    let not_sdp = "the server speaks MPA, and not SDP; is it in DDPMODE? try: rddp run --ddp";
    let rejected = "the server rejected the MPA startup. If it";
    let speaks_sdp = |word| format!("{rejected} speaks SDP, try: rddp run --{word},");
    for (server, family, errno, hint) in [
        ("ddp", "sdp", "EPROTO", not_sdp.to_owned()),
        ("ddp", "sdp-or-tcp", "EPROTO", not_sdp.to_owned()),
        ("sdp", "ddp", "ECONNREFUSED", speaks_sdp("sdp")),
        ("sdp", "both", "ECONNREFUSED", speaks_sdp("sdp-or-tcp")),
        ("sdp-or-tcp", "ddp", "ECONNREFUSED", speaks_sdp("sdp")),
        ("both", "sdp", "ECONNREFUSED", format!("{rejected} is in DDPMODE, try: rddp run --ddp,")),
    ] {
        under_rddp(server, scratch.path(), |port| {
            let mut client = command(&program, true, of_client.path());
            let ended = client.arg(port.to_string()).env("RDDP_FAMILY", family).output().unwrap();
            let said = String::from_utf8(ended.stdout).unwrap();
            let errnos: Vec<_> = said.lines().map(|line| line.split_once(": ").unwrap().1).collect();
            assert_eq!(errnos, [errno, errno], "{family} to {server}: {said}");
            let told = String::from_utf8(ended.stderr).unwrap();
            let hint = format!("connect 127.0.0.1:{port}: {hint}");
            // The second connection's line has a lower level.
            assert!(told.lines().count() == 1 && told.contains(&*hint), "{told}");
            assert!(told.ends_with(" (reported once)\n"), "{told}");
        });
        let told = std::fs::read_to_string(scratch.path().join("server.log")).unwrap();
        let hints =
            told.matches("accept: the client speaks MPA, and not SDP; is it in DDPMODE? try: ").count();
        assert_eq!(hints, usize::from(server == "sdp"), "{told}");
    }
}

/// A server that has answered in MPA may keep its socket open: plain octets to it would be lost,
/// and the client would wait for ever.
#[test]
fn a_rejected_startup_is_a_refusal_where_the_server_does_not_say_that_it_takes_plain_tcp() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["client.c"], scratch.path(), &[]);
    for (family, nonblocking, call) in
        [("both", false, "connect"), ("both", true, "SO_ERROR"), ("sdp-or-tcp", false, "connect")]
    {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let rejected = [(); 2].map(|()| reject(&listener, b"no"));
            rejected.map(|mut peer| {
                let mut behind = Vec::new();
                let _ = peer.read_to_end(&mut behind);
                behind
            })
        });
        let said = client(&program, port, family, nonblocking, scratch.path());
        assert_eq!(said, format!("{call}: ECONNREFUSED\n").repeat(2), "{family}, {nonblocking}");
        assert_eq!(server.join().unwrap(), [b"", b""], "{family}, {nonblocking}");
    }
}

/// Each time: to begin in plain TCP would have a server that speaks first wait for its client's
/// first octets.
#[test]
fn a_server_that_rejects_and_goes_on_in_plain_tcp_is_spoken_to_in_the_same_connection() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["client.c"], scratch.path(), &[]);
    for nonblocking in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            for _ in 0..2 {
                let mut rejected = reject(&listener, b"rddp: plain TCP");
                rejected.write_all(b"220 ready; ").unwrap();
                serve(rejected, Nature::Waits);
            }
        });
        let said = client(&program, port, "both", nonblocking, scratch.path());
        assert_eq!(said, "220 ready; hello\n".repeat(2), "nonblocking {nonblocking}");
        server.join().unwrap();
    }
}

/// Rejects the Request of the next client with this private data, and leaves TCP open.
fn reject(listener: &TcpListener, data: &[u8]) -> TcpStream {
    let (mut peer, _) = listener.accept().unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut octets = Vec::new();
    loop {
        let mut one = [0];
        peer.read_exact(&mut one).unwrap();
        octets.push(one[0]);
        if let Ok(ResponderStep::Request { request, .. }) = Responder::new().handle(&octets) {
            let reply = request.reject(&StartupConfig::default(), data).unwrap();
            peer.write_all(&reply).unwrap();
            return peer;
        }
    }
}
