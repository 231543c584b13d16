//! Places of FPDUs in TCP's segments (RFC 5044 §5.1, §6), seen by the writes that carry them.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::io::IoSlice;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use libc::{msghdr, socklen_t, ssize_t};
use rddp_mpa::{Rtr, RtrSet, StartupConfig, fpdu_len};
use rddp_stream::{Calls, Stream, Table};
use rddp_test_support::random_octets;
use socket2::SockRef;

use crate::common::{by_responder_on, initiator, tcp_pair_with_mss};

/// One write to TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Write {
    octets: usize,
    ends_record: bool,
}

thread_local! {
    /// Octets that TCP takes of the next write, if not all.
    static ROOM: Cell<Option<usize>> = const { Cell::new(None) };
    static WRITES: RefCell<Vec<Write>> = const { RefCell::new(Vec::new()) };
    /// Number of times TCP was asked for its segment size.
    static ASKED: Cell<u32> = const { Cell::new(0) };
}

unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    if (level, name) == (libc::IPPROTO_TCP, libc::TCP_MAXSEG) {
        ASKED.set(ASKED.get() + 1);
    }
    // SAFETY: the caller's value, as `getsockopt` asks.
    unsafe { libc::getsockopt(fd, level, name, value, len) }
}

unsafe extern "C" fn send(fd: c_int, octets: *const c_void, len: usize, flags: c_int) -> ssize_t {
    let taken = ROOM.take().map_or(len, |room| room.min(len));
    // As with TCP, a write of which a part is taken ends no segment.
    let flags = if taken < len { flags & !libc::MSG_EOR } else { flags };
    // SAFETY: the caller's octets, or fewer, as `send` asks.
    let sent = unsafe { libc::send(fd, octets, taken, flags) };
    let write = Write { octets: sent.try_into().unwrap(), ends_record: flags & libc::MSG_EOR != 0 };
    WRITES.with_borrow_mut(|writes| writes.push(write));
    sent
}

unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    let mut all = Vec::new();
    // SAFETY: the caller's message, whose pieces are its octets, as `sendmsg` asks.
    unsafe {
        for piece in std::slice::from_raw_parts((*message).msg_iov, (*message).msg_iovlen) {
            all.extend_from_slice(std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len));
        }
        send(fd, all.as_ptr().cast(), all.len(), flags)
    }
}

// The rest of an FPDU that TCP began to take is sent by a write of its own, which ends its segment:
// the next FPDU begins one.
#[test]
fn the_rest_of_an_fpdu_ends_its_segment() {
    // SAFETY: the functions of libc, two of which may take less; they keep their contracts.
    let calls = unsafe { Calls::from_table(Table { send, sendmsg, ..Table::libc() }) };
    let config = StartupConfig { rtr: RtrSet::only(Rtr::Write), ..StartupConfig::default() };
    let (mut hand, end) = by_responder_on(tcp_pair_with_mss(1448), &config, &initiator());
    let emss = SockRef::from(&end.tcp).tcp_mss().unwrap() as usize;
    let data = random_octets(1, 20_000);
    ROOM.set(Some(2 * emss + 700));
    let stream = Stream::new(end.tcp.as_raw_fd(), &end.state, &calls).unwrap();
    assert_eq!(stream.send(&[IoSlice::new(&data)], 0), Ok(data.len()));
    stream.shutdown(libc::SHUT_WR).unwrap();

    let mut begins = vec![0];
    let mut got = Vec::new();
    while let Some((header, payload)) = hand.segment() {
        if !payload.is_empty() {
            begins.push(begins[begins.len() - 1] + fpdu_len(header.len() + payload.len()));
            got.extend(payload);
        }
    }
    assert!(got == data);
    let writes = WRITES.take();
    assert_eq!(writes[0], Write { octets: 2 * emss + 700, ends_record: false });
    let (mut at, mut in_segment) = (writes[0].octets, 700);
    for write in &writes[1..] {
        at += write.octets;
        in_segment = if write.ends_record { 0 } else { (in_segment + write.octets) % emss };
        assert!(begins.contains(&at) && in_segment == 0, "{writes:?}");
    }
    assert!(writes.len() > 2, "{writes:?}");
}

// RFC 5044 §4.5: the EMSS may change. It is asked for where that costs little beside the rest, or
// where it was told long ago.
#[test]
fn tcp_is_asked_for_its_segment_size_now_and_then() {
    // SAFETY: the functions of libc, one of which counts; they keep their contracts.
    let calls = unsafe { Calls::from_table(Table { send, sendmsg, getsockopt, ..Table::libc() }) };
    let config = StartupConfig { rtr: RtrSet::only(Rtr::Write), ..StartupConfig::default() };
    let (mut hand, end) = by_responder_on(tcp_pair_with_mss(1448), &config, &initiator());
    let stream = Stream::new(end.tcp.as_raw_fd(), &end.state, &calls).unwrap();
    let mut asked_for = |octets: usize| {
        ASKED.set(0);
        let data = random_octets(1, octets);
        assert_eq!(stream.send(&[IoSlice::new(&data)], 0), Ok(octets));
        let mut left = octets;
        while left > 0 {
            left -= hand.segment().unwrap().1.len();
        }
        ASKED.get()
    };
    let begun = Instant::now();
    let often: u32 = (0..20).map(|_| asked_for(1000)).sum();
    let seconds = begun.elapsed().as_secs() as u32;
    assert!(often <= 1 + seconds, "{often} times for 20 short sends within {seconds} s");
    assert_eq!(asked_for(100), 0, "fits any segment");

    asked_for(1000);
    assert_eq!(asked_for(10_000), 1, "a long send asks");
    assert_eq!(asked_for(1000), 1, "and so does what follows it");
    ROOM.set(Some(700));
    asked_for(1000);
    assert_eq!(asked_for(1000), 1, "behind one of which TCP took a part");
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(asked_for(1000), 1, "after a second");
}
