//! Two ends that do every operation, one after the other, and note what each was told to say.

use std::time::Duration;

use rddp_rnic::{
    Access, CompletionQueue, ConnectOptions, MemoryRegion, Negotiated, Operation, ProtectionDomain, QpConfig,
    QpState, QueuePair, RecvWr, Rnic, Rtr, SendWr, Sge, Stag, Status,
};
use serde_json::json;

use crate::meant::{Expected, Message};
use crate::relay::{Relay, Talk};

pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const PATIENCE: Option<Duration> = Some(Duration::from_secs(10));
const ROOM: usize = 20_000;

/// The way in which the connection ends.
#[derive(Clone, Copy, Debug)]
pub enum Ending {
    Graceful,
    /// The initiator does this, the responder answers with a Terminate of this code.
    Terminate(Misdeed, u16),
}

#[derive(Clone, Copy, Debug)]
pub enum Misdeed {
    WriteUnknown,
    WriteBounds,
    ReadBounds,
    ReadNoRight,
    InvalidateUnknown,
    TooLong,
    NoReceive,
}

struct End {
    /// Lives as long as the rest.
    _rnic: Rnic,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair,
    region: MemoryRegion,
    /// Not open to the peer.
    closed: MemoryRegion,
}

impl End {
    fn new(rnic: Rnic) -> Outcome<Self> {
        let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(256)?);
        let qp = pd.create_qp(&QpConfig::new(&cq))?;
        let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let region = pd.allocate(ROOM, rights)?;
        region.write(0, &(0..ROOM).map(|i| (i % 251) as u8).collect::<Vec<u8>>())?;
        let closed = pd.allocate(64, Access::LOCAL_WRITE)?;
        Ok(End { _rnic: rnic, pd, cq, qp, region, closed })
    }

    fn done(&self) -> Outcome<()> {
        self.cq.wait(PATIENCE)?;
        match self.cq.poll_one().ok_or("nothing completes")? {
            completion if completion.status == Status::Success => Ok(()),
            completion => Err(format!("{completion:?}").into()),
        }
    }

    fn ended(&self) -> Outcome<()> {
        for _ in 0..1000 {
            self.cq.wait(Some(Duration::from_millis(10)))?;
            while self.cq.poll_one().is_some() {}
            if matches!(self.qp.state(), QpState::Idle | QpState::Error) {
                return Ok(());
            }
        }
        Err("the connection does not end".into())
    }
}

/// The outcome of one connection.
pub struct Played {
    pub talk: Talk,
    pub negotiated: Negotiated,
    /// The responder's view.
    pub answered: Negotiated,
    pub expected: [Expected; 2],
}

pub fn play(initiator: &ConnectOptions, responder: &ConnectOptions, ending: Ending) -> Outcome<Played> {
    let rnic = Rnic::open()?;
    let listener = rnic.listen("127.0.0.1:0".parse()?, responder)?;
    let relay = Relay::start(listener.local_addr()?)?;
    let ends = [End::new(Rnic::open()?)?, End::new(rnic)?];
    let inbox = ends[1].region.sge(0..64);
    let sends_rtr = initiator.rtr.send;
    if sends_rtr {
        ends[1].qp.post_recv(RecvWr::one(0, inbox))?;
    }
    let (negotiated, answered) = std::thread::scope(|scope| -> Outcome<_> {
        let connecting = scope.spawn(|| ends[0].qp.connect(relay.addr, initiator));
        let request = listener.accept(PATIENCE)?.ok_or("nobody connects")?;
        let answered = request.accept_with(&ends[1].qp, responder)?;
        let connected = connecting.join().map_err(|_| "connecting panicked")??;
        let agreed = connected.negotiated.zip(answered);
        agreed.ok_or_else(|| "the connection is none of iWARP".into())
    })?;
    let mut expected = [Expected::default(), Expected::default()];
    expect_rtr(&negotiated, &mut expected);
    if sends_rtr {
        ends[1].done()?;
    }
    for from in [0, 1] {
        operations(&ends, from, &mut expected)?;
    }
    match ending {
        Ending::Graceful => ends[0].qp.disconnect(),
        Ending::Terminate(misdeed, code) => misbehave(&ends, misdeed, code, &mut expected)?,
    }
    ends[0].ended()?;
    ends[1].ended()?;
    Ok(Played { talk: relay.finish()?, negotiated, answered, expected })
}

/// RFC 6581 §9.2: the first FPDU of a peer-to-peer connection.
fn expect_rtr(negotiated: &Negotiated, expected: &mut [Expected; 2]) {
    match negotiated.rtr {
        None => {}
        Some(Rtr::Send) => expected[0].push(Message::untagged(3, 0, 0)),
        Some(Rtr::Write) => expected[0].push(Message::tagged(0, 0, 0, 0)),
        Some(Rtr::Read) => {
            let request = json!({"sink_stag": 0, "sink_to": 0, "read_size": 0, "src_stag": 0, "src_to": 0});
            expected[0].push(Message::untagged(1, 1, 28).with(request));
            expected[1].push(Message::tagged(2, 0, 0, 0));
        }
    }
}

/// Every operation of the end `from`, waiting for each.
fn operations(ends: &[End; 2], from: usize, expected: &mut [Expected; 2]) -> Outcome<()> {
    let (us, peer) = (&ends[from], &ends[1 - from]);
    for size in [0, 5, 1000, ROOM] {
        for (opcode, solicited, invalidate) in
            [(3, false, false), (4, false, true), (5, true, false), (6, true, true)]
        {
            let scratch = peer.pd.allocate(64, Access::LOCAL_WRITE | Access::REMOTE_INVALIDATE)?;
            let invalidate = invalidate.then(|| scratch.stag());
            let operation = Operation::Send { gather: us.region.sge(0..size).into(), invalidate };
            let wr = SendWr { solicited, ..SendWr::new(0, operation) };
            peer.qp.post_recv(RecvWr::one(0, peer.region.sge(0..size)))?;
            let message = Message::untagged(opcode, 0, size);
            expected[from].push(match invalidate {
                Some(stag) => message.invalidating(stag.0),
                None => message,
            });
            us.qp.post_send(&wr)?;
            us.done()?;
            peer.done()?;
        }
        let remote = peer.region.remote(0);
        expected[from].push(Message::tagged(0, remote.stag.0, remote.to, size));
        us.qp.post_send(&SendWr::write(0, us.region.sge(0..size), remote))?;
        us.done()?;
        let sink = us.region.sge(0..size);
        expected[from].push(Message::untagged(1, 1, 28).with(json!({
            "sink_stag": sink.stag.0, "sink_to": sink.addr, "read_size": size,
            "src_stag": remote.stag.0, "src_to": remote.to,
        })));
        expected[1 - from].push(Message::tagged(2, sink.stag.0, sink.addr, size));
        us.qp.post_send(&SendWr::read(0, sink, remote))?;
        us.done()?;
    }
    immediates(us, peer, &mut expected[from])?;
    atomics(us, peer, from, expected)
}

fn immediates(us: &End, peer: &End, expected: &mut Expected) -> Outcome<()> {
    for (opcode, wr) in
        [(8, SendWr::immediate(0, *b"12345678")), (9, SendWr::immediate(0, *b"12345678").solicited())]
    {
        peer.qp.post_recv(RecvWr::new(0, []))?;
        expected.push(Message::untagged(opcode, 0, 8));
        us.qp.post_send(&wr)?;
        us.done()?;
        peer.done()?;
    }
    Ok(())
}

fn atomics(us: &End, peer: &End, from: usize, expected: &mut [Expected; 2]) -> Outcome<()> {
    let (sink, remote): (Sge, _) = (us.region.sge(0..8), peer.region.remote(8));
    let ones = u64::MAX;
    let fetch =
        json!({"atomic_op": 0, "add_data": 5, "add_mask": 0, "compare_data": 0, "compare_mask": ones});
    let swap =
        json!({"atomic_op": 2, "swap_data": 2, "swap_mask": ones, "compare_data": 1, "compare_mask": ones});
    let both =
        [(SendWr::fetch_add(0, sink, remote, 5), fetch), (SendWr::cmp_swap(0, sink, remote, 1, 2), swap)];
    for (request_id, (wr, mut control)) in both.into_iter().enumerate() {
        let original = u64::from_ne_bytes(peer.region.read(8, 8)?.as_slice().try_into()?);
        control["request_id"] = json!(request_id);
        control["remote_stag"] = json!(remote.stag.0);
        control["remote_to"] = json!(remote.to);
        expected[from].push(Message::untagged(10, 1, 52).with(control));
        let answer = json!({"request_id": request_id, "original": original});
        expected[1 - from].push(Message::untagged(11, 3, 12).with(answer));
        us.qp.post_send(&wr)?;
        us.done()?;
    }
    Ok(())
}

fn misbehave(ends: &[End; 2], misdeed: Misdeed, code: u16, expected: &mut [Expected; 2]) -> Outcome<()> {
    let (us, peer) = (&ends[0], &ends[1]);
    let octets = us.region.sge(0..64);
    let mut target = peer.region.remote(ROOM - 32);
    let (opcode, offending) = match misdeed {
        Misdeed::WriteUnknown | Misdeed::WriteBounds => {
            if matches!(misdeed, Misdeed::WriteUnknown) {
                target.stag = Stag(target.stag.0 ^ 0x5a5a_5a00);
            }
            us.qp.post_send(&SendWr::write(0, octets, target))?;
            (0, Message::tagged(0, target.stag.0, target.to, 64))
        }
        Misdeed::ReadBounds | Misdeed::ReadNoRight => {
            if matches!(misdeed, Misdeed::ReadNoRight) {
                target = peer.closed.remote(0);
            }
            us.qp.post_send(&SendWr::read(0, octets, target))?;
            let request = json!({
                "sink_stag": octets.stag.0, "sink_to": octets.addr, "read_size": 64,
                "src_stag": target.stag.0, "src_to": target.to,
            });
            (1, Message::untagged(1, 1, 28).with(request))
        }
        Misdeed::InvalidateUnknown => {
            let stag = Stag(peer.region.stag().0 ^ 0x5a5a_5a00);
            peer.qp.post_recv(RecvWr::one(0, peer.region.whole()))?;
            us.qp.post_send(&SendWr::send_invalidate(0, octets, stag))?;
            (4, Message::untagged(4, 0, 64).invalidating(stag.0))
        }
        Misdeed::TooLong | Misdeed::NoReceive => {
            if matches!(misdeed, Misdeed::TooLong) {
                peer.qp.post_recv(RecvWr::one(0, peer.region.sge(0..32)))?;
            }
            us.qp.post_send(&SendWr::send(0, octets))?;
            (3, Message::untagged(3, 0, 64))
        }
    };
    let header = offending.header(expected[0].next_msn(if opcode == 1 { 1 } else { 0 }));
    let read = if opcode == 1 {
        format!("{:08x}{:016x}{:08x}{:08x}{:016x}", octets.stag.0, octets.addr, 64, target.stag.0, target.to)
    } else {
        String::new()
    };
    let payload = if opcode == 1 { 28 } else { 64 };
    expected[0].push(offending);
    let mut terminate = json!({
        "layer": code >> 12, "etype": code >> 8 & 15, "ecode": code & 255,
        "hdrct_m": 1, "hdrct_d": 1, "hdrct_r": u8::from(opcode == 1),
        "ddp_seg_len": header.len() / 2 + payload, "terminated_ddp": header,
    });
    if opcode == 1 {
        terminate["terminated_rdmap"] = json!(read);
    }
    expected[1].push(Message::untagged(7, 2, 4 + 2 + (header.len() + read.len()) / 2).with(terminate));
    Ok(())
}
