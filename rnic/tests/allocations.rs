//! Waits that allocate nothing: a program sleeps once for each message.
#![allow(missing_docs)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use common::{ALL, End, PATIENCE, connect_on};
use rddp_rnic::{ConnectOptions, QpConfig, RecvWr, Rnic, SendWr};

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: hands everything on to the system's allocator and counts beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which is that of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`, and `ptr` is from there.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(of: impl FnOnce()) -> usize {
    let before = COUNT.get();
    of();
    COUNT.get() - before
}

#[test]
fn a_wait_allocates_nothing_whether_a_message_comes_or_not() {
    let peer = End::new();
    let rnic = Rnic::open().unwrap();
    let (pd, channel) = (rnic.alloc_pd(), rnic.create_channel().unwrap());
    let cq = rnic.create_cq_on(&channel, 16).unwrap();
    let qp = pd.create_qp(&QpConfig::new(&cq)).unwrap();
    let end = End { rnic, pd, cq, qp };
    connect_on("127.0.0.1:0", &peer, &end, &ConnectOptions::default(), &ConnectOptions::default());
    let inbox = end.region(64, ALL);
    for turn in 0..20 {
        end.qp.post_recv(RecvWr::one(turn, inbox.whole())).unwrap();
        end.cq.arm(false);
        let in_vain = allocations(|| {
            assert!(channel.wait(Some(Duration::from_millis(2))).unwrap().is_none());
            assert!(!end.cq.wait(Some(Duration::from_millis(2))).unwrap());
        });
        peer.qp.post_send(&SendWr::send_inline(turn, b"hello")).unwrap();
        let with_success = allocations(|| {
            assert!(channel.wait(Some(PATIENCE)).unwrap().is_some());
            assert_eq!(end.cq.poll_one().unwrap().wr_id, turn);
        });
        peer.success();
        // What a thread keeps from one call to the next has been allocated by then.
        if turn > 9 {
            assert_eq!((in_vain, with_success), (0, 0), "turn {turn}");
        }
    }
}
