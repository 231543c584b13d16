//! A connection that the tests drive themselves, to do what rddp's own ends never do.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::Duration;

use rddp_rnic::{
    Access, Completed, CompletionQueue, ConnectError, ConnectOptions, ConnectRequest, MemoryRegion,
    ProtectionDomain, QpConfig, QpState, QueuePair, RecvWr, Rnic, SendWr, Status,
};
use serde_json::Value;

use crate::program::until;

/// The greeting of `rddp serve`, without a token.
pub(crate) const FILES: &[u8] = b"rddp-files 3\0";

const PATIENCE: Duration = Duration::from_secs(20);

/// A connection that the test drives.
pub(crate) struct Peer {
    pub(crate) pd: ProtectionDomain,
    pub(crate) cq: CompletionQueue,
    pub(crate) qp: QueuePair,
    inbox: MemoryRegion,
    /// Private data of the other end's Reply.
    pub(crate) told: Vec<u8>,
    /// Octets of the last message received.
    said: RefCell<Vec<u8>>,
}

/// Number of receives that are posted, and the octets of each.
const RECEIVES: usize = 16;
/// A message of 8 KiB, and a file of 16 KiB behind it.
const LONGEST: usize = (8 + 16) << 10;

impl Peer {
    fn idle() -> Self {
        let rnic = Rnic::open().unwrap();
        let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(256).unwrap());
        let qp = pd.create_qp(&QpConfig::new(&cq)).unwrap();
        let inbox = pd.allocate(RECEIVES * LONGEST, Access::LOCAL_WRITE).unwrap();
        let peer = Peer { pd, cq, qp, inbox, told: Vec::new(), said: RefCell::default() };
        (0..RECEIVES).for_each(|slot| peer.post_receive(slot));
        peer
    }

    fn post_receive(&self, slot: usize) {
        let at = slot * LONGEST;
        // A connection that has ended accepts no receive.
        let _ = self.qp.post_recv(RecvWr::one(slot as u64, self.inbox.sge(at..at + LONGEST)));
    }

    pub(crate) fn try_connect(addr: SocketAddr, private_data: &[u8]) -> Result<Self, ConnectError> {
        let mut peer = Self::idle();
        let options = ConnectOptions { private_data: private_data.to_vec(), ..ConnectOptions::default() };
        peer.told = peer.qp.connect(addr, &options)?.private_data;
        Ok(peer)
    }

    /// Accepts a connection, as its passive end.
    pub(crate) fn accept(request: ConnectRequest, private_data: &[u8]) -> Self {
        let peer = Self::idle();
        request.accept(&peer.qp, private_data).unwrap();
        peer
    }

    pub(crate) fn connect(addr: SocketAddr, private_data: &[u8]) -> Self {
        Self::try_connect(addr, private_data).unwrap()
    }

    pub(crate) fn say(&self, octets: &[u8]) {
        let region = self.pd.allocate(octets.len().max(1), Access::LOCAL_WRITE).unwrap();
        region.write(0, octets).unwrap();
        self.qp.post_send(&SendWr::send(2, region.sge(0..octets.len()))).unwrap();
        // The region must exist until the request is complete.
        while self.next().is_some_and(|completed| completed.0 != Completed::Send) {}
    }

    pub(crate) fn say_json(&self, message: &Value) {
        self.say(message.to_string().as_bytes());
    }

    /// Returns the next success; `None` when the connection has ended.
    pub(crate) fn next(&self) -> Option<(Completed, u32)> {
        assert!(self.cq.wait(Some(PATIENCE)).unwrap(), "nothing happens");
        let completion = self.cq.poll_one().unwrap();
        if completion.status != Status::Success {
            return None;
        }
        if completion.completed == Completed::Receive {
            let slot = completion.wr_id as usize;
            *self.said.borrow_mut() = self.inbox.read(slot * LONGEST, completion.byte_len as usize).unwrap();
            self.post_receive(slot);
        }
        Some((completion.completed, completion.byte_len))
    }

    /// Returns the server's next message, without octets of a file behind it; `None` when it has
    /// ended the connection.
    pub(crate) fn hear(&self) -> Option<Value> {
        loop {
            let (completed, _) = self.next()?;
            if completed == Completed::Receive {
                return serde_json::Deserializer::from_slice(&self.said.borrow()).into_iter().next()?.ok();
            }
        }
    }

    /// Checks that the server has ended the connection, whatever it said before.
    pub(crate) fn is_ended(&self) {
        until("the server ends the connection", || {
            while self.cq.poll_one().is_some() {}
            self.qp.state() != QpState::ReadyToSend
        });
    }
}
