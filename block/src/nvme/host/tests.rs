//! The host against the target, and against targets that say anything.

use core::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::export::Command;
use crate::export::Export;
use crate::nvme::step::{Outcome, Step, Subsystem};
use crate::nvme::target::{Queue, Target};

const NOW: Duration = Duration::from_secs(1);

const MEMORY: Memory = Memory { address: 0x1000, key: 7 };

fn host() -> Host {
    Host { nqn: "nqn.x:host".into(), id: [5; 16] }
}

fn target(disks: u16, hosts: &[&str]) -> Target {
    let subsystems = (0..disks).map(|at| Subsystem {
        nqn: format!("nqn.x:{at}"),
        nguid: [1; 16],
        export: Export { name: String::new(), size: (1000 << 9) + 17, writable: at == 0 },
    });
    Target::new(subsystems.collect(), hosts.iter().map(|host| (*host).to_owned()).collect(), "0.1")
}

fn queue(qid: u16, entries: u16) -> Queue {
    Queue::new(&private_data(qid, entries, 0).emit()).unwrap()
}

/// Has the ends talk until the host has what it wants.
fn converse(target: &mut Target, queue: &mut Queue, mut opening: Opening) -> Result<Next, Failed> {
    let mut memory = [0; MEMORY_LEN];
    let mut ask = opening.begin();
    loop {
        memory[..ask.octets.len()].copy_from_slice(&ask.octets);
        let step = match target.take(queue, &ask.sqe, 0, NOW) {
            Step::Fetch(len) => target.fetched(queue, &ask.sqe, &memory[..len], NOW),
            step => step,
        };
        let outcome = match step {
            Step::Give(octets) => {
                assert_eq!(octets.len(), ask.sqe.place().unwrap().len() as usize);
                memory[..octets.len()].copy_from_slice(&octets);
                Outcome::from(Status::SUCCESS)
            }
            Step::Answer(outcome) => outcome,
            other => panic!("{other:?}"),
        };
        match opening.take(&queue.answer(&ask.sqe, outcome), &memory)? {
            Next::Ask(next) => ask = next,
            next => return Ok(next),
        }
    }
}

fn disk(target: &mut Target, subsystem: &str, queues: u16) -> Result<Disk, Failed> {
    let opening = Opening::for_disk(host(), subsystem, queues, MEMORY);
    match converse(target, &mut queue(0, ADMIN_COMMANDS), opening)? {
        Next::Disk(disk) => Ok(disk),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_disk_and_its_queues_are_opened() {
    let mut target = target(2, &[]);
    let found = disk(&mut target, "nqn.x:0", 3).unwrap();
    assert_eq!((found.size, found.block_shift, found.writable), (1000 << 9, 9, true));
    assert_eq!((found.queues, found.entries, found.longest), (3, MAX_COMMANDS, MAX_TRANSFER));
    assert!(found.zeroes && found.has_cache);
    let write = |len| Command::Write { offset: 0, len, fua: false };
    let (fits, long, read) = (write(4096), write(4608), Command::Read { offset: 0, len: 512 });
    assert_eq!([fits, long, read].map(|command| found.is_in_capsule(&command)), [true, false, false]);
    for qid in 1..=3 {
        let opening = Opening::for_queue(host(), "nqn.x:0", found, qid, MEMORY);
        let mut queue = queue(qid, found.entries);
        assert_eq!(converse(&mut target, &mut queue, opening), Ok(Next::Queue));
        let read = Command::Read { offset: 999 << 9, len: 512 };
        let place = Place::Keyed { address: 0, len: 512, key: 1, invalidate: false };
        let sqe = found.command(9, &read, place).unwrap();
        assert_eq!(sqe.nsid, 1);
        assert_eq!(target.take(&mut queue, &sqe, 0, NOW), Step::Disk(0, read));
    }
    assert!(!disk(&mut target, "nqn.x:1", 1).unwrap().writable);
    // No more than the target has.
    assert!(disk(&mut target, "nqn.x:1", 100).unwrap().queues < 100);
}

#[test]
fn a_controller_is_kept_and_ended_by_its_host() {
    let (mut target, mut admin) = (target(1, &[]), queue(0, ADMIN_COMMANDS));
    let opening = Opening::for_disk(host(), "nqn.x:0", 1, MEMORY);
    converse(&mut target, &mut admin, opening).unwrap();
    for sqe in [keep_alive(1), shut_down(2)] {
        assert_eq!(target.take(&mut admin, &sqe, 0, NOW), Step::Answer(Status::SUCCESS.into()));
    }
    // Base, "Controller Configuration": SHN 1 of one that stays enabled.
    let set = Fabrics::Set { offset: 0x14, is_wide: false, value: 0x0046_4001 };
    assert_eq!(shut_down(2), set.command(2, Place::NONE));
}

/// More subsystems than the memory has room for at a time.
#[test]
fn all_subsystems_are_listed() {
    for count in [0, 1, 4, 5, 23] {
        let opening = Opening::for_list(host(), MEMORY);
        let listed = converse(&mut target(count, &[]), &mut queue(0, ADMIN_COMMANDS), opening);
        let Ok(Next::Listed(entries)) = listed else { panic!("{listed:?}") };
        let names: Vec<_> = entries.iter().map(|entry| entry.subsystem.clone()).collect();
        assert_eq!(names, (0..count).map(|at| format!("nqn.x:{at}")).collect::<Vec<_>>());
    }
}

#[test]
fn refusals_say_why() {
    assert_eq!(disk(&mut target(1, &[]), "nqn.x:9", 1), Err(Failed::Unknown));
    assert_eq!(disk(&mut target(1, &["nqn.x:other"]), "nqn.x:0", 1), Err(Failed::NotAllowed));
    assert!(disk(&mut target(1, &["nqn.x:host"]), "nqn.x:0", 1).is_ok());
    let mut opening = Opening::for_list(host(), MEMORY);
    let answer = |cid, status| Cqe { result: 0, head: 0, cid, status };
    let other = opening.take(&answer(1, Status::SUCCESS), &[0; MEMORY_LEN]);
    assert!(matches!(other, Err(Failed::Nonsense(_))));
    let busy = opening.take(&answer(0, Status::CONTROLLER_BUSY), &[0; MEMORY_LEN]);
    assert_eq!(busy, Err(Failed::Refused("to connect", Status::CONTROLLER_BUSY)));
    // It is not the name of the subsystem that is wrong.
    let wrong = opening.take(&answer(0, Status::CONNECT_PARAMETERS), &[0; MEMORY_LEN]);
    assert_eq!(wrong, Err(Failed::Refused("to connect", Status::CONNECT_PARAMETERS)));
}

/// Answers a host with the same results and octets, whatever it asks for.
fn answered(mut opening: Opening, result: u64, memory: &[u8; MEMORY_LEN]) -> Option<Result<Next, Failed>> {
    let answer = Cqe { result, head: 0, cid: 0, status: Status::SUCCESS };
    (0..500).map(|_| opening.take(&answer, memory)).find(|next| !matches!(next, Ok(Next::Ask(_))))
}

#[test]
fn disks_that_make_no_sense_are_refused() {
    let mut memory = [0; MEMORY_LEN];
    memory[..8].copy_from_slice(&100u64.to_le_bytes());
    memory[130] = 9;
    let opening = || Opening::for_disk(host(), "x", 1, MEMORY);
    let ended = |memory: &[u8; MEMORY_LEN]| answered(opening(), 1, memory).unwrap();
    assert!(matches!(ended(&memory), Ok(Next::Disk(Disk { size: 51_200, entries: 2, .. }))));
    // The largest block, and one that is longer than the controller's longest request.
    memory[130] = 16;
    assert!(matches!(ended(&memory), Ok(Next::Disk(Disk { block_shift: 16, .. }))));
    (memory[77], memory[130]) = (1, 14);
    assert_eq!(ended(&memory), Err(Failed::Blocks));
    (memory[77], memory[130]) = (0, 9);
    // Metadata; blocks of more than a request's octets; no namespace; a queue without room.
    for (at, octet, failed) in [(128, 8, Failed::Blocks), (130, 17, Failed::Blocks), (0, 0, Failed::Empty)] {
        let mut memory = memory;
        memory[at] = octet;
        assert_eq!(ended(&memory), Err(failed));
    }
    memory[514] = 1;
    assert!(matches!(ended(&memory), Err(Failed::Nonsense(_))));
    assert_eq!(answered(opening(), 3, &memory), Some(Err(Failed::Fatal)));
    // One that never becomes ready is asked again.
    assert_eq!(answered(opening(), 0, &memory), None);
    let mut page = [0; MEMORY_LEN];
    for (count, is_listed) in [(1000u64, true), (1001, false)] {
        page[8..16].copy_from_slice(&count.to_le_bytes());
        let ended = answered(Opening::for_list(host(), MEMORY), 1, &page).unwrap();
        assert_eq!(matches!(ended, Ok(Next::Listed(entries)) if entries.len() == 1000), is_listed);
    }
    let many = answered(Opening::for_list(host(), MEMORY), 1, &[9; MEMORY_LEN]);
    assert!(matches!(many, Some(Err(Failed::Nonsense(_)))));
}

/// Base, "Number of Queues": both numbers are one less than what is wanted.
#[test]
fn queues_are_asked_for_as_the_specification_has_it() {
    let mut memory = [0; MEMORY_LEN];
    (memory[0], memory[130]) = (100, 9);
    let answer = Cqe { result: 1, head: 0, cid: 0, status: Status::SUCCESS };
    let mut opening = Opening::for_disk(host(), "x", 3, MEMORY);
    let asked = std::iter::from_fn(|| match opening.take(&answer, &memory) {
        Ok(Next::Ask(ask)) => Some(ask.sqe),
        _ => None,
    });
    let last = asked.last().unwrap();
    assert_eq!((last.opcode, &last.cdw[..2]), (SET_FEATURES, &[7, 0x0002_0002][..]));
}

proptest! {
    #[test]
    fn no_answer_is_too_wild(result: u64, fill: u8, octets in prop::collection::vec((0..600usize, any::<u8>()), 0..40)) {
        let mut memory = [fill; MEMORY_LEN];
        octets.iter().for_each(|(at, octet)| memory[*at] = *octet);
        let ended = answered(Opening::for_disk(host(), "x", u16::MAX, MEMORY), result, &memory);
        if let Some(Ok(Next::Disk(disk))) = ended {
            prop_assert!(disk.entries >= 2 && disk.queues >= 1 && disk.longest >> disk.block_shift > 0);
            prop_assert!(disk.size >= 1 << disk.block_shift);
        }
        let _ = answered(Opening::for_list(host(), MEMORY), result, &memory);
    }
}
