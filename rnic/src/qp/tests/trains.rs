//! Trains: where their FPDUs begin, which segment size they believe, and what they copy.

use rddp_mpa::{Deframer, Step};

use super::*;
use crate::mem::send_octets;
use crate::wire::Outgoing;

/// An MSS at which FPDUs are aligned.
const MSS: u32 = 1448;

/// Returns a QP on a path with this MSS, its PD and queue, and the plain socket that is its peer.
fn on_path(mss: Option<u32>) -> (ProtectionDomain, CompletionQueue, QueuePair, TcpStream) {
    let rnic = Rnic::open().unwrap();
    let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(64).unwrap());
    let qp = pd.create_qp(&QpConfig::new(&cq)).unwrap();
    let (socket, peer) = sockets(mss);
    // Nothing of its own accord.
    let options = ConnectOptions { nudge: false, ..Default::default() };
    qp.attach(socket, negotiated(), &options, true).unwrap();
    (pd, cq, qp, peer)
}

/// RFC 5044 §5.1: after a write that TCP took in part its segments begin anywhere. The rest goes by
/// a write of its own, which ends its segment, so that what follows begins one; where FPDUs are not
/// aligned, all goes at once.
#[test]
fn the_rest_of_a_train_ends_its_segment() {
    for (mss, alone) in [(Some(MSS), true), (None, false)] {
        let (_pd, _cq, qp, _peer) = on_path(mss);
        qp.inner.anywhere().with_core(|qp, core| {
            let (connection, mut cx) = core.split(&qp.attrs).unwrap();
            let (watch, link) = connection.parts();
            let hello = SendWr::send_inline(1, b"hello");
            link.send_short(watch, &mut cx, &hello, |fd, octets| send_octets(fd, &octets[..5])).unwrap();
            core.sq.push(&SendWr::send_inline(2, b"later"), qp.attrs.local_memory()).unwrap();
            let (connection, mut cx) = core.split(&qp.attrs).unwrap();
            let (watch, link) = connection.parts();
            Outgoing::with_own(|out| {
                link.fill(&mut cx, out).unwrap();
                assert_eq!(out.is_rest_alone(), alone, "{mss:?}");
                link.write(watch, &mut cx, out).unwrap();
                link.fill(&mut cx, out).unwrap();
                assert_eq!(out.is_rest_alone(), !alone, "{mss:?}");
                link.write(watch, &mut cx, out).unwrap();
            });
        });
    }
}

/// RFC 5044 §4.5: the EMSS may change, so an answer of TCP holds for a time, and until trains are
/// longer than a segment: one at first, and more the longer the answer has been the same.
#[test]
fn tcp_is_asked_again_for_the_segment_size() {
    let (_pd, _cq, qp, _peer) = on_path(Some(MSS));
    let (before, later) = (Instant::now(), Instant::now() + PATIENCE);
    qp.inner.anywhere().with_core(|_, core| {
        let (watch, link) = core.connection.as_mut().unwrap().parts();
        link.pretend_emss(1000, later);
        assert_eq!(link.emss_behind(1000), 1000, "it holds");
        assert_ne!(link.emss_behind(1001), 1000, "a train of two segments");
        link.pretend_emss(1000, before);
        assert_ne!(link.emss_behind(1), 1000, "too old");
        let emss = watch.socket().tcp_mss().unwrap() as usize;
        // Unchanged each time: behind 2, 4, 8 long trains and so on.
        link.pretend_emss(emss, later);
        let trains = 1000;
        let asked = (0..trains).filter(|_| link.asks_behind(emss + 1)).count();
        assert!((15..=30).contains(&asked), "{asked} questions behind {trains} trains");
        link.pretend_emss(1000, later);
        link.emss_behind(1001);
        assert!(link.asks_behind(emss + 1), "it has changed, and may again");
    });
}

/// A train behind one that TCP has taken whole ends with whole super-segments, several of them;
/// behind one that TCP has cut, where alignment is lost, it is short again.
#[test]
fn a_train_grows_while_tcp_takes_them_whole() {
    let (pd, _cq, qp, _peer) = on_path(Some(MSS));
    let region = pd.allocate(1 << 20, Access::LOCAL_WRITE).unwrap();
    qp.inner.anywhere().with_core(|qp, core| {
        core.sq.push(&SendWr::send(1, region.whole()), qp.attrs.local_memory()).unwrap();
        let (connection, mut cx) = core.split(&qp.attrs).unwrap();
        let (watch, link) = connection.parts();
        let emss = link.emss();
        let (short, long) = ((72usize << 10).next_multiple_of(emss), 4 * (65_215 / emss) * emss);
        for (taken, of, next) in
            [(0, 0, short), (short, short, long), (100, 100, long), (short - 1, short, short)]
        {
            if of > 0 {
                link.note_taken(watch, &cx, taken, of);
            }
            let octets = Outgoing::with_own(|out| {
                link.fill(&mut cx, out).unwrap();
                out.len()
            });
            assert_eq!(octets, next, "behind {taken} of {of}");
        }
    });
}

/// RFC 5044 §4.4: octets that another peer may change while they are sent are copied before they
/// are summed, whatever lies beside them in a gather list.
#[test]
fn memory_of_others_is_copied_beside_memory_that_nobody_changes() {
    const LEN: usize = 8192;
    let (pd, _cq, [(qp, mut peer), _other]) = two_taken_over();
    let stable = pd.allocate(LEN, Access::STABLE).unwrap();
    let open = pd.allocate(LEN, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    let mut deframer = Deframer::new(Framing { crc: true, markers: false });
    for list in [vec![stable.whole(), open.whole()], vec![open.whole(), stable.whole()]] {
        qp.inner.anywhere().with_core(|qp, core| {
            core.sq.push(&SendWr::send(1, list).unsignaled(), qp.attrs.local_memory()).unwrap();
            let (connection, mut cx) = core.split(&qp.attrs).unwrap();
            let (watch, link) = connection.parts();
            Outgoing::with_own(|out| {
                link.fill(&mut cx, out).unwrap();
                open.write(0, b"changed").unwrap();
                link.write(watch, &mut cx, out).unwrap();
            });
        });
        open.write(0, &[0; 7]).unwrap();
        let (mut octets, mut payload) = (Vec::new(), 0);
        while payload < 2 * LEN {
            match deframer.step(&mut octets).expect("the CRC is of what was sent") {
                Step::Fpdu { ulpdu, used, .. } => {
                    payload += ulpdu.len() - 18;
                    octets.drain(..used);
                }
                Step::Need { .. } => {
                    let mut chunk = [0; 1 << 15];
                    let count = peer.read(&mut chunk).unwrap();
                    octets.extend_from_slice(&chunk[..count]);
                }
            }
        }
    }
}
