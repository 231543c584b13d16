//! Chains of processes that die at each step.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rddp_test_support::Random;

use super::super::blocks::{self, Lease};
use super::super::chain::{Chain, ChainError, Chains, parts};
use super::super::claim::Slots;
use super::super::layout::BLOCK;
use super::super::process::Process;
use super::super::table::Integers;
use super::super::tests::in_process;
use super::super::{SharedState, many};
use super::{STEPS, anonymous, contents, in_file, octets};
use crate::{Options, Role};

/// A chain in the block of tables, and a block's worth of octets to add.
type Shared = [Chain; 2];

/// An operation with what a chain may hold once it was broken off, of what it held before.
type Operation = (fn(&mut Chains<'_>, &mut Shared) -> Result<(), ChainError>, fn(&[u8], &[u8]) -> bool);

const OPERATIONS: [Operation; 6] = [
    (
        |chains, all| chains.append(&mut all[0], &[4; 2 * BLOCK]),
        |before, now| now.starts_with(before) && now[before.len()..].iter().all(|octet| *octet == 4),
    ),
    (
        |chains, all| chains.fill(&mut all[0], 2 * BLOCK, |_| Ok::<_, ()>(9)).map(drop),
        |before, now| now.starts_with(before),
    ),
    (|chains, all| chains.drop_front(&mut all[0], 2 * BLOCK), |before, now| before.ends_with(now)),
    (|chains, all| chains.truncate(&mut all[0], 20), |before, now| before.starts_with(now)),
    (|chains, all| chains.clear(&mut all[0]), |before, now| before.ends_with(now)),
    (
        |chains, all| {
            let [one, two] = all;
            chains.concat(one, two)
        },
        |before, now| now.starts_with(before),
    ),
];

#[test]
fn a_process_that_dies_at_any_step_leaves_a_chain() {
    for (which, (operation, may_be)) in OPERATIONS.iter().enumerate() {
        for state in [anonymous(), in_file()] {
            let mut is_done = false;
            for steps in 1.. {
                is_done = dies_at(&state, steps, *operation, *may_be);
                if is_done || steps > 100 {
                    break;
                }
            }
            assert!(is_done, "operation {which}");
        }
    }
}

/// Has a child do an operation, and die at a step of it. Returns whether it came to the end first.
fn dies_at(
    state: &SharedState,
    steps: usize,
    operation: fn(&mut Chains<'_>, &mut Shared) -> Result<(), ChainError>,
    may_be: fn(&[u8], &[u8]) -> bool,
) -> bool {
    let mut lease = Lease::NONE;
    let before = {
        let mut guard = state.rx.lock().unwrap();
        let (_, mut chains, mut table) = parts(&mut guard);
        assert!(table.reserve(&mut lease));
        let all: &mut Shared = table.into_value(lease).unwrap();
        chains.append(&mut all[0], &octets(&mut Random::new(1), 2 * BLOCK + 77)).unwrap();
        chains.append(&mut all[1], &[6; BLOCK]).unwrap();
        contents(&chains, &all[0])
    };
    let is_done = in_process(|| {
        let mut guard = state.rx.lock().unwrap();
        let (_, mut chains, table) = parts(&mut guard);
        STEPS.set(steps);
        let done = operation(&mut chains, table.into_value(lease).unwrap());
        STEPS.set(usize::MAX);
        assert!(done.is_ok());
    });
    let mut guard = state.rx.lock().unwrap();
    let (_, mut chains, mut table) = parts(&mut guard);
    let all: &mut Shared = table.get(lease).unwrap();
    chains.mend(&mut all[0]).unwrap();
    chains.check(&all[0]).unwrap();
    assert!(may_be(&before, &contents(&chains, &all[0])), "at step {steps}");
    // After half of a `concat` the caller's mark ends the stream: its blocks may be in both.
    let _ = (chains.clear(&mut all[0]), chains.clear(&mut all[1]));
    table.give_back(&mut lease);
    is_done
}

/// Types that the kill test shares: see `many_processes_that_are_killed_lose_no_octet`.
#[repr(C)]
struct Line {
    chain: Chain,
    /// Numbers of the first octet, and of that behind the last one.
    from: u64,
    to: u64,
    /// An operation that is under way: octets added, or dropped, at most.
    adds: u64,
    drops: u64,
}

// SAFETY: integers alone: four of 32 bits, and four of 64 at a multiple of 8.
unsafe impl Integers for Line {}

fn octet(number: u64) -> u8 {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

impl Line {
    /// Brings the numbers in order after a process that died, and checks the octets.
    fn mend(&mut self, chains: &mut Chains<'_>) {
        if self.adds > 0 || self.drops > 0 {
            chains.mend(&mut self.chain).unwrap();
            let len = self.chain.len() as u64;
            if self.adds > 0 {
                let to = self.from + len;
                assert!((self.to..=self.to + self.adds).contains(&to));
                self.to = to;
            } else {
                let from = self.to - len;
                assert!((self.from..=self.from + self.drops).contains(&from));
                self.from = from;
            }
            (self.adds, self.drops) = (0, 0);
        }
        chains.check(&self.chain).unwrap();
        assert_eq!(self.chain.len() as u64, self.to - self.from);
    }

    fn work(&mut self, chains: &mut Chains<'_>, random: &mut Random) {
        let mut room = [0; 3000];
        if random.below(2) == 0 && self.chain.len() < 5 * BLOCK {
            let len = random.below(room.len()) + 1;
            (self.to..).zip(&mut room[..len]).for_each(|(number, room)| *room = octet(number));
            self.adds = len as u64;
            if chains.append(&mut self.chain, &room[..len]).is_ok() {
                self.to += len as u64;
            }
        } else {
            let len = random.below(room.len()).min(self.chain.len());
            chains.read_at(&self.chain, 0, &mut room[..len]).unwrap();
            assert!((self.from..).zip(&room[..len]).all(|(number, found)| octet(number) == *found));
            self.drops = len as u64;
            chains.drop_front(&mut self.chain, len).unwrap();
            self.from += len as u64;
        }
        (self.adds, self.drops) = (0, 0);
    }
}

#[test]
fn many_processes_that_are_killed_lose_no_octet() {
    for state in [anonymous(), in_file()] {
        let mut lease = Lease::NONE;
        assert!(parts(&mut state.rx.lock().unwrap()).2.reserve(&mut lease));
        let work = |rounds: usize, random: &mut Random| {
            for _ in 0..rounds {
                let mut guard = state.rx.lock().unwrap();
                let (_, mut chains, table) = parts(&mut guard);
                let line: &mut Line = table.into_value(lease).unwrap();
                line.mend(&mut chains);
                line.work(&mut chains, random);
            }
        };
        let start = |seed: u64| {
            // SAFETY: the child does what needs no other thread, and ends without a return.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                let mut random = Random::new(seed);
                STEPS.set(100 + random.below(4000));
                let worked = catch_unwind(AssertUnwindSafe(|| work(20_000, &mut random)));
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(libc::c_int::from(worked.is_err())) };
            }
            pid
        };
        for round in 0..8 {
            let pids: Vec<_> = (0..4).map(|child| start(round * 4 + child + 1)).collect();
            for pid in pids {
                let mut status = 0;
                // SAFETY: waits for a child of this test.
                unsafe { libc::waitpid(pid, &raw mut status, 0) };
                assert!(libc::WIFSIGNALED(status) || status == 0, "{status}");
            }
            work(100, &mut Random::new(1000 + round));
        }
        let mut guard = state.rx.lock().unwrap();
        let (_, mut chains, mut table) = parts(&mut guard);
        let line: &mut Line = table.get(lease).unwrap();
        line.mend(&mut chains);
        assert!(line.to > 100_000, "{} octets", line.to);
        chains.clear(&mut line.chain).unwrap();
    }
}

/// Takes and gives back blocks of a new state until the process ends, and checks that they are no
/// other stream's.
fn live_and_die(slots: Slots, child: u8) {
    Process::forget_me();
    let state = slots.create(u64::from(child), &Options::new(Role::Initiator)).unwrap();
    let mut guard = state.rx.lock().unwrap();
    let (_, mut chains, mut table) = parts(&mut guard);
    assert!(table.reserve(&mut Lease::default()));
    let (mut random, mut chain) = (Random::new(child.into()), Chain::default());
    let octets = vec![child; 2 * BLOCK];
    STEPS.set(200 + random.below(400));
    loop {
        chains.append(&mut chain, &octets[..random.below(octets.len())]).unwrap();
        assert!(contents(&chains, &chain).iter().all(|octet| *octet == child));
        let dropped = random.below(chain.len() + 1).max(chain.len().saturating_sub(3 * BLOCK));
        chains.drop_front(&mut chain, dropped).unwrap();
    }
}

#[test]
fn killed_processes_leave_no_block_to_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let works = || {
        let slots = super::slots(folder.path());
        let start = |child: u8| {
            // SAFETY: the child does what needs no other thread, and ends without a return.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                let _ = catch_unwind(AssertUnwindSafe(|| live_and_die(slots, child)));
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(1) };
            }
            pid
        };
        for _ in 0..3 {
            let pids: Vec<_> = (1..=6).map(start).collect();
            for pid in pids {
                let mut status = 0;
                // SAFETY: waits for a child of this process.
                unsafe { libc::waitpid(pid, &raw mut status, 0) };
                assert!(libc::WIFSIGNALED(status), "{status}");
            }
            assert_eq!((slots.sweep(), slots.taken()), (6, 0));
            let used = || blocks::entries(slots.pool()).filter(|(_, entry)| !many::is_free(entry)).count();
            assert!(used() >= 6 && blocks::sweep(slots.pool()) && used() == 0);
        }
    };
    assert!(in_process(works));
}
