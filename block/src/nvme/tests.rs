//! The target against a host made by hand, and against hosts that say anything.

use proptest::prelude::*;

use core::time::Duration;

use super::capsule::{Place, Sqe};
use super::connect::{ANY_CONTROLLER, Connect, ConnectData, Fabrics, Wrong};
use super::io;
use super::private_data::{Refusal, Request};
use super::status::Status;
use super::step::{Outcome, Step, Subsystem};
use super::target::{Address, Queue, Target};
use crate::export::Command;
use crate::export::Export;
use crate::nvme::DISCOVERY_NQN;
use crate::nvme::connect::property;
use crate::nvme::identify::{
    Asked, Controller as Description, IDENTIFY, IDENTIFY_LEN, Namespace, parse_list,
};
use crate::nvme::log::Entry;
use crate::nvme::log::{self, ENTRY_LEN, GetLogPage, page};
use crate::nvme::{IN_CAPSULE, MAX_TRANSFER};

const NOW: Duration = Duration::from_secs(100);

fn subsystem(name: &str, blocks: u64, writable: bool) -> Subsystem {
    let export = Export { name: name.into(), size: blocks << 9, writable };
    Subsystem { nqn: format!("nqn.x:{name}"), nguid: [name.len() as u8; 16], export }
}

fn target(hosts: &[&str]) -> Target {
    let subsystems = vec![subsystem("a", 100, true), subsystem("bb", 8, false)];
    Target::new(subsystems, hosts.iter().map(|host| (*host).to_owned()).collect(), "0.1")
}

fn queue(qid: u16) -> Queue {
    let asked = Request { qid, answers: 32, commands: 31, cntlid: 0 };
    let at = Address { address: "10.0.0.1".into(), is_ipv6: false, port: 4420 };
    let mut queue = Queue::new(&asked.emit()).unwrap();
    queue.reached(at);
    queue
}

fn keyed(len: u32) -> Place {
    Place::Keyed { address: 0x1000, len, key: 7, invalidate: true }
}

fn data(subsystem: &str) -> ConnectData {
    ConnectData { host_id: [1; 16], cntlid: ANY_CONTROLLER, subsystem: subsystem.into(), host: "host".into() }
}

/// A host with a target, and its queues.
struct Pair {
    target: Target,
    admin: Queue,
}

/// The content of an answer: its status, and its result.
type Said = Result<u64, Status>;

fn said(step: &Step) -> Said {
    match step {
        Step::Answer(Outcome { result, status: Status::SUCCESS }) => Ok(*result),
        Step::Answer(Outcome { status, .. }) => Err(*status),
        other => panic!("{other:?}"),
    }
}

fn connects(target: &mut Target, qid: u16, queue: &mut Queue, data: &ConnectData) -> Step {
    let connect = Connect { format: 0, qid, size: 31, keep_alive: 5000 };
    let sqe = Fabrics::Connect(connect).command(1, keyed(1024));
    assert_eq!(target.take(queue, &sqe, 0, NOW), Step::Fetch(1024));
    target.fetched(queue, &sqe, &data.emit(), NOW)
}

impl Pair {
    /// A host that has connected, and enabled its controller.
    fn of(subsystem: &str) -> Self {
        let (mut target, mut admin) = (target(&[]), queue(0));
        assert_eq!(said(&connects(&mut target, 0, &mut admin, &data(subsystem))), Ok(1));
        let mut pair = Pair { target, admin };
        assert_eq!(pair.configure(0x0046_0001), Ok(0));
        pair
    }

    fn admin(&mut self, sqe: &Sqe) -> Step {
        self.target.take(&mut self.admin, sqe, 0, NOW)
    }

    fn fabrics(&mut self, fabrics: Fabrics) -> Said {
        said(&self.admin(&fabrics.command(2, Place::NONE)))
    }

    fn configure(&mut self, value: u64) -> Said {
        self.fabrics(Fabrics::Set { offset: property::CC, is_wide: false, value })
    }

    fn status(&mut self) -> Said {
        self.fabrics(Fabrics::Get { offset: property::CSTS, is_wide: false })
    }

    /// Sends an admin command without data.
    fn plain(&mut self, opcode: u8, cdw10: u32, cdw11: u32) -> Step {
        self.admin(&Sqe::new(opcode, 3, 0, Place::NONE, [cdw10, cdw11, 0, 0, 0, 0]))
    }

    fn gives(&mut self, sqe: &Sqe) -> Vec<u8> {
        match self.admin(sqe) {
            Step::Give(octets) => octets,
            other => panic!("{other:?}"),
        }
    }

    fn identify(&mut self, asked: Asked, nsid: u32) -> Step {
        self.admin(&asked.command(4, nsid, keyed(IDENTIFY_LEN as u32)))
    }

    fn io_queue(&mut self, qid: u16) -> Queue {
        let mut queue = queue(qid);
        let data = ConnectData { cntlid: 1, ..data("nqn.x:a") };
        assert_eq!(said(&connects(&mut self.target, qid, &mut queue, &data)), Ok(1));
        queue
    }
}

/// Base, "Connect Command": what Linux does from its first command on.
#[test]
fn a_host_connects_learns_what_there_is_and_reads() {
    let mut pair = Pair::of("nqn.x:a");
    assert_eq!(pair.fabrics(Fabrics::Get { offset: property::CAP, is_wide: true }), Ok(0x20_0f01_007f));
    assert_eq!(
        (pair.status(), pair.fabrics(Fabrics::Get { offset: 8, is_wide: false })),
        (Ok(1), Ok(0x10400))
    );
    let configuration = Fabrics::Get { offset: property::CC, is_wide: false };
    assert_eq!(pair.configure(0x46_0001), Ok(0));
    assert_eq!(pair.fabrics(configuration), Ok(0x46_0001));
    let octets = pair.gives(&Asked::Controller.command(1, 0, keyed(4096)));
    let controller = Description::parse(octets[..].try_into().unwrap());
    assert_eq!((controller.cntlid, controller.in_capsule, controller.max_transfer), (1, 4096, Some(1 << 20)));
    assert_eq!(controller.serial, "01".repeat(10));
    let list = pair.gives(&Asked::Namespaces.command(1, 0, keyed(4096)));
    assert_eq!(parse_list(list[..].try_into().unwrap()), [1]);
    let list = pair.gives(&Asked::Namespaces.command(1, 1, keyed(4096)));
    assert_eq!(parse_list(list[..].try_into().unwrap()), [0; 0]);
    let disk = pair.gives(&Asked::Namespace.command(1, 1, keyed(4096)));
    let disk = Namespace::parse(disk[..].try_into().unwrap()).unwrap();
    assert_eq!((disk.blocks, disk.writable, disk.nguid), (100, true, [1; 16]));
    assert_eq!(pair.gives(&Asked::Identifiers.command(1, 1, keyed(4096)))[4..20], [1; 16]);
    assert_eq!(pair.gives(&Asked::Limits.command(1, 0, keyed(4096))), [0; 4096]);
    // Four queues of the nine that it would like are three less one more.
    assert_eq!(said(&pair.plain(0x09, 7, 3 << 16 | 8)), Ok(3 << 16 | 3));
    assert_eq!(said(&pair.plain(0x09, 7, 63 << 16 | 63)), Ok(7 << 16 | 7));
    let mut io = pair.io_queue(1);
    let command = Command::Read { offset: 512, len: 1024 };
    let sqe = io::command(9, &command, 9, keyed(1024)).unwrap();
    assert_eq!(pair.target.take(&mut io, &sqe, 0, NOW), Step::Disk(0, command));
    let cqe = io.answer(&sqe, Status::SUCCESS.into());
    assert_eq!((cqe.cid, cqe.head, cqe.status), (9, 2, Status::SUCCESS));
}

/// RDMA, "Connection Establishment".
#[test]
fn connections_that_make_no_sense_are_rejected() {
    let refused = |qid, answers, commands| {
        let asked = Request { qid, answers, commands, cntlid: 0 };
        Queue::new(&asked.emit()).err()
    };
    assert_eq!(Queue::new(b"").err(), Some(Refusal::Length));
    assert_eq!((refused(0, 32, 31), refused(8, 128, 127)), (None, None));
    assert_eq!(refused(9, 128, 127), Some(Refusal::Qid));
    for (qid, commands) in [(0, 0), (0, 32), (1, 0), (1, 128), (1, u16::MAX)] {
        assert_eq!(refused(qid, u16::MAX, commands), Some(Refusal::CommandQueueSize), "{qid} {commands}");
    }
    assert_eq!(refused(1, 31, 31), Some(Refusal::AnswerQueueSize));
}

#[test]
fn a_connect_that_makes_no_sense_is_refused_and_its_place_is_named() {
    let mut target = target(&[]);
    let tells = |target: &mut Target, data: &ConnectData| {
        let step = connects(target, 0, &mut queue(0), data);
        let Step::Answer(outcome) = step else { panic!("{step:?}") };
        (outcome.status, outcome.result)
    };
    let unknown = data("nqn.x:c");
    assert_eq!(tells(&mut target, &unknown), (Status::CONNECT_PARAMETERS, 0x1_0100));
    let fixed = ConnectData { cntlid: 1, ..data("nqn.x:a") };
    assert_eq!(tells(&mut target, &fixed), (Status::CONNECT_PARAMETERS, 0x1_0010));
    // By the command alone, before its data are fetched.
    let connect = Connect { format: 0, qid: 0, size: 31, keep_alive: 0 };
    let mut command = |connect: Connect, len| {
        let sqe = Fabrics::Connect(connect).command(1, keyed(len));
        target.take(&mut queue(0), &sqe, 0, NOW)
    };
    assert_eq!(said(&command(Connect { format: 1, ..connect }, 1024)), Err(Status::CONNECT_FORMAT));
    assert_eq!(said(&command(connect, 1023)), Err(Status::DATA_LENGTH));
    for (connect, at) in [
        (Connect { qid: 1, ..connect }, 42),
        (Connect { size: 0, ..connect }, 44),
        (Connect { size: 32, ..connect }, 44),
    ] {
        let Step::Answer(outcome) = command(connect, 1024) else { panic!() };
        assert_eq!((outcome.status, outcome.result), (Status::CONNECT_PARAMETERS, at));
    }
    let other = Asked::Controller.command(1, 0, keyed(4096));
    assert_eq!(said(&target.take(&mut queue(0), &other, 0, NOW)), Err(Status::SEQUENCE_ERROR));
    assert_eq!(target.controllers(), 0);
}

#[test]
fn a_host_that_is_not_named_is_refused_and_sees_nothing() {
    let mut target = target(&["friend"]);
    let refused = connects(&mut target, 0, &mut queue(0), &data("nqn.x:a"));
    assert_eq!(said(&refused), Err(Status::INVALID_HOST));
    for (host, entries) in [("host", 0), ("friend", 2)] {
        let mut admin = queue(0);
        let data = ConnectData { host: host.into(), ..data(DISCOVERY_NQN) };
        said(&connects(&mut target, 0, &mut admin, &data)).unwrap();
        let set = Fabrics::Set { offset: property::CC, is_wide: false, value: 1 };
        said(&target.take(&mut admin, &set.command(1, Place::NONE), 0, NOW)).unwrap();
        let asked = GetLogPage { page: page::DISCOVERY, len: 3072, offset: 0 };
        let step = target.take(&mut admin, &asked.command(1, 0, keyed(3072)), 0, NOW);
        let Step::Give(octets) = step else { panic!("{step:?}") };
        assert_eq!(log::entries(octets[..ENTRY_LEN].try_into().unwrap()), entries, "{host}");
    }
    let friend = ConnectData { host: "friend".into(), ..data("nqn.x:a") };
    said(&connects(&mut target, 0, &mut queue(0), &friend)).unwrap();
}

#[test]
fn discovery_tells_the_way_to_each_subsystem() {
    let mut pair = Pair::of(DISCOVERY_NQN);
    let controller = pair.gives(&Asked::Controller.command(1, 0, keyed(4096)));
    let controller = Description::parse(controller[..].try_into().unwrap());
    assert!(controller.is_discovery && controller.subsystem == DISCOVERY_NQN);
    let asked = GetLogPage { page: page::DISCOVERY, len: 2048, offset: 1024 };
    let octets = pair.gives(&asked.command(1, 0, keyed(2048)));
    let entry = Entry::parse(octets[ENTRY_LEN..].try_into().unwrap());
    assert_eq!((&*entry.address, &*entry.port, &*entry.subsystem), ("10.0.0.1", "4420", "nqn.x:bb"));
    // It has no disk: neither a namespace nor an I/O queue.
    assert_eq!(said(&pair.identify(Asked::Namespace, 1)), Err(Status::INVALID_FIELD));
    let health = GetLogPage { page: page::HEALTH, len: 512, offset: 0 };
    assert_eq!(said(&pair.admin(&health.command(1, 0, keyed(512)))), Err(Status::INVALID_LOG_PAGE));
    let io = ConnectData { cntlid: 1, ..data(DISCOVERY_NQN) };
    let refused = connects(&mut pair.target, 1, &mut queue(1), &io);
    assert_eq!(said(&refused), Err(Status::CONNECT_PARAMETERS));
}

/// Queues are for the host that has the controller, and there is one of each number.
#[test]
fn another_host_or_a_second_queue_of_a_number_is_refused() {
    let mut pair = Pair::of("nqn.x:a");
    let right = ConnectData { cntlid: 1, ..data("nqn.x:a") };
    for (data, at) in [
        (ConnectData { cntlid: 2, ..right.clone() }, Wrong::CNTLID),
        (ConnectData { host: "other".into(), ..right.clone() }, Wrong::HOST),
        (ConnectData { host_id: [2; 16], ..right.clone() }, Wrong::HOST_ID),
        (ConnectData { subsystem: "nqn.x:bb".into(), ..right.clone() }, Wrong::SUBSYSTEM),
    ] {
        let step = connects(&mut pair.target, 1, &mut queue(1), &data);
        let outcome = Outcome { result: at.result(), status: Status::CONNECT_PARAMETERS };
        assert_eq!(step, Step::Answer(outcome));
    }
    let mut io = pair.io_queue(1);
    let twice = connects(&mut pair.target, 1, &mut queue(1), &right);
    assert_eq!(said(&twice), Err(Status::SEQUENCE_ERROR));
    // A Connect on a queue that is one, of both kinds.
    let connect = Connect { format: 0, qid: 1, size: 31, keep_alive: 0 };
    let sqe = Fabrics::Connect(connect).command(1, keyed(1024));
    let again = pair.target.take(&mut io, &sqe, 0, NOW);
    assert_eq!(said(&again), Err(Status::INVALID_OPCODE));
    assert_eq!(said(&pair.admin(&sqe)), Err(Status::SEQUENCE_ERROR));
    let late = pair.target.fetched(&mut io, &sqe, &right.emit(), NOW);
    assert_eq!(said(&late), Err(Status::SEQUENCE_ERROR));
    // After its connection has ended, the number is free.
    assert_eq!(said(&pair.plain(0x09, 7, 0)), Err(Status::SEQUENCE_ERROR));
    pair.target.close(&io);
    pair.io_queue(1);
}

#[test]
fn a_controller_that_is_not_enabled_has_no_commands_and_a_reset_ends_its_queues() {
    let (mut target, mut admin) = (target(&[]), queue(0));
    said(&connects(&mut target, 0, &mut admin, &data("nqn.x:a"))).unwrap();
    let mut pair = Pair { target, admin };
    assert_eq!(
        (pair.status(), said(&pair.identify(Asked::Controller, 0))),
        (Ok(0), Err(Status::SEQUENCE_ERROR))
    );
    let io = ConnectData { cntlid: 1, ..data("nqn.x:a") };
    let early = connects(&mut pair.target, 1, &mut queue(1), &io);
    assert_eq!(said(&early), Err(Status::SEQUENCE_ERROR));
    // Other sizes of entries than there are.
    for value in [0x0056_0001, 0x0046_0011, 0x0046_0081, 0x0046_0801] {
        assert_eq!((pair.configure(value), pair.status(), pair.configure(0)), (Ok(0), Ok(2), Ok(0)));
    }
    assert_eq!((pair.configure(0x0046_0001), pair.status()), (Ok(0), Ok(1)));
    let mut old = pair.io_queue(1);
    assert!(!pair.target.is_over(&old));
    pair.configure(0).unwrap();
    assert!(pair.target.is_over(&old) && !pair.target.is_over(&pair.admin));
    pair.configure(0x0046_0001).unwrap();
    let sqe = io::command(9, &Command::Flush, 9, Place::NONE).unwrap();
    let stale = pair.target.take(&mut old, &sqe, 0, NOW);
    assert_eq!(said(&stale), Err(Status::SEQUENCE_ERROR));
    let new = pair.io_queue(1);
    // The end of the old one's connection is not that of the new one.
    pair.target.close(&old);
    assert_eq!(said(&connects(&mut pair.target, 1, &mut queue(1), &io)), Err(Status::SEQUENCE_ERROR));
    assert!(!pair.target.is_over(&new));
    assert_eq!((pair.configure(0x0046_4001), pair.status()), (Ok(0), Ok(9)));
}

#[test]
fn a_controller_ends_with_its_admin_queue_or_when_nothing_is_heard() {
    let mut pair = Pair::of("nqn.x:a");
    let io = pair.io_queue(1);
    pair.target.close(&pair.admin);
    assert!(pair.target.is_over(&io) && pair.target.controllers() == 0);

    let mut pair = Pair::of("nqn.x:a");
    let mut io = pair.io_queue(1);
    let after = |seconds| NOW + Duration::from_secs(seconds);
    assert!(pair.target.end_silent(after(5)).is_empty());
    let sqe = io::command(9, &Command::Flush, 9, Place::NONE).unwrap();
    let _ = pair.target.take(&mut io, &sqe, 0, after(5));
    assert!(pair.target.end_silent(after(10)).is_empty());
    pair.target.touch(&io, after(11));
    assert!(pair.target.end_silent(after(16)).is_empty());
    assert_eq!(pair.target.end_silent(after(17)), ["host"]);
    assert!(pair.target.is_over(&io) && pair.target.is_over(&pair.admin));
    assert_eq!(said(&pair.admin(&sqe)), Err(Status::QUEUE_DELETED));

    // Without a keep-alive time, and with another.
    let mut pair = Pair::of("nqn.x:a");
    assert_eq!((said(&pair.plain(0x09, 15, 0)), said(&pair.plain(0x0a, 15, 0))), (Ok(0), Ok(0)));
    assert!(pair.target.end_silent(after(1 << 30)).is_empty());
    assert_eq!((said(&pair.plain(0x09, 15, 9000)), said(&pair.plain(0x0a, 15, 0))), (Ok(0), Ok(9000)));
    assert_eq!(pair.target.end_silent(after(1 << 30)).len(), 1);
}

#[test]
fn admin_commands_are_answered_or_held() {
    let mut pair = Pair::of("nqn.x:a");
    for _ in 0..4 {
        assert_eq!(pair.plain(0x0c, 0, 0), Step::Hold);
    }
    assert_eq!(said(&pair.plain(0x0c, 0, 0)), Err(Status::EVENT_LIMIT));
    assert_eq!((said(&pair.plain(0x08, 1, 0)), said(&pair.plain(0x18, 0, 0))), (Ok(1), Ok(0)));
    assert_eq!((said(&pair.plain(0x0a, 6, 0)), said(&pair.plain(0x0a, 11, 0))), (Ok(1), Ok(0)));
    assert_eq!((said(&pair.plain(0x09, 6, 1)), said(&pair.plain(0x09, 11, 1))), (Ok(0), Ok(0)));
    assert_eq!(said(&pair.plain(0x09, 6, 0)), Err(Status::INVALID_FIELD));
    assert_eq!(said(&pair.plain(0x09, 7, 0xffff)), Err(Status::INVALID_FIELD));
    assert_eq!(said(&pair.plain(0x0a, 1, 0)), Err(Status::INVALID_FIELD));
    assert_eq!(said(&pair.plain(0x05, 1, 0)), Err(Status::INVALID_OPCODE));
    assert_eq!(said(&pair.identify(Asked::Namespace, 2)), Err(Status::INVALID_NAMESPACE));
    assert_eq!(said(&pair.identify(Asked::Identifiers, 2)), Err(Status::INVALID_NAMESPACE));
    // Behind the largest number, and behind the one that stands for all, there is no list.
    for nsid in [u32::MAX - 1, u32::MAX] {
        assert_eq!(said(&pair.identify(Asked::Namespaces, nsid)), Err(Status::INVALID_NAMESPACE));
    }
    assert!(matches!(pair.identify(Asked::Namespaces, u32::MAX - 2), Step::Give(_)));
    // The limits of another command set than that of disks.
    let zoned = Sqe::new(IDENTIFY, 4, 0, keyed(4096), [Asked::Limits as u32, 2 << 24, 0, 0, 0, 0]);
    assert_eq!(said(&pair.admin(&zoned)), Err(Status::INVALID_FIELD));
    let short = Asked::Controller.command(1, 0, keyed(100));
    assert_eq!(said(&pair.admin(&short)), Err(Status::DATA_LENGTH));
    for (page, len) in [(page::ERRORS, 64), (page::HEALTH, 512), (page::FIRMWARE, 512)] {
        let asked = GetLogPage { page, len, offset: 0 };
        assert_eq!(pair.gives(&asked.command(1, u32::MAX, keyed(len as u32))).len() as u64, len);
        let far = GetLogPage { page, len, offset: 4096 };
        assert_eq!(said(&pair.admin(&far.command(1, 0, keyed(len as u32)))), Err(Status::INVALID_FIELD));
    }
    let long = GetLogPage { page: page::HEALTH, len: 1 << 17, offset: 0 };
    assert_eq!(said(&pair.admin(&long.command(1, 0, keyed(1 << 17)))), Err(Status::DATA_LENGTH));
    // After a reset four more are held.
    pair.configure(0).unwrap();
    pair.configure(0x0046_0001).unwrap();
    assert_eq!(pair.plain(0x0c, 0, 0), Step::Hold);
}

#[test]
fn data_come_in_the_capsule_and_do_not_go_out_by_one() {
    let mut pair = Pair::of("nqn.x:a");
    let mut io = pair.io_queue(1);
    let mut take = |command: &Command, offset, len, data| {
        let sqe = io::command(9, command, 9, Place::InCapsule { offset, len }).unwrap();
        pair.target.take(&mut io, &sqe, data, NOW)
    };
    let write = Command::Write { offset: 0, len: 4096, fua: false };
    assert_eq!(take(&write, 0, 4096, 4096), Step::Disk(0, write));
    for (offset, data) in [(0, 4095), (1, 4096), (u64::MAX, 4096)] {
        assert_eq!(said(&take(&write, offset, 4096, data)), Err(Status::SGL_OFFSET));
    }
    let read = Command::Read { offset: 0, len: 4096 };
    assert_eq!(said(&take(&read, 0, 4096, 4096)), Err(Status::SGL_TYPE));
    let identify = Asked::Controller.command(1, 0, Place::InCapsule { offset: 0, len: 4096 });
    let step = pair.target.take(&mut pair.admin, &identify, 4096, NOW);
    assert_eq!(said(&step), Err(Status::SGL_TYPE));
}

#[test]
fn ranges_are_fetched_and_trimmed() {
    let mut pair = Pair::of("nqn.x:a");
    let mut io = pair.io_queue(1);
    let sqe = Sqe::new(0x09, 1, 1, keyed(4096), [0, 4, 0, 0, 0, 0]);
    assert_eq!(pair.target.take(&mut io, &sqe, 0, NOW), Step::Fetch(16));
    let mut fetched = |count: u8, first: u8| {
        let range = [0, 0, 0, 0, count, 0, 0, 0, first, 0, 0, 0, 0, 0, 0, 0];
        pair.target.fetched(&mut io, &sqe, &range, NOW)
    };
    let trim = Command::Trim { offset: 512, len: 1024, fua: false };
    assert_eq!(fetched(2, 1), Step::Trim(0, vec![trim]));
    assert_eq!(fetched(0, 1), Step::success(0));
    assert_eq!(said(&fetched(2, 99)), Err(Status::LBA_RANGE));
}

/// A capsule with some fields that make sense, so that it comes far.
fn capsules() -> impl Strategy<Value = (bool, [u8; 64], usize)> {
    let opcode = prop_oneof![Just(0x7f), 0u8..0x20, any::<u8>()];
    let sgl = prop_oneof![Just(0x40), Just(0x4f), Just(0x01), any::<u8>()];
    let small = prop_oneof![0u32..16, any::<u32>()];
    let len = prop_oneof![Just(512u32), Just(1024), Just(4096), any::<u32>()];
    let data = prop_oneof![Just(0usize), Just(IN_CAPSULE), 0..IN_CAPSULE];
    let rest = (any::<[u8; 64]>(), any::<bool>(), any::<bool>(), data);
    (opcode, sgl, small.clone(), small.clone(), small, len, rest).prop_map(
        |(opcode, sgl, nsid, cdw10, cdw12, len, (mut octets, is_admin, is_flagged, data))| {
            (octets[0], octets[39]) = (opcode, sgl);
            octets[1] = if is_flagged { octets[1] } else { 0x40 };
            octets[4..8].copy_from_slice(&nsid.to_le_bytes());
            octets[32..35].copy_from_slice(&len.to_le_bytes()[..3]);
            octets[40..44].copy_from_slice(&cdw10.to_le_bytes());
            octets[44..48].fill(0);
            octets[48..52].copy_from_slice(&cdw12.to_le_bytes());
            (is_admin, octets, data)
        },
    )
}

proptest! {
    /// Steps are bounded, within the disks, and have memory of the host's as long as their octets,
    /// whatever the host says.
    #[test]
    fn any_capsules_are_taken(capsules in proptest::collection::vec(capsules(), 1..40)) {
        let mut pair = Pair::of("nqn.x:a");
        let mut io = pair.io_queue(1);
        for (is_admin, octets, data) in capsules {
            let Pair { target, admin } = &mut pair;
            let queue = if is_admin { admin } else { &mut io };
            let sqe = Sqe::parse(&octets);
            let place = sqe.place();
            let mut step = target.take(queue, &sqe, data, NOW);
            if let Step::Fetch(len) = step {
                prop_assert!(len <= 4096 && len <= place.unwrap().len() as usize);
                step = target.fetched(queue, &sqe, &octets.repeat(64)[..len], NOW);
                prop_assert!(!matches!(step, Step::Fetch(_)));
            }
            match step {
                Step::Give(octets) => {
                    let is_keyed = matches!(place, Ok(Place::Keyed { .. }));
                    prop_assert!(is_keyed && octets.len() == place.unwrap().len() as usize);
                    prop_assert!(octets.len() <= MAX_TRANSFER as usize);
                }
                Step::Disk(0, Command::Read { offset, len } | Command::Write { offset, len, .. }) => {
                    prop_assert!(place.unwrap().len() == len && offset + u64::from(len) <= 100 << 9);
                }
                Step::Disk(at, _) => prop_assert_eq!(at, 0),
                Step::Trim(at, trims) => prop_assert!(at == 0 && trims.len() <= 4096),
                Step::Answer(_) | Step::Hold | Step::Fetch(_) => {}
            }
            prop_assert!(queue.answer(&sqe, Status::SUCCESS.into()).head < 32);
        }
        prop_assert!(pair.target.controllers() == 1);
    }
}
