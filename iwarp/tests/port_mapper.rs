//! The port mapper's messages, its client and its server, without sockets.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::SocketAddr;
use std::time::Duration;

use proptest::prelude::*;
use rddp_iwarp::port_mapper::{Answer, Frame, FrameError, Kind, LONGEST_KEPT, Query, Server, TRIES};

fn vector(name: &str) -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vectors/sdp_vectors.json");
    let file: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let found = file["vectors"].as_array().unwrap().iter().find(|vector| vector["name"] == name).unwrap();
    assert_eq!(found["kind"], "portmapper");
    let hex = found["hex"].as_str().unwrap();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

const HANDLE: u64 = 0x0102_0304_0506_0708;

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Returns the frame that the vectors are about, with these of its fields.
fn frame(kind: Kind, ap: &str, cp: &str) -> Frame {
    Frame { kind, time: 0, ap: addr(ap), cp: addr(cp), handle: HANDLE, mapped_cp: None }
}

#[test]
fn every_vector_is_read_as_it_says_and_written_as_it_was() {
    let cp = "192.0.2.1:40000";
    let request = frame(Kind::Request, "192.0.2.2:5001", cp);
    let extended = Frame { mapped_cp: Some(addr("192.0.2.9:49999")), ..request };
    let vectors = [
        ("pm_req_ipv4", request),
        ("pm_acc_ipv4", frame(Kind::Accept, "192.0.2.2:49200", cp)),
        ("pm_ack_ipv4", frame(Kind::Acknowledge, "192.0.2.2:49200", cp)),
        ("pm_rej_ipv4", frame(Kind::Reject, "192.0.2.2:5001", cp)),
        ("pm_req_ipv6", frame(Kind::Request, "[2001:db8::2]:5001", "[2001:db8::1]:40000")),
        ("pm_req_ipv4_ext64", extended),
    ];
    for (name, frame) in vectors {
        let octets = vector(name);
        assert_eq!(Frame::parse(&octets), Ok(frame), "{name}");
        assert_eq!(*frame.octets(), *octets, "{name}");
    }
}

/// The three legs, in the octets of the vectors.
#[test]
fn a_question_an_answer_and_its_acknowledgement() {
    let client = addr("192.0.2.1:33333");
    let mut query = Query::new(addr("192.0.2.2:5001"), addr("192.0.2.1:40000"), HANDLE, &TRIES);
    let mut server = Server::new(&TRIES);
    let request = query.next_try(Duration::ZERO).unwrap();
    assert_eq!(*request, *vector("pm_req_ipv4"));
    let accept = server.receive(Duration::ZERO, client, &request, |service| {
        assert_eq!(service, addr("192.0.2.2:5001"));
        Some(49200)
    });
    let accept = accept.unwrap();
    assert_eq!(*accept, *vector("pm_acc_ipv4"));
    let Some(Answer::Mapped { port: 49200, acknowledge }) = query.receive(&accept) else { panic!() };
    assert_eq!(*acknowledge, *vector("pm_ack_ipv4"));
    assert!(server.receive(Duration::ZERO, client, &acknowledge, |_| panic!("no Request")).is_none());
    // The answer that was heard is not sent again, and forgotten in the end.
    assert!(server.repeat(Duration::from_secs(20)).is_none());
    assert!(server.due().is_some());
    assert!(server.repeat(Duration::from_secs(40)).is_none());
    assert!(server.repeat(Duration::from_secs(60)).is_none());
    assert_eq!(server.due(), None);
}

#[test]
fn a_service_without_a_mapping_is_refused() {
    let query = Query::new(addr("192.0.2.2:5001"), addr("192.0.2.1:40000"), HANDLE, &TRIES);
    for lookup in [None, Some(0)] {
        let mut server = Server::new(&TRIES);
        let client = addr("192.0.2.1:33333");
        let reject = server.receive(Duration::ZERO, client, &vector("pm_req_ipv4"), |_| lookup).unwrap();
        assert_eq!(*reject, *vector("pm_rej_ipv4"));
        assert!(matches!(query.receive(&reject), Some(Answer::Unknown)));
        assert_eq!(server.due(), None, "there is nothing to repeat");
    }
    // An Accept of port 0 names none.
    let accept = frame(Kind::Accept, "192.0.2.2:0", "192.0.2.1:40000").octets();
    assert!(matches!(query.receive(&accept), Some(Answer::Unknown)));
}

#[test]
fn a_request_is_tried_three_times_ten_seconds_apart() {
    let mut query = Query::new(addr("192.0.2.2:5001"), addr("192.0.2.1:40000"), HANDLE, &TRIES);
    let mut now = Duration::from_secs(1);
    for _ in 0..3 {
        assert_eq!(*query.next_try(now).unwrap(), *vector("pm_req_ipv4"));
        assert_eq!(query.due(), now + Duration::from_secs(10));
        now = query.due();
    }
    assert!(query.next_try(now).is_none());
}

#[test]
fn an_answer_to_another_question_is_passed_over() {
    let query = Query::new(addr("192.0.2.2:5001"), addr("192.0.2.1:40000"), HANDLE + 1, &TRIES);
    assert!(query.receive(&vector("pm_acc_ipv4")).is_none());
    assert!(query.receive(&vector("pm_acc_ipv4")[..47]).is_none());
}

#[test]
fn an_accept_that_is_lost_is_repeated_until_it_is_acknowledged_or_too_old() {
    let mut server = Server::new(&TRIES);
    let (first, second) = (addr("192.0.2.1:33333"), addr("192.0.2.7:33333"));
    let start = Duration::from_secs(5);
    for client in [first, second] {
        assert!(server.receive(start, client, &vector("pm_req_ipv4"), |_| Some(49200)).is_some());
    }
    let ten = Duration::from_secs(10);
    assert_eq!(server.due(), Some(start + ten));
    assert!(server.repeat(start + ten / 2).is_none());
    for client in [first, second] {
        let (to, frame) = server.repeat(start + ten).unwrap();
        assert_eq!((to, &*frame), (client, &*vector("pm_acc_ipv4")));
    }
    assert!(server.repeat(start + ten).is_none());
    // Of two clients with one handle, only the one that acknowledges is left alone.
    assert!(server.receive(start + ten, first, &vector("pm_ack_ipv4"), |_| None).is_none());
    assert_eq!(server.repeat(start + 2 * ten).map(|(to, _)| to), Some(second));
    assert!(server.repeat(start + 2 * ten).is_none());
    assert!(server.repeat(start + 3 * ten).is_none());
    assert_eq!(server.due(), None);
}

#[test]
fn a_request_that_is_repeated_gets_the_same_mapping() {
    let mut server = Server::new(&TRIES);
    let client = addr("192.0.2.1:33333");
    let mut ask = |port| server.receive(Duration::ZERO, client, &vector("pm_req_ipv4"), |_| port).unwrap();
    assert_eq!(*ask(Some(49200)), *vector("pm_acc_ipv4"));
    assert_eq!(*ask(Some(50000)), *vector("pm_acc_ipv4"));
    assert_eq!(*ask(None), *vector("pm_acc_ipv4"));
    // Another client may have chosen the same handle.
    let other = server.receive(Duration::ZERO, addr("192.0.2.7:1"), &vector("pm_req_ipv4"), |_| Some(50000));
    assert_eq!(Frame::parse(&other.unwrap()).unwrap().ap.port(), 50000);
}

#[test]
fn a_flood_of_requests_is_answered_without_being_remembered() {
    let mut server = Server::new(&TRIES);
    let mut request = Frame::parse(&vector("pm_req_ipv4")).unwrap();
    let client = addr("192.0.2.1:33333");
    for handle in 0..LONGEST_KEPT as u64 + 10 {
        request.handle = handle;
        assert!(server.receive(Duration::ZERO, client, &request.octets(), |_| Some(7)).is_some());
    }
    let later = Duration::from_secs(10);
    let repeated = std::iter::from_fn(|| server.repeat(later)).count();
    assert_eq!(repeated, LONGEST_KEPT);
}

#[test]
fn frames_of_other_versions_and_families_are_dropped() {
    let request = vector("pm_req_ipv4");
    for (first, error) in [
        (0x44, FrameError::Version(1)),
        (0x84, FrameError::Version(2)),
        (0x05, FrameError::IpVersion(5)),
        (0x00, FrameError::IpVersion(0)),
    ] {
        let mut octets = request.clone();
        octets[0] = first;
        assert_eq!(Frame::parse(&octets), Err(error));
        let mut server = Server::new(&TRIES);
        let client = addr("192.0.2.1:33333");
        assert!(server.receive(Duration::ZERO, client, &octets, |_| Some(7)).is_none());
    }
    assert_eq!(Frame::parse(&request[..47]), Err(FrameError::Short(47)));
}

/// The extension belongs to Requests, and is there only when it is there whole.
#[test]
fn octets_behind_a_frame_are_no_extension_but_in_a_request() {
    let mut octets = vector("pm_req_ipv4_ext64");
    assert!(Frame::parse(&octets[..63]).unwrap().mapped_cp.is_none());
    octets[0] = 0x14;
    assert!(Frame::parse(&octets).unwrap().mapped_cp.is_none());
}

proptest! {
    #[test]
    fn a_frame_that_is_read_is_written_so_that_it_is_read_alike(
        octets in prop::collection::vec(any::<u8>(), 0..80), first in 0..64_u8,
    ) {
        let mut octets = octets;
        octets.iter_mut().take(1).for_each(|octet| *octet = first);
        if let Ok(frame) = Frame::parse(&octets) {
            prop_assert_eq!(Frame::parse(&frame.octets()), Ok(frame));
        }
    }
}
