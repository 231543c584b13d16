//! One connection to an NBD server: its handshake, and its requests under way.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rddp_block::export::{Command, DiskError};
use rddp_block::nbd::client::opening::{Failed, Next, Open, Opening, Said};
use rddp_block::nbd::client::replies::{Answered, News, Replies, Wanted, Zeroes};
use rddp_block::nbd::request::Request;
use rddp_command::addr;
use rddp_command::failure::Failure;
use rddp_rnic::{
    Access, Completed, Completion, MemoryRegion, QpConfig, QueuePair, RecvWr, SendWr, Status, Transport,
};

use crate::block::PORT;
use crate::block::buffers::Buffer;
use crate::block::desk::{Desk, HANDSHAKE, connect_options};
use crate::block::disk::{Answer, Done, Job};
use crate::block::silence::Silence;
use crate::block::uri::Uri;

/// Requests of a connection that are under way.
pub(super) const MOST: usize = 128;

/// Octets of the longest reply to an option, and more than those of extents at a time.
const INBOX: usize = 16 * 1024;

/// Octets that a request may carry itself.
const INLINE: usize = 512;

/// The number of the requests of a handshake, and of the last one: a job's are smaller.
const NO_JOB: u64 = u64::MAX;

/// A connection without a handshake.
pub(super) struct Line {
    qp: QueuePair,
    inbox: MemoryRegion,
}

/// A connection behind its handshake.
pub(super) struct Connection {
    line: Line,
    /// The export, for messages.
    name: String,
    replies: Replies,
    under_way: HashMap<u64, UnderWay>,
    /// Requests that are to be sent by the next call.
    out: Vec<SendWr>,
    done: Vec<Done>,
    silence: Silence,
}

/// A request that has not been answered, or whose octets TCP has not taken.
struct UnderWay {
    job: Job,
    is_sent: bool,
    answer: Option<Result<Answer, DiskError>>,
}

impl Line {
    /// Connects to a server.
    pub(super) fn connect(desk: &Desk, uri: &Uri, patience: Duration) -> Result<Self, Failure> {
        let addrs = addr::resolve(&uri.host, PORT)?;
        desk.make_room(2 * MOST)?;
        addr::first(&addrs, |addr| Self::connect_to(desk, addr, patience))
    }

    fn connect_to(desk: &Desk, addr: SocketAddr, patience: Duration) -> Result<Self, Failure> {
        let mut config = QpConfig::new(&desk.cq);
        (config.transport, config.max_send, config.max_recv) = (Transport::Tcp, MOST + 2, 2);
        let qp = desk.pd.create_qp(&config)?;
        let connected = qp.connect(addr, &connect_options(patience));
        connected.map_err(|error| Failure::connecting(addr, &error, "an NBD server"))?;
        Ok(Line { qp, inbox: desk.pd.allocate(INBOX, Access::LOCAL_WRITE)? })
    }

    /// Has a handshake to its end.
    pub(super) fn shake_hands(
        &self,
        desk: &Desk,
        mut opening: Opening,
        uri: &Uri,
        patience: Duration,
    ) -> Result<Next, Failure> {
        let patience = patience.min(HANDSHAKE);
        let deadline = Instant::now() + patience;
        loop {
            let wanted = opening.wanted();
            self.receive(self.inbox.sge(..wanted))?;
            let received = desk.received(self.qp.num(), deadline, patience);
            received.map_err(|failure| failure.of(&format!("{uri}: handshake")))?;
            let mut out = Vec::new();
            let next = opening.take(&self.inbox.read(0, wanted)?, &mut out);
            for piece in out.chunks(INLINE) {
                self.qp.post_send(&SendWr::send_inline(NO_JOB, piece))?;
            }
            match next.map_err(|failed| failure(&failed, uri))? {
                Next::More => {}
                next => return Ok(next),
            }
        }
    }

    fn receive(&self, sge: rddp_rnic::Sge) -> Result<(), Failure> {
        Ok(self.qp.post_recv(RecvWr::one(0, sge).until_full())?)
    }
}

impl Connection {
    /// Connects, and opens an export.
    pub(super) fn open(desk: &Desk, uri: &Uri, patience: Duration) -> Result<(Self, Open), Failure> {
        let line = Line::connect(desk, uri, patience)?;
        let Next::Transmit(open) = line.shake_hands(desk, Opening::of(&uri.export), uri, patience)? else {
            return Err(Failure::peer(format!("{uri}: no export")));
        };
        let connection = Connection {
            line,
            name: uri.to_string(),
            replies: Replies::new(&open),
            under_way: HashMap::new(),
            out: Vec::new(),
            done: Vec::new(),
            silence: Silence::new(patience),
        };
        connection.receive()?;
        Ok((connection, open))
    }

    /// Returns how many requests are under way.
    pub(super) fn load(&self) -> usize {
        self.under_way.len()
    }

    /// Returns the text of the server's last error.
    pub(super) fn said(&self) -> &Said {
        self.replies.said()
    }

    /// Prepares a request.
    pub(super) fn begin(&mut self, job: Job) -> Result<(), Failure> {
        let header = self.replies.ask(job.id, &job.command);
        let wr = match (job.command, &job.buffer) {
            (Command::Write { len, .. }, Some(buffer)) => {
                SendWr::send(job.id, buffer.with_header(&header, len)?)
            }
            _ => SendWr::send_inline(job.id, &header),
        };
        self.out.push(wr);
        self.under_way.insert(job.id, UnderWay { job, is_sent: false, answer: None });
        Ok(())
    }

    /// Acts on a completion, if it is of this connection.
    pub(super) fn take(&mut self, completion: &Completion) -> Result<(), Failure> {
        if completion.qp != self.line.qp.num() {
            return Ok(());
        }
        match (completion.completed, completion.status) {
            (Completed::Receive, Status::Success) => self.received(),
            (_, Status::Success) => {
                if let Some(work) = self.under_way.get_mut(&completion.wr_id) {
                    work.is_sent = true;
                }
                self.finish(completion.wr_id);
                Ok(())
            }
            _ => Err(self.gone()),
        }
    }

    fn gone(&self) -> Failure {
        let under_way = match self.under_way.len() {
            0 => String::new(),
            count => format!(", with {count} requests under way on one connection"),
        };
        Failure::peer(format!("{}: the server has gone{under_way}", self.name))
            .remedy("is it still running? Its log may say more")
    }

    /// Takes what was received, and posts the next receive.
    fn received(&mut self) -> Result<(), Failure> {
        self.silence.heard();
        let news = match self.replies.wanted() {
            Wanted::Octets(count) => self.replies.take(&self.line.inbox.read(0, count)?),
            Wanted::Payload { .. } => self.replies.placed(),
        };
        let News { zeroes, done } = news.map_err(|nonsense| self.broken(&nonsense))?;
        if let Some(Zeroes { cookie, at, len }) = zeroes
            && let Some(buffer) = self.buffer(cookie)
        {
            buffer.write(at as usize, &vec![0; len as usize])?;
        }
        if let Some(Answered { cookie, result }) = done
            && let Some(work) = self.under_way.get_mut(&cookie)
        {
            let is_status = matches!(work.job.command, Command::Status { .. });
            let answer =
                result.map(|extents| if is_status { Answer::Extents(extents) } else { Answer::Done });
            work.answer = Some(answer);
            self.finish(cookie);
        }
        self.receive()
    }

    fn broken(&self, nonsense: &dyn std::error::Error) -> Failure {
        Failure::peer(format!("{}: the server breaks the protocol: {nonsense}", self.name))
            .remedy("another server may do; RDDP_CAPTURE=FILE shows what this one says")
    }

    fn buffer(&self, cookie: u64) -> Option<&Buffer> {
        self.under_way.get(&cookie)?.job.buffer.as_ref()
    }

    fn receive(&self) -> Result<(), Failure> {
        match self.replies.wanted() {
            Wanted::Octets(count) => self.line.receive(self.line.inbox.sge(..count)),
            Wanted::Payload { cookie, at, len } => {
                let payload = Buffer::payload(at + len);
                let from = payload.end - len as usize;
                let buffer = self.buffer(cookie);
                // A read without a buffer is not begun.
                let buffer = buffer.ok_or_else(|| Failure::failed("a read without a buffer"))?;
                self.line.receive(buffer.region().sge(from..payload.end))
            }
        }
    }

    /// Gives a request back once it is answered and its octets are TCP's.
    fn finish(&mut self, cookie: u64) {
        let is_over = |work: &UnderWay| work.is_sent && work.answer.is_some();
        if !self.under_way.get(&cookie).is_some_and(is_over) {
            return;
        }
        let Some(UnderWay { job, answer: Some(result), .. }) = self.under_way.remove(&cookie) else { return };
        let Job { owner, id, buffer, .. } = job;
        self.done.push(Done { owner, id, buffer, result });
    }

    /// Sends what was begun, and adds what is done.
    pub(super) fn turn(&mut self, done: &mut Vec<Done>) -> Result<(), Failure> {
        done.append(&mut self.done);
        let owes = self.under_way.len() > self.out.len();
        self.silence.check(&self.name, owes, || {
            let mut requests: Vec<&Job> = self.under_way.values().map(|work| &work.job).collect();
            requests.sort_by_key(|job| job.id);
            requests.into_iter().map(|job| job.command).collect()
        })?;
        if self.out.is_empty() {
            return Ok(());
        }
        self.line.qp.post_sends(&std::mem::take(&mut self.out)).map_err(|_| self.gone())
    }
}

impl Drop for Connection {
    /// Says goodbye, as NBD has it.
    fn drop(&mut self) {
        // A server that has gone needs none.
        let _ = self.line.qp.post_send(&SendWr::send_inline(NO_JOB, &Request::disconnect().emit()));
        self.line.qp.disconnect();
    }
}

/// Returns the failure of a handshake.
fn failure(failed: &Failed, uri: &Uri) -> Failure {
    let cause = format!("{uri}: {failed}");
    match failed {
        Failed::Unknown(_) => {
            Failure::refused(cause).remedy(format!("rddp block ls {}", uri.with_export("")))
        }
        Failed::NoList(_) => Failure::refused(cause).remedy("name an export: nbd://HOST[:PORT]/EXPORT"),
        Failed::WantsTls(_) => Failure::refused(cause).remedy("stunnel in front of it"),
        Failed::Refused(_) => Failure::refused(cause).remedy("its log may say more"),
        Failed::NoServer | Failed::Oldstyle | Failed::Nonsense(_) => {
            Failure::peer(cause).remedy("is that the port of an NBD server?")
        }
    }
}
