//! Two services on one completion queue: datagrams of UDP are echoed, and each record over TCP goes
//! to all who are there.
//!
//!     messages serve ADDRESS:PORT
//!
//! Their programs are ordinary ones: `socat - UDP:ADDRESS:PORT`, and anything that puts the length
//! of each message in front (Erlang's `{packet, 4}`).

use std::collections::HashMap;
use std::error::Error;
use std::time::Duration;

use rddp_rnic::{
    Access, Completed, Completion, CompletionQueue, ConnectOptions, Datagram, DatagramOptions, MemoryRegion,
    ProtectionDomain, QpConfig, QpNum, QueuePair, RecordOptions, RecvWr, Rnic, SendWr, Status, Transport,
};

/// Octets of the longest message: answers are sent inline.
const LONGEST: usize = 500;
/// Octets of a receive, with room for the source of a datagram.
const ROOM: usize = Datagram::LEN + LONGEST;
/// Receives of each queue pair.
const RECEIVES: usize = 16;

/// A queue pair with its receives.
struct End {
    qp: QueuePair,
    inbox: MemoryRegion,
}

impl End {
    fn new(
        pd: &ProtectionDomain,
        cq: &CompletionQueue,
        transport: Transport,
    ) -> Result<Self, Box<dyn Error>> {
        let records = RecordOptions { max_record: LONGEST as u32, ..RecordOptions::default() };
        let config = QpConfig { transport, records, max_send: 256, max_recv: RECEIVES, ..QpConfig::new(cq) };
        let end =
            End { qp: pd.create_qp(&config)?, inbox: pd.allocate(RECEIVES * ROOM, Access::LOCAL_WRITE)? };
        (0..RECEIVES).try_for_each(|slot| end.post(slot))?;
        Ok(end)
    }

    fn post(&self, slot: usize) -> Result<(), Box<dyn Error>> {
        let room = self.inbox.sge(slot * ROOM..(slot + 1) * ROOM);
        Ok(self.qp.post_recv(RecvWr::one(slot as u64, room))?)
    }

    fn octets(&self, done: &Completion) -> Result<Vec<u8>, Box<dyn Error>> {
        Ok(self.inbox.read(done.wr_id as usize * ROOM, done.byte_len as usize)?)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let addr = std::env::args().nth(2).ok_or("usage: messages serve ADDRESS:PORT")?.parse()?;
    let rnic = Rnic::open()?;
    let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(1 << 14)?);
    let listener = rnic.listen_by(Transport::Record, addr, &ConnectOptions::default())?;
    let addr = listener.local_addr()?;
    let echo = End::new(&pd, &cq, Transport::Udp)?;
    echo.qp.bind(addr, &DatagramOptions::default())?;
    println!("listening on {addr}");

    let mut talkers: HashMap<QpNum, End> = HashMap::new();
    loop {
        while let Some(request) = listener.accept(Some(Duration::ZERO))? {
            let end = End::new(&pd, &cq, Transport::Record)?;
            if request.accept(&end.qp, b"").is_ok() {
                // A message of no octets says that it has begun.
                end.qp.post_send(&SendWr::send_inline(0, b"").unsignaled())?;
                talkers.insert(end.qp.num(), end);
            }
        }
        cq.wait(Some(Duration::from_millis(20)))?;
        while let Some(done) = cq.poll_one() {
            if done.completed != Completed::Receive {
                continue;
            }
            if done.qp == echo.qp.num() {
                echoed(&echo, &done)?;
            } else if done.status == Status::Success {
                told(&talkers, &done)?;
            } else {
                // The peer has ended its stream, or broken a rule.
                talkers.remove(&done.qp);
            }
        }
    }
}

/// Sends a datagram back to where it says that it came from.
fn echoed(echo: &End, done: &Completion) -> Result<(), Box<dyn Error>> {
    let octets = echo.octets(done)?;
    if let Some(source) = Datagram::source(&octets) {
        let message = rddp_rnic::Gather::Inline(octets[Datagram::LEN..].to_vec());
        // A queue that is full drops the answer, as a network may.
        let _ = echo.qp.post_send(&SendWr::datagram(0, message, source).unsignaled());
    }
    echo.post(done.wr_id as usize)
}

/// Sends a record to all but its sender.
fn told(talkers: &HashMap<QpNum, End>, done: &Completion) -> Result<(), Box<dyn Error>> {
    let Some(sender) = talkers.get(&done.qp) else { return Ok(()) };
    let octets = sender.octets(done)?;
    for end in talkers.values().filter(|end| end.qp.num() != done.qp) {
        // One that does not read misses what it has no room for.
        let _ = end.qp.post_send(&SendWr::send_inline(0, &octets).unsignaled());
    }
    sender.post(done.wr_id as usize)
}
