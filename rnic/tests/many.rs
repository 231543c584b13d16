//! A thousand connections at a time in one process, and the cost of an idle one.
#![allow(missing_docs)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use common::{ALL, PATIENCE};
use rddp_rnic::{
    Completed, ConnectOptions, MemoryRegion, QpConfig, QpNum, QueuePair, RecvWr, Rnic, SendWr, Status,
};
use rddp_test_support::pattern;

/// Counts the octets that are allocated.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: hands everything on to the system's allocator, and only counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: `System` asks of its caller what `GlobalAlloc` asks of ours, for the same layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `ptr` came from `System` by `alloc` above, with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CONNECTIONS: usize = 1000;
const MESSAGE: usize = 3000;

/// Each connection is four descriptors here: both ends' sockets are this process's.
fn allow_descriptors() -> bool {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let enough = hard as usize > 2 * CONNECTIONS + 200;
    if !enough {
        eprintln!("skipped: {CONNECTIONS} connections need more descriptors than {hard} (was {soft})");
    }
    enough
}

struct Side {
    qps: Vec<QueuePair>,
    index: HashMap<QpNum, usize>,
    region: MemoryRegion,
}

/// RFC 5042 §6.4.1: what an idle connection holds is small and counted.
#[test]
fn a_thousand_connections_exchange_data_and_idle_ones_are_cheap() {
    common::device::needs_software("the heap of software");
    if !allow_descriptors() {
        return;
    }
    let rnic = Rnic::open().unwrap();
    let pd = rnic.alloc_pd();
    let cqs = [0, 1].map(|_| rnic.create_cq(8 * CONNECTIONS).unwrap());
    let options = ConnectOptions::default();
    let listener = rnic.listen("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let addr = listener.local_addr().unwrap();
    let mut sides = [0, 1].map(|side| Side {
        qps: Vec::new(),
        index: HashMap::new(),
        region: pd.allocate(CONNECTIONS * MESSAGE * 2, ALL).unwrap_or_else(|error| panic!("{side}: {error}")),
    });
    let before = ALLOCATED.load(Ordering::Relaxed);
    for i in 0..CONNECTIONS {
        let [active, passive] = [0, 1].map(|side| pd.create_qp(&QpConfig::new(&cqs[side])).unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| active.connect(addr, &options).unwrap());
            listener.accept(Some(PATIENCE)).unwrap().unwrap().accept(&passive, b"").unwrap();
        });
        for (side, qp) in sides.iter_mut().zip([active, passive]) {
            side.index.insert(qp.num(), i);
            side.qps.push(qp);
        }
    }
    let per_qp = (ALLOCATED.load(Ordering::Relaxed) - before) / (2 * CONNECTIONS);
    println!("{per_qp} octets of heap for each idle, connected QP ({} QPs)", rnic.qp_count());
    assert!(per_qp < 8192, "{per_qp} octets for an idle QP");

    for (from, seed) in [(0, 1_usize), (1, 2)] {
        let [us, peer] = [&sides[from], &sides[1 - from]];
        for i in 0..CONNECTIONS {
            let (out, into) = (i * MESSAGE, (CONNECTIONS + i) * MESSAGE);
            us.region.write(out, &pattern(MESSAGE, (seed + i) as u8)).unwrap();
            peer.qps[i].post_recv(RecvWr::one(i as u64, peer.region.sge(into..into + MESSAGE))).unwrap();
        }
    }
    for side in &sides {
        for (i, qp) in side.qps.iter().enumerate() {
            let out = i * MESSAGE;
            qp.post_send(&SendWr::send(i as u64, side.region.sge(out..out + MESSAGE))).unwrap();
        }
    }
    let deadline = Instant::now() + PATIENCE;
    for (side, cq) in sides.iter().zip(&cqs) {
        let (mut sent, mut received) = (0, 0);
        while sent < CONNECTIONS || received < CONNECTIONS {
            assert!(Instant::now() < deadline, "{sent} sent, {received} received");
            cq.wait(Some(PATIENCE)).unwrap();
            let Some(completion) = cq.poll_one() else { continue };
            assert_eq!(completion.status, Status::Success);
            assert_eq!(side.index[&completion.qp] as u64, completion.wr_id);
            match completion.completed {
                Completed::Receive => received += 1,
                _ => sent += 1,
            }
        }
    }
    for (side, seed) in sides.iter().zip([2_usize, 1]) {
        for i in 0..CONNECTIONS {
            let got = side.region.read((CONNECTIONS + i) * MESSAGE, MESSAGE).unwrap();
            assert_eq!(got, pattern(MESSAGE, (seed + i) as u8), "connection {i}");
        }
    }
}
