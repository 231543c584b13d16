//! Peers that break the protocols, or go away in the middle, against a program in DDPMODE: the Terminate that they get, what the program is
//! told, and that its other connections go on.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::time::Duration;

use rddp_ddp::{Header, Msn, Stag};
use rddp_mpa::{Deframer, Framer, Initiator, InitiatorStep, Negotiated, StartupConfig, Step};
use rddp_rdmap::{
    Opcode, ReadRequestRepr, TerminateCode, TerminateRepr, parse_header, tagged_header, untagged_header,
};
use socket2::SockRef;
use tempfile::TempDir;

use crate::support::{command, compile};

/// A program that says back what it is told.
struct Server {
    child: Child,
    addr: SocketAddr,
    witness: Peer,
    _scratch: TempDir,
}

impl Server {
    fn new() -> Self {
        let scratch = TempDir::new().unwrap();
        let program = compile(&["echo.c"], scratch.path(), &[]);
        let mut command = command(&program, true, scratch.path());
        let mut child =
            command.env("RDDP_FAMILY", "ddp").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        child.stdout = Some(said.into_inner());
        let addr = SocketAddr::from(([127, 0, 0, 1], line.trim().parse().unwrap()));
        let witness = Peer::ready(addr);
        Server { child, addr, witness, _scratch: scratch }
    }

    fn peer(&self) -> Peer {
        Peer::ready(self.addr)
    }

    fn tcp(&self) -> TcpStream {
        let tcp = TcpStream::connect(self.addr).unwrap();
        tcp.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        tcp.set_nodelay(true).unwrap();
        tcp
    }

    /// A connection that was there before all others goes on.
    fn others_go_on(&mut self) {
        self.witness.send(b"are you there?");
        assert_eq!(self.witness.payload(14), b"are you there?");
    }

    /// Ends the program. What it has counted.
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

/// A peer that makes its FPDUs by hand.
struct Peer {
    tcp: TcpStream,
    framer: Framer,
    deframer: Deframer,
    msn: Msn,
    stream: Vec<u8>,
}

impl Peer {
    /// Connected, and its RTR sent.
    fn ready(addr: SocketAddr) -> Self {
        let mut tcp = TcpStream::connect(addr).unwrap();
        tcp.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        tcp.set_nodelay(true).unwrap();
        let mut initiator = Initiator::new(&StartupConfig::default(), b"").unwrap();
        tcp.write_all(initiator.request()).unwrap();
        let mut stream = Vec::new();
        loop {
            match initiator.handle(&stream).unwrap() {
                InitiatorStep::Need { .. } => assert!(read_some(&mut tcp, &mut stream), "no answer"),
                InitiatorStep::Accepted { negotiated, used, .. } => {
                    stream.drain(..used);
                    let mut peer = Peer::new(tcp, &negotiated, stream);
                    let rtr = peer.encode(&tagged_header(Opcode::Write, Stag(0), 0, true), b"");
                    peer.write(&rtr);
                    return peer;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn new(tcp: TcpStream, negotiated: &Negotiated, stream: Vec<u8>) -> Self {
        let (framer, deframer) = (Framer::new(negotiated.tx()), Deframer::new(negotiated.rx()));
        Peer { tcp, framer, deframer, msn: Msn::FIRST, stream }
    }

    fn encode(&mut self, header: &Header, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let fill = |offset: usize, dst: &mut [u8]| dst.copy_from_slice(&payload[offset..offset + dst.len()]);
        self.framer.emit(&header.octets(), payload.len(), fill, &mut out);
        out
    }

    fn encode_send(&mut self, payload: &[u8]) -> Vec<u8> {
        let header = untagged_header(Opcode::Send, Stag(0), self.msn, 0, true);
        self.msn = self.msn.next();
        self.encode(&header, payload)
    }

    fn send(&mut self, payload: &[u8]) {
        let octets = self.encode_send(payload);
        self.write(&octets);
    }

    fn write(&mut self, octets: &[u8]) {
        self.tcp.write_all(octets).unwrap();
    }

    /// The next segment. `None` at the end.
    fn segment(&mut self) -> Option<(Header, Vec<u8>)> {
        loop {
            match self.deframer.step(&mut self.stream).unwrap() {
                Step::Fpdu { ulpdu, used } => {
                    let segment = self.stream[ulpdu].to_vec();
                    self.stream.drain(..used);
                    let header = parse_header(&segment).unwrap();
                    return Some((header, segment[header.len()..].to_vec()));
                }
                Step::Need { .. } => {
                    if !read_some(&mut self.tcp, &mut self.stream) {
                        return None;
                    }
                }
            }
        }
    }

    /// So many octets of Sends.
    fn payload(&mut self, count: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < count {
            all.extend(self.segment().expect("the stream goes on").1);
        }
        all
    }

    /// The Terminate at the end.
    fn terminate(&mut self) -> Option<TerminateCode> {
        let mut code = None;
        while let Some((header, payload)) = self.segment() {
            assert_eq!(code, None, "nothing follows a Terminate");
            if Opcode::from_number(header.control() & 0xf) == Some(Opcode::Terminate) {
                code = TerminateRepr::parse(&payload).map(|terminate| terminate.code);
            }
        }
        code
    }
}

/// `false`: there is no more.
fn read_some(tcp: &mut TcpStream, stream: &mut Vec<u8>) -> bool {
    let mut octets = [0; 65536];
    let count = match tcp.read(&mut octets) {
        Ok(count) => count,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => 0,
        Err(error) => panic!("{error}"),
    };
    stream.extend(&octets[..count]);
    count > 0
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
        let octets = peer.encode(header, payload);
        peer.write(&octets);
        if *code == 0x1205 {
            let rest = peer.encode(&send_header(1, 60_000, true), &[1; 6_000]);
            peer.write(&rest);
        }
        assert_eq!(peer.terminate(), Some(TerminateCode(*code)), "{header}");
        server.others_go_on();
    }
    let report = server.report();
    assert_eq!(report["ECONNRESET"], faults.len() as u64, "{report:?}");
}

// RFC 5044 §8
#[test]
fn lengths_and_crcs_that_are_wrong_end_the_stream() {
    let mut server = Server::new();
    // Of ULPDUs too short for a header, the CRCs are right.
    for length in [0_u16, 1, 13, 17] {
        let mut peer = server.peer();
        let mut octets = length.to_be_bytes().to_vec();
        octets.extend(vec![0x41; length.into()]);
        octets.resize(octets.len().next_multiple_of(4), 0);
        octets.extend(rddp_mpa::crc32c(&octets).to_le_bytes());
        peer.write(&octets);
        assert!(peer.terminate().is_some(), "{length}");
    }
    let mut peer = server.peer();
    let mut octets = peer.encode_send(b"damaged");
    octets[25] ^= 1;
    peer.write(&octets);
    assert_eq!(peer.terminate(), Some(TerminateCode(0x2002)));
    // The largest length, and then nothing.
    let mut peer = server.peer();
    peer.write(&[0xff, 0xff, 0x41]);
    peer.tcp.shutdown(Shutdown::Write).unwrap();
    let _ = peer.terminate();
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
    let octets = peer.encode(&untagged_header(Opcode::Terminate, Stag(0), Msn::FIRST, 0, true), &payload);
    peer.write(&octets);
    assert_eq!(peer.terminate(), None);
    assert_eq!(server.report()["ECONNRESET"], 1);
}

// RFC 5044 §7.1.2
#[test]
fn startup_frames_that_are_none_are_refused() {
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
        with(17, 77),   // of a time to come
        with(18, 0xff), // private data that are too long
        b"MPA ID Rep Frame\x40\x01\x00\x00".to_vec(),
    ];
    for octets in &bad {
        let mut tcp = server.tcp();
        tcp.write_all(octets).unwrap();
        let mut answer = Vec::new();
        while read_some(&mut tcp, &mut answer) {}
        assert!(answer.is_empty() || answer.starts_with(b"MPA ID Rep Frame"), "{octets:?}: {answer:?}");
    }
    let report = server.report();
    let told = |errno: &str| report.get(errno).copied().unwrap_or(0);
    assert_eq!(told("EPROTO") + told("ECONNRESET"), bad.len() as u64, "{report:?}");
}

#[test]
fn octets_one_at_a_time_are_a_stream_like_any_other() {
    let mut server = Server::new();
    let mut peer = server.peer();
    for octet in peer.encode_send(&[7; 300]) {
        peer.write(&[octet]);
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

/// A connection's octets up to every point, and then the end, or a reset.
#[test]
fn a_peer_may_go_away_anywhere() {
    let mut server = Server::new();
    let config = StartupConfig::default();
    let request = Initiator::new(&config, b"").unwrap().request().to_vec();
    let mut peer = server.peer();
    let rtr = {
        let mut fresh = Peer::new(server.tcp(), &negotiated(&server), Vec::new());
        fresh.encode(&tagged_header(Opcode::Write, Stag(0), 0, true), b"")
    };
    let sends: Vec<u8> =
        [&b"first"[..], b"", &[9; 33]].iter().flat_map(|payload| peer.encode_send(payload)).collect();
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
            let mut answer = Vec::new();
            while read_some(&mut tcp, &mut answer) {}
        }
    }
    server.others_go_on();
    let report = server.report();
    let known = ["ECONNRESET", "ECONNABORTED", "EPIPE", "EPROTO", "accepted", "ends", "memory", "processor"];
    assert!(report.keys().all(|what| known.contains(&what.as_str())), "{report:?}");
}

fn negotiated(server: &Server) -> Negotiated {
    let mut tcp = server.tcp();
    let mut initiator = Initiator::new(&StartupConfig::default(), b"").unwrap();
    tcp.write_all(initiator.request()).unwrap();
    let mut stream = Vec::new();
    loop {
        match initiator.handle(&stream).unwrap() {
            InitiatorStep::Need { .. } => assert!(read_some(&mut tcp, &mut stream)),
            InitiatorStep::Accepted { negotiated, .. } => return negotiated,
            other => panic!("{other:?}"),
        }
    }
}

/// Messages without octets, as fast as they go. The memory that the program takes for them is no more than for any other peer.
#[test]
fn floods_of_nothing_cost_nobody_else_anything() {
    let mut server = Server::new();
    let mut floods: Vec<(&str, Peer, Vec<u8>)> = Vec::new();
    for what in ["sends", "writes", "reads"] {
        let mut peer = server.peer();
        peer.tcp.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        let mut octets = Vec::new();
        for number in 1..=20_000 {
            octets.extend(match what {
                "sends" => peer.encode_send(b""),
                "writes" => peer.encode(&tagged_header(Opcode::Write, Stag(number), 0, true), b""),
                _ => {
                    let header = untagged_header(Opcode::ReadRequest, Stag(0), Msn(number), 0, true);
                    peer.encode(&header, &read_request(0))
                }
            });
        }
        floods.push((what, peer, octets));
    }
    for (what, peer, octets) in &mut floods {
        // Who does not take the answers may be kept from asking.
        let sent = peer.tcp.write_all(octets);
        assert!(sent.is_ok() || *what == "reads", "{what}: {sent:?}");
        server.others_go_on();
    }
    for (what, peer, _) in &mut floods {
        if *what != "reads" {
            peer.send(b"still here");
            assert_eq!(peer.payload(10), b"still here", "{what}");
        }
    }
    let report = server.report();
    assert!(report["memory"] < 100_000, "{report:?}");
    println!("floods: {report:?}");
}

/// Connections that say nothing. `RDDP_HALF_OPEN` says how many, and has them stay until the program is told.
#[test]
fn silent_peers_keep_nobody_out() {
    let asked = std::env::var("RDDP_HALF_OPEN").ok().map(|many| many.parse().unwrap());
    let many = asked.unwrap_or(300);
    let mut server = Server::new();
    let silent: Vec<TcpStream> = (0..many).map(|_| server.tcp()).collect();
    for mut tcp in silent.iter().step_by(2) {
        tcp.write_all(b"MPA ID Req").unwrap();
    }
    server.others_go_on();
    let mut late = server.peer();
    late.send(b"late");
    assert_eq!(late.payload(4), b"late");
    if asked.is_none() {
        return;
    }
    // RFC 5044 §7.1.2: a startup that takes too long is over.
    for mut tcp in silent {
        tcp.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let mut answer = Vec::new();
        while read_some(&mut tcp, &mut answer) {}
    }
    drop(late);
    let report = server.report();
    assert_eq!(report["ETIMEDOUT"], many, "{report:?}");
    println!("{many} half open: {report:?}");
}
