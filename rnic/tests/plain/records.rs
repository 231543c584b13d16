//! Records over TCP: each message has its length in front.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use rddp_rnic::{Access, MemoryRegion};
use rddp_rnic::{
    AsyncEventKind, Completion, ConnectOptions, PostError, QpState, RecordOptions, RecvWr, SendWr, Status,
    Transport,
};
use rddp_test_support::{Random, pattern};

use super::common::{End, PATIENCE};
use super::{MOMENT, connected};

fn end() -> End {
    end_with(RecordOptions::default())
}

fn end_with(records: RecordOptions) -> End {
    End::with(|config| {
        (config.transport, config.records) = (Transport::Record, records);
        config.max_recv = 1024;
    })
}

/// Returns the wire form of a message.
fn record(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u32).to_be_bytes()[..], message].concat()
}

fn post(end: &End, id: u64, region: &MemoryRegion, at: usize, len: usize) {
    end.qp.post_recv(RecvWr::one(id, region.sge(at..at + len))).unwrap();
}

/// Waits until a peer's connection is reset.
fn assert_reset(mut peer: TcpStream) {
    let error = std::io::copy(&mut peer, &mut std::io::sink()).expect_err("ended in order");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

/// Returns messages of all sizes, most of them short.
fn messages(random: &mut Random, count: usize) -> Vec<Vec<u8>> {
    let longest = |at: usize| [1, 5, 100, 5000, 100_000][at % 5];
    (0..count).map(|at| pattern(random.below(longest(at)), at as u8)).collect()
}

#[test]
fn each_record_completes_one_receive_however_the_stream_is_cut() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let end = end();
        let mut peer = connected(&end, seed % 2 == 0);
        let all = messages(&mut random, 60);
        let octets: Vec<u8> = all.iter().flat_map(|message| record(message)).collect();
        let piece = [1, 3, 1000, 100_000][seed as usize % 4];
        // One octet at a time is slow beyond some.
        let octets_cut = if piece == 1 { &octets[..3000.min(octets.len())] } else { &octets[..] };
        let writer = std::thread::spawn({
            let (octets, cut) = (octets.clone(), octets_cut.len());
            move || {
                let (mut early, late) = octets.split_at(cut);
                while !early.is_empty() {
                    let (now, later) = early.split_at((1 + random.below(piece)).min(early.len()));
                    peer.write_all(now).unwrap();
                    early = later;
                }
                peer.write_all(late).unwrap();
                peer
            }
        });
        let inbox = end.region(60 * 100_000, Access::LOCAL_WRITE);
        for id in 0..60 {
            if seed % 3 == 0 {
                std::thread::yield_now();
            }
            post(&end, id as u64, &inbox, id * 100_000, 100_000);
        }
        for (id, message) in all.iter().enumerate() {
            let done = end.success();
            assert_eq!((done.wr_id, done.byte_len as usize), (id as u64, message.len()), "seed {seed}");
            assert!(inbox.read(id * 100_000, message.len()).unwrap() == *message, "seed {seed}");
        }
        drop(writer.join().unwrap());
    }
}

/// Receives that come one by one, behind the octets: what is ahead waits for them.
#[test]
fn records_wait_for_receives() {
    let end = end();
    let mut peer = connected(&end, true);
    peer.write_all(&[record(b"one"), record(b""), record(b"three")].concat()).unwrap();
    std::thread::sleep(MOMENT);
    assert_eq!(end.qp.counters().octets_received, 0);
    let inbox = end.region(8, Access::LOCAL_WRITE);
    for message in [&b"one"[..], b"", b"three"] {
        post(&end, 1, &inbox, 0, 8);
        assert_eq!(end.success().byte_len as usize, message.len());
        assert_eq!(inbox.read(0, message.len()).unwrap(), message);
        assert_eq!(end.qp.counters().octets_received, 20);
    }
    assert!(end.cq.poll_one().is_none());
}

#[test]
fn short_records_are_read_many_at_a_time() {
    let end = end();
    let mut peer = connected(&end, true);
    let inbox = end.region(64 * 64, Access::LOCAL_WRITE);
    (0..64).for_each(|id| post(&end, id as u64, &inbox, id * 64, 64));
    peer.write_all(&record(&pattern(64, 5)).repeat(64)).unwrap();
    (0..64).for_each(|id| assert_eq!(end.success().wr_id, id));
    assert!(inbox.read(0, 64 * 64).unwrap() == pattern(64, 5).repeat(64));
    assert!(end.qp.counters().receive_calls < 10, "{:?}", end.qp.counters());
}

#[test]
fn sends_have_their_length_in_front() {
    let end = end();
    let mut peer = connected(&end, false);
    const LEN: usize = 300_000;
    let source = end.region(LEN, Access::empty());
    source.write(0, &pattern(LEN, 3)).unwrap();
    let gather = vec![source.sge(0..10), source.sge(10..100_000), source.sge(100_000..LEN)];
    let mut list = vec![
        SendWr::send_inline(0, b"hello"),
        SendWr::send_inline(1, b""),
        SendWr::send(2, gather),
        SendWr::send(3, Vec::new()),
    ];
    // More than TCP takes at once, so that it ends in the middle of some.
    list.extend((4..40).map(|id| SendWr::send(id, source.whole())));
    end.qp.post_sends(&list).unwrap();
    let mut wanted = [record(b"hello"), record(b""), record(&pattern(LEN, 3)), record(b"")].concat();
    wanted.extend(record(&pattern(LEN, 3)).repeat(36));
    std::thread::sleep(MOMENT);
    let mut octets = vec![0; wanted.len()];
    peer.read_exact(&mut octets).unwrap();
    assert!(octets == wanted);
    (0..40).for_each(|id| assert_eq!(end.success().wr_id, id));
}

#[test]
fn a_record_that_is_longer_than_its_receive_ends_the_connection() {
    let end = end();
    let mut peer = connected(&end, true);
    let inbox = end.region(64, Access::LOCAL_WRITE);
    (0..2).for_each(|id| post(&end, id, &inbox, 0, 8));
    peer.write_all(&record(b"too long.")).unwrap();
    assert_eq!([end.next(), end.next()].map(|done| done.status), [Status::MessageTooLong, Status::Flushed]);
    assert_eq!(end.event(), AsyncEventKind::RecordTooLong { len: 9 });
    assert_eq!((end.qp.state(), inbox.read(0, 8).unwrap()), (QpState::Error, vec![0; 8]));
    assert_reset(peer);
}

#[test]
fn what_does_not_fit_is_dropped_where_that_is_asked_for() {
    let end = end_with(RecordOptions { drop_long: true, ..RecordOptions::default() });
    let mut peer = connected(&end, true);
    let inbox = end.region(64, Access::LOCAL_WRITE);
    (0..5).for_each(|id| post(&end, id as u64, &inbox, 8 * id, if id == 3 { 0 } else { 8 }));
    let long = pattern(1_000_000, 7);
    let octets = [record(b"too long."), record(b"fits"), record(&long), record(b"no room"), record(b"end")];
    peer.write_all(&octets.concat()).unwrap();
    let done = [(); 5].map(|()| end.next()).map(|done: Completion| (done.wr_id, done.status, done.byte_len));
    let (cut, whole) = (Status::MessageTooLong, Status::Success);
    assert_eq!(done, [(0, cut, 8), (1, whole, 4), (2, cut, 8), (3, cut, 0), (4, whole, 3)]);
    let wanted = [b"too long", &b"fits\0\0\0\0"[..], &long[..8], &[0; 8], b"end"].concat();
    assert_eq!((inbox.read(0, 35).unwrap(), end.qp.state()), (wanted, QpState::ReadyToSend));
}

#[test]
fn a_record_that_is_longer_than_any_may_be_is_the_peers_fault() {
    for (max_record, len) in [(16 << 20, u32::MAX), (10, 11)] {
        let end = end_with(RecordOptions { max_record, drop_long: true });
        let mut peer = connected(&end, true);
        let inbox = end.region(64, Access::LOCAL_WRITE);
        (0..2).for_each(|id| post(&end, id, &inbox, 0, 64));
        peer.write_all(&record(b"0123456789")).unwrap();
        assert_eq!(end.success().byte_len, 10);
        peer.write_all(&len.to_be_bytes()).unwrap();
        assert_eq!(end.next().status, Status::Flushed);
        assert_eq!((end.event(), end.qp.state()), (AsyncEventKind::RecordTooLong { len }, QpState::Error));
        assert_reset(peer);
    }
}

#[test]
fn a_fin_between_records_ends_one_direction() {
    let end = end();
    let mut peer = connected(&end, true);
    let inbox = end.region(64, Access::LOCAL_WRITE);
    (0..3).for_each(|id| post(&end, id, &inbox, 0, 8));
    peer.write_all(&record(b"last")).unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    assert_eq!(end.success().byte_len, 4);
    assert_eq!([end.next(), end.next()].map(|done| done.status), [Status::Flushed; 2]);
    assert_eq!((end.event(), end.qp.state()), (AsyncEventKind::PeerDone, QpState::ReadyToSend));
    end.qp.post_send(&SendWr::send_inline(7, b"answer")).unwrap();
    assert_eq!(end.success().wr_id, 7);
    end.qp.disconnect();
    let mut rest = Vec::new();
    peer.read_to_end(&mut rest).unwrap();
    assert_eq!((rest, end.event()), (record(b"answer"), AsyncEventKind::CloseComplete));
}

#[test]
fn a_fin_inside_of_a_record_is_told() {
    for cut in 1..8 {
        let end = end();
        let mut peer = connected(&end, cut % 2 == 0);
        let inbox = end.region(64, Access::LOCAL_WRITE);
        (0..2).for_each(|id| post(&end, id, &inbox, 0, 8));
        peer.write_all(&record(b"half")[..cut]).unwrap();
        drop(peer);
        let done = [end.next(), end.next()].map(|done| (done.status, done.byte_len as usize));
        assert_eq!(done, [(Status::EndOfStream, cut.saturating_sub(4)), (Status::Flushed, 0)]);
    }
}

/// One more word than this end has for its peer: a Terminate. So TCP is reset.
#[test]
fn a_terminate_is_a_reset() {
    let end = end();
    let peer = connected(&end, true);
    end.qp.terminate();
    assert_reset(peer);
    assert_eq!(end.qp.state(), QpState::Error);
}

#[test]
fn receives_that_wait_until_they_are_full_are_refused() {
    let end = end();
    let inbox = end.region(64, Access::LOCAL_WRITE);
    let full = RecvWr::one(1, inbox.whole()).until_full();
    assert_eq!(end.qp.post_recv(full), Err(PostError::Transport));
}

/// Has a program in Erlang answer each message by the same.
#[test]
fn the_far_end_is_erlang() {
    for (any, host) in [("127.0.0.1:0", "{127,0,0,1}"), ("[::1]:0", "{0,0,0,0,0,0,0,1}")] {
        let end = end();
        let options = ConnectOptions::default();
        let listener = end.rnic.listen_by(Transport::Record, any.parse().unwrap(), &options).unwrap();
        let port = listener.local_addr().unwrap().port();
        let family = if host.len() > 12 { "inet6" } else { "inet" };
        let program = format!(
            "{{ok, S}} = gen_tcp:connect({host}, {port}, [binary, {family}, {{packet, 4}}, {{active, false}}]), \
             F = fun(F) -> case gen_tcp:recv(S, 0) of {{ok, B}} -> gen_tcp:send(S, B), F(F); _ -> ok end end, \
             F(F), halt()."
        );
        let Some(mut child) = super::programs::start("erl", &["-noinput", "-noshell", "-eval", &program])
        else {
            return;
        };
        let request = listener.accept(Some(PATIENCE)).unwrap().expect("the program did not come");
        request.accept(&end.qp, b"").unwrap();
        let all = messages(&mut Random::new(4), 50);
        let (source, inbox) =
            (end.region(100_000, Access::empty()), end.region(100_000, Access::LOCAL_WRITE));
        for message in &all {
            source.write(0, message).unwrap();
            post(&end, 1, &inbox, 0, 100_000);
            end.qp.post_send(&SendWr::send(2, source.sge(0..message.len())).unsignaled()).unwrap();
            assert_eq!(end.success().byte_len as usize, message.len());
            assert!(inbox.read(0, message.len()).unwrap() == *message);
        }
        end.qp.disconnect();
        assert!(child.wait().unwrap().success());
    }
}
