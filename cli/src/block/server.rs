//! The thread that serves all clients of all disks, of both protocols, by one completion queue.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use rddp_block::nvme::target::Queue;
use rddp_command::addr;
use rddp_command::failure::{Failure, printable};
use rddp_command::places::Place;
use rddp_rnic::{Access, CompletionQueue, ConnectRequest, ProtectionDomain, QpConfig, QpNum, Transport};

use super::bell::Bell;
use super::client::{COMPLETIONS, Client, INBOX, RECEIVES, SENDS};
use super::disk::{Disk, Done};
use super::nvme::queue::{Connection, inbox_len, sizes};
use super::session::{Means, Session, Wrong};
use super::troubles::Kind;

/// Completions that are taken before replies go out.
const TURN: usize = 256;

/// Time after which the server looks at clients that say nothing.
const LOOK: Duration = Duration::from_millis(500);

/// Time for which a client may take no replies, and give nothing of a payload, while others wait
/// for memory.
const STALLED: Duration = Duration::from_secs(5);

/// A client that has connected.
pub(super) struct Newcomer {
    pub(super) request: ConnectRequest,
    pub(super) place: Place,
    pub(super) protocol: Protocol,
}

/// The protocol of a client, by the port that it has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Protocol {
    /// NBD, by TCP.
    Nbd,
    /// NVMe over Fabrics, by RDMA.
    Nvme,
}

/// A client that takes no replies, or does not give what is read of it, while others lack memory.
#[derive(Debug, thiserror::Error)]
#[error("it takes no replies, or gives no payload, and others wait for memory")]
struct Stalled;

type Clients = HashMap<QpNum, (Box<dyn Session>, Place)>;

/// The state of the thread.
pub(super) struct Server {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    bell: Bell,
    means: Means,
    done: Receiver<Vec<Done>>,
    newcomers: Receiver<Newcomer>,
    clients: Clients,
    looked: Instant,
}

impl Server {
    pub(super) fn new(
        pd: ProtectionDomain,
        (cq, bell): (CompletionQueue, Bell),
        means: Means,
        done: Receiver<Vec<Done>>,
        newcomers: Receiver<Newcomer>,
    ) -> Self {
        let (clients, looked) = (HashMap::new(), Instant::now());
        Server { pd, cq, bell, means, done, newcomers, clients, looked }
    }

    /// Serves until nobody can connect any more.
    pub(super) fn run(mut self) -> Result<(), Failure> {
        loop {
            self.bell.wait(LOOK).map_err(|error| Failure::failed(format!("waiting: {error}")))?;
            loop {
                match self.newcomers.try_recv() {
                    Ok(newcomer) => self.welcome(newcomer),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Ok(()),
                }
            }
            self.turn();
            if self.looked.elapsed() >= LOOK {
                self.look();
            }
        }
    }

    /// Takes a client in.
    fn welcome(&mut self, Newcomer { request, place, protocol }: Newcomer) {
        let peer = addr::of_client(&request);
        let greeted = match protocol {
            Protocol::Nbd => self.greet_nbd(request, peer.clone()),
            Protocol::Nvme => self.greet_nvme(request, peer.clone()),
        };
        match greeted {
            Ok((num, client)) => {
                tracing::info!(%peer, ?protocol, "a client connects");
                self.clients.insert(num, (client, place));
            }
            Err(cause) => {
                let text = format_args!("{peer}: turned away: {cause}");
                self.means.troubles.warn(Kind::TurnedAway, text);
            }
        }
    }

    fn greet_nbd(&mut self, request: ConnectRequest, peer: String) -> Result<Greeted, Wrong> {
        self.make_room(COMPLETIONS)?;
        let mut config = QpConfig::new(&self.cq);
        (config.transport, config.max_send, config.max_recv) = (Transport::Tcp, SENDS, RECEIVES);
        let qp = self.pd.create_qp(&config)?;
        request.accept(&qp, b"")?;
        let num = qp.num();
        let client = Client::greet(qp, peer, self.pd.allocate(INBOX, Access::LOCAL_WRITE)?)?;
        Ok((num, Box::new(client)))
    }

    fn greet_nvme(&mut self, request: ConnectRequest, peer: String) -> Result<Greeted, Wrong> {
        let queue = match Queue::new(request.private_data()) {
            Ok(queue) => queue,
            Err(refusal) => {
                request.reject(&refusal.emit())?;
                return Err(refusal.into());
            }
        };
        let mut config = QpConfig::new(&self.cq);
        self.make_room(sizes(&mut config, &queue))?;
        let qp = self.pd.create_qp(&config)?;
        let (num, reply) = (qp.num(), queue.reply().emit());
        let inbox = self.pd.allocate(inbox_len(&queue), Access::LOCAL_WRITE)?;
        let mut connection = Connection::new(qp, peer, queue, inbox)?;
        request.accept(connection.qp(), &reply)?;
        connection.reached();
        Ok((num, Box::new(connection)))
    }

    /// Has the queue hold the completions of one more client.
    fn make_room(&self, completions: usize) -> Result<(), Wrong> {
        let of_others = self.clients.values().map(|(client, _)| client.completions());
        let needed = of_others.sum::<usize>() + completions;
        if needed > self.cq.capacity() {
            self.cq.resize(needed)?;
        }
        Ok(())
    }

    /// Acts on what has come, and sends the replies that there are then.
    fn turn(&mut self) {
        let mut touched = Vec::new();
        for completion in self.cq.completions().take(TURN) {
            let Some((client, _)) = self.clients.get_mut(&completion.qp) else { continue };
            touched.push(completion.qp);
            if let Err(cause) = client.take(&completion, &mut self.means) {
                drop_client(&mut self.clients, &mut self.means, completion.qp, &*cause);
            }
        }
        for done in self.done.try_iter().flatten() {
            let num = QpNum(done.owner);
            touched.push(num);
            let Some((client, _)) = self.clients.get_mut(&num) else {
                done.buffer.into_iter().for_each(|buffer| self.means.buffers.give_back(buffer));
                continue;
            };
            if let Err(cause) = client.done(done, &mut self.means) {
                drop_client(&mut self.clients, &mut self.means, num, &*cause);
            }
        }
        self.settle(touched);
        (0..self.means.disks.len()).for_each(|disk| self.serve_waiting(disk));
        let waiting: Vec<QpNum> =
            self.clients.iter().filter(|(_, (client, _))| client.waits()).map(|(num, _)| *num).collect();
        self.settle(waiting);
        self.means.disks.iter_mut().for_each(Disk::hand_over);
    }

    /// Has the clients of a disk that wait for memory go on, one after another, as far as there is
    /// some.
    fn serve_waiting(&mut self, disk: usize) {
        let mut last = None;
        while let Some(first) = self.means.buffers.first(disk)
            && last != Some(first)
        {
            self.settle(vec![QpNum(first)]);
            last = Some(first);
        }
    }

    /// Has clients go on where there is room now, and sends their replies.
    fn settle(&mut self, mut touched: Vec<QpNum>) {
        touched.sort_unstable();
        touched.dedup();
        for num in touched {
            let Some((client, _)) = self.clients.get_mut(&num) else { continue };
            let means = &mut self.means;
            let resumed = client.resume(means).and_then(|()| client.flush(means));
            match resumed.and_then(|()| client.is_over(Instant::now(), means)) {
                Ok(false) => {}
                Ok(true) => self.remove(num),
                Err(cause) => {
                    drop_client(&mut self.clients, &mut self.means, num, &*cause);
                }
            }
        }
    }

    /// Looks at all clients. One that has stalled goes, if others wait for memory, and so do hosts
    /// of which nothing is heard.
    fn look(&mut self) {
        self.looked = Instant::now();
        self.means.buffers.trim();
        let stalled =
            |client: &dyn Session| client.is_stalled_for(self.looked).filter(|time| *time >= STALLED);
        let clients = || self.clients.iter().map(|(num, (client, _))| (&**client, *num));
        let slowest = clients().filter_map(|(client, num)| Some((stalled(client)?, num))).max();
        if let Some((_, num)) = slowest
            && clients().any(|(client, other)| other != num && client.waits())
        {
            drop_client(&mut self.clients, &mut self.means, num, &Stalled);
        }
        let now = self.means.now();
        for host in self.means.target.end_silent(now) {
            let host = printable(&host);
            let text = format_args!("{host}: nothing was heard for its keep-alive time");
            self.means.troubles.warn(Kind::Silent, text);
        }
        self.settle(self.clients.keys().copied().collect());
    }

    fn remove(&mut self, num: QpNum) {
        if let Some((client, _)) = self.clients.remove(&num) {
            tracing::info!(peer = client.peer(), "a client has gone");
            self.means.end(num, client);
        }
    }
}

/// A client, and the number of its queue pair.
type Greeted = (QpNum, Box<dyn Session>);

/// Ends a client that did something wrong, and says so.
fn drop_client(
    clients: &mut Clients,
    means: &mut Means,
    num: QpNum,
    cause: &(dyn std::error::Error + 'static),
) {
    if let Some((client, _)) = clients.remove(&num) {
        let kind = if cause.is::<Stalled>() { Kind::Stalled } else { Kind::of(cause) };
        let text = format_args!("{}: {}", client.peer(), printable(&cause.to_string()));
        means.troubles.warn(kind, text);
        means.end(num, client);
    }
}
