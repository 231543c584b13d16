//! Queue pairs that are joined by numbers, as on RoCE: an end that comes to RTS connects to the
//! other, which accepts it from its own RTR on. One that names itself is its own peer.

use std::net::{IpAddr, SocketAddr};

use nix::errno::Errno;
use rddp_rnic::{ConnectOptions, RtrSet};
use rddp_roce::own_address;

use super::abi::{ibv_qp_attr, qp_mask, qp_type};
use super::queue_pair::Qp;
use crate::errors::{Outcome, of_connect, of_ports};
use crate::ports::{Joins, Joint, Progress, options};
use crate::refusal::because;
use crate::roce::{Awaited, Hello, Name, Psn};

impl Qp {
    /// Joins the peer that the attributes of RTR name: its hello is awaited from now on. Datagrams
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
        *joint.progress.lock() = Progress::Awaits(Awaited {
            own,
            peer,
            expects: Psn::new(self.attributes.lock().rq_psn),
            sends: None,
            compares: self.kind() != qp_type::UC,
        });
        self.take_parked();
        Ok(())
    }

    /// Asks the peer to be joined, unless its own hello has come. RTS tells with which sequence
    /// number requests begin: who stays at RTR sends none, and need not ask.
    pub(super) fn ask(&self) -> Outcome<()> {
        let Some(joint) = &self.joint else { return Ok(()) };
        let sends = Psn::new(self.attributes.lock().sq_psn);
        let mut progress = joint.progress.lock();
        if let Progress::Awaits(awaited) = &mut *progress {
            awaited.sends = Some(sends);
        }
        self.take(joint, &mut progress);
        match *progress {
            Progress::Awaits(awaited) => {
                self.dial(&awaited, sends)?;
                *progress = Progress::Asks(awaited);
            }
            Progress::Expected(expected) => {
                if expected != sends {
                    tracing::info!("{OTHER_PSN}");
                    self.queues.part();
                }
                *progress = Progress::None;
            }
            _ => {}
        }
        Ok(())
    }

    fn dial(&self, awaited: &Awaited, sends: Psn) -> Outcome<()> {
        let to = awaited.peer.listens_at();
        let options = ConnectOptions {
            private_data: awaited.hello(sends).to_octets(),
            // The address by which the peer knows this end.
            source: Some(own_address(awaited.own.address, 0)),
            ..self.options(to)?
        };
        self.queues.begin_to(to, &options).map_err(|error| of_ports(of_connect(&error)))
    }

    /// Returns the options of a connection, on which the peer may have as many Reads and atomics
    /// outstanding as the program has said. That may be none, so MPA does not begin with a Read.
    fn options(&self, peer: SocketAddr) -> Outcome<ConnectOptions> {
        let options = options(&self.pd.context.device.device, peer)?;
        let most = u16::from(self.attributes.lock().max_dest_rd_atomic);
        let rtr = RtrSet { read: false, ..options.rtr };
        Ok(ConnectOptions { ird: options.ird.min(most), rtr, ..options })
    }

    /// Notes the end of a join that this end began: with a connection, or without one.
    pub(super) fn joined(&self) {
        let Some(joint) = &self.joint else { return };
        let Some(begun) = self.queues.begun() else { return };
        let mut progress = joint.progress.lock();
        let Progress::Asks(awaited) = *progress else { return };
        *progress = match begun {
            Ok(_) => Progress::None,
            Err(error) => {
                // The peer may have asked, too. If not, a request tells, as on an adapter.
                tracing::debug!(%error, "the peer has not taken the hello");
                Progress::Awaits(awaited)
            }
        };
        self.take(joint, &mut progress);
        drop(progress);
        self.limit_silence();
    }

    /// Forgets the peer, with the state in which it was named.
    pub(super) fn part(&self) {
        if let Some(joint) = &self.joint {
            *joint.progress.lock() = Progress::None;
        }
    }

    /// Accepts the awaited peer's hello, if it has come. Where both ends ask, that with the smaller
    /// name is answered.
    fn take(&self, joint: &Joint, progress: &mut Progress) {
        let (awaited, asks) = match *progress {
            Progress::Awaits(awaited) => (awaited, false),
            Progress::Asks(awaited) if awaited.own < awaited.peer => (awaited, true),
            _ => return,
        };
        let Some((hello, request)) = joint.place.port.unpark(|hello, from| fits(&awaited, hello, from))
        else {
            return;
        };
        if asks {
            let _ = request.reject(b"");
            return;
        }
        let accepted = self.options(awaited.peer.listens_at()).and_then(|options| {
            request.accept_with(&self.queues, &options).map_err(|error| of_connect(&error))
        });
        match accepted {
            Ok(_) => {
                let is_done = awaited.sends.is_some() || !awaited.compares;
                *progress = if is_done { Progress::None } else { Progress::Expected(hello.expects) };
                self.limit_silence();
            }
            Err(error) => tracing::debug!(%error, ?awaited, "the peer's request came to nothing"),
        }
    }
}

/// Reason that the user is told of where programs have told each other other numbers.
const OTHER_PSN: &str = "the peer says other first sequence numbers than this program: each end's sq_psn \
                         (IBV_QP_SQ_PSN) has to be the other's rq_psn (IBV_QP_RQ_PSN)";

/// Returns whether a hello is the awaited peer's, as the program has named it.
///
/// RFC 5042 §5.4: private data are not authenticated. A stranger would have to know both numbers
/// and sequence numbers, and to have the peer's address.
fn fits(awaited: &Awaited, hello: &Hello, from: IpAddr) -> bool {
    let is_peer = awaited.is_of_peer(hello, from);
    let fits = is_peer && awaited.has_psns(hello);
    if is_peer && !fits {
        tracing::info!("{OTHER_PSN}");
    }
    fits
}

impl Joins for Qp {
    fn take_parked(&self) {
        if let Some(joint) = &self.joint {
            self.take(joint, &mut joint.progress.lock());
        }
    }
}
