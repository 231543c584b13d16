//! Sends and Read Responses over a bad path: placed by the kernel into receives and sinks, and not
//! changed once they are delivered.

use std::collections::VecDeque;
use std::sync::mpsc::channel;

use rddp_rnic::{Access, MemoryRegion, NoReceive, QpConfig, RecvWr, Remote, SendWr};
use rddp_test_support::pattern_from;

use super::common::End;
use super::path_test::net::in_namespace;
use super::path_test::tap::BAD_PATH;
use super::path_test::{is_quick, rounds};
use super::{Run, SETTINGS};

/// Receives that are posted at a time, of so many octets each.
const POSTED: usize = 64;
const ROOM: usize = 20_000;
/// Messages that this end keeps after they were delivered, to see whether they change.
const KEPT: usize = 16;

/// Returns the octets of a message.
fn message(number: u64) -> Vec<u8> {
    pattern_from(number as usize, (number as usize * 7_919) % (ROOM + 1))
}

fn send_messages(end: &End, messages: u64) {
    let source = end.region(8 * ROOM, Access::empty());
    for number in 0..messages {
        // The octets of a request that has not completed stay.
        if number >= 8 {
            end.success();
        }
        let (at, octets) = (number as usize % 8 * ROOM, message(number));
        source.write(at, &octets).unwrap();
        end.qp.post_send(&SendWr::send(number, source.sge(at..at + octets.len()))).unwrap();
    }
    end.event();
}

/// Lets messages wait for their receives.
fn wait(config: &mut QpConfig) {
    config.no_receive = NoReceive::Wait;
    config.inbound_read = false;
}

fn part(number: usize) -> std::ops::Range<usize> {
    let at = number % (POSTED + KEPT) * ROOM;
    at..at + ROOM
}

fn post(end: &End, region: &MemoryRegion, number: usize) {
    end.qp.post_recv(RecvWr::one(number as u64, region.sge(part(number)))).unwrap();
}

/// RFC 5041 §5.3, §5.4: each Send is in its receive, and stays as it was delivered.
#[test]
fn sends_are_right_after_a_bad_path_and_stay_so() {
    in_namespace(|| {
        for (seed, setting) in (11..).zip(SETTINGS) {
            let messages = rounds(1500).max(POSTED + KEPT) as u64;
            let run = Run::connect(
                BAD_PATH,
                seed,
                setting,
                (POSTED + KEPT) * ROOM,
                (wait, |_| {}),
                move |end, _| send_messages(&end, messages),
            );
            (0..POSTED).for_each(|number| post(&run.end, &run.region, number));
            let mut kept = VecDeque::new();
            for number in 0..messages {
                let completion = run.end.success();
                let wanted = message(number);
                assert_eq!((completion.wr_id, completion.byte_len as usize), (number, wanted.len()));
                kept.push_back((number as usize, wanted));
                if kept.len() > KEPT {
                    let (before, wanted) = kept.pop_front().unwrap();
                    let octets = run.region.read(part(before).start, wanted.len()).unwrap();
                    assert!(octets == wanted, "message {before} has changed");
                }
                let next = number as usize + POSTED;
                if next < messages as usize {
                    post(&run.end, &run.region, next);
                }
            }
            run.report();
        }
    });
}

/// Octets of a Read, and Reads that are outstanding at a time.
const READ: usize = 30_000;
const READS: usize = 16;

/// RFC 5040 §5.2: each Response is in the sink of its Read, and stays as it was delivered.
#[test]
fn reads_are_right_after_a_bad_path_and_stay_so() {
    in_namespace(|| {
        for (seed, setting) in (21..).zip(SETTINGS) {
            let reads: usize = if is_quick() { 40 } else { 300 };
            let (tell, told) = channel::<Remote>();
            let run =
                Run::connect(BAD_PATH, seed, setting, 2 * READS * READ, (|_| {}, |_| {}), move |end, _| {
                    let source = end.region(1 << 20, Access::REMOTE_READ);
                    source.write(0, &pattern_from(5, 1 << 20)).unwrap();
                    tell.send(source.remote(0)).unwrap();
                    end.event();
                });
            let from = told.recv().unwrap();
            let at = |number: usize| number % (2 * READS) * READ;
            let offset = |number: usize| number * 4_099 % ((1 << 20) - READ);
            let post = |number: usize| {
                let sink = run.region.sge(at(number)..at(number) + READ);
                let read = SendWr::read(number as u64, sink, from.at(offset(number) as u64));
                run.end.qp.post_send(&read).unwrap();
            };
            (0..READS).for_each(post);
            for number in 0..reads {
                assert_eq!(run.end.success().wr_id, number as u64);
                // One that was delivered READS Reads before, or the first.
                for number in [number, number.saturating_sub(READS - 1)] {
                    let octets = run.region.read(at(number), READ).unwrap();
                    assert!(octets == pattern_from(5 + offset(number), READ), "Read {number} is wrong");
                }
                if number + READS < reads {
                    post(number + READS);
                }
            }
            run.report();
        }
    });
}
