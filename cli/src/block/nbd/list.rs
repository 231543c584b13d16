//! The exports of a server.

use rddp_block::nbd::client::opening::{Described, Listed, Next, Opening};
use rddp_command::failure::Failure;

use super::connection::{Connection, Line};
use crate::block::ClientArgs;
use crate::block::desk::Desk;
use crate::block::ls::Shown;
use crate::block::uri::Uri;

/// Asks a server for its exports, or for the one that the URI names.
pub(in crate::block) fn list(desk: &Desk, uri: &Uri, client: &ClientArgs) -> Result<Vec<Shown>, Failure> {
    if !uri.export.is_empty() {
        // By the way in which it is opened, which servers know that do not list.
        let (_, open) = Connection::open(desk, uri, client.timeout)?;
        let (name, description) = (uri.export.clone(), String::new());
        return Ok(vec![shown(Listed { name, description, described: Some(open.described) })]);
    }
    let line = Line::connect(desk, uri, client.timeout)?;
    let Next::Listed(all) = line.shake_hands(desk, Opening::for_list(), uri, client.timeout)? else {
        return Err(Failure::peer(format!("{uri}: no list of exports")));
    };
    Ok(all.into_iter().map(shown).collect())
}

fn shown(Listed { name, description, described }: Listed) -> Shown {
    Shown {
        name,
        description,
        size: described.map(|described| described.size),
        block: described.map(|described| described.minimum),
        flags: described.map_or_else(Vec::new, |described| flags(&described)),
    }
}

/// Returns what an export is and can do, by the names that nbdinfo has for it.
fn flags(described: &Described) -> Vec<&'static str> {
    let all = [
        ("read-only", !described.is_writable()),
        ("flush", described.flushes()),
        ("fua", described.has_fua()),
        ("trim", described.trims()),
        ("zero", described.zeroes()),
        ("multi-conn", described.is_for_many()),
    ];
    all.into_iter().filter_map(|(name, has)| has.then_some(name)).collect()
}
