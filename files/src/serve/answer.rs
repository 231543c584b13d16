//! A short file, which comes in the answer.

use rddp_command::failure::Failure;

use super::client::Client;
use super::served::{How, Served};
use crate::checksum::Check;
use crate::files::refused;
use crate::protocol::{Here, ToClient, ToServer, out_of_step};
use crate::source::Source;

/// The name in results: there is no choice of another way.
const NAME: &str = "answer";

impl Client<'_> {
    /// Gives all octets from `from` on, of which there are at most `SHORT`, in the answer.
    pub(super) async fn answer(
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
                let how = Some(How { strategy: NAME, under_way: Vec::new() });
                Ok(Served { how, ..self.served("get", path, size, from, sha256).checked(check) })
            }
            _ => Err(out_of_step()),
        }
    }
}
