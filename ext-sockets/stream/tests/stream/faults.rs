//! Peers that break the protocols: the Terminate that they get, and the error of the program.

use std::io::{Read, Write};
use std::time::Duration;

use rddp_ddp::{Header, Msn, Qn, Stag, UntaggedRepr};
use rddp_mpa::StartupConfig;
use rddp_octets::{Handshake, HandshakeOptions, Progress};
use rddp_rdmap::{Opcode, ReadRequestRepr, TerminateCode, TerminateRepr, tagged_header, untagged_header};
use rddp_stream::{Errno, Options, Why};
use rddp_test_support::{Peer, random_octets};

use crate::common::{
    End, by_initiator, by_ready_initiator, by_responder, initiator, kernel_poll, responder, tcp_pair,
};

fn send_header(msn: u32, mo: u32, last: bool) -> Header {
    untagged_header(Opcode::Send, Stag(0), Msn(msn), mo, last)
}

/// Checks that the peer gets this Terminate and the FIN behind it, and the program a reset.
fn ends_with(mut peer: Peer, end: &End, code: TerminateCode) {
    assert_eq!(end.read(100), Err(Errno::RESET));
    let ended = end.state.ended().unwrap();
    assert_eq!((ended.why, ended.code), (Why::Fault, code), "{ended}");
    assert_eq!(end.read(100), Err(Errno::RESET), "and so it stays");
    assert_eq!((end.send(b"x"), end.send(b"x")), (Err(Errno::RESET), Err(Errno::BROKEN_PIPE)));
    assert_eq!(peer.terminate_code(), code);
}

fn fault(header: &Header, payload: &[u8], code: TerminateCode) {
    let (mut peer, end) = by_ready_initiator();
    peer.send_segment(header, payload);
    ends_with(peer, &end, code);
}

// RFC 5041 §7.1, RFC 5040 §7.1, §7.2
#[test]
fn a_fault_ends_the_stream_with_the_terminate_that_names_it() {
    fault(&send_header(3, 0, true), b"gap", TerminateCode(0x1203));
    fault(&send_header(1, 5, true), b"gap", TerminateCode(0x1204));
    fault(&tagged_header(Opcode::Write, Stag(0x1122_3344), 0, true), b"no memory", TerminateCode(0x1100));
    fault(&tagged_header(Opcode::ReadResponse, Stag(0), 0, true), b"", TerminateCode(0x0206));
    fault(&untagged_header(Opcode::SendInvalidate, Stag(9), Msn(1), 0, true), b"x", TerminateCode(0x0209));
    fault(&untagged_header(Opcode::Immediate, Stag(0), Msn(1), 0, true), &[0; 8], TerminateCode(0x0206));
    let version = UntaggedRepr { last: true, rsvd_ulp: [0x83, 0, 0, 0, 0], qn: Qn(0), msn: Msn(1), mo: 0 };
    fault(&version.into(), b"x", TerminateCode(0x0205));
}

#[test]
fn a_read_of_memory_that_is_not_there_is_refused() {
    let read = ReadRequestRepr { sink_stag: Stag(5), sink_to: 6, size: 1, src_stag: Stag(7), src_to: 8 };
    let mut request = [0; ReadRequestRepr::LEN];
    read.emit(&mut request);
    let header = untagged_header(Opcode::ReadRequest, Stag(0), Msn(1), 0, true);
    fault(&header, &request, TerminateCode::INVALID_STAG);
}

// The largest Send is an option of both ends.
#[test]
fn a_send_longer_than_the_longest_is_refused() {
    let options = Options { max_send: 1000, ..responder() };
    let (mut peer, end) = by_initiator(&StartupConfig::default(), &options);
    peer.send_segment(&send_header(1, 0, false), &random_octets(1, 600));
    peer.send_segment(&send_header(1, 600, true), &random_octets(1, 401));
    assert_eq!(end.read(1000).unwrap(), random_octets(1, 600));
    ends_with(peer, &end, TerminateCode(0x1205));
}

// RFC 5044 §8 code 2: none of its octets is delivered; those before it are.
#[test]
fn a_damaged_fpdu_is_never_delivered() {
    for (size, room) in [(100, 1000), (30_000, 100_000), (30_000, 100)] {
        let (mut peer, end) = by_ready_initiator();
        peer.send_message(b"good");
        let mut bad = peer.frame_message(&random_octets(1, size));
        bad[size / 2] ^= 1;
        peer.octets(&bad);
        assert_eq!(end.read(4).unwrap(), b"good");
        assert_eq!(end.read(room), Err(Errno::RESET));
        assert_eq!(peer.terminate_code(), TerminateCode(0x2002));
    }
}

// RFC 5044 §7.1.2 r4: no good FPDU has come, so this end sends nothing.
#[test]
fn a_first_fpdu_that_is_damaged_gets_no_terminate() {
    let (mut peer, end) = by_initiator(&StartupConfig::default(), &responder());
    let mut bad = peer.frame_message(b"damaged");
    bad[10] ^= 1;
    peer.octets(&bad);
    assert_eq!(end.read(100), Err(Errno::RESET));
    assert_eq!(peer.ended(), None);
}

// RFC 5044 §7.1.2 r4: the fault is in a good FPDU, which lets this end send.
#[test]
fn a_first_fpdu_that_is_good_gets_the_terminate_about_it() {
    let (mut peer, end) = by_initiator(&StartupConfig::default(), &responder());
    peer.send_segment(&send_header(3, 0, true), b"gap");
    ends_with(peer, &end, TerminateCode(0x1203));
}

// RFC 5044 §8 code 3
#[test]
fn a_marker_that_points_elsewhere_ends_the_stream() {
    let (mut peer, end) = by_initiator(&StartupConfig::default(), &Options { markers: true, ..responder() });
    peer.send_message(b"first");
    let mut bad = peer.frame_message(&random_octets(1, 1000));
    // The marker at stream octet 512; the CRC is made to fit.
    let at = 512 - (peer.fpdus.framer.position() as usize - bad.len());
    bad[at + 3] ^= 4;
    let len = bad.len();
    let crc = rddp_mpa::crc32c(&bad[..len - 4]);
    bad[len - 4..].copy_from_slice(&crc.to_le_bytes());
    peer.octets(&bad);
    assert_eq!(end.read(5).unwrap(), b"first");
    ends_with(peer, &end, TerminateCode(0x2003));
}

#[test]
fn a_fin_inside_an_fpdu_is_a_reset() {
    for cut in [1, 10, 30, 99] {
        let (mut peer, end) = by_ready_initiator();
        peer.send_message(b"whole");
        let part = peer.frame_message(&random_octets(1, 100));
        peer.octets(&part[..cut]);
        peer.fin();
        assert_eq!(end.read(5).unwrap(), b"whole");
        assert_eq!(end.read(100), Err(Errno::RESET));
        assert_eq!(end.state.ended().unwrap().why, Why::Truncated);
    }
}

#[test]
fn a_fin_inside_a_message_is_a_reset() {
    let (mut peer, end) = by_ready_initiator();
    peer.send_segment(&send_header(1, 0, false), b"the first half of");
    peer.fin();
    assert_eq!(end.read(100).unwrap(), b"the first half of");
    assert_eq!(end.read(100), Err(Errno::RESET));
}

// RFC 5040 §7.1: a Terminate is never answered by one.
#[test]
fn a_terminate_ends_the_stream_and_is_not_answered() {
    let (mut peer, end) = by_responder(&StartupConfig::default(), &initiator());
    end.send_all(b"x");
    let payload = TerminateRepr::bare(TerminateCode(0x1202)).octets();
    peer.send_segment(&untagged_header(Opcode::Terminate, Stag(0), Msn::FIRST, 0, true), &payload);
    assert_eq!(end.read(100), Err(Errno::RESET));
    let ended = end.state.ended().unwrap();
    assert_eq!((ended.why, ended.code), (Why::Terminated, TerminateCode(0x1202)));
    assert_eq!(peer.ended(), None);
}

// RFC 6581 §9.1: an initiator that owns its octets cannot accept the Reply, and says so.
#[test]
fn the_terminate_of_a_refused_reply_is_told_to_the_responder() {
    let (mut tcp, other) = tcp_pair();
    let end = End::new(other, &responder());
    let handshake = |ird| {
        let startup = StartupConfig { ird, max_ird: ird, ..StartupConfig::default() };
        Handshake::initiator(HandshakeOptions { startup, ..HandshakeOptions::default() }, b"").unwrap()
    };
    tcp.write_all(handshake(7).request()).unwrap();
    assert_eq!(end.stream().greet(), Ok(true));
    let mut reply = [0; 24];
    tcp.read_exact(&mut reply).unwrap();
    let Progress::Refused(refused) = handshake(1).step(&reply) else { panic!("it wants 7 Reads") };
    tcp.write_all(&refused.fpdu()).unwrap();
    assert_eq!(end.read(100), Err(Errno::RESET));
    let (ended, terminate) = (end.state.ended().unwrap(), refused.terminate.unwrap().0);
    assert_eq!((ended.why, ended.code), (Why::Terminated, terminate.code));
}

#[test]
fn a_fault_is_reported_by_poll() {
    let (mut peer, end) = by_ready_initiator();
    peer.send_segment(&send_header(3, 0, true), b"gap");
    let (told, _) = end.poll(libc::POLLIN, std::time::Duration::from_secs(5));
    assert_eq!(told & (libc::POLLIN | libc::POLLERR), libc::POLLIN | libc::POLLERR, "or nobody asks");
    assert_eq!(end.read(1), Err(Errno::RESET));
}

// The peer goes on sending: it still gets the Terminate, since its octets are read and dropped.
#[test]
fn a_terminate_reaches_a_peer_that_goes_on_sending() {
    let (mut peer, end) = by_ready_initiator();
    peer.send_segment(&send_header(3, 0, true), b"gap");
    for number in 4..40 {
        peer.send_segment(&send_header(number, 0, true), &random_octets(1, 10_000));
    }
    assert_eq!(end.read(100), Err(Errno::RESET));
    let unread = kernel_poll(&end.tcp, libc::POLLIN, Duration::ZERO);
    assert_eq!(unread, 0, "closing with unread octets would be a reset");
    ends_with(peer, &end, TerminateCode(0x1203));
}

// RFC 5044 §4.4: no octet of an FPDU with a bad CRC reaches the program, though its socket was
// readable.
#[test]
fn a_large_fpdu_that_is_damaged_is_reported_by_the_read() {
    for (room, flags) in [(10, libc::MSG_PEEK), (10, 0), (100_000, 0)] {
        let (mut peer, end) = by_ready_initiator();
        peer.send_message(&random_octets(1, 20_000));
        assert_eq!(end.recv(&mut [0; 20_000], libc::MSG_WAITALL), Ok(20_000));
        let mut bad = peer.frame_message(&random_octets(2, 20_000));
        bad[10_000] ^= 1;
        peer.octets(&bad);
        assert_eq!(end.poll(libc::POLLIN, Duration::from_secs(10)).0 & libc::POLLIN, libc::POLLIN);
        assert_eq!(end.recv(&mut vec![0; room], flags), Err(Errno::RESET));
        assert_eq!(end.state.ended().unwrap().why, Why::Fault);
    }
}
