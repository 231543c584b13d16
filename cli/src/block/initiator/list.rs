//! The subsystems of a target.

use std::num::NonZeroUsize;

use rddp_block::nvme::ADMIN_COMMANDS;
use rddp_block::nvme::host::{Next, Opening};
use rddp_block::nvme::log::Entry;
use rddp_command::failure::Failure;

use super::identity;
use super::queue::{Desktop, Queue, Shape};
use super::remote::Remote;
use crate::block::ClientArgs;
use crate::block::desk::Desk;
use crate::block::end::End;
use crate::block::ls::Shown;
use crate::block::place::Way;
use crate::block::uri::Uri;

/// Asks a target for its subsystems, or for the disk of the one that the URI names.
pub(in crate::block) fn list(desk: &Desk, uri: &Uri, client: &ClientArgs) -> Result<Vec<Shown>, Failure> {
    if !uri.export.is_empty() {
        let way = Way { writable: false, connections: NonZeroUsize::MIN, client };
        return Ok(vec![disk(&Remote::open(desk, uri, way)?, uri)]);
    }
    let (host, desktop) = (identity::host(client.host_nqn.as_deref())?, Desktop::new(desk)?);
    let shape = Shape { qid: 0, entries: ADMIN_COMMANDS, cntlid: 0 };
    let admin = Queue::connect(desk, uri, shape, client.timeout)?;
    let opening = Opening::for_list(host, desktop.memory());
    let Next::Listed(entries) = admin.open(desk, opening, &desktop, uri)? else {
        return Err(Failure::peer(format!("{uri}: no list of subsystems")));
    };
    Ok(entries.into_iter().map(subsystem).collect())
}

fn disk(remote: &Remote, uri: &Uri) -> Shown {
    let disk = remote.disk();
    let flags = [("read-only", !disk.writable), ("flush", disk.has_cache), ("zero", disk.zeroes)];
    Shown {
        name: uri.export.clone(),
        description: String::new(),
        size: Some(disk.size),
        block: Some(remote.limits().block),
        flags: flags.into_iter().filter_map(|(name, has)| has.then_some(name)).collect(),
    }
}

/// A target tells where a subsystem is, and not how large its disk is.
fn subsystem(entry: Entry) -> Shown {
    let host = if entry.is_ipv6 { format!("[{}]", entry.address) } else { entry.address };
    let flags = [("discovery", entry.is_discovery), ("not-rdma", !entry.is_rdma)];
    Shown {
        name: entry.subsystem,
        description: format!("at {host}:{}", entry.port),
        size: None,
        block: None,
        flags: flags.into_iter().filter_map(|(name, has)| has.then_some(name)).collect(),
    }
}
