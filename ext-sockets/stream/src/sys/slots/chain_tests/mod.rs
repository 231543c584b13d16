//! Chains in a file and without one: against a model, without memory, with damaged numbers, and
//! with processes that die at each step.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rddp_test_support::Random;

use super::chain::{Chain, Chains, parts};
use super::claim::Slots;
use super::{SharedState, many};
use crate::{Options, Role};

mod damage;
mod deaths;
mod memory;
mod model;

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

fn slots(folder: &std::path::Path) -> Slots {
    // SAFETY: takes nothing and cannot fail.
    Slots::open(folder, unsafe { libc::geteuid() }).unwrap()
}

/// Returns a state of one file for all tests: a process can have a few files only.
fn in_file() -> SharedState {
    static FILE: OnceLock<(tempfile::TempDir, Slots)> = OnceLock::new();
    static COOKIE: AtomicU64 = AtomicU64::new(1);
    let (_, slots) = FILE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let slots = slots(folder.path());
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
        assert_eq!(many::count(chains.slot), 0, "all blocks are given back");
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
