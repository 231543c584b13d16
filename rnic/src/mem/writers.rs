//! [`Writers`]: the memory that peers may change while it is being sent.
//!
//! A long payload is sent from where it lies, behind a CRC that was taken there a moment before
//! (RFC 5044 §4.4). Should the peer of another connection write there in between, the receiver
//! would find a wrong CRC and end its connection. So [`Writers`] knows what peers may change: the
//! addresses of all STags that are open to Writes or atomics, and the QPs whose peers may use them.
//! What others may change is copied before it is summed.
//!
//! A train of FPDUs that are summed where they lie has a [`Claim`]. Whoever opens memory to
//! peers, by an STag or by a connection, makes that known first and then waits until the claims
//! that may not have seen it are gone. A claim lives no longer than a call that does not sleep,
//! and its holder opens nothing.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::slot::{Scope, wait_until};
use super::{Access, Grant, PdId, QpNum};

/// The rights that let a peer change octets.
const CHANGES: Access = Access::REMOTE_WRITE.union(Access::REMOTE_ATOMIC);

/// The memory that peers may change, and the trains in flight.
#[derive(Default)]
pub(super) struct Writers {
    /// Goes up with each change of `open`, under its lock.
    generation: AtomicU64,
    open: Mutex<Open>,
    trains: Trains,
}

/// The ranges open to peers, and the peers that may use them.
#[derive(Default)]
struct Open {
    ranges: Ranges,
    peers: Peers,
}

impl Writers {
    /// Notes that the STag with this index is about to open `scope` to peers. Waits for trains.
    pub(super) fn open(&self, index: u32, scope: &Scope) {
        let access = scope.access.intersection(CHANGES);
        if access.is_empty() || scope.len == 0 {
            return;
        }
        let octets = scope.octets();
        self.change(|open| open.ranges.insert(index, Opened { octets, access, pd: scope.pd, qp: scope.qp }));
        self.trains.wait();
    }

    /// Notes that the STag with this index has been closed.
    pub(super) fn close(&self, index: u32) {
        if self.open.lock().ranges.contains(index) {
            self.change(|open| open.ranges.remove(index));
        }
    }

    /// Notes that the peer of a QP may use these rights from now on. Waits for trains.
    pub(super) fn connect(&self, qp: QpNum, pd: PdId, rights: Access) {
        let rights = rights.intersection(CHANGES);
        if !rights.is_empty() {
            self.change(|open| open.peers.insert(qp, pd, rights));
            self.trains.wait();
        }
    }

    /// Notes that the peer of a QP may use no rights any more.
    pub(super) fn disconnect(&self, qp: QpNum) {
        self.change(|open| open.peers.remove(qp));
    }

    /// Returns a claim for one train.
    pub(super) fn claim(self: &Arc<Self>) -> Claim {
        Claim { side: self.trains.enter(), writers: self.clone() }
    }

    fn change(&self, change: impl FnOnce(&mut Open)) {
        let mut open = self.open.lock();
        change(&mut open);
        // In one order with the counts of trains, which are sequentially consistent, too: a train
        // that does not see this change was counted before it, so whoever waits sees the train.
        self.generation.fetch_add(1, Ordering::SeqCst);
    }
}

/// A train's claim: while it lives, memory that is not shared may be summed where it lies and sent
/// from there.
pub(crate) struct Claim {
    writers: Arc<Writers>,
    /// The side on which [`Trains`] counts this one.
    side: usize,
}

impl Claim {
    /// Returns whether anybody but the program and the peer of `qp` may change the granted octets
    /// while the claim lives.
    pub(crate) fn is_shared(&self, grant: &Grant, qp: QpNum, verdicts: &mut Verdicts) -> bool {
        let scope = grant.scope();
        if scope.is_file {
            return true;
        }
        let octets = grant.octets();
        let generation = self.writers.generation.load(Ordering::SeqCst);
        if let Some(shared) = verdicts.find(generation, &octets) {
            return shared;
        }
        let open = self.writers.open.lock();
        let generation = self.writers.generation.load(Ordering::SeqCst);
        let (range, shared) = open.judge(scope.octets(), &octets, qp);
        verdicts.note(Verdict { generation, range, shared });
        shared
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.writers.trains.leave(self.side);
    }
}

impl Open {
    /// Returns a range, and whether peers of other QPs than `qp` may change octets in it. The
    /// answer holds for `octets`, a part of `around`, and for each other range within the returned
    /// one, so that the caller may note it for the next question.
    fn judge(&self, around: Range<u64>, octets: &Range<u64>, qp: QpNum) -> (Range<u64>, bool) {
        if self.peers.none_but(qp) {
            return (0..u64::MAX, false);
        }
        // Of memory that is open in many pieces only those nearby are looked at; otherwise each
        // change would cost a walk over all of them.
        let start = around.start.max(octets.start.saturating_sub(NEAR));
        let near = start..around.end.min(octets.end.saturating_add(NEAR));
        let mut steady = near.clone();
        for opened in self.ranges.overlapping(&near).filter(|opened| self.peers.reach(opened, qp)) {
            if opened.octets.end <= octets.start {
                steady.start = steady.start.max(opened.octets.end);
            } else if opened.octets.start >= octets.end {
                steady.end = steady.end.min(opened.octets.start);
            } else {
                return (opened.octets.clone(), true);
            }
        }
        (steady, false)
    }
}

/// Distance before and behind the octets asked about up to which a verdict is extended.
const NEAR: u64 = 256 * 1024;

/// The latest answers about the memory that a QP sends.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    latest: [Verdict; 4],
    next: usize,
}

#[derive(Clone, Debug)]
struct Verdict {
    generation: u64,
    range: Range<u64>,
    shared: bool,
}

impl Default for Verdict {
    fn default() -> Self {
        Verdict { generation: 0, range: 0..0, shared: false }
    }
}

impl Verdicts {
    #[inline]
    fn find(&self, generation: u64, octets: &Range<u64>) -> Option<bool> {
        let fits = |verdict: &&Verdict| {
            let range = &verdict.range;
            verdict.generation == generation && range.start <= octets.start && octets.end <= range.end
        };
        self.latest.iter().find(fits).map(|verdict| verdict.shared)
    }

    fn note(&mut self, verdict: Verdict) {
        self.latest[self.next] = verdict;
        self.next = (self.next + 1) % self.latest.len();
    }
}

/// Octets that an STag opens to peers.
struct Opened {
    octets: Range<u64>,
    access: Access,
    pd: PdId,
    /// The only QP whose peer may use it.
    qp: Option<QpNum>,
}

/// The ranges of all STags, in classes by the power of two below their length: within a class, few
/// ranges begin much before what they overlap.
#[derive(Default)]
struct Ranges {
    classes: BTreeMap<u32, BTreeMap<(u64, u32), Opened>>,
    /// By the STag's index, where in `classes` it is.
    places: HashMap<u32, (u32, u64)>,
}

impl Ranges {
    fn insert(&mut self, index: u32, opened: Opened) {
        let Range { start, end } = opened.octets;
        let class = (end - start).ilog2();
        self.places.insert(index, (class, start));
        self.classes.entry(class).or_default().insert((start, index), opened);
    }

    fn contains(&self, index: u32) -> bool {
        self.places.contains_key(&index)
    }

    fn remove(&mut self, index: u32) {
        let Some((class, start)) = self.places.remove(&index) else { return };
        if let Some(ranges) = self.classes.get_mut(&class) {
            ranges.remove(&(start, index));
            if ranges.is_empty() {
                self.classes.remove(&class);
            }
        }
    }

    fn overlapping<'a>(&'a self, octets: &'a Range<u64>) -> impl Iterator<Item = &'a Opened> {
        self.classes
            .iter()
            .flat_map(move |(class, ranges)| {
                // Each range of the class is shorter than twice the power of two.
                let first = octets.start.saturating_sub(u64::MAX >> (63 - class));
                ranges.range((first, 0)..(octets.end, 0)).map(|(_, opened)| opened)
            })
            .filter(|opened| opened.octets.end > octets.start)
    }
}

/// The QPs whose peers may change memory.
#[derive(Default)]
struct Peers {
    rights: HashMap<QpNum, (PdId, Access)>,
    /// Number of QPs of each PD whose peers may use each right of [`CHANGES`].
    of_pd: HashMap<(PdId, Access), usize>,
}

impl Peers {
    fn insert(&mut self, qp: QpNum, pd: PdId, rights: Access) {
        self.remove(qp);
        self.rights.insert(qp, (pd, rights));
        for right in rights.iter() {
            *self.of_pd.entry((pd, right)).or_default() += 1;
        }
    }

    fn remove(&mut self, qp: QpNum) {
        let Some((pd, rights)) = self.rights.remove(&qp) else { return };
        for right in rights.iter() {
            super::table::decrement(&mut self.of_pd, (pd, right));
        }
    }

    fn none_but(&self, qp: QpNum) -> bool {
        self.rights.keys().all(|other| *other == qp)
    }

    /// Returns whether the peer of a QP other than `me` reaches these octets.
    fn reach(&self, opened: &Opened, me: QpNum) -> bool {
        opened.access.iter().any(|right| match opened.qp {
            Some(qp) => qp != me && self.may(qp, opened.pd, right),
            None => {
                let all = self.of_pd.get(&(opened.pd, right)).copied().unwrap_or(0);
                all > usize::from(self.may(me, opened.pd, right))
            }
        })
    }

    fn may(&self, qp: QpNum, pd: PdId, right: Access) -> bool {
        self.rights.get(&qp).is_some_and(|(of, rights)| *of == pd && rights.contains(right))
    }
}

/// Trains in flight, counted on two sides: those that enter while somebody waits do so on the side
/// that is not waited for.
#[derive(Default)]
struct Trains {
    /// Number of trains in flight on each side.
    in_flight: [AtomicUsize; 2],
    /// The side on which trains enter.
    side: AtomicUsize,
    waiting: Mutex<()>,
}

impl Trains {
    fn enter(&self) -> usize {
        let side = self.side.load(Ordering::Relaxed);
        self.in_flight[side].fetch_add(1, Ordering::SeqCst);
        side
    }

    fn leave(&self, side: usize) {
        self.in_flight[side].fetch_sub(1, Ordering::Release);
    }

    fn is_clear(&self, side: usize) -> bool {
        self.in_flight[side].load(Ordering::SeqCst) == 0
    }

    /// Waits for the trains that have entered already.
    fn wait(&self) {
        if self.is_clear(0) && self.is_clear(1) {
            return;
        }
        let _alone = self.waiting.lock();
        let side = self.side.load(Ordering::Relaxed);
        // A few may have read `side` before its last change and be there still.
        wait_until(|| self.is_clear(1 - side));
        self.side.store(1 - side, Ordering::Relaxed);
        wait_until(|| self.is_clear(side));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;
    use crate::mem::{MemTable, Region, RegionOptions};

    const PD: PdId = PdId(1);
    const ME: QpNum = QpNum(1);
    const OTHER: QpNum = QpNum(2);

    fn local(table: &MemTable, region: &Region) -> Grant {
        table.check_local(region.stag(), region.base_to(), region.len() as u64, false, PD).unwrap()
    }

    fn is_shared(table: &MemTable, region: &Region) -> bool {
        table.claim().is_shared(&local(table, region), ME, &mut Verdicts::default())
    }

    fn region(table: &MemTable) -> Arc<Region> {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        table.allocate(PD, 4096, access, &RegionOptions::default()).unwrap()
    }

    #[test]
    fn opening_memory_to_a_peer_waits_for_earlier_claims() {
        let table = &MemTable::new(Default::default());
        let region = region(table);
        let mut verdicts = Verdicts::default();
        for round in 0..3 {
            let claim = table.claim();
            assert!(!claim.is_shared(&local(table, &region), ME, &mut verdicts), "{round}");
            thread::scope(|scope| {
                let connected = scope.spawn(|| table.connect(OTHER, PD, Access::REMOTE_WRITE));
                while !is_shared(table, &region) {
                    thread::yield_now();
                }
                assert!(!connected.is_finished());
                drop(claim);
                connected.join().unwrap();
            });
            assert!(table.claim().is_shared(&local(table, &region), ME, &mut verdicts));
            table.disconnect(OTHER);
        }
    }

    /// A steady flow of new trains does not delay the wait.
    #[test]
    fn waiting_is_not_starved_by_new_claims() {
        let (table, done) = (&MemTable::new(Default::default()), &AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(move || {
                    let mut claims = [table.claim(), table.claim()];
                    while !done.load(Ordering::Relaxed) {
                        // There is one at any time.
                        claims.swap(0, 1);
                        claims[0] = table.claim();
                        thread::yield_now();
                    }
                });
            }
            for _ in 0..if cfg!(miri) { 10 } else { 1_000 } {
                table.connect(OTHER, PD, Access::REMOTE_WRITE);
                table.disconnect(OTHER);
            }
            done.store(true, Ordering::Relaxed);
        });
    }

    /// Shared memory is never taken for steady while it may be written: the test lets a peer write
    /// at once.
    #[test]
    fn octets_stay_the_same_under_a_claim() {
        let (table, done) = (&MemTable::new(Default::default()), &AtomicBool::new(false));
        let region = &region(table);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(move || {
                    let mut verdicts = Verdicts::default();
                    while !done.load(Ordering::Relaxed) {
                        let (grant, claim) = (local(table, region), table.claim());
                        if !claim.is_shared(&grant, ME, &mut verdicts) {
                            let sum = grant.crc32c_append(0, grant.len(), 0);
                            assert_eq!(grant.crc32c_append(0, grant.len(), 0), sum, "octets changed");
                        }
                        drop((grant, claim));
                        thread::yield_now();
                    }
                });
            }
            for round in 0..if cfg!(miri) { 10 } else { 2_000 } {
                table.connect(OTHER, PD, Access::REMOTE_WRITE);
                region.write_at(0, &[round as u8; 4096]).unwrap();
                table.disconnect(OTHER);
            }
            done.store(true, Ordering::Relaxed);
        });
    }

    /// The answer agrees with a naive search, over ranges of many lengths that overlap.
    #[test]
    fn a_judgement_holds_for_all_of_its_range() {
        let mut random = rddp_test_support::Random::new(1);
        let mut below = |limit: u64| random.below(limit as usize) as u64;
        for _ in 0..if cfg!(miri) { 20 } else { 500 } {
            let mut open = Open::default();
            open.peers.insert(OTHER, PD, CHANGES);
            let mut opened = vec![false; 300];
            for index in 0..8 {
                let start = below(200);
                let longest = 1 << below(7);
                let octets = start..start + 1 + below(longest);
                let pd = PdId(1 + u64::from(below(4) == 0));
                open.ranges.insert(index, Opened { octets: octets.clone(), access: CHANGES, pd, qp: None });
                if index % 3 == 0 {
                    open.ranges.remove(index);
                } else if pd == PD {
                    opened[octets.start as usize..octets.end as usize].fill(true);
                }
            }
            for _ in 0..50 {
                let start = below(250);
                let octets = start..start + 1 + below(20);
                let (range, shared) = open.judge(start.saturating_sub(40)..start + 50, &octets, ME);
                let is_open = |at: u64| opened[at as usize];
                assert_eq!(shared, octets.clone().any(is_open), "{octets:?}");
                assert!(range.clone().all(|at| is_open(at) == shared), "{octets:?} in {range:?}");
                assert!(shared || range.start <= octets.start && octets.end <= range.end);
            }
        }
    }
}
