//! Chains where memory ends: that of the stream, or that of the program.

use std::io::IoSliceMut;

use super::super::super::tests::may_have_blocks;
use super::super::blocks::Lease;
use super::super::chain::{Chain, ChainError, Chains, parts};
use super::super::layout::{BLOCK, BLOCKS, OWN_MORE, SLAB, SLOTS};
use super::super::table::TABLE;
use super::super::tests::{in_process, under_limit};
use super::super::{SharedState, blocks, left, many};
use super::{anonymous, contents, each_kind, in_file};
use crate::sink::Sink;
use crate::{Options, Role};

#[test]
fn without_memory_nothing_is_added_and_nothing_is_lost() {
    each_kind(|chains| {
        let mut chain = Chain::default();
        for blocks in 0..4 {
            may_have_blocks(blocks);
            assert_eq!(chains.append(&mut chain, &vec![8; 4 * BLOCK]), Err(ChainError::NoRoom));
            assert_eq!((chain == Chain::default(), many::count(chains.slot)), (true, 0));
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
    assert_eq!(many::count(chains.slot), OWN_MORE);
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

/// Gives up the system calls for memory: from now on they end the process.
fn give_up_memory() {
    crate::confine();
    let calls = [libc::SYS_madvise, libc::SYS_mmap, libc::SYS_mremap, libc::SYS_munmap, libc::SYS_ftruncate];
    let (load, ends) = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, libc::BPF_RET | libc::BPF_K);
    let filter = |code: u32, jf, k| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let mut filters = [filter(load, 0, 0); 12];
    for (at, call) in calls.into_iter().enumerate() {
        filters[1 + 2 * at] = filter(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, call as u32);
        filters[2 + 2 * at] = filter(ends, 0, libc::SECCOMP_RET_KILL_PROCESS);
    }
    filters[11] = filter(ends, 0, libc::SECCOMP_RET_ALLOW);
    let program = libc::sock_fprog { len: 12, filter: filters.as_mut_ptr() };
    // SAFETY: the program lives until the call returns.
    let is_done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    assert!(is_done);
}

#[test]
fn a_confined_process_uses_the_memory_that_is_there() {
    let folder = tempfile::tempdir().unwrap();
    for has_file in [false, true] {
        let octets = vec![3; 2 * BLOCK];
        let works = || {
            let state = if has_file {
                super::slots(folder.path()).create(1, &Options::new(Role::Initiator)).unwrap()
            } else {
                anonymous()
            };
            let mut guard = state.rx.lock().unwrap();
            let (_, mut chains, _) = parts(&mut guard);
            assert!(chains.prepare_to_confine(octets.len()));
            give_up_memory();
            let mut chain = Chain::default();
            for _ in 0..3 {
                chains.append(&mut chain, &octets).unwrap();
                assert_eq!(chains.drop_front(&mut chain, octets.len()), Ok(()));
            }
            while chains.append(&mut chain, &octets[..BLOCK]).is_ok() {}
            let there = if has_file { BLOCKS } else { 2 };
            assert_eq!((chain.blocks as usize, chain.len()), (there, there * BLOCK));
            assert_eq!(chains.take(&mut chain, &mut Sink::counter()), Ok(there * BLOCK));
            std::mem::forget(guard);
            std::mem::forget(state);
        };
        assert!(in_process(works), "in a file: {has_file}");
    }
}

#[test]
fn a_file_that_may_not_grow_is_used_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    under_limit(3 * SLAB as u64, || {
        let state = super::slots(folder.path()).create(1, &Options::new(Role::Initiator)).unwrap();
        let mut guard = state.rx.lock().unwrap();
        let (_, mut chains, mut table) = parts(&mut guard);
        let (mut chain, mut spill) = (Chain::default(), Chain::default());
        let blocks = 2 * BLOCKS;
        let is_full = chains.extend(&mut chain, blocks * BLOCK + 1) == Err(ChainError::NoRoom)
            && chain == Chain::default()
            && chains.extend(&mut chain, blocks * BLOCK) == Ok(())
            && chains.append(&mut spill, &[1]) == Err(ChainError::NoRoom)
            && !table.reserve(&mut Lease::NONE.clone());
        is_full && chains.drop_front(&mut chain, BLOCK).is_ok() && chains.append(&mut spill, &[1]).is_ok()
    });
}

#[test]
fn blocks_of_streams_that_are_gone_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let works = || {
        let slots = super::slots(folder.path());
        let state = slots.create(1, &Options::new(Role::Initiator)).unwrap();
        let other = slots.create(2, &Options::new(Role::Initiator)).unwrap();
        let mut kept = Chain::default();
        for (state, chain) in [(&state, &mut Chain::default()), (&other, &mut kept)] {
            let mut guard = state.rx.lock().unwrap();
            let (_, mut chains, mut table) = parts(&mut guard);
            assert!(table.reserve(&mut Lease::default()));
            chains.append(chain, &[4; 3 * BLOCK]).unwrap();
        }
        assert!(!blocks::sweep(slots.pool()), "all of them are somebody's");
        assert_eq!((state.blocks(), other.blocks()), (4, 4));
        drop(state);
        left::free_all();
        assert!(blocks::sweep(slots.pool()) && !blocks::sweep(slots.pool()));
        let mut guard = other.rx.lock().unwrap();
        let (_, chains, _) = parts(&mut guard);
        assert!(contents(&chains, &kept) == [4; 3 * BLOCK] && many::count(chains.slot) == 4);
    };
    assert!(in_process(works));
}

#[test]
fn blocks_of_a_slot_that_cannot_be_mapped_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let works = || {
        let slots = super::slots(folder.path());
        let create = |cookie| slots.create(cookie, &Options::new(Role::Initiator)).unwrap();
        let add = |state: &SharedState| {
            let mut guard = state.rx.lock().unwrap();
            parts(&mut guard).1.append(&mut Chain::default(), &[4; 9]).unwrap();
        };
        let own = create(0);
        add(&own);
        // The other process's last slot is in a new slab, and its block in one that is mapped here.
        assert!(in_process(|| {
            let others: Vec<_> = (1..=SLOTS as u64).map(create).collect();
            add(&others[SLOTS - 1]);
            std::mem::forget(others);
        }));
        crate::confine();
        assert!(!blocks::sweep(slots.pool()));
    };
    assert!(in_process(works));
}

#[test]
fn memory_of_a_state_without_a_file_goes_back_to_the_kernel() {
    let state = anonymous();
    let mut guard = state.rx.lock().unwrap();
    let (_, mut chains, _) = parts(&mut guard);
    let there = |chains: &Chains<'_>| {
        (0..OWN_MORE as u32).filter(|number| many::is_there(chains.slot, *number)).count()
    };
    assert_eq!(there(&chains), 0, "an idle stream has no block");
    let mut chain = Chain::default();
    chains.extend(&mut chain, 20 * BLOCK).unwrap();
    assert_eq!(there(&chains), 20);
    chains.clear(&mut chain).unwrap();
    assert_eq!(there(&chains), many::STAYING as usize);
    // What comes back from the kernel is zeros, and what has stayed is not shown.
    chains.extend(&mut chain, 20 * BLOCK).unwrap();
    assert!(contents(&chains, &chain).iter().all(|octet| *octet == 0));
}

#[test]
fn a_table_begins_as_zeros_and_is_one_streams() {
    for (one, two) in [(anonymous(), anonymous()), (in_file(), in_file())] {
        let (mut one, mut two) = (one.rx.lock().unwrap(), two.rx.lock().unwrap());
        let ((_, mut chains, mut table), (_, _, mut other)) = (parts(&mut one), parts(&mut two));
        let (mut lease, mut chain) = (Lease::NONE, Chain::default());
        assert!(table.get::<[u64; 4]>(lease).is_none());
        // Octets of the stream's own last use of the block.
        chains.append(&mut chain, &[9; BLOCK]).unwrap();
        chains.clear(&mut chain).unwrap();
        assert!(table.reserve(&mut lease) && table.reserve(&mut lease));
        assert_eq!(table.get::<[u64; TABLE / 8]>(lease), Some(&mut [0; TABLE / 8]));
        table.get::<[u64; 4]>(lease).unwrap()[3] = 77;
        assert_eq!((table.get::<[u32; 8]>(lease).unwrap()[6], many::count(chains.slot)), (77, 1));
        assert!(other.get::<u64>(lease).is_none() && !other.reserve(&mut lease.clone()), "another stream's");
        // A chain has no block that is the table's.
        let mut stolen = Chain { first: lease, last: lease, blocks: 1, octets: 8 };
        assert_eq!(chains.read_at(&stolen, 0, &mut [0]), Err(ChainError::Damaged));
        assert_eq!(chains.clear(&mut stolen), Err(ChainError::Damaged));
        let before = lease;
        table.give_back(&mut lease);
        assert!(lease == Lease::NONE && table.get::<u64>(before).is_none());
        assert_eq!(many::count(chains.slot), 0);
    }
}
