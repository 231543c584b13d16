//! The state table (draft-hilland-rddp-verbs §6.2): each state against each call and each event.

use rddp_rdmap::TerminateCode;
use rddp_rnic::{
    Access, AsyncEventKind, ConnectError, ConnectOptions, Fault, QpState, RecvWr, SendWr, Stag, Status,
};
use rddp_test_support::{Peer, plain, segment};

use crate::common::End;
use crate::common::raw::{self, BOTH, Role, with_plain_raw};

const STATES: [QpState; 5] =
    [QpState::Idle, QpState::ReadyToSend, QpState::Closing, QpState::Terminate, QpState::Error];

/// Returns a QP in this state, and its peer; all events so far have been taken.
fn in_state(state: QpState, role: Role) -> (End, Option<Peer>) {
    if state == QpState::Idle {
        return (End::new(), None);
    }
    let (end, raw) = with_plain_raw(role);
    match state {
        QpState::Closing => end.qp.disconnect(),
        QpState::Terminate => end.qp.terminate(),
        QpState::Error => end.qp.abort(),
        _ => {}
    }
    assert_eq!(end.qp.state(), state);
    while end.rnic.async_event().is_some() {}
    (end, Some(raw))
}

fn events(end: &End) -> Vec<AsyncEventKind> {
    end.rnic.async_events().map(|event| event.kind).collect()
}

#[test]
fn each_call_in_each_state() {
    use QpState::{Closing, Error, Idle, ReadyToSend, Terminate};
    type Call = fn(&End);
    let local = AsyncEventKind::Fault(Fault::LocalCatastrophic);
    let calls: [(Call, [QpState; 5]); 4] = [
        (|end| end.qp.disconnect(), [Idle, Closing, Closing, Terminate, Error]),
        (|end| end.qp.terminate(), [Idle, Terminate, Closing, Terminate, Error]),
        (|end| end.qp.abort(), [Error, Error, Error, Error, Error]),
        (
            |end| {
                let state = end.qp.state();
                assert_eq!(end.qp.reset(), matches!(state, Idle | Error));
            },
            [Idle, ReadyToSend, Closing, Terminate, Idle],
        ),
    ];
    for role in BOTH {
        for (which, (call, after)) in calls.iter().enumerate() {
            for (state, after) in STATES.into_iter().zip(after) {
                let (end, _raw) = in_state(state, role);
                call(&end);
                assert_eq!(end.qp.state(), *after, "call {which} in {state}");
                // Only a Terminate of ours is told there and then.
                let expected =
                    if (state, *after) == (ReadyToSend, Terminate) { vec![local.clone()] } else { vec![] };
                assert_eq!(events(&end), expected, "call {which} in {state}");
            }
        }
    }
}

#[test]
fn only_an_idle_qp_is_connected() {
    for state in &STATES[1..] {
        let (end, _raw) = in_state(*state, Role::Active);
        let nowhere = "127.0.0.1:9".parse().unwrap();
        let refused = end.qp.connect(nowhere, &ConnectOptions::default());
        assert!(matches!(refused, Err(ConnectError::NotIdle(told)) if told == *state), "{refused:?}");
        let peer = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = std::net::TcpStream::connect(peer.local_addr().unwrap()).unwrap();
        let negotiated = with_plain_raw(Role::Active).0.qp.negotiated().unwrap();
        let refused = end.qp.attach(socket, negotiated, &ConnectOptions::default(), true);
        assert!(matches!(refused, Err(ConnectError::NotIdle(told)) if told == *state), "{refused:?}");
        assert_eq!(end.qp.state(), *state);
    }
}

#[test]
fn work_is_kept_in_idle_done_when_connected_and_flushed_elsewhere() {
    for role in BOTH {
        for state in STATES {
            let (end, mut raw) = in_state(state, role);
            let inbox = end.region(8, Access::LOCAL_WRITE);
            end.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
            if state == QpState::Closing {
                // A request would make it a bad close: `trouble/ends.rs` has that.
                assert_eq!(end.completions_of([1])[0].status, Status::Flushed);
                continue;
            }
            end.qp.post_send(&SendWr::send_inline(2, b"work")).unwrap();
            match state {
                QpState::Idle => {
                    assert!(end.cq.poll_one().is_none());
                    raw = Some(raw::connect_raw(role, &end, &raw::client_server(), &plain()));
                    raw.as_mut().unwrap().open();
                }
                QpState::ReadyToSend => {}
                _ => {
                    let completions = end.completions_of([1, 2]);
                    assert!(completions.iter().all(|completion| completion.status == Status::Flushed));
                    continue;
                }
            }
            let raw = raw.as_mut().unwrap();
            assert_eq!(raw.segment().unwrap().1, b"work");
            raw.send(&segment::send(1, 0, true, b"received"));
            assert!(end.completions_of([1, 2]).iter().all(|completion| completion.status == Status::Success));
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum FromPeer {
    Fin,
    Reset,
    Terminate,
    Good,
    Faulty,
}

impl FromPeer {
    fn happen(self, mut raw: Peer) -> Option<Peer> {
        match self {
            FromPeer::Reset => {
                raw.reset();
                return None;
            }
            FromPeer::Fin => raw.fin(),
            FromPeer::Terminate => raw.send(&segment::terminate(TerminateCode(0x0207))),
            FromPeer::Good => raw.send(&segment::write(Stag(0), 0, true, b"")),
            FromPeer::Faulty => raw.send(&segment::write(Stag(0x9999_9999), 0, true, b"x")),
        }
        Some(raw)
    }
}

#[test]
fn each_event_in_each_state() {
    use AsyncEventKind::{BadClose, CloseComplete, ConnectionLost, TerminateReceived};
    use QpState::{Closing, Error, Idle, ReadyToSend, Terminate};
    let received = TerminateReceived(TerminateCode(0x0207));
    let faulty = AsyncEventKind::Fault(Fault::write_access(rddp_rdmap::AccessError::Stag));
    let table = [
        (ReadyToSend, FromPeer::Fin, Idle, Some(CloseComplete)),
        (ReadyToSend, FromPeer::Reset, Error, Some(ConnectionLost)),
        (ReadyToSend, FromPeer::Terminate, Terminate, Some(received)),
        (ReadyToSend, FromPeer::Good, ReadyToSend, None),
        (ReadyToSend, FromPeer::Faulty, Terminate, Some(faulty)),
        (Closing, FromPeer::Fin, Idle, Some(CloseComplete)),
        (Closing, FromPeer::Reset, Error, Some(ConnectionLost)),
        (Closing, FromPeer::Terminate, Error, Some(BadClose)),
        (Closing, FromPeer::Good, Error, Some(BadClose)),
        (Closing, FromPeer::Faulty, Error, Some(BadClose)),
        (Terminate, FromPeer::Fin, Error, None),
        (Terminate, FromPeer::Reset, Error, Some(BadClose)),
        (Terminate, FromPeer::Terminate, Terminate, None),
        (Terminate, FromPeer::Good, Terminate, None),
        (Terminate, FromPeer::Faulty, Terminate, None),
    ];
    for role in BOTH {
        for (state, event, after, told) in &table {
            let (end, raw) = in_state(*state, role);
            let mut raw = raw.unwrap();
            // Past what the state has to say itself.
            match state {
                Closing => assert_eq!(raw.recv(), None),
                Terminate => drop(raw.terminate()),
                _ => {}
            }
            let before = end.qp.counters().octets_received;
            let raw = event.happen(raw);
            match told {
                Some(told) => assert_eq!(end.event(), *told, "{event:?} in {state}"),
                None if state == after => {
                    let deadline = std::time::Instant::now() + crate::common::PATIENCE;
                    while end.qp.counters().octets_received == before {
                        assert!(std::time::Instant::now() < deadline);
                        std::thread::yield_now();
                    }
                }
                None => {}
            }
            end.await_state(*after);
            assert_eq!(events(&end), [], "{event:?} in {state}");
            drop(raw);
        }
    }
}
