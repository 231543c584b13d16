//! Streams of programs that wait for many things at once: calls that never sleep, and a watcher
//! that is told what could be done.

use std::io::{ErrorKind, Read, Write};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rddp_sdp::socket::{Config, Ready};
use rddp_sdp_rnic::{Scheme, SdpDevice, SdpStream, Watcher};
use rddp_test_support::pattern;

/// Ends a test that would hang.
const LONG: Duration = Duration::from_secs(60);

/// Keeps the last readiness that it was told.
#[derive(Default)]
struct Last {
    ready: Mutex<Ready>,
    told: Condvar,
}

impl Watcher for Last {
    fn now(&self, ready: Ready) {
        *self.ready.lock().unwrap() = ready;
        self.told.notify_all();
    }
}

impl Last {
    fn has_been(&self, what: impl Fn(&Ready) -> bool) -> Ready {
        let ready = self.ready.lock().unwrap();
        let (ready, late) = self.told.wait_timeout_while(ready, LONG, |ready| !what(ready)).unwrap();
        assert!(!late.timed_out(), "{ready:?}");
        *ready
    }
}

fn watched() -> (SdpDevice, SdpStream, Arc<Last>, SdpStream) {
    let device = SdpDevice::open(Config::default(), Scheme::PerCall).unwrap();
    let listener = device.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = listener.local_addr().unwrap();
    let (stream, peer) = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept().unwrap());
        (device.connect(addr).unwrap(), accepting.join().unwrap())
    });
    assert_eq!(stream.addresses().1, Some(addr));
    assert_eq!(stream.addresses().0, peer.addresses().1);
    let last = Arc::new(Last::default());
    assert!(stream.watch(last.clone()));
    (device, stream, last, peer)
}

fn kind<T: std::fmt::Debug>(result: std::io::Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn a_watcher_is_told_of_octets_and_of_the_end_without_a_call() {
    let (_device, stream, last, mut peer) = watched();
    let mut got = [0; 8];
    assert_eq!(kind(stream.try_receive(&mut got, false)), ErrorKind::WouldBlock);
    for turn in 0..50 {
        assert!(!last.has_been(|ready| ready.writes).reads, "turn {turn}");
        peer.write_all(b"octets").unwrap();
        assert_eq!(last.has_been(|ready| ready.reads).octets, 6);
        assert_eq!(stream.try_receive(&mut got, true).unwrap(), 6);
        assert_eq!(stream.try_receive(&mut got, false).unwrap(), 6);
    }
    peer.shutdown_send();
    assert!(last.has_been(|ready| ready.peer_has_closed).reads);
    assert_eq!(stream.try_receive(&mut got, false).unwrap(), 0);
}

#[test]
fn a_watcher_is_told_of_room_when_the_peer_has_received() {
    let (_device, stream, last, mut peer) = watched();
    let octets = pattern(16 << 20, 1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut got = vec![0; octets.len()];
            // The sender has met the end of its room.
            last.has_been(|ready| !ready.writes);
            peer.read_exact(&mut got).unwrap();
            assert!(got == octets);
        });
        let (mut sent, mut refusals) = (0, 0);
        while sent < octets.len() {
            match stream.try_send(&octets[sent..]) {
                Ok(count) => sent += count,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    refusals += 1;
                    last.has_been(|ready| ready.writes);
                }
            }
        }
        assert!(refusals > 0);
    });
}

#[test]
fn octets_that_are_advertised_can_be_received_without_waiting() {
    let (_device, stream, last, mut peer) = watched();
    let octets = pattern(300_000, 2);
    std::thread::scope(|scope| {
        scope.spawn(|| peer.write_all(&octets).unwrap());
        let (mut got, mut at) = (vec![0; octets.len()], 0);
        while at < got.len() {
            last.has_been(|ready| ready.reads);
            match stream.try_receive(&mut got[at..], false) {
                Ok(count) => at += count,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        assert!(got == octets);
    });
}

#[test]
fn a_listener_that_is_stopped_ends_its_calls_and_a_device_finishes_what_was_dropped() {
    let (device, stream, _last, mut peer) = watched();
    let listener = device.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    std::thread::scope(|scope| {
        let accepts = [0; 2].map(|_| scope.spawn(|| kind(listener.accept())));
        listener.stop();
        for accept in accepts {
            assert_eq!(accept.join().unwrap(), ErrorKind::Interrupted);
        }
    });
    assert_eq!(stream.try_send(&pattern(100_000, 3)).unwrap(), 100_000);
    drop(stream);
    device.finish(LONG);
    let mut got = Vec::new();
    peer.read_to_end(&mut got).unwrap();
    assert!(got == pattern(100_000, 3));
}
