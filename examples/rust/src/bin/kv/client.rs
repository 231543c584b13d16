//! The client.

use rddp_examples::{Outcome, next};
use rddp_rnic::{
    Access, CompletionQueue, ConnectOptions, MemoryRegion, QpConfig, QueuePair, RecvWr, Remote, Rnic, SendWr,
};

use crate::table::{BUCKET, ENTRY, Entry, bucket_of, emit, parse};

/// Times that a bucket is Read before the client gives up: each finds an entry that changes.
const TRIES: usize = 100;

pub(crate) struct Client {
    qp: QueuePair,
    cq: CompletionQueue,
    /// A bucket that was Read.
    bucket: MemoryRegion,
    /// The entry of a PUT, and behind it the answer.
    message: MemoryRegion,
    /// The place of the table in the server's memory.
    table: Remote,
}

impl Client {
    pub(crate) fn connect(addr: &str) -> Outcome<Self> {
        let rnic = Rnic::open()?;
        let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(16)?);
        let qp = pd.create_qp(&QpConfig::new(&cq))?;
        let connected = qp.connect(addr.parse()?, &ConnectOptions::default())?;
        let table = connected.private_data.first_chunk().map(Remote::from_octets).ok_or("no advert")?;
        let bucket = pd.allocate(BUCKET, Access::LOCAL_WRITE)?;
        let message = pd.allocate(2 * ENTRY, Access::LOCAL_WRITE)?;
        Ok(Client { qp, cq, bucket, message, table })
    }

    /// Reads the key's bucket out of the server's memory.
    pub(crate) fn get(&self, key: &[u8]) -> Outcome<Option<Vec<u8>>> {
        let place = self.table.at(bucket_of(key) as u64);
        for _ in 0..TRIES {
            self.qp.post_send(&SendWr::read(1, self.bucket.whole(), place))?;
            next(&self.cq)?;
            let bucket = self.bucket.read(0, BUCKET)?;
            let mut is_whole = true;
            for entry in bucket.chunks(ENTRY).map(parse) {
                match entry {
                    Entry::Taken { key: other, value } if other == key => return Ok(Some(value.to_vec())),
                    Entry::Torn => is_whole = false,
                    _ => {}
                }
            }
            if is_whole {
                return Ok(None);
            }
        }
        Err("the bucket changes all the time".into())
    }

    /// Has the server store a value.
    pub(crate) fn put(&self, key: &[u8], value: &[u8]) -> Outcome<()> {
        self.message.write(0, &emit(key, value).ok_or("key and value are too long")?)?;
        self.qp.post_recv(RecvWr::one(2, self.message.sge(ENTRY..)))?;
        self.qp.post_send(&SendWr::send(3, self.message.sge(..ENTRY)).unsignaled())?;
        let answer = next(&self.cq)?;
        match self.message.read(ENTRY, answer.byte_len as usize)? {
            refusal if refusal.is_empty() => Ok(()),
            refusal => Err(String::from_utf8_lossy(&refusal).into()),
        }
    }
}
