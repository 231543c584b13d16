//! The calls of a stream, with the results that TCP gives.

use std::io::{IoSlice, IoSliceMut, Seek, Write};
use std::os::fd::AsRawFd;
use std::time::Duration;

use rddp_mpa::StartupConfig;
use rddp_stream::{Errno, Options};
use rddp_test_support::{Sleeper, random_octets};

use crate::common::{End, answered, initiator, pair, responder, tcp_pair_with_mss};

#[test]
fn a_call_that_does_not_wait_is_eagain_without_octets() {
    let (a, b) = pair(&initiator(), &responder());
    assert_eq!(b.recv(&mut [0; 9], libc::MSG_DONTWAIT), Err(Errno::WOULD_BLOCK));
    b.nonblocking();
    assert_eq!(b.recv(&mut [0; 9], 0), Err(Errno::WOULD_BLOCK));
    assert_eq!(b.recv(&mut [0; 9], libc::MSG_WAITALL), Err(Errno::WOULD_BLOCK));
    a.send_all(b"abc");
    b.poll(libc::POLLIN, Duration::from_secs(5));
    assert_eq!(b.recv(&mut [0; 9], libc::MSG_WAITALL), Ok(3), "what there is");
}

#[test]
fn timeouts_end_a_wait() {
    let (a, b) = pair(&initiator(), &responder());
    b.state.set_receive_timeout(Some(Duration::from_millis(20)));
    assert_eq!(b.read(9), Err(Errno::WOULD_BLOCK));
    a.send_all(b"abc");
    assert_eq!(b.recv(&mut [0; 9], libc::MSG_WAITALL), Ok(3));
    a.state.set_send_timeout(Some(Duration::from_millis(20)));
    let block = random_octets(1, 32 << 20);
    let sent = a.send(&block).unwrap();
    assert!(sent < block.len(), "a part, and then the time was over");
    // The kernel may still find room for a few octets.
    let refused = (0..100).find_map(|_| a.send(&block).err());
    assert_eq!(refused, Some(Errno::WOULD_BLOCK));
    assert_eq!(a.state.send_timeout(), Some(Duration::from_millis(20)));
}

#[test]
fn looking_takes_nothing() {
    for markers in [false, true] {
        let (a, b) = pair(&initiator(), &Options { markers, ..responder() });
        a.send_all(b"first");
        a.send_all(b"");
        a.send_all(b"second");
        b.poll(libc::POLLIN, Duration::from_secs(5));
        let mut octets = [0; 20];
        for _ in 0..2 {
            assert_eq!(b.recv(&mut octets, libc::MSG_PEEK | libc::MSG_WAITALL), Ok(11));
            assert_eq!(&octets[..11], b"firstsecond");
            assert_eq!(b.stream().available(), Ok(11));
        }
        assert_eq!(b.read(3).unwrap(), b"fir");
        assert_eq!(b.recv(&mut octets, libc::MSG_PEEK), Ok(8));
        assert_eq!(&octets[..8], b"stsecond");
        assert_eq!(b.read(4).unwrap(), b"stse");
        assert_eq!(b.read(20).unwrap(), b"cond");
        assert_eq!(b.stream().available(), Ok(0));
    }
}

// tcp(7): SIOCINQ does not fail because the peer is gone, and leaves the error for the next read.
#[test]
fn counting_what_is_there_leaves_a_reset_to_the_next_read() {
    let (a, b) = pair(&initiator(), &responder());
    socket2::SockRef::from(&a.tcp).set_linger(Some(Duration::ZERO)).unwrap();
    drop(a);
    b.poll(libc::POLLIN, Duration::from_secs(5));
    assert_eq!(b.stream().available(), Ok(0));
    assert_eq!(b.read(9), Err(Errno::RESET));
}

#[test]
fn truncating_drops_octets() {
    for (count, drop) in [(100, 40), (50_000, 20_000), (50_000, 50_000)] {
        let (a, b) = pair(&initiator(), &responder());
        let data = random_octets(2, count);
        a.send_all(&data);
        let mut room = vec![9; drop];
        assert_eq!(b.recv(&mut room, libc::MSG_TRUNC | libc::MSG_WAITALL), Ok(drop));
        assert!(room.iter().all(|octet| *octet == 9), "nothing was written");
        a.send_all(b"end");
        let mut rest = vec![0; count - drop + 3];
        assert_eq!(b.recv(&mut rest, libc::MSG_WAITALL), Ok(rest.len()));
        assert_eq!(rest[..count - drop], data[drop..]);
        assert_eq!(&rest[count - drop..], b"end");
    }
}

#[test]
fn waiting_for_all_waits_for_all() {
    let (a, b) = pair(&initiator(), &responder());
    let data = random_octets(3, 200_000);
    std::thread::scope(|scope| {
        scope.spawn(|| data.chunks(777).for_each(|chunk| a.send_all(chunk)));
        let mut all = vec![0; data.len()];
        assert_eq!(b.recv(&mut all, libc::MSG_WAITALL), Ok(data.len()));
        assert!(all == data);
        a.stream().shutdown(libc::SHUT_WR).unwrap();
        assert_eq!(b.recv(&mut all, libc::MSG_WAITALL), Ok(0));
    });
}

#[test]
fn pieces_are_filled_and_sent_in_order() {
    let (a, b) = pair(&initiator(), &responder());
    for pieces in [1, 2, 17, 200, 1024] {
        let data = random_octets(4, 20_000);
        let source: Vec<_> = data.chunks(data.len().div_ceil(pieces)).map(IoSlice::new).collect();
        assert_eq!(a.stream().send(&source, 0), Ok(data.len()));
        let mut out = vec![0; data.len()];
        let mut sink: Vec<_> = out.chunks_mut(data.len().div_ceil(pieces)).map(IoSliceMut::new).collect();
        assert_eq!(b.stream().recv(&mut sink, libc::MSG_WAITALL), Ok(data.len()));
        assert_eq!(out, data);
    }
}

#[test]
fn no_octets_are_no_message_and_no_end() {
    let (a, b) = pair(&initiator(), &responder());
    assert_eq!((a.send(b""), b.recv(&mut [], 0)), (Ok(0), Ok(0)));
    a.send_all(b"x");
    assert_eq!(b.read(5).unwrap(), b"x");
}

#[test]
fn urgent_octets_and_error_queues_do_not_exist() {
    let (a, _b) = pair(&initiator(), &responder());
    assert_eq!(a.stream().send(&[IoSlice::new(b"!")], libc::MSG_OOB), Err(Errno::UNSUPPORTED));
    assert_eq!(a.recv(&mut [0], libc::MSG_OOB), Err(Errno::INVALID));
    assert_eq!(a.recv(&mut [0], libc::MSG_ERRQUEUE), Err(Errno::WOULD_BLOCK));
}

#[test]
fn each_direction_is_closed_for_itself() {
    let (a, b) = pair(&initiator(), &responder());
    a.send_all(b"last words");
    a.stream().shutdown(libc::SHUT_WR).unwrap();
    assert_eq!(a.send(b"x"), Err(Errno::BROKEN_PIPE));
    assert_eq!(b.read_to_end(100).unwrap(), b"last words");
    b.send_all(b"understood");
    assert_eq!(a.read(100).unwrap(), b"understood");
    b.stream().shutdown(libc::SHUT_RDWR).unwrap();
    assert_eq!((a.read(100), b.read(100)), (Ok(vec![]), Ok(vec![])));
    assert_eq!(a.stream().shutdown(9), Err(Errno::INVALID));
}

#[test]
fn a_reader_is_woken_by_the_end_of_its_direction() {
    let (_a, b) = pair(&initiator(), &responder());
    let sleeper = Sleeper::default();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            sleeper.is_here();
            b.read(10)
        });
        sleeper.await_asleep();
        b.stream().shutdown(libc::SHUT_RD).unwrap();
        assert_eq!(reader.join().unwrap(), Ok(vec![]));
    });
}

#[test]
fn a_peer_that_is_gone_is_a_reset_or_a_broken_pipe() {
    let (a, b) = pair(&initiator(), &responder());
    a.send_all(b"unread");
    b.poll(libc::POLLIN, Duration::from_secs(5));
    drop(b); // With unread octets: a reset.
    assert_eq!(a.read(10), Err(Errno::RESET));
    assert_eq!(a.send(b"x"), Err(Errno::BROKEN_PIPE));
}

#[test]
fn a_file_is_sent_from_where_it_is_told() {
    let (a, b) = pair(&initiator(), &responder());
    let data = random_octets(5, 300_000);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&data).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut offset = 1000;
            assert_eq!(a.stream().send_file(file.as_raw_fd(), Some(&mut offset), 200_000), Ok(200_000));
            assert_eq!(offset, 201_000);
            assert_eq!((&file).stream_position().unwrap(), 300_000, "untouched");
            (&file).rewind().unwrap();
            assert_eq!(a.stream().send_file(file.as_raw_fd(), None, usize::MAX), Ok(300_000));
            assert_eq!((&file).stream_position().unwrap(), 300_000);
            assert_eq!(a.stream().send_file(file.as_raw_fd(), None, 10), Ok(0), "the file's end");
            assert_eq!(a.stream().send_file(file.as_raw_fd(), None, 0), Ok(0));
            assert_eq!(a.stream().send_file(a.tcp.as_raw_fd(), None, 10), Err(Errno::INVALID));
            a.stream().shutdown(libc::SHUT_WR).unwrap();
        });
        let all = b.read_to_end(70_000).unwrap();
        assert!(all[..200_000] == data[1000..201_000] && all[200_000..] == data);
    });
}

#[test]
fn a_file_is_cut_into_full_segments() {
    let (active, tcp) = tcp_pair_with_mss(8000);
    let end = End::new(active, &initiator());
    assert_eq!(end.stream().greet(), Ok(false));
    let mut peer = answered(tcp, &StartupConfig::default(), &end);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&random_octets(6, 80_000)).unwrap();
    assert_eq!(end.stream().send_file(file.as_raw_fd(), Some(&mut 0), 80_000), Ok(80_000));
    end.stream().shutdown(libc::SHUT_WR).unwrap();
    let lens: Vec<usize> = std::iter::from_fn(|| peer.segment()).map(|(_, payload)| payload.len()).collect();
    // The first FPDU is the RTR.
    let full = lens[1];
    assert!(lens[1..lens.len() - 1].iter().all(|len| *len == full), "{lens:?}");
}
