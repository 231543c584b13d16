//! Ends of a half, and of a connection, between the two bindings.

use rddp_test_support::pattern;

use crate::ends::{Case, End};

/// A half that ends leaves the other one open, in either order.
#[test]
fn a_half_that_ends_leaves_the_other_open() {
    for case in Case::COPIES.each() {
        for first in 0..2 {
            let (device, in_call) = case.connect();
            let ends: [&dyn End; 2] = [&device, &in_call];
            let (one, other) = (ends[first], ends[1 - first]);
            let octets = pattern(300_000, 1);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    one.send_all(&octets);
                    one.shut_down();
                });
                assert!(other.receive_all(octets.len()) == octets);
            });
            assert_eq!(other.take(&mut [0; 9]), Ok(0), "{case:?}");
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    other.send_all(&octets);
                    other.shut_down();
                });
                assert!(one.receive_all(octets.len()) == octets);
                assert_eq!(one.take(&mut [0; 9]), Ok(0), "{case:?}");
            });
            assert!(one.put(b"late").is_err());
        }
    }
}

/// Octets that lie ready when their sender closes arrive, and the end behind them.
#[test]
fn a_close_of_the_device_delivers_all() {
    for case in Case::COPIES.each() {
        let (device, in_call) = case.connect();
        let octets = pattern(700_000, 2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                device.send_all(&octets);
                drop(device);
            });
            assert!(in_call.receive_all(octets.len()) == octets, "{case:?}");
            assert_eq!(in_call.take(&mut [0; 9]), Ok(0), "{case:?}");
        });
    }
}

#[test]
fn an_abort_of_the_device_resets_the_other_end() {
    for case in Case::COPIES.each() {
        let (device, in_call) = case.connect();
        device.send_all(b"before");
        assert_eq!(in_call.receive_all(6), b"before");
        device.abort();
        assert!(in_call.take(&mut [0; 9]).is_err(), "{case:?}");
        assert!(in_call.put(b"more").is_err());
    }
}

#[test]
fn a_reset_by_the_in_call_end_is_seen() {
    for case in Case::COPIES.each() {
        let (device, in_call) = case.connect();
        in_call.send_all(b"before");
        assert_eq!(device.receive_all(6), b"before");
        in_call.reset();
        assert!(device.take(&mut [0; 9]).is_err(), "{case:?}");
        assert!(device.put(b"more").is_err());
    }
}

/// A FIN without `DisConn` is no end of the stream that the device's end may report.
#[test]
fn a_connection_that_is_cut_is_no_end_of_the_stream() {
    for case in Case::COPIES.each() {
        let (device, in_call) = case.connect();
        in_call.send_all(b"before");
        assert_eq!(device.receive_all(6), b"before");
        in_call.cut();
        assert!(device.take(&mut [0; 9]).is_err(), "{case:?}");
    }
}
