//! A connection with messages in both directions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rddp_rnic::{
    Access, Completed, Completion, MAX_INLINE, MemoryRegion, QpState, RecvWr, Rnic, SendWr, Status,
};
use serde::Serialize;

use super::checksum::CHUNK;
use super::protocol::{Message, ToServer, out_of_step};
use super::token::{Nonce, Token};
use crate::endpoint::{Endpoint, ended, silent};
use crate::failure::Failure;
use crate::places::{Meter, SLOW};
use crate::signals::CHECK_INTERVAL;

/// Octets of the longest message: it has a path, of which each octet may be written as seven
/// octets, as it is necessary in a string within a string of JSON.
const LONGEST: usize = 8 * 1024;

/// Receives that are posted. The protocol has fewer messages under way.
const RECEIVES: usize = 32;

/// Interval at which a busy end sends `Busy`.
const BUSY_EVERY: Duration = Duration::from_secs(1);

const RECEIVE: u64 = 1 << 32;
const SEND: u64 = 2 << 32;

pub(super) struct Talk {
    pub(super) end: Endpoint,
    inbox: MemoryRegion,
    outbox: MemoryRegion,
    said_busy: Instant,
    /// At a server: the meter of the client's rate.
    meter: Option<Arc<Meter>>,
    /// At a client with a token: signs its requests, with the server's nonce.
    proof: Option<(Token, Nonce)>,
}

/// An event on the connection.
pub(super) enum Next<T> {
    Message(T),
    /// A Read of this end, by its id, is complete.
    Read(u64),
}

impl Talk {
    pub(super) fn new(rnic: &Rnic) -> Result<Self, Failure> {
        let end = Endpoint::new(rnic)?;
        let inbox = end.pd.allocate(RECEIVES * LONGEST, Access::LOCAL_WRITE)?;
        let outbox = end.pd.allocate(LONGEST, Access::LOCAL_WRITE)?;
        let talk = Talk { end, inbox, outbox, said_busy: Instant::now(), meter: None, proof: None };
        (0..RECEIVES).try_for_each(|slot| talk.post_receive(slot))?;
        Ok(talk)
    }

    /// An end at a server that is not connected, for a client whose place others may take.
    pub(super) fn metered(rnic: &Rnic, meter: Arc<Meter>) -> Result<Self, Failure> {
        Ok(Talk { meter: Some(meter), ..Self::new(rnic)? })
    }

    fn post_receive(&self, slot: usize) -> Result<(), Failure> {
        let at = slot * LONGEST;
        Ok(self.end.qp.post_recv(RecvWr::one(RECEIVE + slot as u64, self.inbox.sge(at..at + LONGEST)))?)
    }

    /// Makes the connection sign requests from now on.
    pub(super) fn sign_with(&mut self, token: Token, nonce: Nonce) {
        self.proof = Some((token, nonce));
    }

    /// Sends a request, and signs it where necessary.
    pub(super) fn ask(&mut self, request: &ToServer) -> Result<(), Failure> {
        let Some((token, nonce)) = &self.proof else { return self.say(request) };
        let request = serde_json::to_string(request).map_err(|error| Failure::failed(error.to_string()))?;
        let mac = token.sign(nonce, &request);
        self.say(&ToServer::Signed { mac, request })
    }

    /// Sends a message.
    pub(super) fn say(&mut self, message: &impl Serialize) -> Result<(), Failure> {
        self.say_behind(None, message)
    }

    /// Sends a message, behind a Write if one is given.
    pub(super) fn say_behind(
        &mut self,
        write: Option<SendWr>,
        message: &impl Serialize,
    ) -> Result<(), Failure> {
        let text = serde_json::to_vec(message).map_err(|error| Failure::failed(error.to_string()))?;
        let send = if text.len() <= MAX_INLINE {
            SendWr::send_inline(SEND, &text)
        } else {
            // Only an end's first or last message can be so long: nothing else is in the outbox
            // then.
            self.outbox.write(0, &text)?;
            SendWr::send(SEND, self.outbox.sge(0..text.len()))
        };
        let list: Vec<SendWr> = write.into_iter().chain([send]).map(SendWr::unsignaled).collect();
        Ok(self.end.qp.post_sends(&list).map_err(|refused| refused.error)?)
    }

    /// Counts octets of the file that have moved.
    pub(super) fn moved(&self, octets: usize) {
        if let Some(meter) = &self.meter {
            meter.moved(octets as u64);
        }
    }

    /// Tells the peer that this end is alive, if nothing was sent for a while. Called when a piece
    /// of the file was processed. Fails if the peer has disconnected, or has lost its place.
    pub(super) fn say_busy(&mut self, busy: &impl Serialize) -> Result<(), Failure> {
        self.moved(CHUNK);
        self.say_alive(busy)
    }

    /// Like [`Talk::say_busy`], for work that counts for nothing in the client's rate.
    pub(super) fn say_alive(&mut self, busy: &impl Serialize) -> Result<(), Failure> {
        crate::signals::check()?;
        self.check_place()?;
        if self.end.qp.state() != QpState::ReadyToSend {
            return Err(ended(&self.end.rnic, &self.end.qp, Status::Flushed));
        }
        if self.said_busy.elapsed() < BUSY_EVERY {
            return Ok(());
        }
        self.said_busy = Instant::now();
        self.say(busy)
    }

    /// Returns the peer's next message.
    pub(super) fn hear<T: Message>(&mut self, patience: Duration) -> Result<T, Failure> {
        match self.next(patience)? {
            Next::Message(message) => Ok(message),
            Next::Read(_) => Err(out_of_step()),
        }
    }

    /// Returns the next success, unless the peer loses its place meanwhile.
    fn completion(&self, patience: Duration) -> Result<Completion, Failure> {
        let deadline = Instant::now() + patience;
        loop {
            // Checked first: otherwise a client that sends without a pause would never be told.
            self.check_place()?;
            let left = deadline.saturating_duration_since(Instant::now());
            match self.end.try_next(left.min(CHECK_INTERVAL))? {
                Some(completion) => return Ok(completion),
                None if left.is_zero() => return Err(silent(patience)),
                None => {}
            }
        }
    }

    fn check_place(&self) -> Result<(), Failure> {
        if self.meter.as_ref().is_some_and(|meter| meter.is_over()) {
            return Err(Failure::peer(format!(
                "less than {SLOW} octets a second, and others wait for a place"
            ))
            .remedy("repeat the command: it goes on where it ended"));
        }
        Ok(())
    }

    pub(super) fn next<T: Message>(&mut self, patience: Duration) -> Result<Next<T>, Failure> {
        let (begun, most) = (Instant::now(), T::BUSY.map(|times| patience.saturating_mul(times)));
        loop {
            let completion = self.completion(patience)?;
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
