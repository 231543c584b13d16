//! Events that a program's own subscriber gets of the engine.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

mod common;

use std::fmt::{Debug, Write as _};
use std::io::Write as _;
use std::net::TcpListener;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use common::raw::{Role, with_plain_raw};
use common::{ALL, End, PATIENCE, connected};
use rddp_rnic::{
    CompletionQueue, ConnectOptions, QpConfig, QpState, RecvWr, Remote, SendWr, Stag, TerminateCode,
};
use rddp_test_support::{accept_request, read_to_end, segment};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// A subscriber that keeps events as lines: level, target, message and fields.
struct Keep;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// The most that the program wants to see.
static CHOICE: Mutex<(&str, Level)> = Mutex::new(("", Level::TRACE));

impl Subscriber for Keep {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let (target, level) = *lock(&CHOICE);
        metadata.target().starts_with(target) && *metadata.level() <= level
    }

    fn register_callsite(&self, _: &'static Metadata<'static>) -> tracing::subscriber::Interest {
        tracing::subscriber::Interest::sometimes()
    }

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let mut line = format!("{} {}", metadata.level(), metadata.target());
        event.record(&mut Fields(&mut line));
        lock(&LINES).push(line);
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = format!("span {}", span.metadata().name());
        span.record(&mut Fields(&mut line));
        lock(&LINES).push(line);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tests take turns: the subscriber is the process's.
fn choosing(target: &'static str, level: Level) -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    static INSTALLED: Once = Once::new();
    let turn = lock(&TURN);
    *lock(&CHOICE) = (target, level);
    INSTALLED.call_once(|| tracing::subscriber::set_global_default(Keep).unwrap());
    lock(&LINES).clear();
    turn
}

/// Waits for an event with all of these texts.
#[track_caller]
fn seen(texts: &[&str]) {
    let deadline = Instant::now() + PATIENCE;
    while !lock(&LINES).iter().any(|line| texts.iter().all(|text| line.contains(text))) {
        assert!(Instant::now() < deadline, "no {texts:?} in {:#?}", lock(&LINES));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_connection_and_a_message_are_told_from_the_startup_to_the_end() {
    let _turn = choosing("rddp_rnic", Level::TRACE);
    let (active, passive) = connected(&ConnectOptions::default());
    seen(&["DEBUG rddp_rnic::startup", "startup begins", "to=127.0.0.1:"]);
    seen(&["DEBUG rddp_rnic::request", "Request received", "peer=127.0.0.1:"]);
    seen(&["span startup"]);
    let qp = format!("qp={}", active.qp.num().0);
    seen(&["DEBUG rddp_rnic::connection", "message=connected", &qp, "active=true"]);
    seen(&["DEBUG rddp_rnic::connection", "message=connected", "active=false"]);
    let inbox = passive.region(64, ALL);
    passive.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
    active.qp.post_send(&SendWr::send_inline(7, b"hello")).unwrap();
    passive.success();
    seen(&["TRACE rddp_rnic::work", "posted", &qp, "requests=1", "wr_id=7"]);
    seen(&["TRACE rddp_rnic::train", "train", &qp, "octets=32", "taken=32"]);
    seen(&["TRACE rddp_rnic::placement", "placed", "octets=5"]);
    active.success();
    active.qp.disconnect();
    active.await_state(QpState::Idle);
    seen(&["DEBUG rddp_rnic::connection", "closed", &qp]);
}

/// A QP that may have more requests than its completion queue has room for, and no other.
#[test]
fn a_completion_queue_that_may_overflow_is_told_of() {
    let _turn = choosing("rddp_rnic::work", Level::INFO);
    let end = End::new();
    let (one, other) = (end.rnic.create_cq(12).unwrap(), end.rnic.create_cq(8).unwrap());
    let made = |send_cq: &CompletionQueue, max_send, max_recv| {
        let config = QpConfig { send_cq: send_cq.clone(), max_send, max_recv, ..QpConfig::new(&one) };
        let qp = end.pd.create_qp(&config).unwrap();
        let told = lock(&LINES).drain(..).collect::<Vec<_>>();
        (format!("qp={} ", qp.num().0), told)
    };
    for (send_cq, max_send, max_recv) in [(&one, 8, 4), (&other, 8, 12)] {
        assert_eq!(made(send_cq, max_send, max_recv).1, [""; 0]);
    }
    for (send_cq, max_send, max_recv, cq, requests) in
        [(&one, 8, 5, &one, 13), (&other, 9, 1, &other, 9), (&other, 1, usize::MAX, &one, usize::MAX)]
    {
        let (qp, told) = made(send_cq, max_send, max_recv);
        let parts = [&qp, &format!("cq={} requests={requests} capacity={}", cq.num().0, cq.capacity())];
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(parts.iter().all(|part| told[0].contains(part.as_str())), "{told:?} {parts:?}");
    }
}

#[test]
fn a_startup_that_a_bad_reply_ends_says_why() {
    let _turn = choosing("rddp_rnic", Level::INFO);
    let end = End::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let options = ConnectOptions { fall_back: false, ..Default::default() };
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| end.qp.connect(addr, &options));
        let (mut socket, _) = accept_request(&listener);
        socket.write_all(b"HTTP/1.1 400 Bad Request").unwrap();
        read_to_end(&socket);
        assert!(connecting.join().unwrap().is_err());
    });
    seen(&["INFO rddp_rnic::startup", "startup failed", &format!("qp={}", end.qp.num().0), "error="]);
}

#[test]
fn a_request_that_is_none_is_told() {
    let _turn = choosing("rddp_rnic", Level::INFO);
    let end = End::new();
    let listener = end.rnic.listen("127.0.0.1:0".parse().unwrap(), &ConnectOptions::default()).unwrap();
    let mut peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    peer.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    seen(&["WARN rddp_rnic::startup", "is no RDMA over TCP", "peer=127.0.0.1", "does not speak MPA"]);
    // A probe of the port is nothing to warn of.
    drop(std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap());
    seen(&["INFO rddp_rnic::startup", "connection closed during startup", "reason="]);
}

#[test]
fn terminates_have_their_codes_in_both_directions() {
    let _turn = choosing("rddp_rnic", Level::DEBUG);
    let (end, mut raw) = with_plain_raw(Role::Passive);
    raw.send(&segment::write(Stag(1), 0, true, b"x"));
    assert_eq!(raw.terminate_code(), TerminateCode(0x1100));
    let sent = end.qp.terminate_sent().unwrap().code;
    seen(&["INFO rddp_rnic::terminate", "Terminate sent", &format!("code={sent}")]);
    seen(&["DEBUG rddp_rnic::placement", "refused", "why=Write("]);
    let (_end, mut raw) = with_plain_raw(Role::Passive);
    raw.send(&segment::terminate(TerminateCode::INVALID_STAG));
    let code = format!("code={}", TerminateCode::INVALID_STAG);
    seen(&["INFO rddp_rnic::terminate", "Terminate received", &code]);
    let (_end, raw) = with_plain_raw(Role::Active);
    raw.reset();
    seen(&["INFO rddp_rnic::connection", "connection lost", "ConnectionLost"]);
}

#[test]
fn a_lease_is_lost_when_the_program_stops_polling() {
    let _turn = choosing("rddp_rnic::lease", Level::TRACE);
    let (active, passive) = connected(&ConnectOptions::default());
    let inbox = passive.region(64, ALL);
    let deadline = Instant::now() + PATIENCE;
    // Polls until the background thread has found the program polling once, and has left sockets to
    // it.
    while !lock(&LINES).iter().any(|line| line.contains("lease begins")) {
        assert!(Instant::now() < deadline, "no lease");
        passive.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
        active.qp.post_send(&SendWr::send_inline(2, b"x").unsignaled()).unwrap();
        while passive.cq.poll_one().is_none() {
            assert!(Instant::now() < deadline, "no message");
        }
    }
    seen(&["TRACE rddp_rnic::lease", "lease lost", "sockets="]);
}

#[test]
fn a_program_gets_its_own_choice_alone() {
    let _turn = choosing("rddp_rnic::terminate", Level::INFO);
    // The library's variable is nothing to a program that links the engine.
    let (end, mut raw) = with_plain_raw(Role::Passive);
    let remote = Remote { stag: Stag(1), to: 0 };
    end.qp.post_send(&SendWr::write_inline(1, b"x", remote)).unwrap();
    raw.send(&segment::write(Stag(1), 0, true, b"x"));
    seen(&["Terminate sent"]);
    assert!(
        lock(&LINES).iter().all(|line| line.starts_with("INFO rddp_rnic::terminate")),
        "{:#?}",
        lock(&LINES)
    );
}
