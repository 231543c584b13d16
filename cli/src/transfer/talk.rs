//! A connection with messages in both directions.

use std::time::{Duration, Instant};

use rddp_rnic::{Access, Completed, MAX_INLINE, MemoryRegion, RecvWr, Rnic, SendWr};
use serde::Serialize;

use super::protocol::{Message, out_of_step};
use crate::endpoint::Endpoint;
use crate::failure::Failure;

/// Octets of the longest message: a path, each octet of it written as six.
const LONGEST: usize = 8 * 1024;

/// Receives that are posted. The protocol has fewer messages on their way.
const RECEIVES: usize = 32;

/// How often a busy end says so.
const BUSY_EVERY: Duration = Duration::from_secs(1);

const RECEIVE: u64 = 1 << 32;
const SEND: u64 = 2 << 32;

pub(super) struct Talk {
    pub(super) end: Endpoint,
    inbox: MemoryRegion,
    outbox: MemoryRegion,
    said_busy: Instant,
}

/// What happens next.
pub(super) enum Next<T> {
    Message(T),
    /// A Read of ours, by its id.
    Read(u64),
}

impl Talk {
    pub(super) fn new(rnic: &Rnic) -> Result<Self, Failure> {
        let end = Endpoint::new(rnic)?;
        let inbox = end.pd.allocate(RECEIVES * LONGEST, Access::LOCAL_WRITE)?;
        let outbox = end.pd.allocate(LONGEST, Access::LOCAL_WRITE)?;
        let talk = Talk { end, inbox, outbox, said_busy: Instant::now() };
        (0..RECEIVES).try_for_each(|slot| talk.post_receive(slot))?;
        Ok(talk)
    }

    fn post_receive(&self, slot: usize) -> Result<(), Failure> {
        let at = slot * LONGEST;
        Ok(self.end.qp.post_recv(RecvWr::one(RECEIVE + slot as u64, self.inbox.sge(at..at + LONGEST)))?)
    }

    /// Says one thing.
    pub(super) fn say(&mut self, message: &impl Serialize) -> Result<(), Failure> {
        self.say_behind(None, message)
    }

    /// The same, behind a Write.
    pub(super) fn say_behind(
        &mut self,
        write: Option<SendWr>,
        message: &impl Serialize,
    ) -> Result<(), Failure> {
        let text = serde_json::to_vec(message).map_err(|error| Failure::failed(error.to_string()))?;
        let send = if text.len() <= MAX_INLINE {
            SendWr::send_inline(SEND, &text)
        } else {
            // Only the first message of an end or its last can be so long: nothing else is in the outbox.
            self.outbox.write(0, &text)?;
            SendWr::send(SEND, self.outbox.sge(0..text.len()))
        };
        let list: Vec<SendWr> = write.into_iter().chain([send]).map(SendWr::unsignaled).collect();
        Ok(self.end.qp.post_sends(&list).map_err(|(error, _)| error)?)
    }

    /// Says that this end is alive, if it has not for a while.
    pub(super) fn say_busy(&mut self, busy: &impl Serialize) -> Result<(), Failure> {
        crate::signals::check()?;
        if self.said_busy.elapsed() < BUSY_EVERY {
            return Ok(());
        }
        self.said_busy = Instant::now();
        self.say(busy)
    }

    /// What the peer says next.
    pub(super) fn hear<T: Message>(&mut self, patience: Duration) -> Result<T, Failure> {
        match self.next(patience)? {
            Next::Message(message) => Ok(message),
            Next::Read(_) => Err(out_of_step()),
        }
    }

    pub(super) fn next<T: Message>(&mut self, patience: Duration) -> Result<Next<T>, Failure> {
        let (begun, most) = (Instant::now(), T::BUSY.map(|times| patience.saturating_mul(times)));
        loop {
            let completion = self.end.next(patience)?;
            match completion.completed {
                Completed::Receive => {
                    let slot = (completion.wr_id - RECEIVE) as usize;
                    let octets = self.inbox.read(slot * LONGEST, completion.byte_len as usize)?;
                    self.post_receive(slot)?;
                    let message: T = serde_json::from_slice(&octets).map_err(|_| out_of_step())?;
                    match message.failure() {
                        Some(failure) => return Err(failure),
                        None if message.is_busy() && most.is_some_and(|most| begun.elapsed() > most) => {
                            let waited = begun.elapsed().as_secs();
                            return Err(Failure::peer(format!("the peer has been busy for {waited} s")));
                        }
                        None if message.is_busy() => {}
                        None => return Ok(Next::Message(message)),
                    }
                }
                Completed::Read => return Ok(Next::Read(completion.wr_id)),
                _ => return Err(out_of_step()),
            }
        }
    }
}
