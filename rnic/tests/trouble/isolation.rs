//! Isolation of peers, streams and protection domains (RFC 5042 §6.1.1, §6.2.1, §6.3.5,
//! draft-hilland-rddp-verbs §7.6).

use rddp_rdmap::{AtomicOp, AtomicRequestRepr, Opcode, ReadRequestRepr, TerminateCode};
use rddp_rnic::{Access, Completed, ConnectOptions, QpConfig, RecvWr, Remote, SendWr, Stag, Status};
use rddp_test_support::{Peer, plain, segment};

use crate::common::guarded::Guarded;
use crate::common::raw::{self, BOTH, Role, client_server, connect_raw, open_for, with_plain_raw};
use crate::common::{ALL, End};

/// An operation of a peer on an STag that it may not use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attack {
    Write,
    Read,
    Atomic,
    Invalidate,
}

const ATTACKS: [Attack; 4] = [Attack::Write, Attack::Read, Attack::Atomic, Attack::Invalidate];

impl Attack {
    fn ulpdu(self, remote: Remote) -> Vec<u8> {
        let Remote { stag, to } = remote;
        match self {
            Attack::Write => segment::write(stag, to, true, b"attacked"),
            Attack::Invalidate => segment::send_invalidate(1, stag, b"done"),
            Attack::Read => {
                let (sink_stag, sink_to, size) = (Stag(1), 0, 8);
                segment::read(1, &ReadRequestRepr { sink_stag, sink_to, size, src_stag: stag, src_to: to })
            }
            Attack::Atomic => {
                let op = AtomicOp::FetchAdd { add: 1, mask: 0 };
                segment::atomic(1, &AtomicRequestRepr { op, request_id: 1, stag, to })
            }
        }
    }

    /// Returns whether the operation takes a message number of queue 1.
    fn is_request(self) -> bool {
        matches!(self, Attack::Read | Attack::Atomic)
    }

    fn changes_octets(self) -> bool {
        matches!(self, Attack::Write | Attack::Atomic)
    }

    /// Tries the operation; returns the Terminate's code, or `None` if the operation was done.
    fn attempt(self, raw: &mut Peer, region: &Guarded) -> Option<TerminateCode> {
        raw.send(&self.ulpdu(region.region.remote(0)));
        // The answer shows that the attack has been handled.
        raw.send(&raw::read_from(if self.is_request() { 2 } else { 1 }, &region.region, 0));
        loop {
            let ulpdu = raw.recv().expect("closed without a word");
            match Opcode::from_number(ulpdu[1] & 0xf) {
                Some(Opcode::ReadResponse) if ulpdu.len() == 14 => return None,
                Some(Opcode::Terminate) => {
                    return Some(TerminateCode(u16::from_be_bytes([ulpdu[18], ulpdu[19]])));
                }
                _ => {}
            }
        }
    }
}

/// Makes a QP of `pd` towards a raw peer, with a receive posted.
fn stream(
    device: &End,
    pd: &rddp_rnic::ProtectionDomain,
    role: Role,
    change: impl FnOnce(&mut QpConfig),
) -> (End, Peer, rddp_rnic::MemoryRegion) {
    let cq = device.rnic.create_cq(64).unwrap();
    let mut config = QpConfig::new(&cq);
    change(&mut config);
    let qp = pd.create_qp(&config).unwrap();
    let end = End { rnic: device.rnic.clone(), pd: pd.clone(), cq, qp };
    let mut raw = connect_raw(role, &end, &client_server(), &plain());
    open_for(&mut raw, &end);
    let inbox = end.region(8, Access::LOCAL_WRITE);
    end.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
    (end, raw, inbox)
}

/// Attacks a region, in the QP's own PD or another, with these rights and switches, and compares
/// the Terminate's code.
fn check(
    device: &End,
    attack: Attack,
    own_pd: bool,
    access: Access,
    switches: (bool, bool),
    expected: Option<TerminateCode>,
) {
    let pds = [device.rnic.alloc_pd(), device.rnic.alloc_pd()];
    let region = Guarded::new(&pds[usize::from(!own_pd)], 64, access);
    let (_end, mut raw, _inbox) = stream(device, &pds[0], BOTH[usize::from(own_pd)], |config| {
        (config.inbound_read, config.inbound_write) = switches;
    });
    let what = format!("{attack:?}, own PD {own_pd}, {access:?}, (read, write) {switches:?}");
    assert_eq!(attack.attempt(&mut raw, &region), expected, "{what}");
    let done = expected.is_none();
    assert_eq!(region.is_unchanged(), !(done && attack.changes_octets()), "{what}");
    assert_eq!(region.region.is_valid(), !(done && attack == Attack::Invalidate), "{what}");
    region.assert_guards();
}

/// RFC 5042 §6.1.1: an STag of one PD cannot be used on a stream of another, in any way.
#[test]
fn an_stag_works_in_its_own_protection_domain_only() {
    let device = End::new();
    for attack in ATTACKS {
        check(&device, attack, true, ALL, (true, true), None);
        let code = match attack {
            Attack::Write => TerminateCode::TAGGED_STAG_NOT_ASSOCIATED,
            Attack::Read | Attack::Atomic => TerminateCode::STAG_NOT_ASSOCIATED,
            Attack::Invalidate => TerminateCode::CANNOT_INVALIDATE_PROTECTION,
        };
        check(&device, attack, false, ALL, (true, true), Some(code));
    }
}

/// RFC 5042 §6.3.5, RFC 5040 §8.1.1: each use needs its right, and the QP's permission
/// (draft-hilland-rddp-verbs §7.6.3).
#[test]
fn each_use_needs_its_right_and_the_qps_leave() {
    let device = End::new();
    let rights = [
        (Attack::Write, Access::REMOTE_WRITE, TerminateCode::TAGGED_INVALID_STAG),
        (Attack::Read, Access::REMOTE_READ, TerminateCode::ACCESS_RIGHTS),
        (Attack::Atomic, Access::REMOTE_ATOMIC, TerminateCode::ACCESS_RIGHTS),
        (Attack::Invalidate, Access::REMOTE_INVALIDATE, TerminateCode::CANNOT_INVALIDATE_PROTECTION),
    ];
    for (attack, right, code) in rights {
        check(&device, attack, true, Access::LOCAL_WRITE | right, (true, true), None);
        check(&device, attack, true, ALL.difference(right), (true, true), Some(code));
        for switches in [(false, false), (false, true), (true, false)] {
            let allowed = match attack {
                Attack::Write => switches.1,
                Attack::Read | Attack::Atomic => switches.0,
                // draft-hilland-rddp-verbs §7.8: some remote access must be allowed.
                Attack::Invalidate => switches.0 || switches.1,
            };
            check(&device, attack, true, ALL, switches, (!allowed).then_some(code));
        }
    }
}

/// RFC 5041 §8.2: an STag given to one stream cannot be used on another of the same PD.
#[test]
fn a_window_serves_one_stream() {
    let device = End::new();
    let (bound_on, mut raw, _inbox) = stream(&device, &device.pd, Role::Active, |_| {});
    let (_other, mut other_raw, _other_inbox) = stream(&device, &device.pd, Role::Passive, |_| {});
    let region = Guarded::new(&device.pd, 64, Access::LOCAL_WRITE | Access::BIND);
    let window = device.pd.allocate_window().unwrap();
    let rights = Access::REMOTE_WRITE | Access::REMOTE_READ;
    bound_on.qp.post_send(&SendWr::bind(5, window.stag(), region.region.whole(), rights)).unwrap();
    assert_eq!(bound_on.success().completed, Completed::Bind);
    let attack = segment::write(window.stag(), region.region.base(), true, b"attacked");
    other_raw.send(&attack);
    assert_eq!(other_raw.terminate_code(), TerminateCode::TAGGED_STAG_NOT_ASSOCIATED);
    assert!(region.is_unchanged());
    raw.send(&attack);
    raw.send(&raw::read_from(1, &region.region, 0));
    raw.expect(Opcode::ReadResponse);
    assert_eq!(region.octets()[..8], *b"attacked");
}

/// RFC 5044 §6: a Write reaches memory after its CRC was checked, or before it if the program chose
/// so. Nothing is delivered either way.
#[test]
fn a_write_with_a_wrong_crc_changes_nothing_unless_asked_for() {
    for place_before_crc in [false, true] {
        for len in [8, 60_000] {
            let end = End::new();
            let options = ConnectOptions { place_before_crc, ..client_server() };
            let mut raw = connect_raw(Role::Passive, &end, &options, &plain());
            open_for(&mut raw, &end);
            let before = end.qp.counters().octets_received;
            let target = Guarded::new(&end.pd, len, ALL);
            let mut octets = raw.frame(&raw::write_to(&target.region, 0, &vec![9; len]));
            *octets.last_mut().unwrap() ^= 1;
            let (head, rest) = octets.split_at(octets.len() / 4);
            raw.octets(head);
            // Octets that arrive together are staged: the engine is to see the first part alone.
            while end.qp.counters().octets_received < before + head.len() as u64 {
                std::thread::yield_now();
            }
            raw.octets(rest);
            assert_eq!(raw.terminate_code(), TerminateCode::MPA_CRC);
            // Small payloads are staged in any case.
            assert_eq!(target.is_unchanged(), !place_before_crc || len == 8);
            target.assert_guards();
        }
    }
}

/// RFC 5044 §4.4: nothing of an FPDU with a wrong CRC is delivered, whatever its header says.
#[test]
fn nothing_with_a_wrong_crc_is_delivered() {
    type Make = fn(&rddp_rnic::MemoryRegion) -> Vec<u8>;
    let messages: [Make; 6] = [
        |_| segment::send(1, 0, true, b"data"),
        |_| segment::send(1, 0, true, &[1; 60_000]),
        |region| segment::send_invalidate(1, region.stag(), b"done"),
        |region| raw::fetch_add(1, region, 1),
        |_| segment::terminate(TerminateCode::LOCAL_CATASTROPHIC),
        |_| segment::send(7, 0, true, b"another MSN"),
    ];
    for message in messages {
        let (end, mut raw) = with_plain_raw(Role::Active);
        let (region, inbox) = (end.region(64, ALL), end.region(60_000, Access::LOCAL_WRITE));
        end.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
        let mut octets = raw.frame(&message(&region));
        *octets.last_mut().unwrap() ^= 0x80;
        raw.octets(&octets);
        assert_eq!(raw.terminate_code(), TerminateCode::MPA_CRC);
        assert_eq!(end.completions_of([1])[0].status, Status::Flushed);
        assert_eq!(end.qp.terminate_received(), None);
        assert!(region.is_valid() && region.read(0, 8).unwrap() == [0; 8]);
    }
}
