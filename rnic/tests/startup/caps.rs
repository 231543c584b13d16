//! Connections that never send anything (RFC 5042 §6.4.1, §6.4.2).

use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rddp_rnic::{Listener, QpConfig, Rnic, RnicConfig};
use rddp_test_support::read_to_end;

use crate::common::{End, PATIENCE, alone};
use crate::frames::{REPLY, SHORT, dial, good_request, listener, options, still_listens};

fn limited(max_half_open: usize, max_half_open_per_peer: usize) -> End {
    limited_to(&RnicConfig { max_half_open, max_half_open_per_peer, ..Default::default() })
}

fn limited_to(config: &RnicConfig) -> End {
    let rnic = Rnic::with_config(config).unwrap();
    let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(16).unwrap());
    let qp = pd.create_qp(&QpConfig::new(&cq)).unwrap();
    End { rnic, pd, cq, qp }
}

fn is_open(socket: &TcpStream) -> bool {
    socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let mut socket = socket;
    socket
        .read(&mut [0])
        .is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

/// Waits until this many are open.
fn settle(sockets: &[TcpStream], expected: usize) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let open = sockets.iter().filter(|socket| is_open(socket)).count();
        if open == expected {
            return;
        }
        assert!(open > expected && Instant::now() < deadline, "{open} open, {expected} expected");
    }
}

fn dial_from(listener: &Listener, source: [u8; 4]) -> TcpStream {
    use socket2::{Domain, Socket, Type};
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&std::net::SocketAddr::from((source, 0)).into()).unwrap();
    socket.connect(&listener.local_addr().unwrap().into()).unwrap();
    socket.into()
}

#[test]
fn half_open_connections_are_capped_for_the_device() {
    let end = limited(4, 100);
    // Two listeners share the device's limit.
    let listeners = [listener(&end, &options(PATIENCE)), listener(&end, &options(PATIENCE))];
    let sockets: Vec<_> = (0..10).map(|i| dial(&listeners[i % 2])).collect();
    settle(&sockets, 4);
    drop(sockets);
    let deadline = Instant::now() + PATIENCE;
    // Closed ones are counted no longer.
    loop {
        let mut socket = dial(&listeners[0]);
        let _ = socket.write_all(&good_request());
        if listeners[0].accept(Some(Duration::from_millis(100))).unwrap().is_some() {
            return;
        }
        assert!(Instant::now() < deadline, "the places of closed connections are not given back");
    }
}

#[test]
fn half_open_connections_are_capped_for_each_peer() {
    let end = limited(100, 3);
    let listener = listener(&end, &options(PATIENCE));
    let sockets: Vec<_> = (0..8).map(|_| dial(&listener)).collect();
    settle(&sockets, 3);
    // Another address has places of its own.
    let others: Vec<_> = (0..5).map(|_| dial_from(&listener, [127, 0, 0, 2])).collect();
    settle(&others, 3);
}

/// RFC 5042 §6.4.2: whoever has the most half-open connections loses the oldest of them to the next
/// that comes, from wherever it comes.
#[test]
fn the_oldest_of_the_address_with_the_most_gives_way() {
    let end = limited(5, 4);
    let listener = listener(&end, &options(PATIENCE));
    let one = dial_from(&listener, [127, 0, 0, 3]);
    let crowd: Vec<_> = (0..4).map(|_| dial_from(&listener, [127, 0, 0, 2])).collect();
    settle(&crowd, 4);
    // Every place is taken, and the newcomer is served all the same.
    let mut newcomer = dial_from(&listener, [127, 0, 0, 4]);
    assert_eq!(read_to_end(&crowd[0]), b"");
    newcomer.write_all(&good_request()).unwrap();
    assert!(listener.accept(Some(PATIENCE)).unwrap().is_some(), "the newcomer was shut out");
    // Now there is a place, which the crowd takes; the next of the crowd is one too many for it.
    let more = [0; 2].map(|_| dial_from(&listener, [127, 0, 0, 2]));
    assert_eq!(read_to_end(&crowd[1]), b"");
    let others: Vec<_> = crowd.into_iter().skip(2).chain(more).chain([one]).collect();
    settle(&others, 5);
}

/// Requests that wait for an answer have limits of their own.
#[test]
fn requests_that_nobody_takes_are_capped() {
    requests_are_capped(&RnicConfig { max_waiting: 4, ..Default::default() });
    requests_are_capped(&RnicConfig { max_waiting_per_peer: 4, ..Default::default() });
}

fn requests_are_capped(config: &RnicConfig) {
    let end = limited_to(config);
    let listener = listener(&end, &options(PATIENCE));
    let sockets: Vec<_> = (0..8)
        .map(|_| {
            let mut socket = dial(&listener);
            let _ = socket.write_all(&good_request());
            socket
        })
        .collect();
    settle(&sockets, 4);
    let requests: Vec<_> = std::iter::from_fn(|| listener.accept(Some(SHORT)).unwrap()).collect();
    assert_eq!(requests.len(), 4);
    drop(requests);
    still_listens(&listener);
}

/// Requests that have come whole take up no place of half-open connections, and no time limit ends
/// them.
#[test]
fn hundreds_of_requests_of_one_peer_wait_for_as_long_as_the_program_likes() {
    const COUNT: usize = 700;
    if !alone("caps::hundreds_of_requests_of_one_peer_wait_for_as_long_as_the_program_likes") {
        return;
    }
    let (soft, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(4096).min(most), most).unwrap();
    // More than one turn of the background thread takes from the kernel and reads in the next.
    let end = limited(300, 300);
    let listener = listener(&end, &options(SHORT));
    let sockets: Vec<_> = (0..COUNT)
        .map(|_| {
            let mut socket = dial(&listener);
            socket.write_all(&good_request()).unwrap();
            socket
        })
        .collect();
    std::thread::sleep(2 * SHORT);
    assert_eq!(sockets.iter().filter(|socket| is_open(socket)).count(), COUNT);
    let mut requests: Vec<_> =
        sockets.iter().map(|_| listener.accept(Some(PATIENCE)).unwrap().unwrap()).collect();
    std::thread::sleep(2 * SHORT);
    requests.remove(0).accept(&end.qp, b"").unwrap();
    let mut reply = [0; 20];
    sockets[0].set_read_timeout(Some(PATIENCE)).unwrap();
    (&sockets[0]).read_exact(&mut reply).unwrap();
    assert_eq!(reply[..16], *REPLY);
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

/// 10,000 attempts: neither memory nor descriptors grow with them, and a proper peer is served
/// afterwards.
#[test]
fn ten_thousand_silent_connections_cost_what_the_cap_allows() {
    const CAP: usize = 64;
    let end = limited(CAP, CAP);
    let listener = listener(&end, &options(Duration::from_secs(60)));
    let mut kept = VecDeque::new();
    let mut before = 0;
    for attempt in 0..10_000 {
        kept.push_back(dial(&listener));
        if attempt >= CAP {
            // The engine closes the oldest for it.
            assert_eq!(read_to_end(&kept.pop_front().unwrap()), b"");
        }
        if attempt == 1000 {
            before = resident();
        }
    }
    assert_eq!(kept.iter().filter(|socket| is_open(socket)).count(), CAP);
    // Other tests beside this one had up to 17 MiB; a connection that is kept costs 4 KiB.
    let grown = resident().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} octets for 9,000 attempts");
    // Both ends of those that are open are in this process.
    assert!(descriptors() < 2 * CAP + 2000);
    drop(kept);
    let deadline = Instant::now() + PATIENCE;
    let served = std::iter::repeat_with(|| {
        let mut socket = dial(&listener);
        let _ = socket.write_all(&good_request());
        listener.accept(Some(Duration::from_millis(100))).unwrap()
    });
    assert!(served.take_while(|_| Instant::now() < deadline).any(|request| request.is_some()));
}

/// Dropping a listener closes its half-open connections.
#[test]
fn a_dropped_listener_closes_what_it_had() {
    let end = limited(16, 16);
    let listener = listener(&end, &options(PATIENCE));
    let silent = dial(&listener);
    let mut waiting = dial(&listener);
    waiting.write_all(&good_request()).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while nix::poll::poll(
        &mut [nix::poll::PollFd::new(std::os::fd::AsFd::as_fd(&listener), nix::poll::PollFlags::POLLIN)],
        100u16,
    )
    .unwrap()
        == 0
    {
        assert!(Instant::now() < deadline);
    }
    drop(listener);
    assert_eq!(read_to_end(&silent), b"");
    assert_eq!(read_to_end(&waiting), b"");
}

/// A listener that finds no descriptor free for a connection tries again, though nothing new
/// happens on its socket, and rests in between.
#[test]
fn a_listener_without_descriptors_takes_the_connection_later() {
    if !alone("caps::a_listener_without_descriptors_takes_the_connection_later") {
        return;
    }
    let end = End::new();
    let listener = listener(&end, &options(PATIENCE));
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, (descriptors() + 20) as u64, most).unwrap();
    let mut taken: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(taken.len() > 2);
    // One for this end of the connection, none for the other.
    taken.pop();
    let mut socket = dial(&listener);
    socket.write_all(&good_request()).unwrap();
    let (began, spent) = (Instant::now(), process_time());
    assert!(listener.accept(Some(SHORT)).unwrap().is_none());
    // No measure of speed: a listener that does not rest uses all of the time.
    let spent = process_time() - spent;
    assert!(spent < began.elapsed() / 5, "at work for {spent:?} of {:?}", began.elapsed());
    drop(taken);
    assert!(listener.accept(Some(PATIENCE)).unwrap().is_some(), "the connection was forgotten");
}

/// Returns the processor time of all threads of this process.
fn process_time() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap().into()
}
