//! An export of an NBD server, by one connection or several.

use rddp_block::export::{Command, DiskError, Export, Extent};
use rddp_block::nbd::client::opening::{Open, Said};
use rddp_command::failure::Failure;
use rddp_rnic::Completion;

use super::connection::{Connection, MOST};
use crate::block::desk::Desk;
use crate::block::disk::{Answer, Done, Job};
use crate::block::end::{End, Limits};
use crate::block::place::Way;
use crate::block::uri::Uri;

/// An export.
pub(in crate::block) struct Remote {
    export: Export,
    open: Open,
    connections: Vec<Connection>,
    /// Jobs that needed no request.
    done: Vec<Done>,
}

impl Remote {
    /// Connects as often as is wanted, where the server says that this makes no difference to what
    /// is read.
    pub(in crate::block) fn open(desk: &Desk, uri: &Uri, way: Way<'_>) -> Result<Self, Failure> {
        let (first, open) = Connection::open(desk, uri, way.client.timeout)?;
        let export = Export {
            name: uri.to_string(),
            size: open.described.size,
            writable: open.described.is_writable(),
        };
        if way.writable && !export.writable {
            return Err(Failure::refused(format!("{uri} is served to read only"))
                .remedy("start its server for writing (rddp block serve --writable)"));
        }
        let mut connections = vec![first];
        let more = if open.described.is_for_many() { way.connections.get() } else { 1 };
        while connections.len() < more {
            match Connection::open(desk, uri, way.client.timeout) {
                Ok((connection, other)) if other == open => connections.push(connection),
                Ok(_) => return Err(Failure::peer(format!("{uri}: another disk at each connection"))),
                // A server may have too many clients; there is one connection at least.
                Err(failure) => {
                    tracing::info!(%failure, "fewer connections");
                    break;
                }
            }
        }
        Ok(Remote { export, open, connections, done: Vec::new() })
    }

    /// Returns the answer to a job that the server does not know.
    fn by_itself(&self, command: Command) -> Option<Answer> {
        match command {
            Command::Status { len, .. } if !self.open.terms.allocation => {
                Some(Answer::Extents(vec![Extent { len: len.into(), hole: false }]))
            }
            Command::Flush if !self.open.described.flushes() => Some(Answer::Done),
            _ => None,
        }
    }
}

impl End for Remote {
    fn export(&self) -> &Export {
        &self.export
    }

    fn limits(&self) -> Limits {
        let described = &self.open.described;
        Limits {
            jobs: MOST * self.connections.len(),
            connections: self.connections.len(),
            longest: described.maximum,
            block: described.minimum,
            zeroes: described.zeroes().then_some(u32::MAX),
        }
    }

    fn begin(&mut self, job: Job) -> Result<(), Failure> {
        if let Some(answer) = self.by_itself(job.command) {
            let Job { owner, id, buffer, .. } = job;
            self.done.push(Done { owner, id, buffer, result: Ok(answer) });
            return Ok(());
        }
        let idlest = self.connections.iter_mut().min_by_key(|connection| connection.load());
        idlest.map_or(Ok(()), |connection| connection.begin(job))
    }

    fn take(&mut self, completion: &Completion) -> Result<(), Failure> {
        self.connections.iter_mut().try_for_each(|connection| connection.take(completion))
    }

    fn failure(&self, command: &Command, error: DiskError) -> Failure {
        let said = self.connections.iter().map(Connection::said).find(|said| !said.0.is_empty());
        let said = said.map(Said::to_string).unwrap_or_default();
        Failure::refused(format!("{}: {command}: {error}{said}", self.export.name))
            .remedy("the server's log may say more")
    }

    fn turn(&mut self, done: &mut Vec<Done>) -> Result<(), Failure> {
        done.append(&mut self.done);
        self.connections.iter_mut().try_for_each(|connection| connection.turn(done))
    }
}
