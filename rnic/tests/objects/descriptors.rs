//! Descriptors that objects take: a connection its socket, a channel the one that it shows. What is
//! slept on besides goes by the threads that sleep, and by queues with many QPs.

use std::time::{Duration, Instant};

use rddp_rnic::{CompletionQueue, ConnectOptions, QpConfig, RecvWr, Rnic, SendWr};

use crate::common::device::needs_software;
use crate::common::{End, PATIENCE, alone, connect_on, exchange};
use crate::in_use;

const A_MOMENT: Duration = Duration::from_millis(1);

/// Waits until the process has this many descriptors: listeners and threads take a moment to end.
#[track_caller]
fn assert_descriptors(expected: usize, what: &str) {
    let deadline = Instant::now() + PATIENCE;
    while in_use()[0] != expected {
        assert!(Instant::now() < deadline, "{what}: {} descriptors, not {expected}", in_use()[0]);
        std::thread::sleep(A_MOMENT);
    }
}

#[test]
fn queues_take_no_descriptors_and_a_channel_takes_its_own() {
    needs_software("the descriptors of software");
    if !alone("descriptors::queues_take_no_descriptors_and_a_channel_takes_its_own") {
        return;
    }
    let rnic = Rnic::open().unwrap();
    let pd = rnic.alloc_pd();
    let end = |cq: &CompletionQueue| {
        let qp = pd.create_qp(&QpConfig::new(cq)).unwrap();
        End { rnic: rnic.clone(), pd: pd.clone(), cq: cq.clone(), qp }
    };
    let options = ConnectOptions::default();
    // The device has its file of counts since its first connection, which is kept.
    let before = in_use()[0];
    let first = [(); 2].map(|()| end(&rnic.create_cq(16).unwrap()));
    connect_on("127.0.0.1:0", &first[0], &first[1], &options, &options);
    let begin = before + 3;
    assert_descriptors(begin, "two sockets and the file of counts");
    let queues: Vec<_> = (0..100).map(|_| rnic.create_cq(16).unwrap()).collect();
    assert_descriptors(begin, "queues without a channel");
    let channel = rnic.create_channel().unwrap();
    let told = rnic.create_cq_on(&channel, 16).unwrap();
    assert_descriptors(begin + 1, "a channel with a queue");

    let (active, passive) = (end(&queues[0]), end(&told));
    connect_on("127.0.0.1:0", &active, &passive, &options, &options);
    passive.qp.post_recv(RecvWr::new(1, [])).unwrap();
    active.qp.post_send(&SendWr::send_inline(2, b"")).unwrap();
    while active.cq.poll_one().is_none() || passive.cq.poll_one().is_none() {}
    assert_descriptors(begin + 3, "the sockets of two ends, and programs that poll");

    exchange(&active, &passive);
    assert!(channel.wait(Some(A_MOMENT)).unwrap().is_none());
    std::thread::scope(|scope| drop(scope.spawn(|| queues[1].wait(Some(A_MOMENT)).unwrap())));
    assert_descriptors(begin + 4, "a thread that sleeps, whatever on, and one that is gone");

    let crowd: Vec<_> = (0..20).map(|_| end(&queues[2])).collect();
    assert_descriptors(begin + 5, "a queue with many QPs");
    let more: Vec<_> = (0..100).map(|_| rnic.create_cq_on(&channel, 16).unwrap()).collect();
    assert!(channel.wait(Some(A_MOMENT)).unwrap().is_none());
    assert_descriptors(begin + 6, "a channel with many queues");
    drop((queues, active, crowd, channel, told, passive, more));
    assert_descriptors(begin + 1, "what is left is the thread's");
}
