//! The path: carries frames between the two devices, late and with losses.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::resource::UsageWho;
use nix::sys::time::TimeSpec;
use rddp_test_support::Random;

use crate::cell::{cpu, now_ns};
use crate::path_test::frame::TCP;
use crate::spec::Cell;

/// The results of the way to the receiver.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    pub(crate) segments: u64,
    pub(crate) lost: u64,
    pub(crate) cpu: Duration,
    /// Time at which the segment that was lost was handed over.
    pub(crate) again_ns: Option<u64>,
}

pub(crate) struct Middle {
    over: Arc<AtomicBool>,
    there: JoinHandle<Carried>,
    back: JoinHandle<Carried>,
}

impl Middle {
    /// Carries frames both ways; only those to the receiver are lost.
    pub(crate) fn start(sender: &File, receiver: &File, cell: &Cell) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let way = |from: &File, to: &File, loss, hole| Way {
            from: from.try_clone().unwrap(),
            to: to.try_clone().unwrap(),
            delay: cell.round_trip / 2,
            loss,
            hole,
            lost_seq: None,
            random: Random::new(cell.seed),
            late: VecDeque::new(),
            spare: Vec::new(),
            carried: Carried::default(),
        };
        let start = |mut way: Way| {
            let over = over.clone();
            std::thread::spawn(move || way.carry(&over))
        };
        let there = start(way(sender, receiver, cell.loss as usize, cell.hole));
        let back = start(way(receiver, sender, 0, None));
        Self { over, there, back }
    }

    pub(crate) fn stop(self) -> Carried {
        self.over.store(true, Ordering::Relaxed);
        self.back.join().unwrap();
        self.there.join().unwrap()
    }
}

/// Carries frames in one direction.
struct Way {
    from: File,
    to: File,
    delay: Duration,
    loss: usize,
    hole: Option<u64>,
    lost_seq: Option<[u8; 4]>,
    random: Random,
    /// Frames, and when they are due.
    late: VecDeque<(u64, Vec<u8>)>,
    /// Buffers for more.
    spare: Vec<Vec<u8>>,
    carried: Carried,
}

/// Frames that are read before others are handed over.
const BATCH: usize = 64;

impl Way {
    fn carry(&mut self, over: &AtomicBool) -> Carried {
        fcntl(&self.from, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        while !over.load(Ordering::Relaxed) {
            self.wait();
            for _ in 0..BATCH {
                if !self.take() {
                    break;
                }
            }
            self.hand_over();
        }
        self.carried.cpu = cpu(UsageWho::RUSAGE_THREAD);
        std::mem::take(&mut self.carried)
    }

    /// Waits for a frame, or until one is due.
    fn wait(&self) {
        let most = Duration::from_millis(20);
        let next = self.late.front().map(|(due, _)| Duration::from_nanos(due.saturating_sub(now_ns())));
        let time = TimeSpec::from(next.map_or(most, |next| next.min(most)));
        let mut fds = [PollFd::new(self.from.as_fd(), PollFlags::POLLIN)];
        let _ = ppoll(&mut fds, Some(time), None);
    }

    /// Takes a frame, if there is one.
    fn take(&mut self) -> bool {
        let mut frame = self.spare.pop().unwrap_or_default();
        frame.resize(10_000, 0);
        let Ok(len) = self.from.read(&mut frame) else {
            self.spare.push(frame);
            return false;
        };
        frame.truncate(len);
        if self.is_lost(&frame) {
            self.carried.lost += 1;
            self.spare.push(frame);
        } else {
            self.late.push_back((now_ns() + self.delay.as_nanos() as u64, frame));
        }
        true
    }

    fn is_lost(&mut self, frame: &[u8]) -> bool {
        if frame.len() < TCP + 100 {
            return false;
        }
        self.carried.segments += 1;
        if self.hole == Some(self.carried.segments) {
            self.lost_seq = seq(frame);
            return true;
        }
        self.loss > 0 && self.random.below(10_000) < self.loss
    }

    /// Hands over what is due.
    fn hand_over(&mut self) {
        let now = now_ns();
        while self.late.front().is_some_and(|(due, _)| *due <= now) {
            let Some((_, frame)) = self.late.pop_front() else { return };
            if self.lost_seq.is_some() && seq(&frame) == self.lost_seq {
                self.carried.again_ns = Some(now_ns());
                self.lost_seq = None;
            }
            let _ = self.to.write(&frame);
            self.spare.push(frame);
        }
    }
}

/// Returns the sequence number of a segment over IPv4.
fn seq(frame: &[u8]) -> Option<[u8; 4]> {
    frame.get(TCP + 4..)?.first_chunk().copied()
}
