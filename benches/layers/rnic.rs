//! The software RNIC over loopback: posting, polling, receiving. The peer is a plain socket
//! that does its part between the samples, so what is timed is one end alone, with the
//! system calls that it makes.
#![forbid(unsafe_code)]

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use rddp_benches::{End, Wire, write_segment};
use rddp_rnic::SendWr;

/// Number of requests posted at once.
const DEPTH: usize = 64;
const SMALL: usize = 64;
const LARGE: usize = 64 << 10;

fn main() {
    divan::main();
}

/// Samples of one operation each: between two of them the peer has its turn.
#[divan::bench(sample_size = 1, sample_count = 2000)]
fn post_send_64(bencher: Bencher<'_, '_>) {
    let end = End::new(Wire::CRC);
    let wr = SendWr::send(1, end.region.sge(0..SMALL));
    bencher.with_inputs(|| end.drain()).bench_local_values(|()| end.qp.post_send(&wr));
}

#[divan::bench(sample_size = 1, sample_count = 500)]
fn post_sends_64(bencher: Bencher<'_, '_>) {
    let end = End::new(Wire::CRC);
    let list = vec![SendWr::send(1, end.region.sge(0..SMALL)); DEPTH];
    let bencher = bencher.counter(ItemsCount::new(DEPTH)).with_inputs(|| end.drain());
    bencher.bench_local_values(|()| end.qp.post_sends(&list));
}

fn post_write(bencher: Bencher<'_, '_>, wire: Wire) {
    let end = End::new(wire);
    let wr = SendWr::write(1, end.region.sge(0..LARGE), end.region.remote(0));
    let bencher = bencher.counter(BytesCount::new(LARGE)).with_inputs(|| end.drain());
    bencher.bench_local_values(|()| end.qp.post_send(&wr));
}

#[divan::bench(sample_size = 1, sample_count = 500)]
fn post_write_64k_plain(bencher: Bencher<'_, '_>) {
    post_write(bencher, Wire::PLAIN);
}

#[divan::bench(sample_size = 1, sample_count = 500)]
fn post_write_64k_crc(bencher: Bencher<'_, '_>) {
    post_write(bencher, Wire::CRC);
}

#[divan::bench(sample_size = 1, sample_count = 500)]
fn post_write_64k_train_plain(bencher: Bencher<'_, '_>) {
    post_write(bencher, Wire::ETHERNET);
}

/// Polls one socket that has nothing.
#[divan::bench]
fn poll_empty(bencher: Bencher<'_, '_>) {
    let end = End::new(Wire::CRC);
    // The first call makes the thread's buffers.
    end.drain();
    bencher.bench_local(|| end.cq.poll_one().is_none());
}

/// Polls for a completion that is there.
#[divan::bench(sample_size = 64, sample_count = 500)]
fn poll_completion(bencher: Bencher<'_, '_>) {
    let end = End::new(Wire::CRC);
    let wr = SendWr::send(1, end.region.sge(0..SMALL));
    let post = || {
        end.peer_reads();
        end.qp.post_send(&wr)
    };
    bencher.with_inputs(post).bench_local_values(|_| end.cq.poll_one());
}

/// Polls with octets in the socket, until their messages have completed.
fn receive(bencher: Bencher<'_, '_>, count: usize) {
    let mut end = End::new(Wire::CRC);
    let cq = end.cq.clone();
    let incoming = || {
        while cq.poll_one().is_some() {}
        end.post_receives(count, SMALL);
        end.incoming_sends(count, SMALL);
    };
    bencher.counter(ItemsCount::new(count)).with_inputs(incoming).bench_local_values(|()| {
        let mut received = 0;
        while received < count {
            received += usize::from(cq.poll_one().is_some());
        }
    });
}

#[divan::bench(sample_size = 1, sample_count = 2000)]
fn receive_send_64(bencher: Bencher<'_, '_>) {
    receive(bencher, 1);
}

#[divan::bench(sample_size = 1, sample_count = 500)]
fn receive_sends_64(bencher: Bencher<'_, '_>) {
    receive(bencher, DEPTH);
}

fn receive_write(bencher: Bencher<'_, '_>, wire: Wire) {
    let mut end = End::new(wire);
    let (cq, remote) = (end.cq.clone(), end.region.remote(0));
    let segment = write_segment(remote.stag, remote.to, true, LARGE / 2);
    let incoming = || end.incoming([&segment[..], &segment[..]]);
    let bencher = bencher.counter(BytesCount::new(LARGE)).with_inputs(incoming);
    bencher.bench_local_values(|()| cq.poll_one().is_none());
}

#[divan::bench(sample_size = 1, sample_count = 500)]
fn receive_write_64k_plain(bencher: Bencher<'_, '_>) {
    receive_write(bencher, Wire::PLAIN);
}

#[divan::bench(sample_size = 1, sample_count = 500)]
fn receive_write_64k_crc(bencher: Bencher<'_, '_>) {
    receive_write(bencher, Wire::CRC);
}
