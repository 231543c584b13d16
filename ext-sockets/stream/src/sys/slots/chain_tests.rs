//! Chains in a file and without one, against a model, with damaged numbers, without memory, and
//! with processes that die at each step.

use std::cell::Cell;
use std::io::IoSliceMut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rddp_test_support::Random;

use super::super::tests::may_have_blocks;
use super::blocks::Lease;
use super::chain::{Chain, ChainError, Chains, MOST_BLOCKS, PIECES, parts};
use super::claim::Slots;
use super::layout::{BLOCK, OWN_MORE};
use super::many;
use super::{Integers, SharedState};
use crate::sink::Sink;
use crate::{Options, Role};

thread_local! {
    /// Number of steps after which this thread ends its process.
    static STEPS: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Ends the process if its time has come. Called where a chain has changed by half.
pub(super) fn step() {
    STEPS.set(STEPS.get().wrapping_sub(1));
    if STEPS.get() == 0 {
        // SAFETY: ends this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
}

fn anonymous() -> SharedState {
    SharedState::anonymous(&Options::new(Role::Initiator)).unwrap()
}

/// Returns a state of one file for all tests: a process can have a few files only.
fn in_file() -> SharedState {
    static FILE: OnceLock<(tempfile::TempDir, Slots)> = OnceLock::new();
    static COOKIE: AtomicU64 = AtomicU64::new(1);
    let (_, slots) = FILE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        // SAFETY: takes nothing and cannot fail.
        let slots = Slots::open(folder.path(), unsafe { libc::geteuid() }).unwrap();
        (folder, slots)
    });
    slots.create(COOKIE.fetch_add(1, Ordering::Relaxed), &Options::new(Role::Initiator)).unwrap()
}

/// Does something with the chains of a new state, in a file and without one.
fn each_kind(mut body: impl FnMut(&mut Chains<'_>)) {
    for state in [anonymous(), in_file()] {
        let mut guard = state.rx.lock().unwrap();
        let (_, mut chains, _) = parts(&mut guard);
        body(&mut chains);
        assert_eq!(many::count(chains.place), 0, "all blocks are given back");
    }
}

fn contents(chains: &Chains<'_>, chain: &Chain) -> Vec<u8> {
    let mut octets = vec![0; chain.len()];
    chains.read_at(chain, 0, &mut octets).unwrap();
    octets
}

fn octets(random: &mut Random, len: usize) -> Vec<u8> {
    let first = random.number();
    (0..len as u64).map(|at| (first.wrapping_add(at).wrapping_mul(0x9e37_79b9) >> 13) as u8).collect()
}

/// Returns a length: short, about a block, or several.
fn length(random: &mut Random) -> usize {
    match random.below(4) {
        0 => random.below(40),
        1 => BLOCK - 3 + random.below(6),
        _ => random.below(3 * BLOCK),
    }
}

/// Fills lent room from the front on. Returns how much of `octets` there was room for.
fn pour(room: &mut [IoSliceMut<'_>], octets: &[u8]) -> usize {
    let mut rest = octets;
    for piece in room {
        let (now, later) = rest.split_at(piece.len().min(rest.len()));
        piece[..now.len()].copy_from_slice(now);
        rest = later;
    }
    octets.len() - rest.len()
}

#[test]
fn a_chain_does_as_its_model_does() {
    for seed in 1..12 {
        let mut random = Random::new(seed);
        each_kind(|chains| {
            let mut all: [Chain; 2] = Default::default();
            let mut models: [Vec<u8>; 2] = Default::default();
            for _ in 0..80 {
                let which = random.below(2);
                a_random_step(chains, &mut random, &mut all[which], &mut models[which]);
                if random.below(8) == 0 {
                    let [one, two] = &mut all;
                    chains.concat(one, two).unwrap();
                    let moved = std::mem::take(&mut models[1]);
                    models[0].extend(moved);
                }
                for (chain, model) in all.iter().zip(&models) {
                    chains.check(chain).unwrap();
                    assert!(contents(chains, chain) == *model, "seed {seed}");
                    assert_eq!(chain.is_empty(), *chain == Chain::default());
                }
                let blocks = all.iter().map(|chain| chain.blocks as usize).sum::<usize>();
                assert_eq!(many::count(chains.place), blocks);
            }
            all.iter_mut().for_each(|chain| chains.clear(chain).unwrap());
        });
    }
}

fn a_random_step(chains: &mut Chains<'_>, random: &mut Random, chain: &mut Chain, model: &mut Vec<u8>) {
    let new = {
        let len = length(random);
        octets(random, len)
    };
    let at = random.below(model.len() + 1);
    let len = new.len().min(model.len() - at);
    match random.below(10) {
        0 | 1 => {
            chains.append(chain, &new).unwrap();
            model.extend(new);
        }
        2 => {
            chains.extend(chain, new.len()).unwrap();
            model.resize(model.len() + new.len(), 0);
        }
        3 => {
            // Less comes than there was room for.
            let some = random.below(new.len() + 1);
            let filled = chains.fill(chain, new.len(), |room| Ok::<_, ()>(pour(room, &new[..some])));
            assert_eq!(filled, Ok(Ok(some)));
            model.extend(&new[..some]);
        }
        4 => {
            chains.write_at(chain, at, &new[..len]).unwrap();
            model[at..at + len].copy_from_slice(&new[..len]);
        }
        5 => {
            let poured = chains.fill_at(chain, at, len, |room| pour(room, &new[..len])).unwrap();
            assert_eq!(poured, len);
            model[at..at + len].copy_from_slice(&new[..len]);
        }
        6 => {
            let seen = chains.look_at(chain, at, len, |pieces| {
                pieces.iter().flat_map(|piece| piece.to_vec()).collect::<Vec<_>>()
            });
            assert!(seen.unwrap() == model[at..at + len]);
        }
        7 => {
            let (mut one, mut two) = (vec![0; len / 3], vec![0; len - len / 3]);
            let mut pieces = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
            let (peeks, mut sink) = (random.below(2) == 0, Sink::new(&mut pieces, false));
            let from = if peeks { at } else { 0 };
            let count = if peeks { chains.peek(chain, at, &mut sink) } else { chains.take(chain, &mut sink) };
            assert_eq!(count, Ok(len));
            assert!([one, two].concat() == model[from..from + len]);
            if !peeks {
                model.drain(..len);
            }
        }
        8 => {
            chains.drop_front(chain, at).unwrap();
            model.drain(..at);
        }
        _ => {
            chains.truncate(chain, at).unwrap();
            model.truncate(at);
        }
    }
}

#[test]
fn what_does_not_fit_the_chain_is_refused() {
    each_kind(|chains| {
        let mut chain = Chain::default();
        chains.append(&mut chain, &[7; 100]).unwrap();
        let damaged = Err(ChainError::Damaged);
        assert_eq!(chains.read_at(&chain, 1, &mut [0; 100]), damaged);
        assert_eq!(chains.write_at(&chain, 101, &[]), damaged);
        assert_eq!(chains.write_at(&chain, usize::MAX, &[0; 2]), damaged);
        assert_eq!(chains.drop_front(&mut chain, 101), damaged);
        assert_eq!(chains.peek(&chain, 101, &mut Sink::counter()).map(drop), damaged);
        assert_eq!(chains.extend(&mut chain, usize::MAX), Err(ChainError::NoRoom));
        assert_eq!(chains.extend(&mut chain, MOST_BLOCKS as usize * BLOCK), Err(ChainError::NoRoom));
        assert_eq!(chains.fill(&mut chain, 1 << 20, |_| Err::<usize, _>(5)), Ok(Err(5)));
        assert!(contents(chains, &chain) == [7; 100] && chains.check(&chain).is_ok());
        assert_eq!(chains.take(&mut chain, &mut Sink::counter()), Ok(100));
    });
}

#[test]
fn a_long_piece_is_lent_in_as_many_blocks_as_a_call_takes() {
    each_kind(|chains| {
        let mut chain = Chain::default();
        chains.append(&mut chain, &[1; 10]).unwrap();
        let mut most = 0;
        let fill = |room: &mut [IoSliceMut<'_>]| {
            most = room.iter().map(|piece| piece.len()).sum();
            Ok::<_, ()>(most)
        };
        assert_eq!(chains.fill(&mut chain, usize::MAX, fill), Ok(Ok((PIECES - 1) * BLOCK)));
        assert_eq!((most, chain.blocks as usize), ((PIECES - 1) * BLOCK, PIECES));
        chains.append(&mut chain, &[2; 3 * BLOCK]).unwrap();
        let lent = chains.look_at(&chain, 5, usize::MAX >> 1, |pieces| pieces.len());
        assert_eq!(lent, Err(ChainError::Damaged));
        let lent = chains.look_at(&chain, 5, chain.len() - 5, |pieces| {
            (pieces.len(), pieces.iter().map(|piece| piece.len()).sum())
        });
        assert_eq!(lent, Ok((PIECES, PIECES * BLOCK - 5)));
        chains.clear(&mut chain).unwrap();
    });
}

#[test]
fn without_memory_nothing_is_added_and_nothing_is_lost() {
    each_kind(|chains| {
        let mut chain = Chain::default();
        for blocks in 0..4 {
            may_have_blocks(blocks);
            assert_eq!(chains.append(&mut chain, &vec![8; 4 * BLOCK]), Err(ChainError::NoRoom));
            assert_eq!((chain == Chain::default(), many::count(chains.place)), (true, 0));
        }
        may_have_blocks(1);
        chains.append(&mut chain, &[9; 5000]).unwrap();
        assert_eq!(chains.append(&mut chain, &[8; BLOCK]), Err(ChainError::NoRoom));
        assert_eq!(chains.extend(&mut chain, BLOCK), Err(ChainError::NoRoom));
        let filled = chains.fill(&mut chain, BLOCK, |_| -> Result<usize, ()> { panic!("no room") });
        assert_eq!(filled, Err(ChainError::NoRoom));
        chains.append(&mut chain, &[9; BLOCK - 5000]).unwrap();
        may_have_blocks(usize::MAX);
        assert!(contents(chains, &chain) == [9; BLOCK] && chain.blocks == 1);
        chains.clear(&mut chain).unwrap();
    });
    // A state without a file has so many blocks; a file ends where a limit ends it.
    let state = anonymous();
    let mut guard = state.rx.lock().unwrap();
    let (_, mut chains, mut table) = parts(&mut guard);
    let mut chain = Chain::default();
    chains.extend(&mut chain, OWN_MORE * BLOCK).unwrap();
    assert_eq!(chains.append(&mut chain, &[1]), Err(ChainError::NoRoom));
    let mut lease = Lease::NONE;
    assert!(!table.reserve(&mut lease) && lease == Lease::NONE);
    chains.drop_front(&mut chain, BLOCK).unwrap();
    assert!(table.reserve(&mut lease) && chains.append(&mut chain, &[1]) == Err(ChainError::NoRoom));
    assert_eq!(many::count(chains.place), OWN_MORE);
}

#[test]
fn the_programs_memory_may_end() {
    crate::lent::guard();
    each_kind(|chains| {
        let page = 4096;
        // SAFETY: a new mapping, whose second page is made inaccessible.
        let at = unsafe {
            let at = libc::mmap(
                std::ptr::null_mut(),
                2 * page,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_eq!(libc::mprotect(at.byte_add(page), page, libc::PROT_NONE), 0);
            at.cast::<u8>()
        };
        let mut chain = Chain::default();
        chains.append(&mut chain, &[5; 6000]).unwrap();
        // SAFETY: mapped above; stands for memory of the program.
        let mut pieces = [IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(at, 2 * page) })];
        let mut sink = Sink::new(&mut pieces, false);
        assert_eq!((chains.take(&mut chain, &mut sink), sink.is_bad()), (Ok(page), true));
        assert_eq!(contents(chains, &chain), [5; 6000 - 4096]);
        chains.clear(&mut chain).unwrap();
        // SAFETY: mapped above, and no longer used.
        unsafe { libc::munmap(at.cast(), 2 * page) };
    });
}

/// Runs `body` in a child of `fork`. Returns whether it came to its end.
fn in_child(body: impl FnOnce()) -> bool {
    let mut status = 0;
    // SAFETY: the child runs code that needs no other thread, and ends without a return; the parent
    // waits for it.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            body();
            libc::_exit(0);
        }
        assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
    }
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

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
    let is_done = in_child(|| {
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
                let worked =
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(20_000, &mut random)));
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
