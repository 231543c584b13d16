//! `block_nvme`: capsules of hosts that say anything to the target, and any octets as what a target
//! tells a host.

use core::time::Duration;

use rddp_block::export::{Command, Export};
use rddp_block::nvme::capsule::{CQE_LEN, Cqe, Place, SQE_LEN, Sqe};
use rddp_block::nvme::identify::{Controller, IDENTIFY_LEN, Namespace, parse_list};
use rddp_block::nvme::log::{ENTRY_LEN, Entry};
use rddp_block::nvme::private_data::{LEN, Refusal, Reply, Request};
use rddp_block::nvme::status::Status;
use rddp_block::nvme::step::{Step, Subsystem};
use rddp_block::nvme::target::{Queue, Target};
use rddp_block::nvme::{IN_CAPSULE, MAX_TRANSFER};

/// Octets of the disks: one to write, and one that is shown with fewer than it has.
const DISKS: [(u64, bool); 2] = [(1 << 20, true), (999, false)];

/// The queues of an input: two admin queues, and three for data.
const QIDS: [u16; 5] = [0, 0, 1, 1, 2];

/// Runs one input. An octet before each capsule says which queue it is for, and what happens
/// besides; octets that a command fetches follow its capsule.
pub fn run(octets: &[u8]) {
    tell(octets);
    let (mut target, mut queues) = (target(), QIDS.map(queue));
    let (mut rest, mut now) = (octets, Duration::ZERO);
    while let Some((&[what, ref capsule @ ..], later)) = rest.split_first_chunk::<{ 1 + SQE_LEN }>() {
        let at = usize::from(what & 7) % QIDS.len();
        rest = take(&mut target, &mut queues[at], capsule, what & 8 != 0, later, now);
        if what & 16 != 0 {
            target.close(&queues[at]);
            queues[at] = queue(QIDS[at]);
        }
        if what & 32 != 0 {
            now += Duration::from_secs(3);
            let _ = target.end_silent(now);
        }
        renew(&target, &mut queues);
    }
    let admins = queues.iter().take(2).filter(|queue| queue.is_connected()).count();
    assert_eq!(target.controllers(), admins);
    queues.iter().for_each(|queue| target.close(queue));
    assert_eq!(target.controllers(), 0);
}

fn target() -> Target {
    let subsystem = |(at, (size, writable)): (usize, (u64, bool))| Subsystem {
        nqn: format!("disk{at}"),
        nguid: [at as u8; 16],
        export: Export { name: at.to_string(), size, writable },
    };
    Target::new(DISKS.into_iter().enumerate().map(subsystem).collect(), vec!["host".into()], "0")
}

fn queue(qid: u16) -> Queue {
    let asked = Request { qid, answers: 8, commands: 7, cntlid: 0 };
    Queue::new(&asked.emit()).expect("the sizes are right")
}

/// Has new connections in place of those that are over.
fn renew(target: &Target, queues: &mut [Queue; QIDS.len()]) {
    for (queue, qid) in queues.iter_mut().zip(QIDS) {
        if target.is_over(queue) {
            *queue = self::queue(qid);
        }
    }
}

/// Has the target take a capsule. Returns the octets that no command has fetched.
fn take<'a>(
    target: &mut Target,
    queue: &mut Queue,
    capsule: &[u8; SQE_LEN],
    has_data: bool,
    rest: &'a [u8],
    now: Duration,
) -> &'a [u8] {
    let sqe = Sqe::parse(capsule);
    assert_eq!(Sqe::parse(&sqe.emit()), sqe);
    let mut step = target.take(queue, &sqe, if has_data { IN_CAPSULE } else { 0 }, now);
    let mut later = rest;
    if let Step::Fetch(len) = step {
        assert!(len <= 4096 && len <= sqe.place().map_or(0, |place| place.len() as usize));
        let mut octets = rest[..rest.len().min(len)].to_vec();
        later = &rest[octets.len()..];
        octets.resize(len, 0);
        step = target.fetched(queue, &sqe, &octets, now);
        assert!(!matches!(step, Step::Fetch(_)));
    }
    check(&step, sqe.place().ok());
    assert!(queue.answer(&sqe, Status::SUCCESS.into()).head < 8);
    later
}

/// Checks that what is to be done is on the disk and allowed there, and has memory of the host's.
fn check(step: &Step, place: Option<Place>) {
    match step {
        Step::Give(octets) => {
            let Some(Place::Keyed { len, .. }) = place else { panic!("{place:?}") };
            assert!(len as usize == octets.len() && octets.len() <= MAX_TRANSFER as usize);
        }
        Step::Disk(at, command) => check_command(*at, command, place.map_or(0, |place| place.len())),
        Step::Trim(at, commands) => {
            assert!((1..=4096).contains(&commands.len()));
            commands.iter().for_each(|command| check_command(*at, command, 0));
        }
        Step::Answer(_) | Step::Hold | Step::Fetch(_) => {}
    }
}

fn check_command(at: usize, command: &Command, data: u32) {
    let (size, writable) = DISKS[at];
    let is_there = |offset: u64, len: u32| u128::from(offset) + u128::from(len) <= u128::from(size & !511);
    match *command {
        Command::Read { offset, len } => assert!(is_there(offset, len) && len == data),
        Command::Write { offset, len, .. } => assert!(is_there(offset, len) && len == data && writable),
        Command::Zero { offset, len, .. } | Command::Trim { offset, len, .. } => {
            assert!(is_there(offset, len) && writable);
        }
        Command::Flush => {}
        Command::Status { .. } => panic!("NVMe does not ask where data are"),
    }
}

/// Has a host take the octets as what a target says.
fn tell(octets: &[u8]) {
    if let Ok(request) = Request::parse(octets) {
        assert_eq!(Request::parse(&request.emit()), Ok(request));
    }
    let _ = (Reply::parse(octets), Refusal::parse(octets), octets.len() == LEN);
    if let Some((cqe, _)) = octets.split_first_chunk::<CQE_LEN>() {
        let cqe = Cqe::parse(cqe);
        assert_eq!(Cqe::parse(&cqe.emit()), cqe);
        assert!(cqe.status.is_success() == cqe.status.error().is_none());
    }
    if let Some((entry, _)) = octets.split_first_chunk::<ENTRY_LEN>() {
        let _ = Entry::parse(entry);
    }
    if let Some((page, _)) = octets.split_first_chunk::<IDENTIFY_LEN>() {
        let _ = (Controller::parse(page), parse_list(page));
        if let Some(Namespace { blocks, block_shift, .. }) = Namespace::parse(page) {
            assert!(blocks.checked_mul(1 << block_shift).is_some());
        }
    }
}
