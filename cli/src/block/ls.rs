//! `rddp block ls`: the disks of a server.

use clap::Args;
use rddp_command::failure::{EXIT_CODES, Failure, printable, printable_name};
use rddp_command::out::{self, Table, say};
use rddp_command::units::about;
use serde::Serialize;

use super::desk::Desk;
use super::place::Place;

const EXAMPLES: &str = "\
Examples:
  rddp block ls nbd://192.0.2.1          the exports of an NBD server
  rddp block ls nbd://192.0.2.1/a.img    one of them, also of a server that does not list them
  rddp block ls nvme://192.0.2.1         the subsystems that an NVMe target tells of, by RDMA
  rddp block ls nvme://192.0.2.1/nqn.2026-01.example:a    the disk of one";

/// List the disks of a server
#[derive(Debug, Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"), after_help = "--help shows examples")]
pub(super) struct LsArgs {
    /// The server, or a disk of it
    uri: String,

    #[command(flatten)]
    client: super::ClientArgs,

    /// Print the result as JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// A disk of a server.
#[derive(Serialize)]
pub(super) struct Shown {
    /// The name by which it is asked for.
    pub(super) name: String,
    /// A text of the server about it.
    pub(super) description: String,
    /// Octets of it; `None` where the server does not tell.
    pub(super) size: Option<u64>,
    /// Octets of which requests are multiples.
    pub(super) block: Option<u32>,
    /// The things that it is and can do.
    pub(super) flags: Vec<&'static str>,
}

#[derive(Serialize)]
struct List<'a> {
    uri: &'a str,
    disks: Vec<Shown>,
}

impl LsArgs {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let place = Place::parse(&self.uri)?;
        let disks = place.list(&Desk::new()?, &self.client)?;
        if self.json {
            out::json(&List { uri: &self.uri, disks });
            return Ok(());
        }
        if disks.is_empty() {
            out::warn(format_args!("{}: {}", printable_name(&self.uri), place.none()));
        }
        let mut table = Table::default();
        for disk in &disks {
            table.row([printable_name(&disk.name), disk.size.map_or_else(|| "?".into(), about)]);
        }
        for (line, disk) in table.lines().iter().zip(&disks) {
            let description = printable(&disk.description);
            say!("{}", format!("{line}  {}  {description}", disk.flags.join(",")).trim_end());
        }
        Ok(())
    }
}
