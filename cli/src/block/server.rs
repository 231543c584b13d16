//! The thread that serves all clients of all disks, by one completion queue.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use rddp_command::addr;
use rddp_command::failure::{Failure, printable};
use rddp_command::places::Place;
use rddp_command::seldom::Seldom;
use rddp_rnic::{
    Access, CompletionQueue, ConnectRequest, ProtectionDomain, QpConfig, QpNum, Rnic, Transport,
};

use super::bell::Bell;
use super::buffers::Buffers;
use super::client::{COMPLETIONS, Client, INBOX, Wrong};
use super::disk::{Disk, Done};

/// Completions that are taken before replies go out.
const TURN: usize = 256;

/// Time after which the server looks at clients that say nothing.
const LOOK: Duration = Duration::from_millis(500);

/// Time for which a client may take no replies while others wait for memory.
const STALLED: Duration = Duration::from_secs(5);

/// A client that has connected.
pub(super) struct Newcomer {
    pub(super) request: ConnectRequest,
    pub(super) place: Place,
}

/// The state of the thread.
pub(super) struct Server {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    bell: Bell,
    disks: Vec<Disk>,
    done: Receiver<Vec<Done>>,
    newcomers: Receiver<Newcomer>,
    buffers: Buffers,
    clients: HashMap<QpNum, (Client, Place)>,
    looked: Instant,
    troubles: Seldom,
}

impl Server {
    pub(super) fn new(
        rnic: &Rnic,
        (cq, bell): (CompletionQueue, Bell),
        disks: Vec<Disk>,
        done: Receiver<Vec<Done>>,
        newcomers: Receiver<Newcomer>,
        memory: usize,
    ) -> Self {
        let pd = rnic.alloc_pd();
        let buffers = Buffers::new(pd.clone(), memory);
        let clients = HashMap::new();
        Server {
            pd,
            cq,
            bell,
            disks,
            done,
            newcomers,
            buffers,
            clients,
            looked: Instant::now(),
            troubles: Seldom::default(),
        }
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
    fn welcome(&mut self, Newcomer { request, place }: Newcomer) {
        let peer = addr::of_client(&request);
        match self.greet(request, peer.clone()) {
            Ok(client) => {
                self.clients.insert(client.qp().num(), (client, place));
            }
            Err(cause) => self.troubles.warn(format_args!("{peer}: turned away: {cause}")),
        }
    }

    fn greet(&mut self, request: ConnectRequest, peer: String) -> Result<Client, Box<dyn std::error::Error>> {
        let needed = (self.clients.len() + 1) * COMPLETIONS;
        if needed > self.cq.capacity() {
            self.cq.resize(needed)?;
        }
        let mut config = QpConfig::new(&self.cq);
        (config.transport, config.max_send, config.max_recv) = (Transport::Tcp, COMPLETIONS, 4);
        let qp = self.pd.create_qp(&config)?;
        request.accept(&qp, b"")?;
        let mut client = Client::greet(qp, peer, self.pd.allocate(INBOX, Access::LOCAL_WRITE)?)?;
        client.flush()?;
        Ok(client)
    }

    /// Acts on what has come, and sends the replies that there are then.
    fn turn(&mut self) {
        let mut touched = Vec::new();
        for completion in self.cq.completions().take(TURN) {
            let Some((client, _)) = self.clients.get_mut(&completion.qp) else { continue };
            touched.push(completion.qp);
            if let Err(cause) = client.take(&completion, &mut self.disks, &mut self.buffers) {
                drop_client(&mut self.clients, &mut self.buffers, &mut self.troubles, completion.qp, &cause);
            }
        }
        for done in self.done.try_iter().flatten() {
            let client = QpNum(done.owner);
            touched.push(client);
            match self.clients.get_mut(&client) {
                Some((client, _)) => client.answer(done, &mut self.buffers),
                None => done.buffer.into_iter().for_each(|buffer| self.buffers.give_back(buffer)),
            }
        }
        self.settle(touched);
        let waiting: Vec<QpNum> =
            self.clients.iter().filter(|(_, (client, _))| client.waits()).map(|(num, _)| *num).collect();
        self.settle(waiting);
        self.disks.iter_mut().for_each(Disk::hand_over);
    }

    /// Has clients go on where there is room now, and sends their replies.
    fn settle(&mut self, mut touched: Vec<QpNum>) {
        touched.sort_unstable();
        touched.dedup();
        for num in touched {
            let Some((client, _)) = self.clients.get_mut(&num) else { continue };
            let resumed = client.resume(&mut self.disks, &mut self.buffers).and_then(|()| client.flush());
            match resumed.and_then(|()| client.is_over(Instant::now())) {
                Ok(false) => {}
                Ok(true) => self.remove(num),
                Err(cause) => {
                    drop_client(&mut self.clients, &mut self.buffers, &mut self.troubles, num, &cause);
                }
            }
        }
    }

    /// Looks at all clients. One that takes no replies goes, if others wait for memory.
    fn look(&mut self) {
        self.looked = Instant::now();
        let stalled = |client: &Client| client.is_stalled_for(self.looked).filter(|time| *time >= STALLED);
        let clients = || self.clients.iter().map(|(num, (client, _))| (client, *num));
        let slowest = clients().filter_map(|(client, num)| Some((stalled(client)?, num))).max();
        if let Some((_, num)) = slowest
            && clients().any(|(client, other)| other != num && client.waits())
        {
            drop_client(&mut self.clients, &mut self.buffers, &mut self.troubles, num, &Wrong::Stalled);
        }
        self.settle(self.clients.keys().copied().collect());
    }

    fn remove(&mut self, num: QpNum) {
        if let Some((client, _)) = self.clients.remove(&num) {
            client.end(&mut self.buffers);
        }
    }
}

/// Ends a client that did something wrong, and says so.
fn drop_client(
    clients: &mut HashMap<QpNum, (Client, Place)>,
    buffers: &mut Buffers,
    troubles: &mut Seldom,
    num: QpNum,
    cause: &Wrong,
) {
    if let Some((client, _)) = clients.remove(&num) {
        troubles.warn(format_args!("{}: {}", client.peer(), printable(&cause.to_string())));
        client.end(buffers);
    }
}
