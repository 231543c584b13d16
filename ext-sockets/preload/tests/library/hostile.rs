//! Peers that break the protocols, or disappear in the middle, against a program in DDPMODE: the
//! Terminate that they get, the error that the program gets, and that its other connections go on.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::time::Duration;

use rddp_ddp::{Header, Msn, Stag};
use rddp_mpa::{Initiator, StartupConfig};
use rddp_rdmap::{Opcode, ReadRequestRepr, TerminateCode, TerminateRepr, tagged_header, untagged_header};
use rddp_test_support::{Fpdus, Peer, connect, read_to_end, segment};
use socket2::SockRef;
use tempfile::{NamedTempFile, TempDir};

use crate::support::{command, compile};

/// A program that echoes.
struct Server {
    child: Child,
    addr: SocketAddr,
    witness: Peer,
    _scratch: TempDir,
}

impl Server {
    fn new() -> Self {
        Self::telling(Stdio::inherit())
    }

    fn telling(errors: Stdio) -> Self {
        let scratch = TempDir::new().unwrap();
        let program = compile(&["echo.c"], scratch.path(), &[]);
        let mut command = command(&program, true, scratch.path());
        command.env("RDDP_FAMILY", "ddp").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        child.stdout = Some(said.into_inner());
        let addr = SocketAddr::from(([127, 0, 0, 1], line.trim().parse().unwrap()));
        let witness = ready(addr);
        Server { child, addr, witness, _scratch: scratch }
    }

    fn peer(&self) -> Peer {
        ready(self.addr)
    }

    fn tcp(&self) -> TcpStream {
        connect(self.addr)
    }

    /// Checks that a connection made before all others still works.
    fn others_go_on(&mut self) {
        self.witness.send_message(b"are you there?");
        assert_eq!(self.witness.payload(14), b"are you there?");
    }

    /// Ends the program and returns what it has counted.
    fn report(mut self) -> HashMap<String, u64> {
        self.others_go_on();
        drop(self.child.stdin.take());
        let mut said = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success());
        said.lines()
            .filter_map(|line| line.split_once(": "))
            .map(|(what, count)| (what.to_owned(), count.parse().unwrap()))
            .collect()
    }
}

/// Returns a hand-made peer, connected, that has sent its RTR.
fn ready(addr: SocketAddr) -> Peer {
    let mut peer = Peer::initiator(connect(addr), &StartupConfig::default());
    peer.open();
    peer
}

fn send_header(msn: u32, mo: u32, last: bool) -> Header {
    untagged_header(Opcode::Send, Stag(0), Msn(msn), mo, last)
}

fn read_request(size: u32) -> [u8; ReadRequestRepr::LEN] {
    let mut request = [0; ReadRequestRepr::LEN];
    ReadRequestRepr { sink_stag: Stag(5), sink_to: 6, size, src_stag: Stag(7), src_to: 8 }.emit(&mut request);
    request
}

// RFC 5041 §7.1, RFC 5040 §7.1, §7.2, RFC 5044 §8
#[test]
fn each_fault_gets_its_terminate_and_the_program_a_reset() {
    let mut server = Server::new();
    let read = untagged_header(Opcode::ReadRequest, Stag(0), Msn(1), 0, true);
    let atomic = untagged_header(Opcode::Immediate, Stag(0), Msn(1), 0, true);
    let faults: [(Header, &[u8], u16); 8] = [
        (send_header(3, 0, true), b"gap", 0x1203),
        (send_header(1, 5, true), b"gap", 0x1204),
        (tagged_header(Opcode::Write, Stag(0x1122_3344), 0, true), b"no memory", 0x1100),
        (tagged_header(Opcode::ReadResponse, Stag(0), 0, true), b"", 0x0206),
        (untagged_header(Opcode::SendInvalidate, Stag(9), Msn(1), 0, true), b"x", 0x0209),
        (atomic, &[0; 8], 0x0206),
        (read, &read_request(1), 0x0100),
        (send_header(1, 0, false), &[1; 60_000], 0x1205),
    ];
    for (header, payload, code) in &faults {
        let mut peer = server.peer();
        let octets = peer.frame_segment(header, payload);
        peer.octets(&octets);
        if *code == 0x1205 {
            let rest = peer.frame_segment(&send_header(1, 60_000, true), &[1; 6_000]);
            peer.octets(&rest);
        }
        assert_eq!(peer.terminate_code(), TerminateCode(*code), "{header}");
        server.others_go_on();
    }
    let report = server.report();
    assert_eq!(report["ECONNRESET"], faults.len() as u64, "{report:?}");
}

// RFC 5041 §7.1. DDP says nowhere how long a message will be: the first segment that is beyond the
// largest Send shows it.
#[test]
fn a_send_beyond_the_largest_gets_its_terminate_and_the_user_a_line() {
    let errors = NamedTempFile::new().unwrap();
    let server = Server::telling(errors.reopen().unwrap().into());
    let mut peer = server.peer();
    for (mo, last) in [(0, false), (32 << 10, true)] {
        peer.send_segment(&send_header(1, mo, last), &[1; 32 << 10]);
    }
    assert_eq!(peer.payload(64 << 10), [1; 64 << 10]);
    for (mo, count) in [(0, 32 << 10), (32 << 10, 32 << 10), (64 << 10, 1)] {
        peer.send_segment(&send_header(2, mo, false), &vec![2; count]);
    }
    // What is within the largest has been echoed.
    let terminate = peer.terminate();
    assert_eq!(terminate.code, TerminateCode(0x1205));
    server.report();
    let told = std::fs::read_to_string(errors.path()).unwrap();
    let wanted = ": the peer sent a Send of more than 65536 octets, the largest that this end takes; try: \
                  shorter Sends at the peer, or DDP_LARGEST_SEND here (reported once)";
    assert!(told.lines().count() == 1 && told.trim_end().ends_with(wanted), "{told}");
}

// RFC 5044 §8
#[test]
fn lengths_and_crcs_that_are_wrong_end_the_stream() {
    let mut server = Server::new();
    // ULPDUs too short for a header have correct CRCs here.
    for length in [0_u16, 1, 13, 17] {
        let mut peer = server.peer();
        let mut octets = length.to_be_bytes().to_vec();
        octets.extend(vec![0x41; length.into()]);
        octets.resize(octets.len().next_multiple_of(4), 0);
        octets.extend(rddp_mpa::crc32c(&octets).to_le_bytes());
        peer.octets(&octets);
        assert!(peer.ended().is_some(), "{length}");
    }
    let mut peer = server.peer();
    let mut octets = peer.frame_message(b"damaged");
    octets[25] ^= 1;
    peer.octets(&octets);
    assert_eq!(peer.terminate_code(), TerminateCode(0x2002));
    // The largest length, and no octets behind it.
    let mut peer = server.peer();
    peer.octets(&[0xff, 0xff, 0x41]);
    peer.fin();
    let _ = peer.ended();
    server.others_go_on();
    let report = server.report();
    assert_eq!(report["ECONNRESET"], 6, "{report:?}");
}

// RFC 5040 §7.1
#[test]
fn a_terminate_is_not_answered() {
    let server = Server::new();
    let mut peer = server.peer();
    let payload = TerminateRepr::bare(TerminateCode(0x1202)).octets();
    let octets =
        peer.frame_segment(&untagged_header(Opcode::Terminate, Stag(0), Msn::FIRST, 0, true), &payload);
    peer.octets(&octets);
    assert_eq!(peer.ended(), None);
    assert_eq!(server.report()["ECONNRESET"], 1);
}

// RFC 5044 §7.1.2
#[test]
fn malformed_startup_frames_are_refused() {
    let server = Server::new();
    let good = Initiator::new(&StartupConfig::default(), b"").unwrap().request().to_vec();
    let with = |at: usize, octet: u8| {
        let mut octets = good.clone();
        octets[at] = octet;
        octets
    };
    let bad = [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xff; 5000],
        with(3, b'X'),
        with(17, 0),    // revision 0
        with(17, 77),   // a revision that does not exist yet
        with(18, 0xff), // private data that are too long
        b"MPA ID Rep Frame\x40\x01\x00\x00".to_vec(),
    ];
    for octets in &bad {
        let mut tcp = server.tcp();
        tcp.write_all(octets).unwrap();
        let answer = read_to_end(&tcp);
        assert!(answer.is_empty() || answer.starts_with(b"MPA ID Rep Frame"), "{octets:?}: {answer:?}");
    }
    let report = server.report();
    let told = |errno: &str| report.get(errno).copied().unwrap_or(0);
    assert_eq!(told("EPROTO") + told("ECONNRESET"), bad.len() as u64, "{report:?}");
}

#[test]
fn octets_that_arrive_one_at_a_time_are_a_valid_stream() {
    let mut server = Server::new();
    let mut peer = server.peer();
    for octet in peer.frame_message(&[7; 300]) {
        peer.octets(&[octet]);
    }
    assert_eq!(peer.payload(300), [7; 300]);
    let mut tcp = server.tcp();
    for octet in Initiator::new(&StartupConfig::default(), b"private").unwrap().request() {
        tcp.write_all(&[*octet]).unwrap();
    }
    let mut reply = [0; 16];
    tcp.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"MPA ID Rep Frame");
    server.others_go_on();
}

/// A connection's octets are cut at every point, and then comes the end, or a reset.
#[test]
fn a_peer_may_go_away_anywhere() {
    let mut server = Server::new();
    let config = StartupConfig::default();
    let request = Initiator::new(&config, b"").unwrap().request().to_vec();
    let mut peer = server.peer();
    let rtr = Fpdus::negotiated(&peer.negotiated).frame(&segment::write(Stag(0), 0, true, b""));
    let sends: Vec<u8> =
        [&b"first"[..], b"", &[9; 33]].iter().flat_map(|payload| peer.frame_message(payload)).collect();
    let whole = [request, rtr, sends].concat();
    for upto in 0..=whole.len() {
        for resets in [false, true] {
            let mut tcp = server.tcp();
            tcp.write_all(&whole[..upto]).unwrap();
            if resets {
                SockRef::from(&tcp).set_linger(Some(Duration::ZERO)).unwrap();
                continue;
            }
            tcp.shutdown(Shutdown::Write).unwrap();
            read_to_end(&tcp);
        }
    }
    server.others_go_on();
    let report = server.report();
    let known = ["ECONNRESET", "ECONNABORTED", "EPIPE", "EPROTO", "accepted", "ends", "memory", "processor"];
    assert!(report.keys().all(|what| known.contains(&what.as_str())), "{report:?}");
}

/// Sends messages without octets, as fast as possible. The memory that the program takes for them
/// is no more than for any other peer.
#[test]
fn floods_of_empty_messages_cost_other_connections_nothing() {
    let mut server = Server::new();
    let mut floods: Vec<(&str, Peer, Vec<u8>)> = Vec::new();
    for what in ["sends", "writes", "reads"] {
        let mut peer = server.peer();
        peer.socket.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        let mut octets = Vec::new();
        for number in 1..=20_000 {
            octets.extend(match what {
                "sends" => peer.frame_message(b""),
                "writes" => peer.frame_segment(&tagged_header(Opcode::Write, Stag(number), 0, true), b""),
                _ => {
                    let header = untagged_header(Opcode::ReadRequest, Stag(0), Msn(number), 0, true);
                    peer.frame_segment(&header, &read_request(0))
                }
            });
        }
        floods.push((what, peer, octets));
    }
    for (what, peer, octets) in &mut floods {
        // A peer that does not read the answers may be kept from asking.
        let sent = peer.socket.write_all(octets);
        assert!(sent.is_ok() || *what == "reads", "{what}: {sent:?}");
        server.others_go_on();
    }
    for (what, peer, _) in &mut floods {
        if *what != "reads" {
            peer.send_message(b"still here");
            assert_eq!(peer.payload(10), b"still here", "{what}");
        }
    }
    let report = server.report();
    assert!(report["memory"] < 100_000, "{report:?}");
    println!("floods: {report:?}");
}

/// Opens connections that say nothing. `RDDP_HALF_OPEN` says how many, and has them stay until the
/// program is told.
#[test]
fn silent_peers_do_not_keep_others_from_connecting() {
    let asked = std::env::var("RDDP_HALF_OPEN").ok().map(|many| many.parse().unwrap());
    let many = asked.unwrap_or(300);
    let mut server = Server::new();
    let silent: Vec<TcpStream> = (0..many).map(|_| server.tcp()).collect();
    for mut tcp in silent.iter().step_by(2) {
        tcp.write_all(b"MPA ID Req").unwrap();
    }
    server.others_go_on();
    let mut late = server.peer();
    late.send_message(b"late");
    assert_eq!(late.payload(4), b"late");
    if asked.is_none() {
        return;
    }
    // RFC 5044 §7.1.2: a startup that takes too long is ended.
    for tcp in silent {
        tcp.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        read_to_end(&tcp);
    }
    drop(late);
    let report = server.report();
    assert_eq!(report["ETIMEDOUT"], many, "{report:?}");
    println!("{many} half open: {report:?}");
}
