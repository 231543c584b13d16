//! Files that clients get.

use std::sync::Arc;

use rddp_command::failure::{Failure, FailureKind};
use rddp_stat::Counter;

use super::client::{Client, Memory};
use super::served::{How, Served};
use crate::checksum::Check;
use crate::files::{FileError, refused};
use crate::protocol::{Here, SHORT, Terms, ToClient, ToServer, Window, out_of_step};
use crate::source::Source;
use crate::strategy::{Chosen, Gift, Given, Mapped, Naive, Pipelined, Region, Slots, Strategy, UnderWay};

/// The name in results of a file that comes in the answer: there is no choice of another way.
const ANSWER: &str = "answer";

impl Client<'_> {
    /// Gives a file, by the client's RDMA Reads of slots of this end's memory.
    pub(super) async fn get(
        &mut self,
        path: String,
        have: u64,
        proof: &str,
        Terms { check, .. }: Terms,
        slots: &mut Memory,
    ) -> Result<Served, Failure> {
        let hub = self.talk.hub.clone();
        let file = self.server.root.file(&path).map_err(refused)?;
        let mut source = Source::new(file, &path, check, &hub).await.map_err(refused)?;
        let talk = &mut self.talk;
        let mut tick = async || talk.say_busy(&ToClient::Busy).await;
        let from = source.resume(have, proof, &mut tick).await.map_err(refused)?;
        let size = source.size();
        if source.left() <= SHORT as u64 && !source.has_holes() {
            return self.answer(source, path, from, check).await;
        }
        let mut chosen = self.server.plan.of(source.left(), check, self.has_crc);
        let mut wanted = None;
        let given = loop {
            let (name, given) = match chosen {
                Chosen::Naive => self.give::<Naive>(&mut source, from, check, slots).await,
                Chosen::Slots => self.give::<Slots>(&mut source, from, check, slots).await,
                Chosen::Pipelined => self.give::<Pipelined>(&mut source, from, check, slots).await,
                Chosen::Region => self.give::<Region>(&mut source, from, check, slots).await,
                Chosen::Map => self.give::<Mapped>(&mut source, from, check, slots).await,
            };
            let Some(given) = given.transpose() else {
                self.server.warnings.no_memory(&path, name);
                chosen = chosen.otherwise();
                wanted.get_or_insert(name);
                continue;
            };
            break given;
        };
        let (given, how) = match given {
            // A Read of a range that is not there any more has ended the connection.
            Err(failure) if failure.kind() == FailureKind::Peer && !source.is_as_it_was() => {
                return Err(refused(FileError::Changed(path)));
            }
            given => given.map_err(|failure| failure.of(&path))?,
        };
        // Whoever Reads it later is told that it is gone.
        *slots = None;
        if given == Given::Unwanted {
            return Ok(Served { unchanged: Some(1), ..self.served("get", path, size, 0, String::new()) });
        }
        source.check_unchanged(self.server.root.file(&path)).map_err(refused)?;
        let sha256 = source.checksum();
        self.talk.say(&ToClient::End { sha256: sha256.clone() })?;
        match self.hear().await? {
            ToServer::Same => {
                let served = self.served("get", path, size, from, sha256).checked(check);
                let how = How { instead_of: wanted, ..how };
                Ok(Served { how: Some(how), ..served })
            }
            _ => Err(out_of_step()),
        }
    }

    /// Gives all octets from `from` on by one strategy, in memory that is kept in `memory`. Returns
    /// its name, and nothing else if there is no memory for it.
    async fn give<S: Strategy>(
        &mut self,
        source: &mut Source,
        from: u64,
        check: Check,
        memory: &mut Memory,
    ) -> (&'static str, Result<Option<(Given, How)>, Failure>) {
        (S::NAME, self.give_by::<S>(source, from, check, memory).await)
    }

    async fn give_by<S: Strategy>(
        &mut self,
        source: &mut Source,
        from: u64,
        check: Check,
        memory: &mut Memory,
    ) -> Result<Option<(Given, How)>, Failure> {
        let (size, mode, modified) = (source.size(), source.mode(), source.modified());
        let has_holes = source.has_holes();
        let (plan, patience) = (self.server.plan, self.server.idle);
        let talk = &mut self.talk;
        let (mappings, under_way) = (&self.server.mappings, UnderWay::default());
        let counter = S::COUNTER;
        let mut gift = Gift { talk, source, check, plan, mappings, patience, under_way, counter };
        let Some(made) = S::memory(&mut gift).await? else { return Ok(None) };
        gift.talk.end.qp.count(Counter::Registrations, 1);
        let memory = memory.insert(Arc::new(made)).clone();
        let (window, range) = (Some(Window::of(&memory)), S::IS_RANGE);
        gift.talk.say(&ToClient::Give {
            size,
            mode,
            from,
            window,
            modified,
            has_holes,
            range,
            here: None,
        })?;
        let given = match S::give(&mut gift, &memory).await {
            // A client that has the file says so and goes, which may come before it was heard.
            Err(_) if gift.was_unwanted() => Given::Unwanted,
            given => given?,
        };
        let under_way = if S::IS_RANGE { UnderWay::of_reads(gift.talk) } else { gift.under_way };
        let under_way = under_way.counts();
        Ok(Some((given, How { strategy: S::NAME, instead_of: None, under_way })))
    }

    /// Gives all octets from `from` on, of which there are at most `SHORT`, in the answer.
    async fn answer(
        &mut self,
        mut source: Source,
        path: String,
        from: u64,
        check: Check,
    ) -> Result<Served, Failure> {
        let room = self.talk.room();
        let octets = source.next(&room, &mut async || Ok(())).await.map_err(refused)?;
        let len = octets.map_or(0, |(_, len)| len);
        let crc = check.of_chunk(&room.first(len))?;
        source.check_unchanged(self.server.root.file(&path)).map_err(refused)?;
        let (size, mode, modified) = (source.size(), source.mode(), source.modified());
        let sha256 = source.checksum();
        let here = Some(Here { crc, sha256: sha256.clone() });
        let (window, has_holes, range) = (None, false, false);
        let give = ToClient::Give { size, mode, from, window, modified, has_holes, range, here };
        self.talk.say_with(&give, len)?;
        match self.hear().await? {
            ToServer::Same => {
                Ok(Served { unchanged: Some(1), ..self.served("get", path, size, 0, String::new()) })
            }
            ToServer::Done => {
                self.talk.moved(len);
                self.talk.end.qp.count(Counter::OctetsByAnswer, len as u64);
                let how = Some(How { strategy: ANSWER, instead_of: None, under_way: Vec::new() });
                Ok(Served { how, ..self.served("get", path, size, from, sha256).checked(check) })
            }
            _ => Err(out_of_step()),
        }
    }
}
