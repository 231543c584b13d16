//! A hand-made peer whose messages cross those of an end of ours: it says what it says without
//! having seen the newest message of the end.
//!
//! | crossing | test |
//! |---|---|
//! | `SrcAvail` of the end, `SinkAvail` | `reading`: `octets_are_written_where_the_peer_gives_room` |
//! | spill of the end, late Read; `SendSm` | `reading`: `octets_are_those_of_the_call_however_late_they_are_read` |
//! | `SrcAvailCancel` of the peer, `RdmaRdCompl` | `reads`: `an_advert_that_is_taken_back_ends_as_far_as_it_was_read` |
//! | `SinkAvail` of the end, Data; `DisConn` | `writes`: `data_in_the_place_of_a_write_is_delivered`, `the_peers_end_returns_what_was_offered` |
//! | others | here |

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rddp_ddp::Header;
use rddp_rdmap::ReadRequestRepr;
use rddp_stream::{Errno, Options};
use rddp_test_support::random_octets;

use crate::advertising::{
    Came, DATA, MODE_CHANGE, RD_COMPL, SEND_SM, SINK_AVAIL, SINK_CANCEL, SRC_CANCEL, WR_COMPL,
};
use crate::common::{End, responder};
use crate::peer::{Sdp, number};
use crate::reading::{Advert, connected, help};
use crate::sdp;

pub(crate) const DIS_CONN: u8 = 2;
const SINK_CANCEL_ACK: u8 = 10;
const SINK: u32 = 0xabcd;

impl Sdp {
    /// Waits for the end's `SrcAvailCancel`, which is not acknowledged yet. Returns its number, and
    /// the Read of the peer's own advert, which waits for an answer.
    fn cancelled(&mut self) -> (u32, ReadRequestRepr) {
        let mut asked = None;
        loop {
            let acknowledged = self.ack;
            match self.came() {
                Came::Read(read) => asked = Some(read),
                Came::Message(message) if message[0] == SRC_CANCEL => {
                    let newest = std::mem::replace(&mut self.ack, acknowledged);
                    return (newest, asked.expect("a Read of the advert"));
                }
                Came::Message(message) => assert_eq!((message[0], message.len()), (DATA, 16)),
            }
        }
    }

    fn sink_avail(&mut self, len: u32, non_discards: u32) {
        let advert =
            [&len.to_be_bytes()[..], &SINK.to_be_bytes(), &7_u64.to_be_bytes(), &non_discards.to_be_bytes()];
        self.message(SINK_AVAIL, &advert.concat(), &[]);
    }

    /// Takes Writes into the peer's sink up to the report of them, which has to be right.
    fn written(&mut self) -> Vec<u8> {
        let mut got = Vec::new();
        loop {
            let (header, payload) = self.peer.segment().expect("a segment");
            if let Header::Tagged(header) = header {
                assert_eq!((header.stag.0, header.to), (SINK, 7 + got.len() as u64));
                got.extend(payload);
                continue;
            }
            self.ack = number(&payload, 8);
            if payload[0] == WR_COMPL {
                assert_eq!(number(&payload, 16) as usize, got.len());
                return got;
            }
            assert_eq!((payload[0], payload.len()), (DATA, 16), "an update of credits");
        }
    }

    /// Expects these octets as Data, and that no message is under way beside updates of credits.
    fn expect_data(&mut self, octets: &[u8]) {
        assert!(self.copied(octets.len()) == octets);
        while !self.peer.is_silent(Duration::from_millis(20)) {
            let message = self.next();
            assert_eq!((message[0], message.len()), (DATA, 16), "{message:x?}");
        }
    }
}

fn goes_on(peer: &mut Sdp, end: &End) {
    end.state.set_threshold(u64::MAX);
    assert_eq!(end.send(b"behind"), Ok(6));
    peer.expect_data(b"behind");
    peer.data(b"answer");
    assert_eq!((end.read(9), end.state.ended()), (Ok(b"answer".to_vec()), None));
}

/// Both ends advertise, and the end takes its advert of `octets` back. Then the peer says what
/// crosses the cancel. Returns how many of the octets go as Data.
type Crossing = fn(&mut Sdp, &Advert, newest: u32) -> usize;

#[test]
fn a_cancel_of_the_end_crosses_what_the_peer_says_of_the_advert() {
    const LEN: usize = 70_000;
    let crossings: [(&str, Crossing); 6] = [
        ("RdmaRdCompl of all", |peer, _, _| {
            peer.report(LEN as u32 - 1);
            0
        }),
        ("RdmaRdCompl of all, in two", |peer, _, newest| {
            peer.report(1000);
            peer.ack = newest;
            peer.report(LEN as u32 - 1001);
            0
        }),
        // The sink is rid of the advert, and does not answer a cancel of nothing.
        ("SendSm", |peer, _, _| {
            peer.message(SEND_SM, &[], &[]);
            LEN - 1
        }),
        ("RdmaRdCompl of a part and SendSm", |peer, _, _| {
            peer.report(30_000);
            peer.message(SEND_SM, &[], &[]);
            LEN - 30_001
        }),
        ("RdmaRdCompl of a part, and the answer", |peer, _, newest| {
            peer.report(30_000);
            peer.ack = newest;
            peer.message(SEND_SM, &[], &[]);
            LEN - 30_001
        }),
        ("a late Read", |peer, advert, newest| {
            peer.ask(1, advert.stag, 1, 500);
            peer.response(1);
            peer.report(500);
            peer.ack = newest;
            peer.message(SEND_SM, &[], &[]);
            LEN - 501
        }),
    ];
    for (name, crosses) in crossings {
        println!("{name}");
        let (mut peer, end) = connected(0);
        let (octets, theirs) = (random_octets(1, LEN), random_octets(2, 5000));
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let _stop = Stop(&over);
            // The call may have returned with octets in memory of the stream.
            scope.spawn(|| help(&end, &over));
            let sent = scope.spawn(|| end.send(&octets));
            let (advert, inline) = peer.advert();
            assert_eq!((advert.len as usize, advert.to, &inline[..]), (LEN, 0, &octets[..1]));
            peer.advertise(theirs.len(), &theirs[..10]);
            let (newest, read) = peer.cancelled();
            let count = crosses(&mut peer, &advert, newest);
            peer.ack = newest;
            peer.expect_data(&octets[LEN - count..]);
            assert_eq!(sent.join().unwrap(), Ok(LEN));
            peer.answer(&read, &theirs[10..], 3000);
        });
        let mut got = vec![0; theirs.len()];
        assert_eq!(end.recv(&mut got, libc::MSG_WAITALL), Ok(theirs.len()));
        assert!(got == theirs);
        assert_eq!(peer.told()[0], RD_COMPL);
        goes_on(&mut peer, &end);
    }
}

/// The refusal crosses the cancel, which the end then finds nothing for.
#[test]
fn a_send_sm_of_the_end_crosses_a_cancel() {
    let (mut peer, end) = Sdp::connected_to(&sdp(Options { ord: 0, ..responder() }));
    peer.advertise(1000, b"inline");
    peer.message(SRC_CANCEL, &[], &[]);
    assert_eq!(end.read(100), Ok(b"inline".to_vec()));
    peer.data(b"the rest");
    assert_eq!(end.read(100), Ok(b"the rest".to_vec()));
    assert_eq!(peer.told()[0], SEND_SM);
    goes_on(&mut peer, &end);
}

/// A source may change back to Combined while a sink's advert is on its way: that is dropped by
/// both, and Data goes on.
#[test]
fn a_sink_avail_of_the_end_crosses_a_change_to_combined() {
    let (mut peer, end) = Sdp::connected();
    peer.pipelined();
    thread::scope(|scope| {
        let reading = scope.spawn(|| end.read(20_000));
        let acknowledged = peer.ack;
        let _ = peer.offered();
        let newest = std::mem::replace(&mut peer.ack, acknowledged);
        peer.message(MODE_CHANGE, &[0x10, 0, 0, 0], &[]);
        peer.ack = newest;
        peer.data(b"data");
        assert_eq!(reading.join().unwrap(), Ok(b"data".to_vec()));
    });
    // The same again, with the next advert.
    peer.pipelined();
    thread::scope(|scope| {
        let reading = scope.spawn(|| end.read(20_000));
        let (_, stag) = peer.offered();
        peer.write(stag, 0, true, b"written");
        peer.wrote(7);
        assert_eq!(reading.join().unwrap(), Ok(b"written".to_vec()));
    });
    goes_on(&mut peer, &end);
}

/// The sink wins: adverts that crossed its own are dropped, and come again as Writes.
#[test]
fn a_sink_avail_of_the_end_crosses_src_avails() {
    let (mut peer, end) = Sdp::connected();
    let octets = random_octets(3, 30_000);
    peer.pipelined();
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut got = vec![0; 30_000];
            assert_eq!(end.recv(&mut got, libc::MSG_WAITALL), Ok(30_000));
            got
        });
        let acknowledged = peer.ack;
        let (len, stag) = peer.offered();
        assert_eq!(len, 30_000);
        let newest = std::mem::replace(&mut peer.ack, acknowledged);
        peer.advertise(20_000, b"");
        peer.advertise(10_000, b"");
        peer.ack = newest;
        peer.write(stag, 0, true, &octets);
        peer.wrote(30_000);
        assert!(reading.join().unwrap() == octets);
    });
    assert!(peer.peer.is_silent(Duration::from_millis(20)), "no Read of an advert that was dropped");
    goes_on(&mut peer, &end);
}

/// Both change their own half at once.
#[test]
fn changes_of_both_halves_cross() {
    let (mut peer, end) = connected(0);
    let octets = random_octets(4, (1 << 20) + 5000);
    thread::scope(|scope| {
        let sent = scope.spawn(|| end.send(&octets));
        let acknowledged = peer.ack;
        assert_eq!(peer.told()[0], MODE_CHANGE);
        let newest = std::mem::replace(&mut peer.ack, acknowledged);
        peer.pipelined();
        peer.ack = newest;
        read_all(&mut peer, &octets);
        assert_eq!(sent.join().unwrap(), Ok(octets.len()));
    });
    peer.advertise(3000, b"");
    thread::scope(|scope| {
        let reading = scope.spawn(|| end.recv(&mut [0; 3000], libc::MSG_WAITALL));
        peer.serve(&octets[..3000], 0, 1000);
        assert_eq!(reading.join().unwrap(), Ok(3000));
    });
    goes_on(&mut peer, &end);
}

/// Reads and reports each advert of the end, until these octets have come.
fn read_all(peer: &mut Sdp, octets: &[u8]) {
    let (mut at, mut msn) = (0, 0);
    while at < octets.len() {
        let (advert, inline) = peer.advert();
        assert_eq!((advert.inline, inline.len()), (0, 0));
        msn += 1;
        peer.ask(msn, advert.stag, 0, advert.len);
        assert!(peer.response(0) == octets[at..at + advert.len as usize]);
        peer.report(advert.len);
        at += advert.len as usize;
    }
}

/// Returns a peer and an end whose half is Pipelined, with nothing under way and no threshold.
fn pipelined_end() -> (Sdp, End) {
    let (mut peer, end) = connected(0);
    let octets = random_octets(5, (1 << 20) + 5000);
    thread::scope(|scope| {
        let sent = scope.spawn(|| end.send(&octets));
        assert_eq!(peer.told()[0], MODE_CHANGE);
        read_all(&mut peer, &octets);
        assert_eq!(sent.join().unwrap(), Ok(octets.len()));
    });
    end.state.set_threshold(u64::MAX);
    (peer, end)
}

/// A sink that Data has crossed is stale: nothing is written there. One that has seen them is not.
#[test]
fn a_sink_avail_crosses_data_of_the_end() {
    let (mut peer, end) = pipelined_end();
    assert_eq!(end.send(b"crosses"), Ok(7));
    peer.sink_avail(200_000, 0);
    peer.expect_data(b"crosses");
    // A message behind it shows that the end has met it.
    peer.data(b"x");
    assert_eq!(end.read(5), Ok(b"x".to_vec()));
    assert_eq!(end.send(b"as Data"), Ok(7));
    peer.expect_data(b"as Data");
    // The stale one has discarded the first Data: that count goes down again.
    peer.sink_avail(200_000, 1);
    peer.data(b"y");
    assert_eq!(end.read(5), Ok(b"y".to_vec()));
    assert_eq!(end.send(b"written"), Ok(7));
    assert_eq!(peer.written(), b"written");
    goes_on(&mut peer, &end);
}

/// A cancel of a sink is answered where it drops one that was not reported, and only there.
#[test]
fn a_cancel_of_the_peers_sink_crosses_its_report() {
    for is_written in [false, true] {
        let (mut peer, end) = pipelined_end();
        peer.sink_avail(200_000, 0);
        peer.data(b"x");
        assert_eq!(end.read(5), Ok(b"x".to_vec()));
        if is_written {
            assert_eq!(end.send(b"written"), Ok(7));
        }
        let acknowledged = peer.ack;
        peer.message(SINK_CANCEL, &[], &[]);
        peer.data(b"y");
        assert_eq!(end.read(5), Ok(b"y".to_vec()));
        peer.ack = acknowledged;
        if is_written {
            assert_eq!(peer.written(), b"written");
        } else {
            assert_eq!(peer.told()[0], SINK_CANCEL_ACK);
        }
        goes_on(&mut peer, &end);
    }
}

/// The cancel of a sink that was reported meanwhile needs no answer: `DisConn` follows.
#[test]
fn a_sink_cancel_of_the_end_that_needs_no_answer() {
    let (mut peer, end) = Sdp::connected();
    peer.pipelined();
    end.state.set_receive_timeout(Some(Duration::from_millis(30)));
    assert_eq!(end.recv(&mut vec![0; 50_000], 0), Err(Errno::WOULD_BLOCK));
    let _ = peer.offered();
    assert!(!end.stream().finish(Duration::ZERO));
    // Nothing was written; and its own end, which crosses the other's.
    peer.wrote(0);
    peer.message(DIS_CONN, &[], &[]);
    thread::scope(|scope| {
        let closing = scope.spawn(|| end.stream().finish(Duration::from_secs(20)));
        assert_eq!(peer.told()[0], SINK_CANCEL);
        assert_eq!(peer.told()[0], DIS_CONN);
        peer.expect_fin(&end);
        assert!(closing.join().unwrap());
    });
}

/// Octets that are written under a close that withdraws their sink are octets for nobody: a reset,
/// as for Data.
#[test]
fn a_sink_is_withdrawn_with_octets_under_way() {
    let (mut peer, end) = Sdp::connected();
    let octets = random_octets(6, 50_000);
    peer.pipelined();
    end.state.set_receive_timeout(Some(Duration::from_millis(30)));
    assert_eq!(end.recv(&mut vec![0; 50_000], 0), Err(Errno::WOULD_BLOCK));
    let (_, stag) = peer.offered();
    assert!(!end.stream().finish(Duration::ZERO));
    // Behind a gap as well, which the end puts aside.
    peer.write(stag, 20_000, true, &octets[20_000..]);
    peer.write(stag, 0, true, &octets[..20_000]);
    peer.wrote(50_000);
    peer.message(DIS_CONN, &[], &[]);
    assert!(end.stream().finish(Duration::from_secs(20)));
    while peer.peer.recv().is_some() {}
}

#[test]
fn dis_conns_cross() {
    let (mut peer, end) = Sdp::connected();
    end.stream().shutdown(libc::SHUT_WR).unwrap();
    peer.data(b"last words");
    peer.message(DIS_CONN, &[], &[]);
    assert_eq!(end.read(100), Ok(b"last words".to_vec()));
    assert_eq!((end.read(100), end.state.ended()), (Ok(vec![]), None));
    assert_eq!(peer.told()[0], DIS_CONN);
    peer.expect_fin(&end);
}

/// The peer's end crosses an advert of the end: what was read is reported behind it.
#[test]
fn a_dis_conn_crosses_a_src_avail_of_the_end() {
    let (mut peer, end) = connected(0);
    let octets = random_octets(7, 50_000);
    let acknowledged = peer.ack;
    thread::scope(|scope| {
        let sent = scope.spawn(|| end.send(&octets));
        let (advert, _) = peer.advert();
        let newest = std::mem::replace(&mut peer.ack, acknowledged);
        peer.message(DIS_CONN, &[], &[]);
        peer.ack = newest;
        peer.ask(1, advert.stag, 1, 49_999);
        assert!(peer.response(1) == octets[1..]);
        peer.report(49_999);
        assert_eq!(sent.join().unwrap(), Ok(octets.len()));
    });
    assert_eq!((end.read(9), end.state.ended()), (Ok(vec![]), None));
    end.stream().shutdown(libc::SHUT_WR).unwrap();
    assert_eq!(peer.told()[0], DIS_CONN);
    peer.expect_fin(&end);
}

/// The end's own end crosses an advert of the peer, which is read, or to be written, to.
#[test]
fn adverts_cross_a_dis_conn_of_the_end() {
    let (mut peer, end) = pipelined_end();
    let octets = random_octets(8, 50_000);
    end.stream().shutdown(libc::SHUT_WR).unwrap();
    let acknowledged = peer.ack;
    // Dropped: nothing is left to be written.
    peer.sink_avail(200_000, 0);
    peer.advertise(octets.len(), &octets[..10]);
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut got = vec![0; 50_000];
            assert_eq!(end.recv(&mut got, libc::MSG_WAITALL), Ok(50_000));
            got
        });
        assert_eq!(peer.told()[0], DIS_CONN);
        assert!(peer.ack > acknowledged);
        peer.serve(&octets, 10, 30_000);
        assert!(reading.join().unwrap() == octets);
    });
    peer.message(DIS_CONN, &[], &[]);
    assert_eq!((end.read(9), end.state.ended()), (Ok(vec![]), None));
}

/// Another thread ends the direction while a call lends its memory: nothing more is advertised, and
/// what is out is read to its end.
#[test]
fn a_dis_conn_goes_behind_an_advert_whose_call_waits() {
    let (mut peer, end) = connected(0);
    let octets = random_octets(2, 100_000);
    thread::scope(|scope| {
        let sent = scope.spawn(|| end.send(&octets));
        let (advert, _) = peer.advert();
        assert_eq!(end.stream().shutdown(libc::SHUT_WR), Ok(()));
        peer.ask(1, advert.stag, 1, 99_999);
        assert!(peer.response(1) == octets[1..]);
        peer.report(99_999);
        assert_eq!(peer.told()[0], DIS_CONN);
        assert_eq!(sent.join().unwrap(), Ok(100_000));
    });
    assert_eq!(end.send(b"more"), Err(Errno::BROKEN_PIPE));
    assert_eq!(end.state.ended(), None);
}

/// Ends the helper of a test, also of one that fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A sink comes while the octets lie in memory of the stream, whose call has returned: they are
/// written there, and the advert is none any more.
#[test]
fn a_sink_avail_crosses_a_spill_of_the_end() {
    let (mut peer, end) = pipelined_end();
    let octets = random_octets(9, 300_000);
    let mut lent = octets.clone();
    end.state.set_threshold(0);
    end.state.set_send_timeout(Some(Duration::from_millis(30)));
    assert_eq!(end.send(&lent), Ok(octets.len()));
    lent.fill(0xee);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = Stop(&over);
        scope.spawn(|| help(&end, &over));
        let acknowledged = peer.ack;
        let (advert, _) = peer.advert();
        assert_eq!(advert.len as usize, octets.len());
        let newest = std::mem::replace(&mut peer.ack, acknowledged);
        peer.sink_avail(400_000, 0);
        peer.ack = newest;
        let written = peer.written();
        assert!(written == octets);
    });
    end.state.set_send_timeout(None);
    goes_on(&mut peer, &end);
}
