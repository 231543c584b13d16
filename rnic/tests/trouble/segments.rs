//! Alignment of FPDUs with TCP's segments (RFC 5044 §5.1, §6), as the peer's TCP counts them.

use std::net::TcpListener;
use std::os::fd::AsRawFd;

use rddp_rdmap::Opcode;
use rddp_rnic::{ConnectOptions, SendWr};
use rddp_test_support::{Peer, plain};
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

/// RFC 5044 §5.1: an FPDU that does not fit behind another begins a segment, even if TCP has to
/// keep several writes because its peer has no room, and could join them.
#[test]
fn fpdus_that_wait_in_tcp_begin_segments_of_their_own() {
    const COUNT: u32 = 24;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    SockRef::from(&listener).set_recv_buffer_size(4096).unwrap();
    let end = End::new();
    let options = ConnectOptions { mss: Some(1460), ..client_server() };
    let (mut raw, _) = listen_on(&listener, &end, &options, &plain());
    let before = segments(&raw);
    // One fits into a segment, and two do not.
    let source = end.region(900, ALL);
    let list: Vec<_> = (0..COUNT).map(|id| SendWr::send(id.into(), source.whole())).collect();
    end.qp.post_sends(&list).unwrap();
    for id in 0..COUNT {
        assert_eq!(end.success().wr_id, id.into());
    }
    for _ in 0..COUNT {
        assert_eq!(raw.expect(Opcode::Send).1.len(), 900);
    }
    // TCP may have cut some, to send what there is room for.
    let after = segments(&raw);
    assert!(after - before >= COUNT, "{COUNT} FPDUs came in {} segments", after - before);
}
