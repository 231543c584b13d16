//! Receives that the queue pairs of a device share.

use std::collections::VecDeque;
use std::time::Duration;

use rddp_rnic::{
    Access, AsyncEventKind, DeviceError, Element, Error, MemoryRegion, QpConfig, QpState, RecvWr, RnicConfig,
    SendWr, SharedReceiveQueue, SrqConfig, Status,
};
use rddp_verbs_device::{Endpoint, Registration};

use crate::support::{End, Host, Kind, completion, host, quirk};

const KINDS: [Kind; 2] = [Kind::Siw, Kind::Rxe];

/// Octets of a receive.
const PLACE: usize = 16;

/// Messages that may be under way.
const MESSAGES: usize = 64;

/// Queue pairs of one shared queue, with one completion queue, and their peers.
struct Sharing {
    ends: Vec<End>,
    peers: Vec<Option<Endpoint>>,
    srq: SharedReceiveQueue,
    inbox: MemoryRegion,
    /// Messages of the peers, and how many they have sent.
    outbox: Registration,
    sent: usize,
}

/// Makes queue pairs that share so many receives, which are posted.
fn sharing(host: &Host, pairs: usize, receives: usize) -> Sharing {
    let (pd, cq) = (host.rnic.alloc_pd(), host.rnic.create_cq(256).unwrap());
    let srq = pd.create_srq(SrqConfig::default());
    let inbox = pd.allocate(receives * PLACE, Access::LOCAL_WRITE).unwrap();
    let end = || {
        let config = QpConfig { srq: Some(srq.clone()), max_send: 8, ..QpConfig::new(&cq) };
        End { qp: pd.create_qp(&config).unwrap(), cq: cq.clone(), pd: pd.clone() }
    };
    let ends: Vec<End> = (0..pairs).map(|_| end()).collect();
    let peers = ends.iter().map(|end| Some(host.connect(end))).collect();
    let (outbox, sent) = (host.memory(MESSAGES * PLACE), 0);
    let sharing = Sharing { ends, peers, srq, inbox, outbox, sent };
    (0..receives).for_each(|place| sharing.post(place));
    sharing
}

impl Sharing {
    fn post(&self, place: usize) {
        let piece = self.inbox.sge(place * PLACE..(place + 1) * PLACE);
        self.srq.post_recv(RecvWr::one(place as u64, piece)).unwrap();
    }

    /// Has the peer of a queue pair send it a message.
    fn send(&mut self, pair: usize, message: &[u8]) {
        let place = self.sent % MESSAGES * PLACE;
        self.sent += 1;
        self.outbox.write(place, message);
        let piece = self.outbox.piece(place, message.len());
        let peer = self.peers[pair].as_mut().unwrap();
        peer.poll(&mut Vec::new()).unwrap();
        peer.post_send(&SendWr::send(1, vec![piece]).unsignaled()).unwrap();
    }

    /// Takes the next message, which has to be one for this queue pair. Returns the receive.
    fn take(&self, pair: usize, message: &[u8]) -> usize {
        let told = self.ends[pair].next();
        assert_eq!((told.status, told.qp), (Status::Success, self.ends[pair].qp.num()));
        let place = told.wr_id as usize;
        assert_eq!(self.octets(place, told.byte_len as usize), message);
        place
    }

    fn octets(&self, place: usize, len: usize) -> Vec<u8> {
        self.inbox.read(place * PLACE, len).unwrap()
    }
}

fn hosts(name: &str, quirks: u32) -> impl Iterator<Item = Host> {
    KINDS.into_iter().map(move |kind| host(&format!("{name}{}", kind as u8), kind, quirks))
}

#[test]
fn three_pairs_take_what_comes_from_one_queue() {
    for host in hosts("three", quirk::LATE) {
        let mut sharing = sharing(&host, 3, 5);
        let (mut random, mut sent) = (0x2545_f491_u32, [const { VecDeque::new() }; 3]);
        for round in 0..200_u32 {
            for _ in 0..random % 5 + 1 {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let (pair, message) = ((random >> 16) as usize % 3, random.to_ne_bytes());
                sharing.send(pair, &message[..(round % 5) as usize]);
                sent[pair].push_back(message[..(round % 5) as usize].to_vec());
            }
            let mut taken = Vec::new();
            while sent.iter().any(|of| !of.is_empty()) {
                let told = sharing.ends[0].next();
                let pair = sharing.ends.iter().position(|end| end.qp.num() == told.qp).unwrap();
                let place = told.wr_id as usize;
                let octets = sharing.octets(place, told.byte_len as usize);
                assert_eq!((told.status, Some(octets)), (Status::Success, sent[pair].pop_front()));
                assert!(!taken.contains(&place), "a receive takes two messages");
                taken.push(place);
            }
            assert_eq!(sharing.srq.len(), 5 - taken.len());
            taken.into_iter().for_each(|place| sharing.post(place));
        }
    }
}

#[test]
fn one_receive_is_for_whichever_pair_has_the_next_message() {
    for host in hosts("whichever", 0) {
        let mut sharing = sharing(&host, 2, 1);
        for pair in [0, 1, 1, 0, 1] {
            sharing.send(pair, b"one");
            let place = sharing.take(pair, b"one");
            sharing.post(place);
        }
    }
}

#[test]
fn the_queue_is_longer_than_the_devices() {
    for host in hosts("longer", quirk::SHORT) {
        let mut sharing = sharing(&host, 2, 20);
        assert_eq!((host.receives(), sharing.srq.len(), sharing.srq.outstanding()), (8, 20, 20));
        for message in 0..20 {
            sharing.send(message % 2, &[message as u8]);
            assert_eq!(sharing.take(message % 2, &[message as u8]), message);
        }
        assert!(sharing.srq.is_empty());
    }
}

#[test]
fn few_receives_are_told_once() {
    for host in hosts("few", 0) {
        let mut sharing = sharing(&host, 2, 3);
        sharing.srq.arm_limit(2);
        for message in 0..3 {
            sharing.send(message % 2, b"");
            sharing.take(message % 2, b"");
            let events = std::iter::from_fn(|| host.rnic.wait_async_event(Some(Duration::ZERO)).unwrap());
            let limit = Element::Srq(sharing.srq.num());
            let told = events.filter(|event| event.element == limit);
            let told: Vec<_> = told.map(|event| event.kind).collect();
            let expected = if message == 1 { vec![AsyncEventKind::SrqLimit] } else { Vec::new() };
            assert_eq!((told, sharing.srq.limit()), (expected, if message == 0 { 2 } else { 0 }));
        }
    }
}

/// Stops a message in a receive, ends its queue pair, and has another one take all receives.
fn ends_with_a_receive_under_way(host: &Host, end: impl FnOnce(&mut Sharing)) {
    let mut sharing = sharing(host, 2, 4);
    sharing.send(0, b"before");
    sharing.take(0, b"before");
    host.stall(true);
    sharing.send(0, b"lost");
    assert_eq!((host.receives(), sharing.srq.len()), (2, 3));
    end(&mut sharing);
    host.until(|| host.receives() == 3);
    host.stall(false);
    for message in 1..4_usize {
        sharing.send(1, &[message as u8]);
        let told = sharing.ends[1].next();
        assert_eq!((told.status, told.byte_len), (Status::Success, 1));
        assert_eq!(sharing.octets(told.wr_id as usize, 1), [message as u8]);
    }
    assert!(sharing.srq.is_empty() && sharing.ends[1].cq.poll_one().is_none());
}

#[test]
fn a_receive_that_a_message_has_begun_is_not_lost_with_its_pair() {
    // siw has none when its queue pair has failed; others tell, or are waited for.
    for (name, kind, quirks) in [
        ("begun_siw", Kind::Siw, 0),
        ("begun", Kind::Adapter, 0),
        ("begun_slow", Kind::Adapter, quirk::SLOW),
        ("begun_untold", Kind::Adapter, quirk::NO_LAST),
    ] {
        let host = host(name, kind, quirks);
        ends_with_a_receive_under_way(&host, |sharing| {
            sharing.ends[0].qp.abort();
            assert_eq!(sharing.ends[0].qp.state(), QpState::Error);
            assert_eq!(host.event().kind, AsyncEventKind::LastWqeReached);
        });
        ends_with_a_receive_under_way(&host, |sharing| {
            let other = host.end();
            drop(std::mem::replace(&mut sharing.ends[0], other));
        });
        ends_with_a_receive_under_way(&host, |sharing| {
            sharing.peers[0] = None;
            host.until(|| sharing.ends[0].qp.state() != QpState::ReadyToSend);
        });
    }
}

#[test]
fn a_message_that_comes_while_its_pair_is_dropped_costs_no_receive() {
    let host = host("while_dropped", Kind::Adapter, quirk::SLOW);
    let mut sharing = sharing(&host, 2, 3);
    let cq = sharing.ends[1].cq.clone();
    sharing.peers[0].as_mut().unwrap().post_receive(&RecvWr::new(1, Vec::new())).unwrap();
    host.stall(true);
    sharing.send(0, b"late");
    assert_eq!(host.receives(), 2 + 1, "with the peer's");
    // The drop waits for the peer's acknowledgement of this one.
    let end = sharing.ends.remove(0);
    end.qp.post_send(&SendWr::send_inline(99, b"").unsignaled()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(end));
        host.until(|| host.rnic.qp_count() == 1);
        host.stall(false);
    });
    let told = std::iter::from_fn(|| cq.poll_one()).filter(|told| told.wr_id != 99).count();
    host.until(|| host.receives() as usize + told == 3);
}

#[test]
fn receives_stay_posted_when_pairs_end() {
    for host in hosts("stay", 0) {
        let mut sharing = sharing(&host, 2, 2);
        sharing.ends[0].qp.abort();
        assert_eq!(sharing.ends[0].qp.state(), QpState::Error);
        assert!(sharing.ends[0].cq.poll_one().is_none());
        assert_eq!((sharing.srq.len(), host.receives()), (2, 2));
        // Without a pair, and for a pair that comes later.
        sharing.ends.clear();
        sharing.peers.clear();
        assert_eq!((sharing.srq.users(), sharing.srq.len()), (0, 2));
        let (cq, pd) = (host.rnic.create_cq(8).unwrap(), host.rnic.alloc_pd());
        let config = QpConfig { srq: Some(sharing.srq.clone()), ..QpConfig::new(&cq) };
        assert!(pd.create_qp(&config).is_err(), "of another protection domain");
    }
}

#[test]
fn all_is_dropped_in_whatever_order() {
    for host in hosts("order", 0) {
        for order in 0..3 {
            let Sharing { mut ends, peers, srq, inbox, .. } = sharing(&host, 3, 2);
            match order {
                0 => drop((srq, inbox, ends, peers)),
                1 => drop((peers, ends, inbox, srq)),
                _ => drop((ends.pop(), inbox, srq, ends, peers)),
            }
            host.until_nothing_is_left();
        }
    }
}

#[test]
fn memory_that_is_gone_fails_the_message() {
    for host in hosts("forgotten", 0) {
        let mut sharing = sharing(&host, 1, 0);
        let region = sharing.ends[0].pd.allocate(8, Access::LOCAL_WRITE).unwrap();
        let piece = region.whole();
        drop(region);
        sharing.srq.post_recv_unchecked(RecvWr::one(7, piece)).unwrap();
        sharing.send(0, b"nowhere");
        let told = sharing.ends[0].next();
        assert_eq!((told.wr_id, told.status), (7, Status::LocalProtection));
        assert_eq!(host.event().kind, AsyncEventKind::ConnectionLost);
    }
}

#[test]
fn what_cannot_be_shared_is_refused_by_name() {
    let refused = |host: &Host, of: SrqConfig| {
        let (pd, cq) = (host.rnic.alloc_pd(), host.rnic.create_cq(8).unwrap());
        let config = QpConfig { srq: Some(pd.create_srq(of)), ..QpConfig::new(&cq) };
        pd.create_qp(&config).map(drop)
    };
    let without = host("unshared", Kind::Rxe, quirk::UNSHARED);
    assert!(!without.rnic.capabilities().shared_receives);
    let with = host("shared", Kind::Rxe, 0);
    assert!(with.rnic.capabilities().shared_receives);
    refused(&with, SrqConfig::default()).unwrap();
    for (host, config, what) in [
        (&without, SrqConfig::default(), "shared receive queues"),
        (&with, SrqConfig { quota: Some(2), ..SrqConfig::default() }, "quotas of shared receives"),
    ] {
        let error = refused(host, config).unwrap_err();
        let is_named =
            matches!(&error, Error::Device(DeviceError::Unsupported { what: named, .. }) if *named == what);
        assert!(is_named, "{error}");
    }
}

#[test]
fn software_and_devices_share_no_receives() {
    let host = host("apart", Kind::Siw, 0);
    let soft = host.rnic.beside(&RnicConfig::default(), None).unwrap();
    for (own, other) in [(&host.rnic, &soft), (&soft, &host.rnic)] {
        let (pd, cq) = (own.alloc_pd(), own.create_cq(8).unwrap());
        let srq = other.alloc_pd().create_srq(SrqConfig::default());
        let error = pd.create_qp(&QpConfig { srq: Some(srq), ..QpConfig::new(&cq) }).unwrap_err();
        assert!(matches!(error, Error::Foreign("a shared receive queue")), "{error}");
    }
}

#[test]
fn a_pair_that_shares_receives_has_none_of_its_own() {
    let host = host("no_own", Kind::Siw, 0);
    let mut sharing = sharing(&host, 1, 1);
    assert!(sharing.ends[0].qp.post_recv(RecvWr::new(1, [])).is_err());
    sharing.peers[0].as_mut().unwrap().post_receive(&RecvWr::new(1, Vec::new())).unwrap();
    sharing.ends[0].qp.post_send(&SendWr::send_inline(2, b"").unsignaled()).unwrap();
    assert_eq!(completion(sharing.peers[0].as_mut().unwrap()).status, Status::Success);
}
