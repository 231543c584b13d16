//! A shared receive queue: a server prints what many clients send, and has receives for all of them
//! together, not for each.
//!
//!     shared_receives server ADDR MESSAGES
//!     shared_receives client ADDR TEXT...
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rddp_examples::{Outcome, asked, listen, next, next_of_any_status};
use rddp_rnic::{
    Access, CompletionQueue, ConnectOptions, Listener, ProtectionDomain, QpConfig, QpNum, QueuePair, RecvWr,
    Rnic, SendWr, SharedReceiveQueue, SrqConfig,
};

/// Receives of the queue, and the octets of each.
const RECEIVES: usize = 64;
const ROOM: usize = 256;

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server", addr, messages] => server(addr, messages.parse()?),
        ["client", addr, ref texts @ ..] if !texts.is_empty() => client(addr, texts),
        _ => Err("shared_receives server ADDR MESSAGES | shared_receives client ADDR TEXT...".into()),
    }
}

/// The connections, with names of their own.
type Clients = Mutex<HashMap<QpNum, (QueuePair, String)>>;

/// Prints so many messages.
fn server(addr: &str, messages: usize) -> Outcome<()> {
    let rnic = Rnic::open()?;
    let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(2 * RECEIVES)?);
    // No client may hold more than a quarter of the receives, so that none uses them all up.
    let srq = pd.create_srq(SrqConfig { max_recv: RECEIVES, quota: Some(RECEIVES / 4) });
    let inbox = pd.allocate(RECEIVES * ROOM, Access::LOCAL_WRITE)?;
    let place = |slot: u64| inbox.sge(slot as usize * ROOM..(slot as usize + 1) * ROOM);
    for slot in 0..RECEIVES as u64 {
        srq.post_recv(RecvWr::one(slot, place(slot)))?;
    }
    let (listener, clients) = (listen(&rnic, addr)?, Clients::default());
    std::thread::scope(|scope| {
        scope.spawn(|| accept(&listener, &pd, &cq, &srq, &clients));
        let mut left = messages;
        while left > 0 {
            let Ok(first) = next_of_any_status(&cq) else { continue };
            // Connections that are over need no QP any more, once their last completions have been
            // taken, which are in the queue before the event.
            let ends = rnic.async_events().filter(|event| event.kind.is_end());
            let ended: Vec<QpNum> = ends.map(|event| event.qp).collect();
            for received in std::iter::once(first).chain(cq.completions()).take(left) {
                let text = inbox.read(received.wr_id as usize * ROOM, received.byte_len as usize)?;
                srq.post_recv(RecvWr::one(received.wr_id, place(received.wr_id)))?;
                // The completion says on which connection the message came, or failed.
                if let (Some((_, name)), Ok(_)) = (lock(&clients).get(&received.qp), received.ok()) {
                    println!("{name}: {}", String::from_utf8_lossy(&text));
                    left -= 1;
                }
            }
            lock(&clients).retain(|num, _| !ended.contains(num));
        }
        std::process::exit(0)
    })
}

/// Accepts clients for ever.
fn accept(
    listener: &Listener,
    pd: &ProtectionDomain,
    cq: &CompletionQueue,
    srq: &SharedReceiveQueue,
    clients: &Clients,
) {
    let config = QpConfig { srq: Some(srq.clone()), ..QpConfig::new(cq) };
    while let Ok(request) = asked(listener) {
        let name = String::from_utf8_lossy(request.private_data()).into_owned();
        let Ok(qp) = pd.create_qp(&config) else { continue };
        // Before the answer: the first message may come right behind it.
        lock(clients).insert(qp.num(), (qp.clone(), name));
        if request.accept(&qp, b"").is_err() {
            lock(clients).remove(&qp.num());
        }
    }
}

fn lock(clients: &Clients) -> MutexGuard<'_, HashMap<QpNum, (QueuePair, String)>> {
    clients.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends each text, under the name of the process.
fn client(addr: &str, texts: &[&str]) -> Outcome<()> {
    let rnic = Rnic::open()?;
    let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(16)?);
    let qp = pd.create_qp(&QpConfig::new(&cq))?;
    let name = format!("client {}", std::process::id());
    let options = ConnectOptions { private_data: name.into_bytes(), ..Default::default() };
    qp.connect(addr.parse()?, &options)?;
    for (id, text) in texts.iter().enumerate() {
        let text = &text.as_bytes()[..text.len().min(ROOM)];
        qp.post_send(&SendWr::send_inline(id as u64, text))?;
        next(&cq)?;
    }
    // Dropped, the QP closes its connection behind all that was sent.
    Ok(())
}
