//! Peers are answered between the calls of a program, and connections live before `accept` and
//! behind the last call.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use rddp_sdp::socket::{Config, Options, Times};
use rddp_sdp_rnic::{Scheme, SdpDevice, SdpStream};
use rddp_test_support::sdp::{SdpPeer, hello, mid};
use rddp_test_support::{connect, pattern, plain};

const LONG: Duration = Duration::from_secs(600);

/// Adverts wait for ever, unless somebody answers.
fn config() -> Config {
    let times = Times { advert: LONG, answer: LONG, ..Times::default() };
    Config { source_threshold: Some(0), sink_threshold: Some(0), times, ..Config::default() }
}

fn pair(config: Config) -> (SdpDevice, SdpStream, SdpStream) {
    let device = SdpDevice::open(config, Scheme::PerCall).unwrap();
    let listener = device.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = listener.local_addr().unwrap();
    let (a, b) = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept().unwrap());
        let connected = device.connect(addr).unwrap();
        (connected, accepting.join().unwrap())
    });
    (device, a, b)
}

/// The peer's program makes no call: the advert is Read into private memory, and the send ends.
#[test]
fn a_send_of_an_advert_ends_though_the_peer_computes() {
    for pipelined in [false, true] {
        let (_device, mut a, mut b) = pair(Config { pipelined, sink_adverts: pipelined, ..config() });
        for n in 0..3 {
            let octets = pattern(200_000, n);
            assert_eq!(a.write(&octets).unwrap(), octets.len());
            let mut got = vec![0; octets.len()];
            b.read_exact(&mut got).unwrap();
            assert!(got == octets);
        }
    }
}

/// More than is Read ahead: the advert is taken back, the peer answers that, and the rest goes as
/// Data into its private buffers.
#[test]
fn a_cancel_is_answered_though_the_peer_computes() {
    let times = Times { advert: Duration::from_millis(20), ..config().times };
    let (_device, mut a, mut b) = pair(Config { times, ..config() });
    let octets = pattern(1 << 20, 1);
    a.write_all(&octets).unwrap();
    let mut got = vec![0; octets.len()];
    b.read_exact(&mut got).unwrap();
    assert!(got == octets);
}

/// Both ends compute after a send each: both sends have ended.
#[test]
fn both_ends_compute_after_a_send() {
    let (_device, a, b) = pair(config());
    std::thread::scope(|scope| {
        for (end, seed) in [(&a, 1), (&b, 2)] {
            scope.spawn(move || (&mut &*end).write_all(&pattern(150_000, seed)).unwrap());
        }
    });
    for (mut end, seed) in [(&a, 2), (&b, 1)] {
        let mut got = vec![0; 150_000];
        end.read_exact(&mut got).unwrap();
        assert!(got == pattern(150_000, seed));
    }
}

/// A stream on which nothing happens for a while is watched again each time.
#[test]
fn a_stream_is_served_again_after_every_pause() {
    let (_device, mut a, mut b) = pair(config());
    for n in 0..20_u8 {
        let octets = pattern(5000, n);
        a.write_all(&octets).unwrap();
        let mut got = vec![0; octets.len()];
        b.read_exact(&mut got).unwrap();
        assert!(got == octets);
        std::thread::sleep(Duration::from_millis(u64::from(n) * 2));
    }
}

#[test]
fn the_thread_runs_from_the_first_stream_to_the_last() {
    let device = SdpDevice::open(config(), Scheme::PerCall).unwrap();
    assert!(!device.serves());
    for _ in 0..2 {
        let listener = device.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        assert!(!device.serves());
        let addr = listener.local_addr().unwrap();
        let (a, b) = std::thread::scope(|scope| {
            let accepting = scope.spawn(|| listener.accept().unwrap());
            (device.connect(addr).unwrap(), accepting.join().unwrap())
        });
        assert!(device.serves());
        drop(a);
        assert!(device.serves());
        drop(b);
        // Both are closed in order, by the thread.
        while device.serves() {
            std::thread::yield_now();
        }
    }
}

#[test]
fn accept_returns_established_connections_only() {
    let device = SdpDevice::open(config(), Scheme::PerCall).unwrap();
    let listener = device.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = listener.local_addr().unwrap();
    // Its Hello is answered, and then it says nothing.
    let request = hello(16, 4112, 2);
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept().unwrap());
        let mut mute = SdpPeer::active(connect(addr), &plain(), &request);
        let mut other = SdpPeer::active(connect(addr), &plain(), &request);
        other.send(mid::DATA, b"other");
        assert_eq!(five(&accepting.join().unwrap()), *b"other");
        mute.send(mid::DATA, b"first");
        assert_eq!(five(&listener.accept().unwrap()), *b"first");
    });
}

fn five(mut stream: &SdpStream) -> [u8; 5] {
    let mut got = [0; 5];
    stream.read_exact(&mut got).unwrap();
    got
}

#[test]
fn a_linger_without_time_resets() {
    let (_device, a, b) = pair(config());
    a.set_linger(Some(Duration::ZERO));
    drop(a);
    assert_eq!(b.receive(&mut [0], Options::default()).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

/// A drop that lingers ends when the peer has closed, too; what was sent has arrived then.
#[test]
fn a_drop_that_lingers_waits_for_the_peer() {
    let (_device, mut a, mut b) = pair(config());
    a.set_linger(Some(LONG));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            a.write_all(b"before").unwrap();
            drop(a);
        });
        let mut got = Vec::new();
        b.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"before");
        drop(b);
    });
    let (_device, a, _b) = pair(config());
    a.set_linger(Some(Duration::from_millis(20)));
    // The peer does not close: the time ends the wait.
    drop(a);
}
