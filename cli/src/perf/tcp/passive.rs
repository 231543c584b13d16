//! The passive end, which answers.

use std::net::TcpStream;
use std::time::Instant;

use rddp_command::failure::Failure;
use rddp_load::stream::{MORE, Receiver, send_all};

use super::{CHUNK, Sockets};
use crate::perf::control::{Phase, Setup};
use crate::perf::spin::Wish;

pub(in crate::perf) struct Passive {
    sockets: Sockets,
    load: Receiver,
    /// Memory for messages.
    room: Vec<u8>,
    answer: Vec<u8>,
}

impl Passive {
    pub(in crate::perf) fn new(setup: &Setup, list: Vec<TcpStream>, wish: Wish) -> Result<Self, Failure> {
        let load = Receiver::new(list.len(), setup.size());
        let sockets = Sockets::new(setup, list, wish)?;
        Ok(Passive {
            sockets,
            load,
            room: vec![1; setup.size().max(CHUNK)],
            answer: vec![MORE; setup.size()],
        })
    }

    /// Answers until the last message has arrived on all connections.
    pub(in crate::perf) fn serve(&mut self, phase: Phase, deadline: Option<Instant>) -> Result<(), Failure> {
        self.sockets.spin.reset();
        if let Some(deadline) = deadline {
            self.sockets.spin.serve_until(deadline);
        }
        let (size, answer) = (self.answer.len(), &self.answer);
        // Long messages go to their place, short ones many at a time.
        let place = |position| if size >= CHUNK { position..size } else { 0..CHUNK };
        self.load.serve(&mut self.sockets, &mut self.room, place, |sockets, at, _| match phase {
            Phase::Bandwidth => Ok(()),
            Phase::Latency => send_all(sockets, at, answer, 0),
        })
    }
}
