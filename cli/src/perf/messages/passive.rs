//! The passive end, which answers.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use rddp_command::failure::Failure;
use rddp_command::signals::CHECK_INTERVAL;

use super::{Link, link};
use crate::perf::control::{Phase, Setup};
use crate::perf::spin::{CHECK_EVERY, Wish};

/// Time without a datagram after which those that are missing count as lost.
const LOST: Duration = Duration::from_millis(1);

pub(in crate::perf) struct Passive {
    link: Box<dyn Link>,
    may_lose: bool,
    turns: u64,
}

impl Passive {
    pub(in crate::perf) fn new(setup: &Setup, list: Vec<TcpStream>, wish: Wish) -> Result<Self, Failure> {
        Ok(Self::over(link(setup, list, wish)?, setup.op.is_datagrams()))
    }

    pub(super) fn over(link: Box<dyn Link>, may_lose: bool) -> Self {
        Passive { link, may_lose, turns: 0 }
    }

    /// Receives until the active end has told how many messages there were, and those have arrived
    /// or are lost. One at a time they are answered.
    pub(in crate::perf) fn serve(&mut self, phase: Phase, deadline: Option<Instant>) -> Result<(), Failure> {
        self.link.spin().reset();
        deadline.into_iter().for_each(|deadline| self.link.spin().serve_until(deadline));
        self.link.begin(phase);
        let before = self.link.arrived();
        let mut sent = None;
        loop {
            self.turn()?;
            let answered = self.link.arrived();
            let some = self.link.poll()?;
            if phase == Phase::Latency {
                (answered..self.link.arrived()).try_for_each(|_| self.link.send_one())?;
            }
            if some {
                continue;
            }
            sent = self.link.told()?.map(|sent| (sent, Instant::now())).or(sent);
            let arrived = self.link.arrived() - before;
            match sent {
                Some((sent, since)) if arrived >= sent || (self.may_lose && since.elapsed() > LOST) => {
                    return self.link.tell(arrived);
                }
                Some(_) => self.link.idle(LOST)?,
                None => self.link.idle(CHECK_INTERVAL)?,
            }
        }
    }

    fn turn(&mut self) -> Result<(), Failure> {
        self.turns += 1;
        if self.turns.is_multiple_of(CHECK_EVERY) { self.link.spin().check() } else { Ok(()) }
    }

    pub(in crate::perf) fn close(&self) {
        self.link.close();
    }
}
