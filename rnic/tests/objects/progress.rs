//! Progress without the program: the background thread serves peers while the program does
//! something else, and no thread runs when there is nothing to do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rddp_rnic::{ConnectOptions, SendWr};
use rddp_test_support::Random;

use crate::alone;
use crate::common::device::needs_software;
use crate::common::{ALL, End, connect_on, connected};

/// A Read of the peer's is served whatever the passive program does in between: polls,
/// waits, arms, sleeps, nothing.
#[test]
fn reads_are_served_whatever_the_program_does() {
    let (active, passive) = connected(&ConnectOptions::default());
    let (source, sink) = (passive.region(100_000, ALL), active.region(100_000, ALL));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::new(1);
            while !stop.load(Ordering::Relaxed) {
                let time = Duration::from_micros(random.below(4096) as u64);
                let until = Instant::now() + time;
                match random.below(4) {
                    0 => std::thread::sleep(time),
                    1 => drop(passive.cq.wait(Some(time)).unwrap()),
                    2 => {
                        while Instant::now() < until {
                            passive.cq.poll_one();
                        }
                    }
                    _ => passive.cq.arm(false),
                }
            }
        });
        for turn in 0..2000 {
            let len = if turn % 10 == 0 { 100_000 } else { 8 };
            active.qp.post_send(&SendWr::read(turn, sink.sge(0..len), source.remote(0))).unwrap();
            assert_eq!(active.success().wr_id, turn);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// The program polled until just now, and sleeps: its lease lapses, and its peer is served.
#[test]
fn the_background_takes_over_from_a_program_that_stops_polling() {
    let (active, passive) = connected(&ConnectOptions::default());
    let (source, sink) = (passive.region(64, ALL), active.region(64, ALL));
    for round in 0..50 {
        let until = Instant::now() + Duration::from_millis(3);
        while Instant::now() < until {
            passive.cq.poll_one();
        }
        // Falls into the time of the lease.
        active.qp.post_send(&SendWr::read(round, sink.whole(), source.remote(0))).unwrap();
        assert_eq!(active.success().wr_id, round);
    }
}

/// Returns the ticks of processor time that this process has used.
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// Waits for a second in which next to nothing is done: what went on before may take a while on a
/// busy machine, but less than the timer that ends stalled connections.
fn comes_to_rest() {
    let used = || {
        let before = ticks();
        std::thread::sleep(Duration::from_secs(1));
        ticks() - before
    };
    assert!((0..3).any(|_| used() <= 5), "it never rests");
}

/// Connections that are quiet, idle QPs, connections that end, a listener, half-open connections
/// and armed queues use no processor time.
#[test]
fn an_idle_process_uses_no_processor_time() {
    needs_software("a socket of TCP that asks for nothing");
    if !alone("progress::an_idle_process_uses_no_processor_time") {
        return;
    }
    let options = ConnectOptions::default();
    let device = End::new();
    let listener = device.rnic.listen("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let _silent = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut ends = Vec::new();
    for i in 0..20 {
        let (active, passive) = (End::new(), device.sibling());
        connect_on("127.0.0.1:0", &active, &passive, &options, &options);
        let target = passive.region(64, ALL);
        active.qp.post_send(&SendWr::write(1, active.region(64, ALL).sge(0..0), target.remote(0))).unwrap();
        active.success();
        match i % 5 {
            0 => active.qp.disconnect(),
            1 => active.qp.terminate(),
            2 => active.cq.arm(false),
            // Blocked: nobody takes what is sent.
            3 => active
                .qp
                .post_send(&SendWr::read(2, active.region(64, ALL).sge(0..0), target.remote(0)))
                .unwrap(),
            _ => {}
        }
        ends.push((active, passive));
    }
    comes_to_rest();
}

/// Neither does a peer that has closed its half, or does not read.
#[test]
fn stalled_peers_use_no_processor_time() {
    use crate::common::raw::{Role, with_plain_raw};
    if !alone("progress::stalled_peers_use_no_processor_time") {
        return;
    }
    let (deaf, _deaf_raw) = with_plain_raw(Role::Passive);
    let source = deaf.region(8 << 20, ALL);
    let remote = rddp_rnic::Remote { stag: rddp_rnic::Stag(1), to: 0 };
    for id in 0..8 {
        deaf.qp.post_send(&SendWr::write(id, source.whole(), remote)).unwrap();
    }
    let (_half, mut half_raw) = with_plain_raw(Role::Active);
    let octets = half_raw.frame(&crate::common::raw::write_to(&source, 0, &[0; 1000]));
    half_raw.octets(&octets[..500]);
    // Its FIN behind our Terminate, which it does not read.
    let (closed, closed_raw) = with_plain_raw(Role::Active);
    let big = closed.region(8 << 20, ALL);
    for id in 0..4 {
        closed.qp.post_send(&SendWr::write(id, big.whole(), remote)).unwrap();
    }
    closed_raw.fin();
    comes_to_rest();
}
