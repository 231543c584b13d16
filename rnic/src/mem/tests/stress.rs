//! Many threads: placements against invalidation, and atomics against each other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::mem::BindWindow;

const ROUNDS: usize = if cfg!(miri) { 10 } else { 100 };
/// Two peers that write at once are an intended race, which Miri would report; with one it finds
/// any other race.
const PEERS: u8 = if cfg!(miri) { 1 } else { 2 };
const LEN: usize = if cfg!(miri) { 64 } else { 16 << 10 };

/// Runs peers that write without end, as long as they are allowed to.
fn peers<'scope, 'env>(
    scope: &'scope thread::Scope<'scope, 'env>,
    writer: impl Fn(u8) + Send + Copy + 'scope,
) {
    for peer in 1..=PEERS {
        scope.spawn(move || writer(peer));
    }
}

/// Fails if an octet changes after revocation.
fn assert_at_rest(region: &Region) {
    let before = octets(region);
    for _ in 0..4 {
        thread::yield_now();
        assert!(octets(region) == before, "an octet changed after revocation");
    }
}

/// RFC 5042 §6.2.2: after invalidation has returned, no octet changes.
#[test]
fn nothing_is_placed_after_invalidation_has_returned() {
    let table = &table();
    let region = &allocate(table, LEN, ALL);
    let done = &AtomicBool::new(false);
    thread::scope(|scope| {
        peers(scope, move |peer| {
            let data = vec![peer; region.len()];
            while !done.load(Ordering::Relaxed) {
                let stag = region.stag();
                let want = Access::REMOTE_WRITE;
                if let Ok(grant) = table.check_remote(stag, region.base_to(), data.len() as u64, want, PD, QP)
                {
                    grant.place(0, &data).unwrap();
                }
            }
        });
        for round in 0..ROUNDS {
            thread::yield_now();
            let stag = region.stag();
            match round % 2 {
                0 => table.invalidate_local(stag, PD, QP).unwrap(),
                _ => table.invalidate_remote(stag, PD, QP).unwrap(),
            }
            assert_at_rest(region);
            table.reregister(stag, ALL).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// RFC 5042 §6.2.2, for windows: the memory is lent to another window at once.
#[test]
fn nothing_is_placed_through_a_window_after_it_is_unbound() {
    let table = &table();
    let region = &allocate(table, LEN, ALL);
    let window = &table.allocate_window(PD).unwrap();
    let done = &AtomicBool::new(false);
    thread::scope(|scope| {
        peers(scope, move |peer| {
            let data = vec![peer; region.len()];
            while !done.load(Ordering::Relaxed) {
                let want = Access::REMOTE_WRITE;
                if let Ok(grant) =
                    table.check_remote(window.stag(), region.base_to(), data.len() as u64, want, PD, QP)
                {
                    grant.place(0, &data).unwrap();
                }
            }
        });
        for _ in 0..ROUNDS {
            let bind = BindWindow {
                window: window.stag(),
                region: region.stag(),
                addr: region.base_to(),
                len: region.len() as u64,
                access: Access::REMOTE_WRITE,
                pd: PD,
                qp: QP,
                key: None,
            };
            table.bind(&bind).unwrap();
            thread::yield_now();
            table.invalidate_local(window.stag(), PD, QP).unwrap();
            assert_at_rest(region);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(table.windows_of(QP), 0);
}

/// RFC 5042 §6.2.2: the program may unmap its memory as soon as deregistration has returned; a late
/// placement would end the process.
#[test]
#[cfg_attr(miri, ignore = "needs the list of mappings")]
fn memory_may_be_unmapped_once_it_is_deregistered() {
    let table = &table();
    let current = &parking_lot::Mutex::new(None::<Arc<Region>>);
    let done = &AtomicBool::new(false);
    thread::scope(|scope| {
        peers(scope, move |peer| {
            let data = vec![peer; LEN];
            while !done.load(Ordering::Relaxed) {
                let Some(region) = current.lock().clone() else { continue };
                for _ in 0..20 {
                    let want = Access::REMOTE_WRITE;
                    let stag = region.stag();
                    if let Ok(grant) =
                        table.check_remote(stag, region.base_to(), data.len() as u64, want, PD, QP)
                    {
                        grant.place(0, &data).unwrap();
                    }
                    let _ = region.read_at(0, &mut [0; 64]);
                }
            }
        });
        for _ in 0..ROUNDS {
            let options = RegionOptions::default();
            let memory = crate::mem::alloc::Mapping::new(LEN, &options).unwrap();
            // SAFETY: mapped until deregistration below, without references.
            let region = unsafe { table.register(PD, memory.ptr(), LEN, ALL, &options) }.unwrap();
            *current.lock() = Some(region.clone());
            thread::yield_now();
            table.deregister(region.stag()).unwrap();
            drop(memory);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(table.is_empty());
}

#[test]
fn revocation_waits_for_a_grant_that_is_out() {
    let table = &table();
    let region = &allocate(table, 8, ALL);
    let grant = table.check_remote(region.stag(), region.base_to(), 8, Access::REMOTE_WRITE, PD, QP).unwrap();
    thread::scope(|scope| {
        let invalidated = scope.spawn(|| table.invalidate_local(region.stag(), PD, QP));
        while table.check_remote(region.stag(), region.base_to(), 8, Access::REMOTE_WRITE, PD, QP).is_ok() {
            thread::yield_now();
        }
        assert!(!invalidated.is_finished());
        let part = grant.slice(2..6);
        drop(grant);
        thread::sleep(Duration::from_millis(20));
        assert!(!invalidated.is_finished(), "part of the grant is still out");
        part.place(0, b"last").unwrap();
        drop(part);
        assert_eq!(invalidated.join().unwrap(), Ok(()));
    });
    assert_eq!(octets(region), b"\0\0last\0\0");
}

#[test]
fn dropping_the_table_waits_for_a_grant_that_is_out() {
    let table = table();
    let region = allocate(&table, 8, ALL);
    let grant = table.check_remote(region.stag(), region.base_to(), 8, Access::REMOTE_WRITE, PD, QP).unwrap();
    let dropped = thread::spawn(move || drop(table));
    thread::sleep(Duration::from_millis(50));
    assert!(!dropped.is_finished());
    grant.place(0, b"in time!").unwrap();
    drop(grant);
    dropped.join().unwrap();
    assert_eq!(octets(&region), b"in time!");
}

/// RFC 7306 §5.3: atomic against atomics of every other stream.
#[test]
fn no_increment_is_lost_between_threads() {
    let (threads, times) = if cfg!(miri) { (3, 50) } else { (4, 50_000) };
    let table = &table();
    let region = &allocate(table, 16, ALL);
    thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for _ in 0..times {
                    let to = region.base_to() + 8;
                    let qp = QpNum(thread);
                    let grant =
                        table.check_remote(region.stag(), to, 8, Access::REMOTE_ATOMIC, PD, qp).unwrap();
                    grant.fetch_modify_u64(|value| Some(value + 1)).unwrap();
                }
            });
        }
    });
    let mut value = [0; 8];
    region.read_at(8, &mut value).unwrap();
    assert_eq!(u64::from_ne_bytes(value), u64::from(threads) * times);
    region.read_at(0, &mut value).unwrap();
    assert_eq!(value, [0; 8]);
}

/// STags are registered, found and deregistered by many threads while the directory of slots grows.
#[test]
fn an_stag_is_always_found_between_its_registration_and_its_end() {
    let table = &table();
    let (threads, turns) = if cfg!(miri) { (2, 60) } else { (4, 3_000) };
    thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut live: Vec<Arc<Region>> = Vec::new();
                for turn in 0..turns {
                    live.push(allocate(table, 1, ALL));
                    for region in live.iter().rev().take(8) {
                        let found = table.check_local(region.stag(), region.base_to(), 1, true, PD);
                        found.expect("it is registered").place(0, &[thread]).unwrap();
                    }
                    if turn % 3 == 0 {
                        let gone = live.swap_remove(turn / 3 % live.len()).stag();
                        table.deregister(gone).unwrap();
                        assert!(table.check_local(gone, 0, 1, true, PD).is_err());
                    }
                }
                for region in live {
                    assert!(octets(&region) == [thread]);
                    table.deregister(region.stag()).unwrap();
                }
            });
        }
    });
    assert!(table.is_empty());
}

/// A peer that uses the memory all the time cannot delay revocation.
#[test]
#[cfg_attr(miri, ignore = "measures time")]
fn revocation_is_not_starved_by_busy_peers() {
    let table = &table();
    let region = &allocate(table, 64, ALL);
    let done = &AtomicBool::new(false);
    thread::scope(|scope| {
        peers(scope, move |peer| {
            while !done.load(Ordering::Relaxed) {
                if let Ok(grant) =
                    table.check_remote(region.stag(), region.base_to(), 1, Access::REMOTE_WRITE, PD, QP)
                {
                    grant.place(0, &[peer]).unwrap();
                }
            }
        });
        let start = Instant::now();
        for _ in 0..100 {
            let stag = region.stag();
            table.invalidate_local(stag, PD, QP).unwrap();
            table.reregister(stag, ALL).unwrap();
        }
        let took = start.elapsed();
        done.store(true, Ordering::Relaxed);
        assert!(took < Duration::from_secs(10), "100 revocations took {took:?}");
    });
}
