//! The server of pings: one thread for each client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rddp_command::addr;
use rddp_command::endpoint::{Endpoint, accepted};
use rddp_command::failure::{Failure, FailureKind, readable};
use rddp_command::listeners::{At, Listeners};
use rddp_command::out;
use rddp_command::places::{Place, Places};
use rddp_command::seldom::Seldom;
use rddp_command::signals;
use rddp_command::threads::{self, NO_THREAD};
use rddp_rnic::{Access, Completed, ConnectOptions, ConnectRequest, MemoryRegion, RecvWr, Rnic, SendWr};
use serde::Serialize;

use super::advert::Advert;
use super::{MAX_SIZE, PingArgs};

/// Clients at a time, half of them from one network.
const MAX_CLIENTS: usize = 256;

/// Time after which a client that sends nothing is disconnected.
const IDLE: Duration = Duration::from_secs(300);

/// Time within which a Read or Write of this end must be answered.
const PATIENCE: Duration = Duration::from_secs(30);

/// Receives that are kept posted. rping has at most one message under way.
const RECEIVES: u64 = 4;

/// Octets of the text that the log shows.
const SHOWN: usize = 64;

const SEND: u64 = 100;
const READ: u64 = 101;
const WRITE: u64 = 102;

#[derive(Serialize)]
struct Listening {
    listening: SocketAddr,
    devices: Vec<At>,
}

pub(super) fn run(args: &PingArgs) -> Result<(), Failure> {
    let mut listeners =
        Listeners::open(&args.device.all()?, args.bind, args.port, &ConnectOptions::default())?;
    if args.json {
        out::json_event(&Listening { listening: listeners.addr(), devices: listeners.places() });
    } else {
        out::event(format_args!("listening on {} for rddp ping and rping", listeners.shown()));
    }
    let places = Arc::new(Places::new(MAX_CLIENTS, None));
    let (mut threads, mut warnings) = (Vec::new(), Seldom::default());
    let mut taken = 0;
    while (args.count == 0 || taken < args.count) && !signals::stopped() {
        let Some((rnic, request)) = listeners.accept(signals::CHECK_INTERVAL)? else { continue };
        // The server does not wait for a rejection to arrive.
        let Some(place) = places.take(request.peer_addr().map(|peer| peer.ip())) else {
            let _ = request.reject(b"too many clients");
            continue;
        };
        let json = args.json;
        threads.retain(|thread: &thread::JoinHandle<()>| !thread.is_finished());
        let work = move |(request, _place): (ConnectRequest, Place)| serve_one(&rnic, request, json);
        match threads::start((request, place), work) {
            Ok(thread) => threads.push(thread),
            Err(((request, _place), error)) => {
                warnings.warn(format_args!("starting a thread: {error}; others are served"));
                let _ = request.reject(NO_THREAD.as_bytes());
                continue;
            }
        }
        taken += 1;
    }
    let ended = listeners.end();
    // Clients that are being served stop by themselves.
    threads.into_iter().for_each(|thread| drop(thread.join()));
    ended
}

fn serve_one(rnic: &Rnic, request: ConnectRequest, json: bool) {
    let name =
        request.peer_addr().map_or_else(|| "a client".to_owned(), |peer| addr::plain(peer).to_string());
    let mut rounds = 0;
    let served = Session::accept(rnic, request).and_then(|(session, agreed)| {
        if !json {
            out::event(format_args!("{name}: connected, {agreed}"));
        }
        session.rounds(&mut rounds)
    });
    match served {
        Err(failure) if failure.kind() != FailureKind::Interrupted => {
            let after = format!("after {rounds} rounds: {failure}");
            out::client_failed(&name, &Failure::new(failure.kind(), after));
        }
        _ if !json => out::event(format_args!("{name}: {rounds} rounds")),
        _ => {}
    }
}

struct Session {
    end: Endpoint,
    buffer: MemoryRegion,
    inbox: MemoryRegion,
}

impl Session {
    fn accept(rnic: &Rnic, request: ConnectRequest) -> Result<(Self, String), Failure> {
        let end = Endpoint::new(rnic)?;
        let buffer = end.pd.allocate(MAX_SIZE + 1, Access::LOCAL_WRITE)?;
        let inbox = end.pd.allocate(Advert::LEN * RECEIVES as usize, Access::LOCAL_WRITE)?;
        let session = Session { end, buffer, inbox };
        (0..RECEIVES).try_for_each(|slot| session.post_receive(slot))?;
        let negotiated = session.end.accept(request, &ConnectOptions::default())?;
        let agreed = accepted(rnic, negotiated.as_ref());
        Ok((session, agreed))
    }

    fn post_receive(&self, slot: u64) -> Result<(), Failure> {
        let at = slot as usize * Advert::LEN;
        Ok(self.end.qp.post_recv(RecvWr::one(slot, self.inbox.sge(at..at + Advert::LEN)))?)
    }

    fn rounds(&self, rounds: &mut u64) -> Result<(), Failure> {
        while let Some(source) = self.advert()? {
            let len = self.fetch(&source)?;
            self.answer()?;
            let Some(sink) = self.advert()? else {
                return Err(Failure::peer("the client left in the middle of a round"));
            };
            self.put_back(&sink, len)?;
            self.answer()?;
            *rounds += 1;
        }
        Ok(())
    }

    /// Returns the client's next message; `None` when the client has disconnected.
    fn advert(&self) -> Result<Option<Advert>, Failure> {
        let received = match self.end.try_next(IDLE) {
            Err(failure) if failure.kind() == FailureKind::Interrupted => {
                self.end.close();
                return Err(failure);
            }
            Err(_) if self.end.is_closed_gracefully() => return Ok(None),
            other => other?,
        };
        let received =
            received.ok_or_else(|| Failure::peer("the client has said nothing for a long time"))?;
        let at = received.wr_id as usize * Advert::LEN;
        let octets = self.inbox.read(at, (received.byte_len as usize).min(Advert::LEN))?;
        self.post_receive(received.wr_id)?;
        let advert = Advert::parse(&octets)
            .ok_or_else(|| Failure::peer(format!("a message of {} octets, not rping's 16", octets.len())))?;
        if advert.len as usize > MAX_SIZE {
            return Err(Failure::peer(format!("the client wants {} octets, at most {MAX_SIZE}", advert.len)));
        }
        Ok(Some(advert))
    }

    fn fetch(&self, source: &Advert) -> Result<usize, Failure> {
        let len = source.len as usize;
        self.end.post(&SendWr::read(READ, self.buffer.sge(0..len), source.remote))?;
        self.done(Completed::Read)?;
        let begin = self.buffer.read(0, len.min(SHOWN))?;
        tracing::info!(len, text = readable(&begin).unwrap_or("(no text)"), "server ping data");
        Ok(len)
    }

    fn put_back(&self, sink: &Advert, len: usize) -> Result<(), Failure> {
        let len = len.min(sink.len as usize);
        self.end.post(&SendWr::write(WRITE, self.buffer.sge(0..len), sink.remote))?;
        self.done(Completed::Write)
    }

    /// An answer, of which rping checks only the length.
    fn answer(&self) -> Result<(), Failure> {
        self.end.post(&SendWr::send_inline(SEND, &[0; Advert::LEN]).unsignaled())
    }

    /// Waits for the completion of a request of this end. A client that sends a message meanwhile
    /// breaks the protocol.
    fn done(&self, what: Completed) -> Result<(), Failure> {
        let completion = self.end.next(PATIENCE)?;
        if completion.completed == what {
            return Ok(());
        }
        Err(Failure::peer("the client speaks while it is being served: that is not rping's protocol"))
    }
}
