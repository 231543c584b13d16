//! The load of a measurement: as many requests under way as were asked for, at random places.

use std::time::{Duration, Instant};

use rddp_block::export::Command;
use rddp_command::failure::Failure;

use crate::block::buffers::Buffer;
use crate::block::desk::Desk;
use crate::block::disk::{Done, Job};
use crate::block::end::End;
use crate::perf::Latencies;

/// The requests of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Octets of each.
    pub(super) size: u32,
    /// Requests under way.
    pub(super) depth: usize,
    pub(super) write: bool,
}

/// A measurement under way.
pub(super) struct Engine<'a> {
    desk: &'a Desk,
    end: &'a mut dyn End,
    load: Load,
    places: Places,
    /// Buffers without a request, each with the number that its next one has.
    idle: Vec<(u64, Buffer)>,
    /// Requests by their numbers, and when each was begun.
    begun: Vec<(Command, Instant)>,
    /// Requests that were answered.
    pub(super) requests: u64,
    pub(super) latencies: Latencies,
}

impl<'a> Engine<'a> {
    pub(super) fn new(desk: &'a Desk, end: &'a mut dyn End, load: Load) -> Result<Self, Failure> {
        let mut buffers = desk.buffers(usize::MAX);
        let octets = vec![0xa5; if load.write { load.size as usize } else { 0 }];
        let mut idle = Vec::new();
        for id in 0..load.depth as u64 {
            let buffer = buffers.take(load.size as usize);
            let buffer = buffer.ok_or_else(|| Failure::failed("no memory for so many requests"))?;
            buffer.filled(&octets)?;
            idle.push((id, buffer));
        }
        let places = Places::new(end.export().size / u64::from(load.size))?;
        let begun = vec![(Command::Flush, Instant::now()); load.depth];
        Ok(Engine { desk, end, load, places, idle, begun, requests: 0, latencies: Latencies::new()? })
    }

    /// Keeps the requests under way for so long, and waits for the last answers. Returns how long
    /// that was.
    pub(super) fn run(&mut self, time: Duration) -> Result<Duration, Failure> {
        let start = Instant::now();
        let mut done = Vec::new();
        while start.elapsed() < time {
            while let Some((id, buffer)) = self.idle.pop() {
                self.begin(id, buffer)?;
            }
            self.turn(&mut done)?;
        }
        while self.idle.len() < self.load.depth {
            self.turn(&mut done)?;
        }
        Ok(start.elapsed())
    }

    fn begin(&mut self, id: u64, buffer: Buffer) -> Result<(), Failure> {
        let (len, offset) = (self.load.size, self.places.next() * u64::from(self.load.size));
        let command = match self.load.write {
            true => Command::Write { offset, len, fua: false },
            false => Command::Read { offset, len },
        };
        self.begun[id as usize] = (command, Instant::now());
        self.end.begin(Job { owner: 0, id, command, buffer: Some(buffer) })
    }

    /// Acts on what has come and what is done, or waits for more.
    fn turn(&mut self, done: &mut Vec<Done>) -> Result<(), Failure> {
        self.desk.turn(&mut [&mut *self.end], done)?;
        let now = Instant::now();
        for Done { id, buffer, result, .. } in done.drain(..) {
            let (command, begun) = &self.begun[id as usize];
            result.map_err(|error| self.end.failure(command, error))?;
            self.requests += 1;
            self.latencies.record(now - *begun);
            self.idle.extend(buffer.map(|buffer| (id, buffer)));
        }
        Ok(())
    }
}

/// Places at random.
struct Places {
    count: u64,
    state: u64,
}

impl Places {
    fn new(count: u64) -> Result<Self, Failure> {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(|error| Failure::failed(format!("random numbers: {error}")))?;
        Ok(Places { count, state: u64::from_ne_bytes(seed) | 1 })
    }

    /// Returns a place, by Marsaglia's xorshift: cheap, and random enough for a disk.
    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % self.count
    }
}
