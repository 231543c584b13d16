use std::io::{IoSlice, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

use super::*;

/// A connection over loopback, of this family.
fn connection(address: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(address).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    (client, server)
}

/// The blocks of a file: type and body.
fn blocks(octets: &[u8]) -> Vec<(u32, &[u8])> {
    let word = |at: usize| u32::from_ne_bytes(octets[at..at + 4].try_into().unwrap());
    let (mut all, mut at) = (Vec::new(), 0);
    while at < octets.len() {
        let len = word(at + 4) as usize;
        assert_eq!(len % 4, 0);
        assert_eq!(word(at + len - 4) as usize, len, "the length is not the same at both ends");
        all.push((word(at), &octets[at + 8..at + len - 4]));
        at += len;
    }
    all
}

/// One test, as a process has one capture.
#[test]
fn octets_of_both_directions_are_frames_of_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    begin_at(&folder.path().join("a-%p-b")).unwrap();
    let name = folder.path().join(format!("a-{}-b", std::process::id()));
    assert!(is_on());

    let (client, _server) = connection("127.0.0.1:0");
    let long = vec![7; LONGEST + 5];
    let pieces = [IoSlice::new(b"abc"), IoSlice::new(b""), IoSlice::new(&long)];
    record(client.as_fd(), Direction::Sent, &pieces, 3 + long.len());
    record(client.as_fd(), Direction::Received, &[IoSlice::new(b"defgh")], 2);
    record_end(client.as_fd(), Direction::Sent);
    record_end(client.as_fd(), Direction::Sent);
    let octets = std::fs::read(&name).unwrap();
    let all = blocks(&octets);
    assert_eq!(all.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [0x0a0d_0d0a, 1, 1, 1, 6, 6, 6, 6]);

    // Interface, two words of time, two lengths, then the packet.
    let packet = |n: usize| {
        let body = all[n + 2].1;
        let len = u32::from_ne_bytes(body[12..16].try_into().unwrap()) as usize;
        &body[20..20 + len]
    };
    let ports = |packet: &[u8]| [20, 22].map(|at| u16::from_be_bytes([packet[at], packet[at + 1]]));
    let seq = |packet: &[u8]| u32::from_be_bytes(packet[24..28].try_into().unwrap());
    let (own, peer) = (client.local_addr().unwrap().port(), client.peer_addr().unwrap().port());
    assert_eq!(
        [ports(packet(2)), ports(packet(3)), ports(packet(4))],
        [[own, peer], [own, peer], [peer, own]]
    );
    assert_eq!([2, 3, 4, 5].map(|n| seq(packet(n))), [1, 1 + LONGEST as u32, 1, 9 + LONGEST as u32]);
    assert_eq!([2, 3, 4, 5].map(|n| packet(n).len() - 40), [LONGEST, 8, 2, 0]);
    assert_eq!(&packet(2)[40..44], b"abc\x07");
    assert_eq!(&packet(4)[40..], b"de");
    assert_eq!(packet(5)[33], 0x11, "FIN and ACK");

    // A connection of the other family, and a descriptor that is none.
    let (_client, mut server) = connection("[::1]:0");
    server.write_all(b"x").unwrap();
    record(server.as_fd(), Direction::Sent, &[IoSlice::new(b"x")], 1);
    record(std::io::stdin().as_fd(), Direction::Sent, &[IoSlice::new(b"x")], 1);
    let octets = std::fs::read(&name).unwrap();
    let all = blocks(&octets);
    assert_eq!(all.len(), 9);
    assert_eq!(all[8].1[20] >> 4, 6);

    // A server of IPv6 whose client has an address of IPv4: each frame has that, the first one too.
    let listener = TcpListener::bind("[::]:0").unwrap();
    let _client = TcpStream::connect(("127.0.0.1", listener.local_addr().unwrap().port())).unwrap();
    let (server, _) = listener.accept().unwrap();
    for direction in [Direction::Received, Direction::Sent] {
        record(server.as_fd(), direction, &[IoSlice::new(b"x")], 1);
    }
    let octets = std::fs::read(&name).unwrap();
    let all = blocks(&octets);
    assert_eq!(all.len(), 11);
    for (_, body) in &all[9..] {
        assert_eq!((body[20] >> 4, &body[32..36]), (4, &[127, 0, 0, 1][..]));
    }

    // A connection of plain TCP has frames of the other interface.
    let (client, _server) = connection("127.0.0.1:0");
    is_plain(&client);
    record(client.as_fd(), Direction::Sent, &[IoSlice::new(b"x")], 1);
    record_end(client.as_fd(), Direction::Sent);
    let octets = std::fs::read(&name).unwrap();
    let interfaces: Vec<u8> =
        blocks(&octets).iter().filter(|(kind, _)| *kind == 6).map(|(_, body)| body[0] + body[3]).collect();
    assert_eq!(interfaces, [0, 0, 0, 0, 0, 0, 0, 1, 1]);

    // Datagrams have a third one (RFC 768): a bundle of two, and one of no octets.
    let names = ["127.0.0.1:7", "127.0.0.2:9"].map(|name| name.parse().unwrap());
    let pieces = [IoSlice::new(b"abc"), IoSlice::new(b"defgh")];
    datagrams(names, Direction::Sent, &pieces, 7, 4);
    datagrams(names, Direction::Received, &[], 0, 0);
    let octets = std::fs::read(&name).unwrap();
    let all = blocks(&octets);
    let bodies: Vec<&[u8]> = all[all.len() - 3..].iter().map(|(_, body)| *body).collect();
    for (body, ports, message) in
        [(bodies[0], [7, 9], &b"abcd"[..]), (bodies[1], [7, 9], b"efg"), (bodies[2], [9, 7], b"")]
    {
        let word = |at: usize| u32::from_ne_bytes(body[at..at + 4].try_into().unwrap());
        let packet = &body[20..20 + word(12) as usize];
        let short = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
        assert_eq!((word(0), packet[9], &packet[28..]), (2, 17, message));
        assert_eq!(([short(20), short(22)], usize::from(short(24))), (ports, 8 + message.len()));
        assert_eq!((usize::from(short(2)), short(26)), (packet.len(), 0));
    }
    let names = ["[::1]:7", "[::1]:9"].map(|name| name.parse().unwrap());
    datagrams(names, Direction::Sent, &pieces[..1], 3, 3);
    let octets = std::fs::read(&name).unwrap();
    let (_, body) = blocks(&octets).pop().unwrap();
    assert_eq!((body[20] >> 4, body[26], &body[60..67]), (6, 17, &[0, 7, 0, 9, 0, 11, 0xff][..]));
    assert!(is_on());
}
