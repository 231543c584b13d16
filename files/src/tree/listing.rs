//! `rddp ls`: names and attributes of a tree, sorted.

use std::rc::Rc;

use rddp_command::failure::{Failure, printable_name};
use rddp_command::out::{self, say};
use rddp_command::units::utc;
use serde::Serialize;

use super::client::all_read;
use super::left_out::{LeftOut, What};
use super::pipe::GetPipe;
use super::record::{Left, Record};
use super::unread::complain_unread;
use crate::Listing;
use crate::checksum::Check;
use crate::patience::patiently;
use crate::protocol::{Terms, ToClient, ToServer, out_of_step};
use crate::remote::{Asks, RemoteFile, Server};
use crate::tasks::Hub;
use crate::token::Token;
use crate::wishes::Wishes;

/// Prints the names and attributes of a tree, sorted.
pub fn ls(args: &Listing) -> Result<(), Failure> {
    let hub = Hub::new(&RemoteFile::parse(&args.remote)?.device(&args.device)?.open()?)?;
    patiently(args.retry, || 0, || hub.run(list_all(args, &hub))?)
}

async fn list_all(args: &Listing, hub: &Rc<Hub>) -> Result<(), Failure> {
    let timeout = args.timeout;
    let remote = RemoteFile::parse(&args.remote)?;
    let token = Token::of(args.token.as_deref())?;
    let asks = Asks { token: token.as_ref(), large: false, congestion: None, timeout };
    let Server { mut talk, .. } = remote.connect(asks, hub)?;
    let paths = vec![remote.path.to_owned()];
    let (recursive, wishes, terms) = (args.recursive, Wishes::default(), Terms::default());
    talk.ask(&ToServer::GetTree { paths, recursive, names_only: true, wishes, terms })?;
    let ToClient::Tree { window } = talk.hear(timeout).await? else { return Err(out_of_step()) };
    let mut pipe = GetPipe::new(&mut talk, window, timeout)?;
    let mut kept = Vec::new();
    let (mut listed, mut left_out) = (Vec::new(), LeftOut::new(args.skip_special));
    let left = loop {
        if let Some(left) = list(pipe.next(&mut kept).await?, &mut listed, &mut left_out)? {
            break left;
        }
    };
    talk.say(&ToServer::Same)?;
    talk.close().await;
    listed.sort_unstable_by(|one: &Listed, next| one.parts().cmp(next.parts()));
    listed.iter().for_each(|entry| entry.print(args.json));
    left_out.add_unnamed(left.skipped);
    let all_read = all_read(left.failed).map_err(|failure| failure.remedy("see to the names above"));
    all_read.and_then(|()| left_out.all_sent())
}

/// Takes the names in a chunk. Returns what was left out, if it was the last.
fn list(chunk: &[u8], listed: &mut Vec<Listed>, left_out: &mut LeftOut) -> Result<Option<Left>, Failure> {
    let mut rest = chunk;
    while !rest.is_empty() {
        let (record, behind) = Record::parse(rest, Check::Crc32c).map_err(|_| out_of_step())?;
        rest = behind;
        let (octets, attributes, size, link) = match record {
            Record::Dir { name, attributes } => ([name.octets(), b"/"].concat(), attributes, 0, None),
            Record::File { name, attributes, size } => (name.octets().to_vec(), attributes, size, None),
            Record::Link { name, attributes, target } => {
                (name.octets().to_vec(), attributes, target.len() as u64, Some(target))
            }
            Record::End(left) if rest.is_empty() => return Ok(Some(left)),
            Record::Unread { name, errno } => {
                complain_unread(name, errno);
                continue;
            }
            Record::LeftOut { name, what } => {
                left_out.note(name, What::from_number(what));
                continue;
            }
            _ => return Err(out_of_step()),
        };
        let (mode, modified) = (attributes.mode & 0o7777, attributes.modified.seconds);
        let name = String::from_utf8_lossy(&octets).into_owned();
        let is_utf8 = name.as_bytes() == octets;
        let name_hex = (!is_utf8).then(|| octets.iter().map(|octet| format!("{octet:02x}")).collect());
        let link = link.map(|target| String::from_utf8_lossy(target).into_owned());
        listed.push(Listed { name, name_hex, mode, modified, octets: size, link });
    }
    Ok(None)
}

/// An entry, as `rddp ls --json` prints it. The name of a directory ends with a slash.
#[derive(Serialize)]
struct Listed {
    name: String,
    /// The octets of a name that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    name_hex: Option<String>,
    mode: u32,
    /// Seconds since 1970.
    modified: i64,
    octets: u64,
    /// The target of a symbolic link.
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<String>,
}

impl Listed {
    /// Returns the parts of the name, by which entries are sorted: a directory comes before what is
    /// in it, and nothing else between.
    fn parts(&self) -> impl Iterator<Item = &str> {
        self.name.split('/')
    }

    fn print(&self, json: bool) {
        if json {
            return out::json(self);
        }
        let Listed { mode, octets, .. } = self;
        let (time, mut name) = (utc(self.modified), printable_name(&self.name));
        if let Some(target) = &self.link {
            name = format!("{name} -> {}", printable_name(target));
        }
        say!("{mode:04o} {octets:>14} {time} {name}");
    }
}
