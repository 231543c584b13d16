use rddp_rnic::Rnic;

use super::*;

/// Lends octets to a test, one at a time: what is registered while mappings of the process change
/// is not kept, and another test gives its memory back.
fn with_memory(len: usize, test: impl FnOnce(&ProgramMemory)) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    ProgramMemory::while_writing(&mut vec![0; len], |memory| test(&memory));
}

fn registry(scheme: Scheme) -> Registry {
    Registry::new(&Rnic::open().unwrap().alloc_pd(), scheme)
}

/// Returns a registry that keeps registrations, which no kernel lets it that reports no changes.
fn cache(entries: usize, octets: usize) -> Option<Registry> {
    Some(registry(Scheme::Cache { entries, octets })).filter(Registry::sees_changes)
}

/// Leases a part whose registration is kept then. None is while mappings of the process change, as
/// they do where the threads of other tests end.
fn kept(registry: &Registry, memory: &ProgramMemory, part: Range<usize>) -> Lease {
    let before = registry.size().0;
    loop {
        let lease = registry.lease(memory, part.clone(), Access::REMOTE_READ).unwrap();
        if registry.size().0 > before {
            return lease;
        }
        registry.release(lease);
    }
}

#[test]
fn a_range_that_is_used_again_is_a_hit_with_another_stag() {
    let Some(registry) = cache(4, 1 << 20) else { return };
    with_memory(4096, |memory| {
        let lease = kept(&registry, memory, 0..4096);
        let (region, first) = (lease.region.clone(), lease.region.stag());
        let before = registry.counters();
        registry.release(lease);
        let between = region.stag();
        assert_ne!(between, first, "the STag of a use that is over is not valid any more");
        let lease = registry.lease(memory, 0..4096, Access::REMOTE_READ).unwrap();
        // Of 255 other keys one is the first again.
        assert_ne!(lease.region.stag(), between);
        registry.release(lease);
        assert_eq!(registry.counters(), RegistrationCounters { hits: 1, ..before });
    });
}

#[test]
fn other_rights_and_longer_ranges_are_misses() {
    let Some(registry) = cache(8, 1 << 20) else { return };
    with_memory(4096, |memory| {
        let sink = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        for (part, access) in
            [(0..2048, Access::REMOTE_READ), (0..2048, sink), (0..4096, sink), (1..2048, sink)]
        {
            let lease = registry.lease(memory, part.clone(), access).unwrap();
            assert_eq!(lease.region.len(), part.len());
            registry.release(lease);
        }
        assert_eq!((registry.counters().hits, registry.counters().misses), (0, 4));
    });
}

#[test]
fn the_limits_hold_and_what_is_in_use_stays() {
    let Some(registry) = cache(2, 3000) else { return };
    with_memory(8192, |memory| {
        let held = kept(&registry, memory, 0..1000);
        for start in [1000, 2000, 3000] {
            let lease = registry.lease(memory, start..start + 1000, Access::REMOTE_READ).unwrap();
            registry.release(lease);
            assert!(registry.size().0 <= 2 && registry.size().1 <= 3000);
        }
        registry.release(held);
        let held = registry.lease(memory, 0..1000, Access::REMOTE_READ).unwrap();
        assert_eq!(registry.counters().hits, 1, "the one in use was kept all the time");
        let big = registry.lease(memory, 0..2500, Access::REMOTE_READ).unwrap();
        assert!(registry.size().1 <= 3000);
        registry.release(big);
        registry.release(held);
    });
}

#[test]
fn a_range_that_was_unmapped_is_a_miss() {
    let Some(registry) = cache(4, 1 << 20) else { return };
    with_memory(4096, |memory| {
        let start = memory.range().unwrap().0;
        let (used, idle) = (0..1024, 2048..4096);
        let held = kept(&registry, memory, used.clone());
        let lease = kept(&registry, memory, idle.clone());
        registry.release(lease);
        registry.forget(start..start + 4096);
        assert_eq!(registry.size().0, 1, "what is in use is forgotten at its end");
        registry.release(held);
        assert_eq!(registry.size(), (0, 0));
        for part in [used, idle] {
            let lease = registry.lease(memory, part, Access::REMOTE_READ).unwrap();
            registry.release(lease);
        }
        assert_eq!(registry.counters().hits, 0);
    });
}

#[test]
fn a_pool_has_so_many_registrations_of_such_a_length_and_no_more() {
    let registry = registry(Scheme::Pool { blocks: 2, octets: 1000 });
    with_memory(8192, |memory| {
        let lease = |part| registry.lease(memory, part, Access::REMOTE_READ);
        assert_eq!(lease(0..1001).unwrap_err(), Fault::Limit);
        for round in 0..3 {
            let both = [lease(0..1000).unwrap(), lease(500..1500).unwrap()];
            assert_eq!(lease(0..1).unwrap_err(), Fault::Limit, "round {round}");
            both.into_iter().for_each(|lease| registry.release(lease));
        }
        assert_eq!(lease(8000..9000).unwrap_err(), Fault::Address);
        let RegistrationCounters { pins, pinned_octets, refusals, hits, .. } = registry.counters();
        assert_eq!((pins, pinned_octets, refusals, hits), (6, 6000, 4, 0));
    });
}
