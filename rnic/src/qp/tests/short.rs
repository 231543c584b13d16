//! Short messages that go past the queue: when they do, and that nobody can tell by the result.

use std::cell::Cell;

use rddp_mpa::{Rtr, fpdu_len};
use rddp_rdmap::{AtomicOp, AtomicRequestRepr, ReadRequestRepr};
use rddp_stat::Counter;

use super::*;
use crate::capabilities::CAPABILITIES;
use crate::cq::Waiter;
use crate::mem::send_octets;
use crate::{Completion, MemoryRegion, Remote, Sge, Status};

const REMOTE: Remote = Remote { stag: Stag(0x100), to: 0x2000 };

/// A QP, its queue and memory, and the plain socket that is its peer.
struct End {
    /// Closed first: else the device would wait for it.
    peer: TcpStream,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair,
    region: MemoryRegion,
}

impl End {
    fn new() -> Self {
        Self::with(negotiated(), true, |_| {})
    }

    fn with(negotiated: Negotiated, active: bool, change: impl FnOnce(&mut QpConfig)) -> Self {
        Self::on_path(None, negotiated, active, change)
    }

    fn on_path(
        mss: Option<u32>,
        negotiated: Negotiated,
        active: bool,
        change: impl FnOnce(&mut QpConfig),
    ) -> Self {
        let rnic = Rnic::open().unwrap();
        let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(64).unwrap());
        let mut config = QpConfig::new(&cq);
        change(&mut config);
        let qp = pd.create_qp(&config).unwrap();
        let region = pd.allocate(8192, Access::LOCAL_WRITE | Access::REMOTE).unwrap();
        for at in 0..8192 {
            region.write(at, &[at as u8]).unwrap();
        }
        let (socket, peer) = sockets(mss);
        // Nothing of its own accord.
        let options = ConnectOptions { nudge: false, ..Default::default() };
        qp.attach(socket, negotiated, &options, active).unwrap();
        End { peer, pd, cq, qp, region }
    }

    fn with_core<T>(&self, f: impl FnOnce(&QpInner, &mut Core) -> T) -> T {
        self.qp.inner.anywhere().with_core(f)
    }

    /// Returns whether a request goes past the queue.
    fn goes_short(&self, wr: &SendWr) -> bool {
        self.with_core(|qp, core| qp.send_short(core, wr))
    }

    fn sent(&self) -> u64 {
        self.qp.counters().fpdus_sent
    }

    fn receive(&mut self, len: usize) -> Vec<u8> {
        let mut octets = vec![0; len];
        self.peer.read_exact(&mut octets).unwrap();
        octets
    }

    fn next(&self) -> Completion {
        assert!(self.cq.wait(Some(PATIENCE)).unwrap(), "no completion came");
        self.cq.poll_one().unwrap()
    }

    fn device(&self) -> &Arc<crate::adapter::Adapter> {
        &self.qp.inner.anywhere().attrs.device
    }
}

fn hello() -> SendWr {
    SendWr::send_inline(1, b"hello")
}

/// The FPDU of [`hello`].
const HELLO: usize = fpdu_len(18 + 5);

/// Returns an untagged FPDU of a peer that has sent nothing yet.
fn fpdu(opcode: Opcode, payload: &[u8]) -> Vec<u8> {
    let header = rddp_rdmap::untagged_header(opcode, Stag(0), Msn(1), 0, true);
    let fill = |offset: usize, out: &mut [u8]| out.copy_from_slice(&payload[offset..offset + out.len()]);
    let mut octets = Vec::new();
    let framing = Framing { crc: true, markers: false };
    Framer::new(framing).emit(header.octets().as_ref(), payload.len(), fill, &mut octets);
    octets
}

/// Requests of each kind that may go past the queue.
fn requests(end: &End) -> Vec<SendWr> {
    let sge = |from, len| Sge { len, ..end.region.sge(from..from + 1) };
    let nothing = Sge { stag: Stag(0), addr: 0, len: 0 };
    let mut requests = vec![
        SendWr::send_inline(1, b"").solicited(),
        SendWr::send_inline(2, &[7; CAPABILITIES.max_inline]),
        SendWr::send_invalidate(3, sge(5, 9), Stag(0xabcd)).solicited(),
        SendWr::send(4, vec![sge(3, 1), nothing, sge(200, 600)]).unsignaled(),
        SendWr::immediate(5, *b"8 octets").solicited(),
        SendWr::immediate(6, *b"8 octets"),
        SendWr::write_inline(7, b"inline", REMOTE),
        SendWr::write(8, sge(0, 0), REMOTE).unsignaled(),
        SendWr::send(9, sge(9, 40)).local_fence(),
        SendWr::send(10, sge(9, 40)).read_fence(),
    ];
    requests.extend((104..116).chain(1018..=1024).map(|len| SendWr::write(len, sge(1, len), REMOTE)));
    requests.extend((104..116).chain(1018..=1024).map(|len| SendWr::send(len, sge(1, len))));
    requests
}

#[test]
fn octets_counts_and_completions_are_those_of_the_queue() {
    for crc in [true, false] {
        let make = || End::with(Negotiated { crc, ..negotiated() }, true, |config| config.max_send = 64);
        let (mut short, mut queued) = (make(), make());
        for wr in requests(&short) {
            let before = short.qp.counters().send_calls;
            assert!(short.goes_short(&wr), "{wr:?}");
            assert_eq!(short.qp.counters().send_calls, before + 1);
        }
        let list = requests(&queued);
        queued.qp.post_sends(&list).unwrap();
        let counters = |end: &End| crate::Counters { send_calls: 0, ..end.qp.counters() };
        assert_eq!(counters(&short), counters(&queued));
        let position = |end: &End| {
            end.with_core(|_, core| core.connection.as_ref().unwrap().iwarp().unwrap().position())
        };
        assert_eq!(position(&short), position(&queued));
        let octets = short.qp.counters().octets_sent as usize;
        assert_eq!(short.receive(octets), queued.receive(octets));
        let count = list.iter().filter(|wr| wr.signaled).count();
        let completions = |end: &End| -> Vec<_> {
            let completions = std::iter::from_fn(|| end.cq.poll_one());
            completions.map(|done| Completion { qp: short.qp.num(), ..done }).collect()
        };
        let done = completions(&short);
        assert_eq!((done.len(), &done), (count, &completions(&queued)));
        for counter in [Counter::SendsSent, Counter::WritesSent, Counter::RequestsFailed] {
            let of = |end: &End| end.with_core(|_, core| core.tally.of(counter));
            assert_eq!(of(&short), of(&queued), "{counter:?}");
        }
    }
}

#[test]
fn posting_one_request_by_either_call_goes_past_the_queue() {
    let end = End::new();
    // A queue that holds nothing has never had memory for a request.
    end.qp.post_send(&hello()).unwrap();
    end.qp.post_batch(&[hello()]).unwrap();
    assert!(end.with_core(|_, core| core.sq.oldest() == 0), "no request was in the queue");
    assert_eq!((end.sent(), end.next().wr_id, end.next().wr_id), (2, 1, 1));
}

#[test]
fn other_requests_go_to_the_queue() {
    let end = End::new();
    let sge = end.region.sge(0..1025);
    for wr in [
        SendWr::send(1, sge),
        SendWr::write(1, sge, REMOTE),
        SendWr::write_immediate(1, end.region.sge(0..8), REMOTE, [0; 8]),
        SendWr::read(1, end.region.sge(0..8), REMOTE),
        SendWr::fetch_add(1, end.region.sge(0..8), REMOTE, 1),
        SendWr::cmp_swap(1, end.region.sge(0..8), REMOTE, 1, 2),
        SendWr::invalidate(1, Stag(1)),
    ] {
        assert!(!end.goes_short(&wr), "{wr:?}");
    }
    assert_eq!(end.sent(), 0);
}

/// RFC 5044 §4.5, §5.1: a message that fills a segment ends it, a longer one is cut.
#[test]
fn a_message_goes_past_the_queue_only_if_it_is_shorter_than_a_segment() {
    let end = End::on_path(Some(612), negotiated(), true, |_| {});
    let emss =
        end.with_core(|_, core| core.connection.as_ref().unwrap().watch.socket().tcp_mss().unwrap() as usize);
    assert!((200..=612).contains(&emss) && emss.is_multiple_of(4), "{emss}");
    let fills = emss - fpdu_len(18);
    let send = |len: usize| SendWr::send(1, end.region.sge(0..len));
    assert!(!end.goes_short(&send(fills)));
    assert!(!end.goes_short(&send(fills + 4)));
    assert!(end.goes_short(&send(fills - 4)));
    end.qp.post_send(&send(1024)).unwrap();
    assert!(end.sent() > 2, "it is cut");
}

#[test]
fn a_qp_that_is_not_ready_to_send_flushes() {
    for state in [QpState::Closing, QpState::Terminate, QpState::Error, QpState::Idle] {
        let end = End::new();
        end.with_core(|qp, core| {
            core.state = state;
            assert!(!qp.send_short(core, &hello()), "{state}");
            core.state = QpState::ReadyToSend;
        });
        assert_eq!(end.sent(), 0);
    }
    let end = End::new();
    end.with_core(|_, core| core.state = QpState::Terminate);
    end.qp.post_send(&hello()).unwrap();
    assert_eq!((end.next().status, end.sent()), (Status::Flushed, 0));
}

/// RFC 5044 §7.1.2
#[test]
fn a_responder_waits_for_its_peers_first_fpdu() {
    let mut end = End::with(negotiated(), false, |_| {});
    end.qp.post_send(&hello()).unwrap();
    assert_eq!(end.sent(), 0);
    end.peer.write_all(&octets_of("write_zero_length")).unwrap();
    assert_eq!(end.next().wr_id, 1);
    end.receive(HELLO);
    assert!(end.goes_short(&hello()));
}

#[test]
fn octets_that_tcp_was_promised_go_first() {
    let mut end = End::new();
    end.with_core(|_, core| core.connection.as_mut().unwrap().parts().1.promise_write());
    end.qp.post_send(&hello()).unwrap();
    let promised = end.receive(fpdu_len(14));
    assert_eq!(promised[2] & 0x80, 0x80, "tagged: {promised:?}");
    end.receive(HELLO);
}

#[test]
fn nothing_is_tried_while_tcp_is_full() {
    let mut end = End::new();
    end.with_core(|_, core| core.connection.as_mut().unwrap().watch.block());
    end.qp.post_send(&hello()).unwrap();
    assert_eq!(end.sent(), 0);
    assert_eq!(end.next().wr_id, 1);
    end.receive(HELLO);
}

/// Between Responses and messages of this end the queue decides.
#[test]
fn the_peers_read_or_atomic_has_its_turn() {
    for is_read in [true, false] {
        let mut end = End::new();
        let Remote { stag, to } = end.region.remote(0);
        let request = if is_read {
            let request =
                ReadRequestRepr { sink_stag: Stag(1), sink_to: 0, size: 8, src_stag: stag, src_to: to };
            fpdu(Opcode::ReadRequest, &request.octets())
        } else {
            let op = AtomicOp::FetchAdd { add: 1, mask: 0 };
            fpdu(Opcode::AtomicRequest, &AtomicRequestRepr { op, request_id: 1, stag, to }.octets())
        };
        let mut peer = end.peer.try_clone().unwrap();
        // No other thread reads or answers meanwhile.
        end.with_core(|qp, core| {
            peer.write_all(&request).unwrap();
            while core.tally.of(Counter::FpdusReceived) == 0 {
                qp.pull(core);
            }
            assert!(!qp.send_short(core, &hello()));
        });
        end.qp.post_send(&hello()).unwrap();
        let response = end.receive(if is_read { fpdu_len(14 + 8) } else { fpdu_len(18 + 12) });
        let opcode = [Opcode::AtomicResponse, Opcode::ReadResponse][usize::from(is_read)];
        assert_eq!(response[3] & 0xf, opcode.control() & 0xf);
        end.receive(HELLO);
    }
}

/// Octets of Responses count from the last message on, and then messages have their turn.
#[test]
fn a_message_past_the_queue_takes_its_turn() {
    let mut end = End::new();
    let Remote { stag: src_stag, to: src_to } = end.region.remote(0);
    let request = ReadRequestRepr { sink_stag: Stag(1), sink_to: 0, size: 8, src_stag, src_to };
    let answered =
        |end: &End| end.with_core(|_, core| core.connection.as_ref().unwrap().iwarp().unwrap().answered());
    end.peer.write_all(&fpdu(Opcode::ReadRequest, &request.octets())).unwrap();
    end.receive(fpdu_len(14 + 8));
    assert_eq!(answered(&end), fpdu_len(14 + 8));
    assert!(end.goes_short(&hello()));
    assert_eq!(answered(&end), 0);
}

/// A Read that is the RTR is in no queue, and a fence waits for it all the same.
#[test]
fn a_read_fence_waits_for_a_read_that_is_no_request() {
    let rtr = Negotiated { rtr: Some(Rtr::Read), ..negotiated() };
    let mut end = End::with(rtr, true, |_| {});
    end.receive(fpdu_len(18 + 28));
    assert!(!end.goes_short(&hello().read_fence()));
    assert!(end.goes_short(&hello().local_fence()), "that waits for requests alone");
    end.receive(HELLO);
    end.qp.post_send(&hello().read_fence()).unwrap();
    assert_eq!(end.sent(), 1);
    let header = rddp_rdmap::tagged_header(Opcode::ReadResponse, Stag(0), 0, true);
    let mut response = Vec::new();
    let framing = Framing { crc: true, markers: false };
    Framer::new(framing).emit(header.octets().as_ref(), 0, |_, _| {}, &mut response);
    end.peer.write_all(&response).unwrap();
    end.receive(HELLO);
}

#[test]
fn requests_complete_behind_those_before_them() {
    let mut end = End::new();
    end.qp.post_send(&SendWr::read(1, end.region.sge(0..8), REMOTE)).unwrap();
    for wr in [hello(), hello().read_fence(), hello().local_fence()] {
        assert!(!end.goes_short(&wr));
    }
    end.qp.post_send(&SendWr::send_inline(2, b"hello")).unwrap();
    end.receive(fpdu_len(18 + 28) + HELLO);
    assert!(end.cq.poll_one().is_none());
    let Sge { stag, addr, .. } = end.region.sge(0..8);
    let header = rddp_rdmap::tagged_header(Opcode::ReadResponse, stag, addr, true);
    let mut response = Vec::new();
    let framing = Framing { crc: true, markers: false };
    Framer::new(framing).emit(header.octets().as_ref(), 8, |_, out| out.fill(1), &mut response);
    end.peer.write_all(&response).unwrap();
    assert_eq!((end.next().wr_id, end.next().wr_id), (1, 2));
}

#[test]
fn with_markers_the_queue_sends() {
    let marked = Negotiated { markers_tx: true, ..negotiated() };
    let mut end = End::with(marked, true, |_| {});
    assert!(!end.goes_short(&hello()));
    end.qp.post_send(&hello()).unwrap();
    assert_eq!(end.receive(HELLO + 4)[..4], [0; 4], "a marker");
}

#[test]
fn a_request_is_refused_as_by_the_queue() {
    let end = End::new();
    let idle = end.pd.create_qp(&QpConfig::new(&end.cq)).unwrap();
    let foreign = Rnic::open().unwrap().alloc_pd().allocate(64, Access::LOCAL_WRITE).unwrap();
    let gone = end.pd.allocate(64, Access::LOCAL_WRITE).unwrap();
    let stale = gone.whole();
    gone.deregister().unwrap();
    let of_other_pd = end.pd.allocate(64, Access::LOCAL_WRITE).unwrap();
    let whole = end.region.whole();
    for gather in [
        crate::Gather::Inline(vec![1; CAPABILITIES.max_inline + 1]),
        crate::Gather::Inline(vec![1; 1024]),
        vec![Sge { len: 1, ..whole }; CAPABILITIES.max_sge + 1].into(),
        stale.into(),
        foreign.whole().into(),
        Sge { stag: Stag(of_other_pd.whole().stag.0 ^ 1), ..whole }.into(),
        Sge { addr: whole.addr + whole.len - 8, len: 9, ..whole }.into(),
        Sge { addr: u64::MAX, len: 9, ..whole }.into(),
        vec![Sge { len: 5, ..whole }, stale].into(),
        vec![Sge { len: u64::MAX, ..whole }; 2].into(),
    ] {
        for wr in [SendWr::send(1, gather.clone()), SendWr::write(1, gather, REMOTE)] {
            assert!(!end.goes_short(&wr), "{wr:?}");
            let refused = idle.post_send(&wr).unwrap_err();
            assert_eq!(end.qp.post_send(&wr), Err(refused), "{wr:?}");
        }
    }
    assert_eq!((end.sent(), end.cq.poll_one()), (0, None));
    assert!(end.goes_short(&hello()), "none has changed anything");
}

#[test]
fn a_queue_for_no_request_takes_none() {
    let end = End::with(negotiated(), true, |config| config.max_send = 0);
    assert_eq!(end.qp.post_send(&hello()), Err(PostError::QueueFull { capacity: 0 }));
    assert_eq!(end.sent(), 0);
}

/// Sends a request by a TCP that takes `most` octets.
fn send_part(end: &End, wr: &SendWr, most: usize) -> bool {
    end.with_core(|qp, core| {
        let (connection, mut cx) = core.split(&qp.attrs).unwrap();
        connection.post(&mut cx, wr, |fd, octets| send_octets(fd, &octets[..most]))
    })
}

#[test]
fn a_message_that_tcp_takes_in_part_completes_with_its_last_octet() {
    for (wr, taken) in [(hello(), 1), (hello(), 19), (hello(), HELLO - 1), (hello().unsignaled(), 3)] {
        let mut end = End::with(negotiated(), true, |config| config.max_send = 1);
        let mut whole = fpdu(Opcode::Send, b"hello");
        assert_eq!(whole.len(), HELLO);
        // So that the background thread does not send the rest.
        let cq = end.cq.clone();
        let _waiter = Waiter::new(cq.0.anywhere());
        assert!(send_part(&end, &wr, taken));
        end.with_core(|_, core| {
            let (watch, link) = core.connection.as_mut().unwrap().parts();
            assert_eq!((link.promised(), link.unaligned(), watch.is_blocked()), (HELLO - taken, HELLO, true));
            assert_eq!((core.sq.is_empty(), core.sq.has_unsent()), (false, false));
        });
        assert!((HELLO - taken..100).contains(&end.device().promised.held()));
        assert_eq!(end.qp.post_send(&hello()), Err(PostError::QueueFull { capacity: 1 }));
        let counters = end.qp.counters();
        assert_eq!((counters.octets_sent, counters.fpdus_sent), (taken as u64, 1));
        assert!(end.with_core(|_, core| core.sq.retire(crate::QpNum(0), &core.tally).is_none()), "not yet");
        // The first look at the socket sends the rest, unless the background thread has the core at
        // that moment, which asks whose the socket is.
        let done = Cell::new(None);
        await_that("the rest is not sent", || {
            done.set(done.get().or_else(|| end.cq.poll_one().map(|done| done.status)));
            end.with_core(|_, core| core.connection.as_mut().unwrap().parts().1.promised() == 0)
        });
        assert_eq!(done.get(), wr.signaled.then_some(Status::Success));
        assert_eq!(end.receive(HELLO), whole);
        assert_eq!(end.device().promised.held(), 0);
        end.with_core(|_, core| {
            assert!(
                core.sq.is_empty() && core.connection.as_ref().unwrap().iwarp().unwrap().unaligned() == 0
            );
            assert_eq!(core.tally.of(Counter::SendsSent), 1);
        });
        // The next message has the next number.
        assert!(end.goes_short(&hello()));
        whole[15] = 2;
        assert_eq!(end.receive(HELLO)[..20], whole[..20]);
        let counters = end.qp.counters();
        assert_eq!((counters.octets_sent, counters.fpdus_sent), (2 * HELLO as u64, 2));
    }
}

/// Somebody has to look for room: no program polls here.
#[test]
fn the_rest_of_a_message_goes_out_by_itself() {
    let mut end = End::new();
    end.with_core(|qp, core| {
        assert!(qp.send_short_by(core, &hello(), |fd, octets| send_octets(fd, &octets[..3])));
    });
    assert_eq!(end.receive(HELLO), fpdu(Opcode::Send, b"hello"));
}

#[test]
fn a_message_of_which_tcp_takes_nothing_changes_nothing() {
    let mut end = End::new();
    end.with_core(|qp, core| {
        let before = core.tally.counters();
        for result in
            [Ok(0), Err(io::ErrorKind::WouldBlock.into()), Err(io::ErrorKind::ConnectionReset.into())]
        {
            assert!(!qp.send_short_by(core, &hello(), |_, _| result));
        }
        assert!(core.sq.is_empty() && !core.connection.as_ref().unwrap().watch.is_blocked());
        assert_eq!(core.tally.counters(), before);
    });
    assert!(end.cq.poll_one().is_none());
    end.qp.post_send(&hello()).unwrap();
    assert_eq!(end.receive(HELLO), fpdu(Opcode::Send, b"hello"), "the first message has number 1 still");
}
