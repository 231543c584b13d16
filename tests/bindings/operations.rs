//! Sends of the in-call end that are under way between calls, to a device.

use std::io::IoSlice;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rddp_stream::{Recall, Sends};
use rddp_test_support::pattern_from;

use crate::ends::{Case, End};

/// Sends that are all posted at the beginning.
struct Posted<'m> {
    lists: std::slice::Iter<'m, [IoSlice<'m>; 1]>,
    accepted: usize,
    bell: UnixStream,
}

impl<'m> Sends<'m> for Posted<'m> {
    fn next(&mut self) -> Option<&'m [IoSlice<'m>]> {
        self.lists.next().map(|list| &list[..])
    }

    fn accepted(&mut self, octets: usize) {
        self.accepted = octets;
    }

    fn recall(&mut self) -> Recall {
        Recall::No
    }

    fn descriptor(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    fn left(&self) -> Option<Duration> {
        None
    }
}

#[test]
fn a_device_reads_several_sends_that_are_out_together() {
    const LEN: usize = 150_000;
    const COUNT: usize = 20;
    for device in [None, Some(0), Some(4096)] {
        let case = Case { device, in_call: 0, ..Case::COPIES };
        for case in case.each() {
            let (device, in_call) = case.connect();
            let parts: Vec<_> = (0..COUNT).map(|nth| pattern_from(nth * LEN, LEN)).collect();
            let lists: Vec<_> = parts.iter().map(|part| [IoSlice::new(part)]).collect();
            let (bell, _other) = UnixStream::pair().unwrap();
            let mut posted = Posted { lists: lists.iter(), accepted: 0, bell };
            std::thread::scope(|scope| {
                let reading = scope.spawn(|| device.receive_all(COUNT * LEN));
                assert_eq!(in_call.stream().lend_sends(&mut posted), Ok(false), "{case:?}");
                assert!(reading.join().unwrap() == pattern_from(0, COUNT * LEN), "{case:?}");
            });
            assert_eq!(posted.accepted, COUNT * LEN);
            let counters = in_call.stream().sdp_info().unwrap().counters;
            assert_eq!(counters[6] as usize, COUNT * LEN, "all by Reads, {case:?}");
        }
    }
}
