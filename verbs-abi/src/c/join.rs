//! Queue pairs that are joined by numbers, as on RoCE: at RTR the end with the smaller name
//! connects to the other, which accepts it at its own RTR. One that names itself is its own peer.

use std::net::SocketAddr;

use nix::errno::Errno;
use rddp_rnic::{ConnectOptions, ConnectRequest};

use super::abi::{ibv_qp_attr, qp_mask};
use super::queue_pair::Qp;
use crate::errors::{Outcome, of_connect};
use crate::ports::{Joins, options};
use crate::refusal::because;
use crate::roce::{Hello, Name};

impl Qp {
    /// Joins the peer that the attributes name: connects to it, or waits for its request. Datagrams
    /// have no peer, and begin.
    pub(super) fn join(&self, wanted: &ibv_qp_attr, mask: u32) -> Outcome<()> {
        if let Some(datagrams) = &self.datagrams {
            return datagrams.begin(&self.queues);
        }
        let Some(joint) = &self.joint else { return Ok(()) };
        let device = &self.pd.context.device.device;
        if mask & (qp_mask::AV | qp_mask::DEST_QPN) != qp_mask::AV | qp_mask::DEST_QPN {
            return Err(because(Errno::EINVAL, "RTR names the peer: IBV_QP_AV and IBV_QP_DEST_QPN"));
        }
        if wanted.ah_attr.is_global == 0 {
            return Err(because(Errno::EINVAL, "a peer has a GID here and no LID: ibv_rc_pingpong -g 0"));
        }
        let peer = Name::of(wanted.ah_attr.gid(), wanted.dest_qp_num)
            .ok_or_else(|| because(Errno::EINVAL, "the peer's GID or number is none of these devices'"))?;
        let address = device.roce.ok_or(Errno::EINVAL)?;
        let own = Name { address, number: joint.place.number() };
        self.set_extensions(true);
        // The connection manager may have connected it before.
        self.queues.set_acknowledged(true).map_err(|error| of_connect(&error))?;
        if own == peer {
            return self.queues.connect_to_itself().map_err(|error| of_connect(&error));
        }
        if own < peer {
            let hello = Hello { from: own.number, to: peer.number, psn: wanted.rq_psn };
            let options = ConnectOptions {
                private_data: hello.to_octets(),
                // The address by which the peer knows this end.
                source: Some(SocketAddr::from((address, 0))),
                ..options(device, peer.listens_at())?
            };
            return self.queues.begin_to(peer.listens_at(), &options).map_err(|error| of_connect(&error));
        }
        *joint.awaited.lock() = Some(peer);
        self.take_parked();
        Ok(())
    }

    /// Notes the end of a join that this end began: with a connection, or without one.
    pub(super) fn joined(&self) {
        if self.joint.is_none() {
            return;
        }
        match self.queues.begun() {
            Some(Ok(_)) => self.limit_silence(),
            Some(Err(error)) => {
                // As on an adapter a request tells, which nobody answers.
                tracing::info!(%error, "the queue pair was not joined");
            }
            None => {}
        }
    }

    /// Forgets the peer, with the state in which it was named.
    pub(super) fn part(&self) {
        if let Some(joint) = &self.joint {
            *joint.awaited.lock() = None;
        }
    }
}

impl Joins for Qp {
    fn take_parked(&self) {
        let Some(joint) = &self.joint else { return };
        let mut awaited = joint.awaited.lock();
        let Some(peer) = *awaited else { return };
        let to = joint.place.number();
        // RFC 5042 §5.4: private data are not authenticated. A stranger would have to know both
        // numbers, and to have the peer's address.
        let is_meant = |hello: &Hello, request: &ConnectRequest| {
            let from = request.peer_addr().map(|from| from.ip().to_canonical());
            (hello.from, hello.to, from) == (peer.number, to, Some(peer.address))
        };
        let Some(request) = joint.place.port.unpark(is_meant) else { return };
        let accepted = options(&self.pd.context.device.device, peer.listens_at()).and_then(|options| {
            request.accept_with(&self.queues, &options).map_err(|error| of_connect(&error))
        });
        match accepted {
            Ok(_) => {
                *awaited = None;
                self.limit_silence();
            }
            Err(error) => tracing::debug!(%error, ?peer, "the peer's request came to nothing"),
        }
    }
}
