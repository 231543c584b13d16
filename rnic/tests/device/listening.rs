//! Listeners on a device: both ends are by RNICs, or the active one is by `rddp-verbs-device`.

use std::time::Duration;

use rddp_rnic::{
    Access, AsyncEventKind, ConnectError, ConnectOptions, ConnectRequest, Connected, Error, Listener,
    QpState, RecvWr, Rnic, RnicConfig, SendWr, Status,
};
use rddp_verbs_device::{DeviceError, Endpoint, Event, Offer, Queues};

use crate::support::{End, Host, Kind, PATIENCE, completion, event, host, quirk};

const KINDS: [Kind; 3] = [Kind::Siw, Kind::Rxe, Kind::Adapter];

fn hosts(name: &str) -> impl Iterator<Item = Host> {
    KINDS.into_iter().map(move |kind| host(&format!("{name}{}", kind as u8), kind, 0))
}

fn saying(private_data: &[u8]) -> ConnectOptions {
    ConnectOptions { private_data: private_data.to_vec(), ..ConnectOptions::default() }
}

fn listen(host: &Host) -> Listener {
    host.rnic.listen(host.address(1, 0), &ConnectOptions::default()).unwrap()
}

fn request(listener: &Listener) -> ConnectRequest {
    listener.accept(Some(PATIENCE)).unwrap().expect("nobody comes")
}

/// Begins to connect, and returns the request that the listener has of that.
fn ask(end: &End, listener: &Listener, options: &ConnectOptions) -> ConnectRequest {
    end.qp.begin_to(listener.local_addr().unwrap(), options).unwrap();
    request(listener)
}

/// Connects two ends by RNICs: the active and the passive one.
fn connect(host: &Host, listener: &Listener) -> (End, End) {
    let (active, passive) = (host.end(), host.end());
    ask(&active, listener, &ConnectOptions::default()).accept(&passive.qp, b"").unwrap();
    active.begun().unwrap();
    (active, passive)
}

/// Returns an active end that does not look whether it was accepted.
fn absent_minded(host: &Host, listener: &Listener) -> Endpoint {
    let queues = Queues { sends: 8, receives: 8, inline: 0 };
    let mut active =
        Endpoint::open(&host.device, None, listener.local_addr().unwrap(), queues, PATIENCE).unwrap();
    assert!(matches!(event(&mut active), Event::Resolved));
    active.connect(Offer::default()).unwrap();
    active
}

/// Waits for an event of this end, on a device that has others.
fn event_of(host: &Host, end: &End) -> AsyncEventKind {
    loop {
        let event = host.event();
        if event.qp == end.qp.num() {
            return event.kind;
        }
    }
}

/// Sends something, and waits until it has come.
fn send(from: &End, to: &End) {
    let inbox = to.pd.allocate(8, Access::LOCAL_WRITE).unwrap();
    to.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
    from.qp.post_send(&SendWr::send_inline(2, b"hello")).unwrap();
    let got = to.next();
    assert_eq!(from.next().wr_id, 2);
    assert_eq!((got.wr_id, got.status, got.byte_len), (1, Status::Success, 5));
    assert_eq!(inbox.read(0, 5).unwrap(), b"hello");
}

#[test]
fn both_ends_learn_what_the_other_says_and_send() {
    for host in hosts("l_says") {
        let listener = listen(&host);
        let (active, passive) = (host.end(), host.end());
        let options = ConnectOptions { ord: 3, ..saying(b"question") };
        let request = ask(&active, &listener, &options);
        assert!(request.private_data().starts_with(b"question") && request.request().is_none());
        assert!(request.accept(&passive.qp, b"answer").unwrap().is_none());
        assert_eq!(passive.qp.state(), QpState::ReadyToSend);
        let connected: Connected = active.begun().unwrap();
        assert!(connected.private_data.starts_with(b"answer"));
        assert_eq!((connected.ird, connected.ord), (options.ird, 3));
        assert_eq!(event_of(&host, &passive), AsyncEventKind::Established);
        send(&active, &passive);
        send(&passive, &active);
    }
}

#[test]
fn private_data_have_the_length_of_the_transport_at_most() {
    for host in hosts("l_long") {
        let limits = host.rnic.capabilities();
        let of = |len: usize| vec![7; len];
        let listener = listen(&host);
        for beyond in [0, 1] {
            let (active, passive) = (host.end(), host.end());
            let asked = ask(&active, &listener, &saying(&of(limits.max_request_data)));
            assert_eq!(asked.private_data(), of(limits.max_request_data));
            let accepted = asked.accept(&passive.qp, &of(limits.max_reply_data + beyond));
            if beyond == 0 {
                accepted.unwrap();
                assert_eq!(active.begun().unwrap().private_data, of(limits.max_reply_data));
            } else {
                let error = accepted.unwrap_err();
                assert!(matches!(error, ConnectError::Device(DeviceError::PrivateData { .. })), "{error}");
                assert!(matches!(active.begun(), Err(ConnectError::Rejected { .. })));
                assert_eq!(passive.qp.state(), QpState::Idle);
            }
        }
        let active = host.end();
        let error = active
            .qp
            .connect(listener.local_addr().unwrap(), &saying(&of(limits.max_request_data + 1)))
            .unwrap_err();
        assert!(matches!(error, ConnectError::Device(DeviceError::PrivateData { .. })), "{error}");
        let asked = ask(&active, &listener, &ConnectOptions::default());
        asked.reject(&of(limits.max_reject_data)).unwrap();
        let Err(ConnectError::Rejected { private_data }) = active.begun() else { panic!("not rejected") };
        assert_eq!(private_data, of(limits.max_reject_data));
        let asked = ask(&active, &listener, &ConnectOptions::default());
        assert!(asked.reject(&of(limits.max_reject_data + 1)).is_err());
        assert!(matches!(active.begun(), Err(ConnectError::Rejected { .. })));
    }
}

#[test]
fn a_request_is_rejected_or_dropped() {
    for host in hosts("l_no") {
        let (listener, active) = (listen(&host), host.end());
        for says in [true, false] {
            let asked = ask(&active, &listener, &ConnectOptions::default());
            if says {
                asked.reject(b"no room").unwrap();
            } else {
                drop(asked);
            }
            let Err(ConnectError::Rejected { private_data }) = active.begun() else { panic!("not rejected") };
            assert!(!says || private_data.starts_with(b"no room"));
        }
    }
}

/// RNICs end a connection by a message that finds no receive.
#[test]
fn receives_that_are_posted_before_are_there_for_the_first_message() {
    for host in hosts("l_first") {
        let listener = listen(&host);
        let passive = host.end();
        let inbox = passive.pd.allocate(8, Access::LOCAL_WRITE).unwrap();
        passive.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
        let mut active = absent_minded(&host, &listener);
        let asked = request(&listener);
        // Whoever looks at the passive end does it behind the message.
        let held = passive.cq.clone();
        asked.accept(&passive.qp, b"").unwrap();
        assert!(matches!(event(&mut active), Event::Connected(_)));
        active.post_send(&SendWr::send(2, Vec::new())).unwrap();
        assert_eq!(completion(&mut active).status, Status::Success);
        drop(held);
        assert_eq!((passive.next().wr_id, passive.qp.state()), (1, QpState::ReadyToSend));
    }
}

#[test]
fn requests_wait_until_the_peer_has_taken_up_the_connection() {
    let host = host("l_early", Kind::Rxe, 0);
    let listener = listen(&host);
    let passive = host.end();
    passive.qp.post_send(&SendWr::send_inline(1, b"at once")).unwrap();
    let mut active = absent_minded(&host, &listener);
    let memory = host.memory(8);
    active.post_receive(&RecvWr::one(2, memory.piece(0, 8))).unwrap();
    request(&listener).accept(&passive.qp, b"").unwrap();
    assert!(passive.cq.poll_one().is_none());
    assert!(matches!(event(&mut active), Event::Connected(_)));
    assert_eq!((passive.next().wr_id, completion(&mut active).byte_len), (1, 7));
}

/// On InfiniBand, word of the connection may come behind the peer's first message.
#[test]
fn an_answer_to_the_first_message_arrives_though_its_sender_closes_at_once() {
    for kind in KINDS {
        let host = host(&format!("l_answer{}", kind as u8), kind, quirk::NO_WORD);
        let listener = listen(&host);
        let (active, passive) = (host.end(), host.end());
        active.qp.post_recv(RecvWr::new(1, [])).unwrap();
        passive.qp.post_recv(RecvWr::new(2, [])).unwrap();
        ask(&active, &listener, &ConnectOptions::default()).accept(&passive.qp, b"").unwrap();
        active.begun().unwrap();
        active.qp.post_send(&SendWr::send_inline(3, b"").unsignaled()).unwrap();
        assert_eq!(passive.next().wr_id, 2);
        passive.qp.post_send(&SendWr::send_inline(4, b"")).unwrap();
        passive.qp.disconnect();
        let answer = active.next();
        assert_eq!((answer.wr_id, answer.status), (1, Status::Success), "{kind:?}");
        assert_eq!(event_of(&host, &passive), AsyncEventKind::Established);
        assert_eq!(event_of(&host, &passive), AsyncEventKind::CloseComplete);
    }
}

#[test]
fn a_peer_that_does_not_take_up_the_connection_has_its_time() {
    let host = host("l_absent", Kind::Rxe, 0);
    let options = ConnectOptions { timeout: Duration::from_millis(50), ..ConnectOptions::default() };
    let listener = host.rnic.listen(host.address(1, 0), &options).unwrap();
    let passive = host.end();
    passive.qp.post_recv(RecvWr::new(1, [])).unwrap();
    let active = absent_minded(&host, &listener);
    request(&listener).accept(&passive.qp, b"").unwrap();
    assert_eq!(passive.next().status, Status::Flushed);
    assert_eq!(host.event().kind, AsyncEventKind::ConnectionLost);
    assert_eq!(passive.qp.state(), QpState::Error);
    drop(active);
}

/// The time is that of the startup, and of nothing behind it.
#[test]
fn a_connection_that_was_taken_up_outlives_the_time_for_that() {
    let host = host("l_outlives", Kind::Rxe, 0);
    let options = ConnectOptions { timeout: Duration::from_millis(500), ..ConnectOptions::default() };
    let listener = host.rnic.listen(host.address(1, 0), &options).unwrap();
    let (active, passive) = connect(&host, &listener);
    assert_eq!(event_of(&host, &passive), AsyncEventKind::Established);
    std::thread::sleep(options.timeout + Duration::from_millis(100));
    send(&active, &passive);
}

#[test]
fn a_peer_that_has_gone_is_noticed_when_it_is_accepted() {
    for host in hosts("l_gone") {
        let (listener, passive) = (listen(&host), host.end());
        let before = host.objects();
        let active = absent_minded(&host, &listener);
        let asked = request(&listener);
        drop(active);
        // The thread that asks ends the peer's part; what is left is the request.
        host.until(|| host.objects() == before + 1);
        let error = asked.accept(&passive.qp, b"").unwrap_err();
        assert!(error.to_string().contains("peer has gone"), "{error}");
        assert_eq!(passive.qp.state(), QpState::Idle, "it may take another");
        let active = host.end();
        ask(&active, &listener, &ConnectOptions::default()).accept(&passive.qp, b"").unwrap();
        active.begun().unwrap();
        send(&active, &passive);
    }
}

#[test]
fn either_end_closes_in_order_behind_its_last_messages() {
    for kind in KINDS {
        for by_passive in [false, true] {
            let host = host(&format!("l_close{}{by_passive}", kind as u8), kind, quirk::SLOW);
            let listener = listen(&host);
            let (active, passive) = connect(&host, &listener);
            send(&active, &passive);
            assert_eq!(event_of(&host, &passive), AsyncEventKind::Established);
            let (from, to) = if by_passive { (&passive, &active) } else { (&active, &passive) };
            let inbox = to.pd.allocate(8, Access::LOCAL_WRITE).unwrap();
            for number in 0..4 {
                to.qp.post_recv(RecvWr::one(number, inbox.whole())).unwrap();
                from.qp.post_send(&SendWr::send_inline(number, b"last")).unwrap();
            }
            for number in 0..4 {
                assert_eq!((from.next().wr_id, to.next().wr_id), (number, number));
            }
            from.qp.disconnect();
            assert_eq!(event_of(&host, from), AsyncEventKind::CloseComplete, "{kind:?}");
            assert_eq!(from.qp.state(), QpState::Idle, "{kind:?} {by_passive}");
            // The other end hears of it by itself.
            host.until(|| to.qp.state() == QpState::Idle);
        }
    }
}

/// Messages that the device has been given arrive though the program drops the queue pair.
#[test]
fn a_passive_end_is_dropped_with_messages_under_way() {
    for host in hosts("l_drop") {
        let listener = listen(&host);
        let (active, passive) = connect(&host, &listener);
        send(&active, &passive);
        let inbox = active.pd.allocate(8, Access::LOCAL_WRITE).unwrap();
        active.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
        passive.qp.post_send(&SendWr::send_inline(2, b"bye").unsignaled()).unwrap();
        drop(passive);
        assert_eq!(active.next().byte_len, 3);
        assert_eq!(event_of(&host, &active), AsyncEventKind::CloseComplete);
    }
}

/// The close is the first thing that the peer hears of, once it has taken up the connection.
#[test]
fn a_close_before_the_peer_has_taken_up_the_connection_comes_behind_that() {
    let host = host("l_early_close", Kind::Rxe, 0);
    let listener = listen(&host);
    let passive = host.end();
    let mut active = absent_minded(&host, &listener);
    request(&listener).accept(&passive.qp, b"").unwrap();
    passive.qp.disconnect();
    assert!(matches!(event(&mut active), Event::Connected(_)));
    assert!(matches!(event(&mut active), Event::Disconnected));
    assert_eq!(event_of(&host, &passive), AsyncEventKind::Established);
    assert_eq!(event_of(&host, &passive), AsyncEventKind::CloseComplete);
}

#[test]
fn many_connect_and_nothing_is_left_of_them() {
    for host in hosts("l_many") {
        let listener = listen(&host);
        let mut ends = Vec::new();
        for _ in 0..50 {
            let (active, passive) = connect(&host, &listener);
            send(&active, &passive);
            ends.push((active, passive));
        }
        let waiting = [0; 5].map(|_| (absent_minded(&host, &listener), request(&listener)));
        drop((ends, listener, waiting));
        host.until_nothing_is_left();
    }
}

#[test]
fn too_many_that_wait_are_rejected() {
    let host = host("l_waiting", Kind::Siw, 0);
    let config = RnicConfig { max_waiting: 2, ..RnicConfig::default() };
    let rnic = Rnic::with_device(&config, Some(host.device.clone())).unwrap();
    let listener = rnic.listen(host.address(1, 0), &ConnectOptions::default()).unwrap();
    // One after the other: each asks in a thread of its own.
    let waiting = [0; 2].map(|_| (absent_minded(&host, &listener), request(&listener)));
    assert!(matches!(event(&mut absent_minded(&host, &listener)), Event::Failed(_)));
    drop(waiting);
    let mut another = absent_minded(&host, &listener);
    let end = host.end();
    drop(end);
    request(&listener).reject(b"seen").unwrap();
    assert!(matches!(event(&mut another), Event::Failed(_)));
}

#[test]
fn an_address_is_the_devices_and_free() {
    for host in hosts("l_taken") {
        let first = listen(&host);
        let at = |address| host.rnic.listen(address, &ConnectOptions::default()).unwrap_err();
        let taken = at(first.local_addr().unwrap());
        assert!(matches!(taken, Error::Device(DeviceError::AddressInUse { .. })), "{taken}");
        for nowhere in ["192.0.2.1:4000", "0.0.0.0:4000"] {
            let error = at(nowhere.parse().unwrap());
            assert!(matches!(error, Error::Device(DeviceError::NoAddress { .. })), "{error}");
        }
        drop(first);
    }
}

#[test]
fn a_device_that_is_gone_ends_its_listeners_and_no_others() {
    for (gone, stays) in hosts("l_removed").zip(hosts("l_stays")) {
        let (listener, other) = (listen(&gone), listen(&stays));
        assert!(listener.failure().is_none());
        gone.remove();
        let error = listener.accept(Some(PATIENCE)).unwrap_err();
        assert!(error.to_string().contains("was removed"), "{error}");
        let told = listener.failure().expect("who takes requests without sleeping hears of it, too");
        assert_eq!(told.to_string(), error.to_string());
        assert!(listener.accept(Some(PATIENCE)).is_err(), "for good");
        let (active, passive) = connect(&stays, &other);
        send(&active, &passive);
    }
}
