//! Connections that carry one Send there and one back, and are then closed.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rddp_load::rdma::{receive_id, single_id};
use rddp_load::stream::{LAST, MORE};
use rddp_rnic::{
    Access, Completed, Completion, CompletionQueue, Listener, MemoryRegion, ProtectionDomain, QpConfig,
    QueuePair, RecvWr, SendWr, Status,
};

use super::{NAP, Side};
use crate::Outcome;
use crate::spec::{Latency, PLACE_IN_PAGE};
use crate::turns::Turns;

/// The memory and the queue that the connections of a slice share.
struct Desk<'a> {
    side: &'a Side,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    /// From [`PLACE_IN_PAGE`] on a message, and behind it one that was received.
    region: MemoryRegion,
    size: usize,
}

impl<'a> Desk<'a> {
    fn new(side: &'a Side) -> Outcome<Self> {
        let (pd, cq, size) = (side.rnic.alloc_pd(), side.rnic.create_cq(16)?, side.spec.size);
        let region = pd.allocate(PLACE_IN_PAGE + 2 * size, Access::LOCAL_WRITE)?;
        Ok(Desk { side, pd, cq, region, size })
    }

    /// Returns where messages are received.
    fn target(&self) -> usize {
        PLACE_IN_PAGE + self.size
    }

    /// Makes a QP with that many receives posted.
    fn qp(&self, receives: usize) -> Outcome<QueuePair> {
        let config = QpConfig { max_send: 4, max_recv: receives, ..QpConfig::new(&self.cq) };
        let qp = self.pd.create_qp(&config)?;
        for _ in 0..receives {
            qp.post_recv(RecvWr::one(
                receive_id(0),
                self.region.sge(self.target()..self.target() + self.size),
            ))?;
        }
        Ok(qp)
    }

    /// Posts the message with that octet at its end.
    fn send(&self, qp: &QueuePair, last: u8) -> Outcome<()> {
        self.region.write(self.target() - 1, &[last])?;
        let message = self.region.sge(PLACE_IN_PAGE..self.target());
        Ok(qp.post_send(&SendWr::send(single_id(0), message).unsignaled())?)
    }

    /// Sleeps until a receive has completed.
    fn next(&self) -> Outcome<Completion> {
        let (mut taken, mut turns) = (Vec::with_capacity(1), Turns::default());
        while self.cq.poll(1, &mut taken) == 0 {
            self.cq.wait(Some(NAP))?;
            turns.check()?;
        }
        taken.pop().ok_or_else(|| "no completion".into())
    }

    fn message(&self) -> Outcome<u8> {
        let completion = self.next()?;
        if completion.status != Status::Success || completion.completed != Completed::Receive {
            return Err(self.side.why(&completion).into());
        }
        let mut last = [0];
        self.region.read_into(self.target() + self.size - 1, &mut last)?;
        Ok(last[0])
    }
}

/// Asks for `time`, with an own connection for each message; the last one says so.
pub(super) fn ask(side: &Side, addr: SocketAddr, time: Duration) -> Outcome<Option<Latency>> {
    let desk = Desk::new(side)?;
    let (mut times, mut begun) = (Vec::new(), Instant::now());
    let end = begun + time;
    while begun < end {
        ask_one(&desk, addr, MORE)?;
        let now = Instant::now();
        times.push((now - begun).as_nanos() as u64);
        begun = now;
    }
    ask_one(&desk, addr, LAST)?;
    Ok(Latency::of(times))
}

fn ask_one(desk: &Desk<'_>, addr: SocketAddr, last: u8) -> Outcome<()> {
    let qp = desk.qp(1)?;
    qp.connect(addr, &desk.side.spec.options())?;
    desk.send(&qp, last)?;
    desk.message()?;
    qp.disconnect();
    Ok(())
}

/// Answers one message of each connection until the last one, and waits for the end of each.
pub(super) fn answer(side: &Side, listener: &Listener) -> Outcome<()> {
    let (desk, options) = (Desk::new(side)?, side.spec.options());
    loop {
        // The second receive is flushed when the connection ends.
        let qp = desk.qp(2)?;
        let request = listener.accept(Some(options.timeout))?.ok_or("a connection is missing")?;
        request.accept_with(&qp, &options)?;
        let last = desk.message()?;
        desk.send(&qp, MORE)?;
        if desk.next()?.status == Status::Success {
            return Err("a connection has more than one message".into());
        }
        if last == LAST {
            return Ok(());
        }
    }
}
