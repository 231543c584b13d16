//! The handshake of a client, and what it is told there.

use rddp_block::export::Export;
use rddp_block::nbd::handshake::{Handshake, Next};
use rddp_rnic::SendWr;

use super::{Awaited, Client, UnderWay, Wrong};
use crate::block::buffers::Buffers;
use crate::block::disk::Disk;

impl Client {
    /// Takes what was received of a handshake.
    pub(super) fn shake_hands(
        &mut self,
        mut handshake: Handshake,
        disks: &mut [Disk],
        buffers: &mut Buffers,
    ) -> Result<(), Wrong> {
        let octets = self.inbox.read(0, handshake.wanted())?;
        let exports: Vec<Export> = disks.iter().map(|disk| disk.export.clone()).collect();
        let mut out = Vec::new();
        let next = handshake.take(&octets, &exports, &mut out);
        self.unknown = handshake.unknown();
        self.say_at_length(&out, buffers)?;
        match next? {
            Next::More => {
                self.awaited = Awaited::Taken(handshake);
                Ok(())
            }
            Next::Transmit(disk, terms) => {
                (self.chosen, self.until) = (Some((disk, terms)), None);
                tracing::info!(peer = self.peer, disk = disks[disk].export.name, "a client has a disk");
                self.expect_request()
            }
            Next::Abort => {
                self.leave();
                Ok(())
            }
        }
    }

    /// Sends a few octets that answer no request.
    pub(super) fn say(&mut self, octets: &[u8]) {
        let id = self.next_id;
        self.next_id += 1;
        self.under_way.insert(id, UnderWay { request: None, octets: 0, buffer: None });
        self.push(SendWr::send_inline(id, octets));
    }

    /// Sends octets that answer no request, and that may be many. All memory may be the payloads'.
    pub(super) fn say_at_length(&mut self, octets: &[u8], buffers: &mut Buffers) -> Result<(), Wrong> {
        for piece in octets.chunks(1 << 20) {
            let id = self.next_id;
            let Some(buffer) = buffers.take_always(piece.len()) else { return Err(Wrong::NoMemory) };
            self.next_id += 1;
            self.push(SendWr::send(id, buffer.filled(piece)?));
            self.under_way.insert(id, UnderWay { request: None, octets: 0, buffer: Some(buffer) });
        }
        Ok(())
    }

    pub(super) fn expect_handshake(&mut self, handshake: Handshake) -> Result<(), Wrong> {
        self.receive(self.inbox.sge(..handshake.wanted()))?;
        self.awaited = Awaited::Handshake(handshake);
        Ok(())
    }
}
