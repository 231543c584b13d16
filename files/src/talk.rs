//! A connection with messages in both directions.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rddp_command::endpoint::{CLOSE, Endpoint, ended, looks, silent};
use rddp_command::failure::{Failure, FailureKind};
use rddp_command::places::{Meter, SLOW};
use rddp_command::signals::CHECK_INTERVAL;
use rddp_rnic::{Access, Completed, Completion, MemoryRegion, QpState, RecvWr, Rnic, SendWr, Status};
use serde::Serialize;

use super::checksum::CHUNK;
use super::part::Part;
use super::protocol::{Message, SHORT, ToServer, out_of_step, parse};
use super::serve::Startup;
use super::tasks::{Alarm, Hub};
use super::token::{Nonce, Token};

/// Octets of the longest message: it has a path, of which each octet may be written as seven
/// octets, as it is necessary in a string within a string of JSON.
pub(super) const LONGEST: usize = 8 * 1024;

/// Receives that are posted. The protocol has fewer messages under way.
const RECEIVES: usize = 32;

/// Interval at which a busy end sends `Busy`.
const BUSY_EVERY: Duration = Duration::from_secs(1);

/// Time limit for a server to let a client go that leaves before the end.
const LEAVE: Duration = Duration::from_secs(1);

const RECEIVE: u64 = 1 << 32;
const SEND: u64 = 2 << 32;

pub(super) struct Talk {
    pub(super) end: Endpoint,
    pub(super) hub: Rc<Hub>,
    inbox: MemoryRegion,
    /// Octets of a receive.
    longest: usize,
    /// Octets that are sent inline.
    max_inline: usize,
    /// Room for a long message, and for octets of a file behind it.
    outbox: MemoryRegion,
    /// The part of the outbox that has the last long message.
    half: usize,
    /// Octets of a file behind the last message received.
    behind: Vec<u8>,
    /// Memory that Reads of this end fill: the peer may be answering some when they are no longer
    /// wanted.
    sinks: Option<Arc<MemoryRegion>>,
    said_busy: Instant,
    /// At a server: what can end the client's stay.
    stay: Option<Stay>,
    /// At a client with a token: signs its requests, with the server's nonce.
    proof: Option<(Token, Nonce)>,
}

/// A client's stay at a server.
enum Stay {
    /// Without a place, before its request.
    Startup(Arc<Startup>),
    /// With a place, which it keeps while it moves enough.
    Place(Arc<Meter>),
}

/// An event on the connection.
pub(super) enum Next<T> {
    Message(T),
    /// A Read of this end, by its id, is complete.
    Read(u64),
}

impl Talk {
    /// A client's end, which is not connected. A message to it may have octets of a file behind it.
    pub(super) fn new(hub: &Rc<Hub>) -> Result<Self, Failure> {
        Self::of(hub, &hub.rnic, None, LONGEST + SHORT)
    }

    /// An end at a server that is not connected, for a client that has come by this device and has
    /// no place yet.
    pub(super) fn with(hub: &Rc<Hub>, rnic: &Rnic, startup: Arc<Startup>) -> Result<Self, Failure> {
        Self::of(hub, rnic, Some(Stay::Startup(startup)), LONGEST)
    }

    fn of(hub: &Rc<Hub>, rnic: &Rnic, stay: Option<Stay>, longest: usize) -> Result<Self, Failure> {
        let end = Endpoint::on(rnic, hub.cq.clone())?;
        let inbox = end.pd.allocate(RECEIVES * longest, Access::LOCAL_WRITE)?;
        let outbox = end.pd.allocate(2 * LONGEST + SHORT, Access::LOCAL_WRITE)?;
        hub.join(end.qp.num())?;
        let (hub, said_busy, behind) = (hub.clone(), Instant::now(), Vec::new());
        let (half, sinks, proof) = Default::default();
        let max_inline = rnic.capabilities().max_inline;
        let talk = Talk {
            end,
            hub,
            inbox,
            longest,
            max_inline,
            outbox,
            half,
            behind,
            sinks,
            said_busy,
            stay,
            proof,
        };
        (0..RECEIVES).try_for_each(|slot| talk.post_receive(slot))?;
        Ok(talk)
    }

    /// The client has a place from now on, which others may take.
    pub(super) fn seat(&mut self, meter: Arc<Meter>) {
        self.stay = Some(Stay::Place(meter));
    }

    fn post_receive(&self, slot: usize) -> Result<(), Failure> {
        let at = slot * self.longest;
        let sge = self.inbox.sge(at..at + self.longest);
        Ok(self.end.qp.post_recv(RecvWr::one(RECEIVE + slot as u64, sge))?)
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
        let text = text_of(message)?;
        let send = if text.len() <= self.max_inline {
            SendWr::send_inline(SEND, &text)
        } else {
            // The other end has taken the last long message but one before there is another: a
            // request and a refusal come once, and a `Want` answers offers that come behind the
            // files of the last but one.
            self.half = LONGEST - self.half;
            if text.len() > LONGEST {
                return Err(Failure::usage("the names and patterns are too long for one request")
                    .remedy("use fewer, or several commands"));
            }
            self.outbox.write(self.half, &text)?;
            SendWr::send(SEND, self.outbox.sge(self.half..self.half + text.len()))
        };
        let list: Vec<SendWr> = write.into_iter().chain([send]).map(SendWr::unsignaled).collect();
        Ok(self.end.qp.post_sends(&list).map_err(|refused| refused.error)?)
    }

    /// Returns the room for octets of a file behind a message.
    pub(super) fn room(&self) -> Part<'_> {
        Part { memory: &self.outbox, range: 2 * LONGEST..2 * LONGEST + SHORT }
    }

    /// Sends a message, and behind it the first `len` octets of the [room](Self::room).
    pub(super) fn say_with(&mut self, message: &impl Serialize, len: usize) -> Result<(), Failure> {
        let text = text_of(message)?;
        self.outbox.write(0, &text)?;
        let pieces = [self.outbox.sge(0..text.len()), self.outbox.sge(self.room().first(len).range)];
        self.end.post(&SendWr::send(SEND, pieces.to_vec()).unsignaled())
    }

    /// Returns the octets of a file that stood behind the last message.
    pub(super) fn behind(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.behind)
    }

    /// Counts octets of the file that have moved.
    pub(super) fn moved(&self, octets: usize) {
        if let Some(Stay::Place(meter)) = &self.stay {
            meter.moved(octets as u64);
        }
    }

    /// Tells the peer that this end is alive, if nothing was sent for a while, and gives others
    /// their turn. Called when a piece of the file was processed. Fails if the peer has
    /// disconnected, or has lost its place.
    pub(super) async fn say_busy(&mut self, busy: &impl Serialize) -> Result<(), Failure> {
        self.moved(CHUNK);
        self.say_alive(busy)?;
        self.hub.breathe().await;
        Ok(())
    }

    /// Like [`Talk::say_busy`], for work that counts for nothing in the client's rate, and without
    /// a turn for others.
    pub(super) fn say_alive(&mut self, busy: &impl Serialize) -> Result<(), Failure> {
        rddp_command::signals::check()?;
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
    pub(super) async fn hear<T: Message>(&mut self, patience: Duration) -> Result<T, Failure> {
        match self.next(patience).await? {
            Next::Message(message) => Ok(message),
            Next::Read(_) => Err(out_of_step()),
        }
    }

    /// Returns the next completion, unless the peer loses its place meanwhile.
    async fn completion(&self, patience: Duration) -> Result<Completion, Failure> {
        let (deadline, qp) = (Instant::now() + patience, self.end.qp.num());
        loop {
            rddp_command::signals::check()?;
            // Checked first: otherwise a client that sends without a pause would never be told.
            self.check_place()?;
            let now = Instant::now();
            match self.hub.completion(qp, deadline.min(now + CHECK_INTERVAL)).await {
                Some(completion) => return self.end.succeeded(completion),
                None if now >= deadline => return Err(self.silence(patience)),
                None => {}
            }
        }
    }

    /// The failure of a peer that says nothing. The client of a server is told of it.
    fn silence(&self, patience: Duration) -> Failure {
        if self.stay.is_none() {
            return silent(patience);
        }
        let seconds = patience.as_secs_f32();
        Failure::peer(format!("the client has said nothing for {seconds} s"))
            .remedy("repeat the command: it goes on where it ended")
    }

    /// Waits until there is a message, or a thread has rung the [`Alarm`] of this connection; or
    /// until then.
    pub(super) async fn stirred(&self, until: Instant) {
        self.hub.stirred(self.end.qp.num(), until).await;
    }

    /// Returns a bell by which a thread ends [`Talk::stirred`].
    pub(super) fn alarm(&self) -> Alarm {
        self.hub.alarm(self.end.qp.num())
    }

    fn check_place(&self) -> Result<(), Failure> {
        match &self.stay {
            Some(Stay::Startup(startup)) => startup.check(),
            Some(Stay::Place(meter)) if meter.is_over() => {
                Err(Failure::peer(format!("less than {SLOW} octets a second, and others wait for a place"))
                    .remedy("repeat the command: it goes on where it ended"))
            }
            _ => Ok(()),
        }
    }

    pub(super) async fn next<T: Message>(&mut self, patience: Duration) -> Result<Next<T>, Failure> {
        let (begun, most) = (Instant::now(), T::BUSY.map(|times| patience.saturating_mul(times)));
        loop {
            let completion = self.completion(patience).await?;
            match self.event(&completion)? {
                None if most.is_some_and(|most| begun.elapsed() > most) => {
                    let waited = begun.elapsed().as_secs();
                    return Err(Failure::peer(format!("the peer has been busy for {waited} s")));
                }
                None => {}
                Some(next) => return Ok(next),
            }
        }
    }

    /// Returns the peer's next message if it is there already.
    pub(super) fn heard<T: Message>(&mut self) -> Result<Option<T>, Failure> {
        while let Some(completion) = self.hub.take(self.end.qp.num()) {
            let completion = self.end.succeeded(completion)?;
            match self.event(&completion)? {
                None => {}
                Some(Next::Message(message)) => return Ok(Some(message)),
                Some(Next::Read(_)) => return Err(out_of_step()),
            }
        }
        Ok(None)
    }

    /// Returns what has completed; `None` for a message that only says that the peer is alive.
    fn event<T: Message>(&mut self, completion: &Completion) -> Result<Option<Next<T>>, Failure> {
        match completion.completed {
            Completed::Receive => {
                let slot = (completion.wr_id - RECEIVE) as usize;
                let octets = self.inbox.read(slot * self.longest, completion.byte_len as usize)?;
                self.post_receive(slot)?;
                let (message, behind) = parse::<T>(&octets)?;
                self.behind = behind.to_vec();
                match message.failure() {
                    Some(failure) => Err(failure),
                    None if message.is_busy() => Ok(None),
                    None => Ok(Some(Next::Message(message))),
                }
            }
            Completed::Read => Ok(Some(Next::Read(completion.wr_id))),
            _ => Err(out_of_step()),
        }
    }

    /// Returns memory for Reads, which is there for as long as the connection.
    pub(super) fn sinks(&mut self, octets: usize) -> Result<Arc<MemoryRegion>, Failure> {
        let sinks = Arc::new(self.end.pd.allocate(octets, Access::LOCAL_WRITE)?);
        self.sinks = Some(sinks.clone());
        Ok(sinks)
    }

    /// Tells the server that this client goes before the end, if `ended` says that it does so by
    /// itself, and has the server disconnect first.
    pub(super) async fn leaving<T>(&mut self, ended: Result<T, Failure>) -> Result<T, Failure> {
        use FailureKind::{Failed, Interrupted, NobodyReads};
        if let Err(failure) = &ended
            && matches!(failure.kind(), Failed | Interrupted | NobodyReads)
            && self.say(&ToServer::Leave).is_ok()
        {
            self.await_end(LEAVE).await;
        }
        ended
    }

    /// Waits until the peer has disconnected, for at most so long. Its messages are ignored; no
    /// more of them are received than receives are posted.
    pub(super) async fn await_end(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        while let Some(completion) = self.hub.completion(self.end.qp.num(), deadline).await
            && completion.ok().is_ok()
        {}
    }

    /// Closes gracefully and waits until that is done, or until the peer takes too long.
    pub(super) async fn close(&self) {
        self.end.qp.disconnect();
        let deadline = Instant::now() + CLOSE;
        for time in looks() {
            if self.end.qp.state() != QpState::Closing || Instant::now() >= deadline {
                break;
            }
            let until = Instant::now() + time;
            // What was posted ends meanwhile, and is no reason to look less often.
            while self.hub.completion(self.end.qp.num(), until).await.is_some() {}
        }
    }
}

fn text_of(message: &impl Serialize) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(message).map_err(|error| Failure::failed(error.to_string()))
}

impl Drop for Talk {
    fn drop(&mut self) {
        self.hub.leave(self.end.qp.num());
    }
}
