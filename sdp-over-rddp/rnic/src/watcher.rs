//! Streams of programs that wait for many things at once: calls that never sleep, and somebody who
//! is told at once what could be done.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rddp_sdp::socket::{OperationId, Options, Ready, Socket};

use crate::stream::{Shared, outcome};
use crate::{Endpoint, ProgramMemory, SdpStream};

/// Is told the readiness of a stream whenever it may have changed, by the thread that has changed
/// it. It makes no call of the stream's, which is locked meanwhile.
pub trait Watcher: Send + Sync {
    /// Takes the present readiness.
    fn now(&self, ready: Ready);
}

impl SdpStream {
    /// Has a watcher told from now on, and of the present readiness at once. Each stream has one
    /// watcher; returns whether this is it.
    pub fn watch(&self, watcher: Arc<dyn Watcher>) -> bool {
        let mut socket = self.shared.lock();
        let is_first = self.shared.watcher.set(watcher).is_ok();
        self.shared.progress(&mut socket);
        drop(socket);
        self.shared.looks_again();
        is_first
    }

    /// Sends what can be sent without waiting. The watcher is told what is left to be done before
    /// this returns.
    ///
    /// # Errors
    /// Nothing can be sent without waiting (`WouldBlock`), or the connection is over.
    pub fn try_send(&self, octets: &[u8]) -> io::Result<usize> {
        let options = Options { non_blocking: true, ..Options::default() };
        ProgramMemory::while_reading(octets, |memory| {
            self.shared.attempt(|socket| socket.send(memory, options))
        })
    }

    /// Receives what is there. The watcher is told what is left to be done before this returns.
    ///
    /// # Errors
    /// There is nothing (`WouldBlock`), or the connection is over.
    pub fn try_receive(&self, octets: &mut [u8], peek: bool) -> io::Result<usize> {
        let options = Options { non_blocking: true, peek, ..Options::default() };
        let count = ProgramMemory::while_writing(octets, |memory| {
            self.shared.attempt(|socket| socket.receive(memory, options))
        })?;
        if !peek {
            self.shared.delivered.fetch_add(count as u64, Ordering::Relaxed);
        }
        Ok(count)
    }

    /// Drops what the peer sends from now on; the peer is not told.
    pub fn shutdown_receive(&self) {
        let mut socket = self.shared.lock_now();
        socket.shutdown_receive();
        self.shared.progress(&mut socket);
    }

    /// Returns what could be done now.
    #[must_use]
    pub fn ready(&self) -> Ready {
        self.shared.lock_now().ready()
    }

    /// Returns the addresses of this end and of the peer, as far as they are known.
    #[must_use]
    pub fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let socket = self.shared.lock();
        let qp = socket.transport().qp();
        (qp.local_addr(), qp.peer_addr())
    }
}

impl Shared {
    /// Carries out an operation that does not wait: it lends no memory, so that it ends at once.
    fn attempt(&self, begin: impl FnOnce(&mut Socket<Endpoint>) -> OperationId) -> io::Result<usize> {
        let mut socket = self.lock_now();
        let before = socket.deadline();
        let id = begin(&mut socket);
        self.progress(&mut socket);
        let (ended, after) = (socket.take(id), socket.deadline());
        drop(socket);
        if after.is_some_and(|at| before.is_none_or(|before| at < before)) {
            self.looks_again();
        }
        // It has ended, or its memory would still be lent.
        ended.map_or_else(|| Err(io::ErrorKind::WouldBlock.into()), outcome)
    }

    /// Has the service look at the stream's times, and watch it.
    fn looks_again(&self) {
        self.calls().tell();
        self.service.ring();
    }
}
