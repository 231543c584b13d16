//! The server: memory that clients Read, and a thread that carries out their PUTs.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rddp_examples::{Outcome, asked, listen};
use rddp_rnic::{
    Access, Completed, Completion, CompletionQueue, Listener, MemoryRegion, ProtectionDomain, QpConfig,
    QpNum, QueuePair, RecvWr, Rnic, SendWr, SharedReceiveQueue, SrqConfig,
};

use crate::table::{BUCKET, ENTRY, Entry, TABLE, bucket_of, emit, parse};

/// PUTs that may wait, of all clients together; the octets of each are an entry's.
const PUTS: usize = 256;

struct Server {
    rnic: Rnic,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    srq: SharedReceiveQueue,
    inbox: MemoryRegion,
    table: MemoryRegion,
    clients: Mutex<HashMap<QpNum, QueuePair>>,
}

/// Serves for ever.
pub(crate) fn serve(addr: &str) -> Outcome<()> {
    let rnic = Rnic::open()?;
    let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(4 * PUTS)?);
    let srq = pd.create_srq(SrqConfig { max_recv: PUTS, quota: Some(PUTS / 4) });
    let inbox = pd.allocate(PUTS * ENTRY, Access::LOCAL_WRITE)?;
    let table = pd.allocate(TABLE, Access::REMOTE_READ)?;
    let server = Server { rnic, pd, cq, srq, inbox, table, clients: Mutex::default() };
    (0..PUTS as u64).try_for_each(|slot| server.receive(slot))?;
    let listener = listen(&server.rnic, addr)?;
    std::thread::scope(|scope| {
        scope.spawn(|| server.accept(&listener));
        server.work()
    })
}

impl Server {
    fn clients(&self) -> MutexGuard<'_, HashMap<QpNum, QueuePair>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Posts the receive for a slot of the inbox.
    fn receive(&self, slot: u64) -> Outcome<()> {
        let start = slot as usize * ENTRY;
        Ok(self.srq.post_recv(RecvWr::one(slot, self.inbox.sge(start..start + ENTRY)))?)
    }

    fn accept(&self, listener: &Listener) {
        let config =
            QpConfig { srq: Some(self.srq.clone()), inbound_write: false, ..QpConfig::new(&self.cq) };
        while let Ok(request) = asked(listener) {
            let Ok(qp) = self.pd.create_qp(&config) else { continue };
            // Before the answer: a PUT may come right behind it.
            self.clients().insert(qp.num(), qp.clone());
            // The client learns where the table is.
            if request.accept(&qp, &self.table.remote(0).to_octets()).is_err() {
                self.clients().remove(&qp.num());
            }
        }
    }

    fn work(&self) -> Outcome<()> {
        loop {
            self.cq.wait(Some(Duration::from_secs(1)))?;
            for completion in self.cq.completions() {
                self.completed(&completion)?;
            }
            let mut clients = self.clients();
            for event in self.rnic.async_events().filter(|event| event.kind.is_end()) {
                clients.remove(&event.qp);
            }
        }
    }

    /// Carries out a PUT and answers it. Answers have no completions, unless they fail.
    fn completed(&self, completion: &Completion) -> Outcome<()> {
        if completion.completed != Completed::Receive {
            return Ok(());
        }
        let slot = completion.wr_id;
        if completion.ok().is_ok() {
            let put = self.inbox.read(slot as usize * ENTRY, completion.byte_len as usize)?;
            let answer: &[u8] = match self.put(&put) {
                Ok(()) => b"",
                Err(refusal) => refusal.as_bytes(),
            };
            let client = self.clients().get(&completion.qp).cloned();
            if let Some(client) = client {
                // A client that takes no answers fills its own send queue and no other.
                let _ = client.post_send(&SendWr::send_inline(slot, answer).unsignaled());
            }
        }
        self.receive(slot)
    }

    /// Stores the entry whose octets a client has sent.
    fn put(&self, put: &[u8]) -> Result<(), &'static str> {
        let Entry::Taken { key, value } = parse(put) else { return Err("malformed") };
        // Whatever came, the table has entries of ours alone.
        let entry = emit(key, value).ok_or("too long")?;
        let start = bucket_of(key);
        let bucket = self.table.read(start, BUCKET).map_err(|_| "no memory")?;
        let place =
            |wanted: &dyn Fn(Entry<'_>) -> bool| bucket.chunks(ENTRY).position(|at| wanted(parse(at)));
        let same = place(&|entry| matches!(entry, Entry::Taken { key: other, .. } if other == key));
        let at = same.or_else(|| place(&|entry| entry == Entry::Free)).ok_or("the key's bucket is full")?;
        self.table.write(start + at * ENTRY, &entry).map_err(|_| "no memory")
    }
}
