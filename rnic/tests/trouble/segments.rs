//! Alignment of FPDUs with TCP's segments (RFC 5044 §5.1, §6), as the peer's TCP counts them.

use std::net::TcpListener;
use std::os::fd::AsRawFd;

use rddp_ddp::{Header, Stag};
use rddp_mpa::fpdu_len;
use rddp_rdmap::Opcode;
use rddp_rnic::{ConnectOptions, Remote, SendWr};
use rddp_test_support::{Peer, plain, random_octets};
use socket2::SockRef;

use crate::common::raw::{client_server, listen_on};
use crate::common::{ALL, End};

/// Returns the number of segments with data that the peer's TCP has received.
fn segments(raw: &Peer) -> u32 {
    // SAFETY: all of it are integers.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` octets there.
    let result = unsafe {
        let place = (&raw mut info).cast();
        libc::getsockopt(raw.socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, place, &mut len)
    };
    assert_eq!(result, 0);
    info.tcpi_data_segs_in
}

/// RFC 5044 §5.1: a write longer than a segment ends its last one, and what follows begins one,
/// even if TCP has to keep several writes because its peer has no room, and could join them.
#[test]
fn fpdus_that_wait_in_tcp_begin_segments_of_their_own() {
    const COUNT: u32 = 24;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    SockRef::from(&listener).set_recv_buffer_size(4096).unwrap();
    let end = End::new();
    let options = ConnectOptions { mss: Some(1460), ..client_server() };
    let (mut raw, _) = listen_on(&listener, &end, &options, &plain());
    let before = segments(&raw);
    // A segment, and a little.
    let source = end.region(1500, ALL);
    for id in 0..COUNT {
        end.qp.post_send(&SendWr::send(id.into(), source.whole())).unwrap();
    }
    for id in 0..COUNT {
        assert_eq!(end.success().wr_id, id.into());
    }
    for _ in 0..COUNT {
        assert_eq!(raw.payload(1500).len(), 1500);
    }
    // TCP may have cut some, to send what there is room for.
    let after = segments(&raw);
    assert!(after - before >= 2 * COUNT, "{} FPDUs came in {} segments", 2 * COUNT, after - before);
}

/// RFC 5044 §5.1, RFC 5041 §5.2: a message is cut where a segment ends, and one write goes on with
/// what is behind it.
#[test]
fn messages_share_segments_and_no_fpdu_reaches_over_the_end_of_one() {
    const EMSS: usize = 1448;
    for op in [Opcode::Send, Opcode::Write] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let end = End::new();
        let options = ConnectOptions { mss: Some(1460), ..client_server() };
        let (mut raw, _) = listen_on(&listener, &end, &options, &plain());
        let source = end.region(1372, ALL);
        source.write(0, &random_octets(1, 1372)).unwrap();
        let remote = Remote { stag: Stag(7), to: 0 };
        let list: Vec<_> = (0..24)
            .map(|id| match op {
                Opcode::Send => SendWr::send(id, source.whole()),
                _ => SendWr::write(id, source.whole(), remote),
            })
            .collect();
        let before = end.qp.counters().send_calls;
        end.qp.post_sends(&list).unwrap();
        (0..24).for_each(|id| assert_eq!(end.success().wr_id, id));
        assert_eq!(end.qp.counters().send_calls - before, 1, "{op:?}");
        let mut at = 0;
        for _ in 0..24 {
            let mut message = Vec::new();
            loop {
                let (header, payload) = raw.expect(op);
                let place = match header {
                    Header::Untagged(header) => u64::from(header.mo),
                    Header::Tagged(header) => header.to,
                };
                assert_eq!(place, message.len() as u64);
                let fpdu = fpdu_len(header.len() + payload.len());
                assert!(at + fpdu <= EMSS, "{fpdu} octets from {at} on");
                at = (at + fpdu) % EMSS;
                message.extend(payload);
                if header.last() {
                    break;
                }
            }
            assert_eq!(message, random_octets(1, 1372));
        }
    }
}

/// An EMSS of a path of MTU 1450, on which no FPDU can fill a segment, does not end each write.
#[test]
fn fpdus_of_a_path_that_fits_none_go_in_one_write() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let end = End::new();
    let options = ConnectOptions { mss: Some(1410), ..client_server() };
    let (mut raw, _) = listen_on(&listener, &end, &options, &plain());
    let source = end.region(64 << 10, ALL);
    let before = end.qp.counters().send_calls;
    end.qp.post_send(&SendWr::send(1, source.whole())).unwrap();
    assert_eq!(end.success().wr_id, 1);
    assert_eq!(end.qp.counters().send_calls - before, 1);
    assert_eq!(raw.payload(64 << 10).len(), 64 << 10);
}
