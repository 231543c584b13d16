//! `rddp put`, `get` and `ls`: their arguments, for the crate `rddp_files`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rddp_command::failure::{EXIT_CODES, Failure};
use rddp_command::units::{parse_octets, parse_seconds};

use crate::congestion;
use crate::device::Device;

const PUT_EXAMPLES: &str = "\
Examples:
  rddp put big.iso 192.0.2.1/big.iso     into the directory that rddp serve serves there
  rddp put big.iso 192.0.2.1/            the same
  rddp put notes '[fd77::2]:9000/a/b'    another port, a subdirectory that exists
  rddp put notes 192.0.2.1/ --token token --no-clobber
  rddp put -r photos 192.0.2.1/backup    a directory, to backup/photos, over one connection
  rddp put -r photos/ 192.0.2.1/backup   what is in it, to backup
  rddp put -rn --delete --exclude '*.tmp' photos 192.0.2.1/backup   what would be sent and removed
  rddp put a b c 192.0.2.1/backup        several files, into the directory backup
  rddp put -r -P 4 photos 192.0.2.1/     over four connections
  rddp put notes 192.0.2.1/ --device auto   by the RDMA device that leads there, if there is one
  tar c photos | rddp put - 192.0.2.1/photos.tar   standard input

To resume a transfer that was interrupted, repeat the command. The file gets its name at the server once it is
complete; until then it is called NAME.rddp.part. Files that are there already, with the same size and time, are not
sent again (-I sends them). A file that changes meanwhile is refused. A file that exists is replaced, and the result
says so, unless --no-clobber is given; for a symbolic link, this is the file that it leads to within the directory.
Of files none is sent that has octets but no size, such as those of /proc. The file gets the permissions, whatever the
umask, and the time of the last change that it has here, and its holes stay holes. Of directories permissions, with the
set-group-ID bit, and times are kept. With --no-clobber, files of a tree that are there stay, and the rest goes on.

With --recursive, symbolic links are sent as links, also those that are named, unless they end with a slash; without it,
the file to which a link leads is sent. Links that may lead out of the tree are left out and named (--links all sends
them, --links none none), and so are pipes, sockets and devices.";

const GET_EXAMPLES: &str = "\
Examples:
  rddp get 192.0.2.1/big.iso             to ./big.iso
  rddp get 192.0.2.1/big.iso /data/      to /data/big.iso
  rddp get '[fd77::2]:9000/a/b' notes    another port, another name
  rddp get 192.0.2.1/notes --token token --no-clobber
  rddp get -r 192.0.2.1/photos /data     a directory, to /data/photos, over one connection
  rddp get -r 192.0.2.1/photos/ /data/p  what is in it, to /data/p
  rddp get 192.0.2.1/a 192.0.2.1/b .     several files
  rddp get 192.0.2.1/log - | less        to standard output; the result is then on standard error

To resume a transfer that was interrupted, repeat the command. The file gets its name once it is complete; until then
it is called NAME.rddp.part. Files that are here already, with the same size and time, are not fetched again (-I fetches
them). A file that changes meanwhile is refused. A file that exists is replaced, and the result says so, unless
--no-clobber is given. A pipe or a device is written to, never replaced; for a symbolic link, the file that it leads
to is replaced. The file gets the permissions, whatever the umask, and the time of the last change that it has there,
and its holes stay holes. Of directories permissions, with the set-group-ID bit, and times are kept. With --no-clobber,
files of a tree that are here stay, and the rest goes on.

With --recursive, symbolic links are fetched as links, also those that are named, unless they end with a slash; without
it, the file to which a link leads is fetched. Links that may lead out of the tree are left out and named (--links all
fetches them, --links none none), and so are pipes, sockets and devices.";

const TOKEN_HELP: &str =
    "Prove, without sending it, to have the token in this file [default: that of RDDP_TOKEN_FILE]";

/// Send a file to rddp serve by RDMA Writes
#[derive(Debug, Args)]
#[command(after_long_help = format!("{PUT_EXAMPLES}\n\n{EXIT_CODES}"), after_help = "--help shows examples")]
#[command(override_usage = "rddp put [OPTIONS] <LOCAL>... <HOST[:PORT]/PATH>")]
pub(crate) struct PutArgs {
    /// The file (- is standard input), or several, or directories with --recursive; and the
    /// destination
    // One list, so that options may stand between the names.
    #[arg(required = true, value_names = ["LOCAL", "HOST[:PORT]/PATH"], num_args = 1..)]
    names: Vec<PathBuf>,

    /// Send directories, with all that is in them
    #[arg(short, long)]
    recursive: bool,

    #[command(flatten)]
    common: Common,
}

/// Fetch a file from rddp serve by RDMA Reads
#[derive(Debug, Args)]
#[command(after_long_help = format!("{GET_EXAMPLES}\n\n{EXIT_CODES}"), after_help = "--help shows examples")]
#[command(override_usage = "rddp get [OPTIONS] <HOST[:PORT]/PATH>... [LOCAL]")]
pub(crate) struct GetArgs {
    /// The file, or several, and the destination (by default the working directory)
    ///
    /// The destination is a file, a directory, a pipe, a device, or - for standard output.
    #[arg(required = true, value_names = ["HOST[:PORT]/PATH", "LOCAL"], num_args = 1..)]
    names: Vec<PathBuf>,

    /// Fetch directories, with all that is in them
    #[arg(short, long)]
    recursive: bool,

    #[command(flatten)]
    common: Common,
}

/// List files of rddp serve
#[derive(Debug, Args)]
#[command(after_long_help = EXIT_CODES)]
pub(crate) struct LsArgs {
    /// A directory, or a file
    #[arg(value_name = "HOST[:PORT]/PATH")]
    remote: String,

    /// List directories, with all that is in them
    #[arg(short, long)]
    recursive: bool,

    /// Print each entry as JSON
    #[arg(long)]
    json: bool,

    /// Come back for so many seconds when the server has no place at the moment (0: do not)
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_seconds)]
    retry: Duration,

    /// Leave links, pipes, sockets, devices and incomplete files out without complaint
    #[arg(long)]
    skip_special: bool,

    #[command(flatten)]
    device: Device,

    #[arg(long, value_name = "FILE", help = TOKEN_HELP)]
    token: Option<PathBuf>,

    /// Give up when the server says nothing for so many seconds
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_seconds)]
    timeout: Duration,
}

#[derive(Debug, Args)]
struct Common {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    /// Move at most this many octets a second
    #[arg(long, value_name = "OCTETS", value_parser = parse_rate)]
    limit: Option<u64>,

    /// Fail rather than replace a file that exists
    #[arg(long)]
    no_clobber: bool,

    /// Come back for so many seconds since the last progress when the server has no place (0: do
    /// not)
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_seconds)]
    retry: Duration,

    /// Leave links, pipes, sockets, devices and incomplete files out without complaint
    #[arg(long)]
    skip_special: bool,

    #[command(flatten)]
    device: Device,

    #[arg(long, value_name = "FILE", help = TOKEN_HELP)]
    token: Option<PathBuf>,

    /// FPDUs longer than TCP's segments, up to 64,768 octets (against RFC 5044 §4.5: if the server
    /// agrees)
    #[arg(long)]
    large_fpdus: bool,

    /// TCP's congestion control at this end [default: the host's]
    #[arg(long, value_name = "NAME", value_parser = congestion::parse)]
    congestion: Option<String>,

    /// Send files again that the other end has already, with the same size and time
    #[arg(short = 'I', long = "ignore-times")]
    again: bool,

    /// Check octets by this
    #[arg(long, value_enum, value_name = "CHECKSUM", default_value = "crc32c")]
    checksum: Checksum,

    /// Connections over which the files of a tree, or several, go at a time
    #[arg(short = 'P', long, value_name = "COUNT", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    parallel: u32,

    /// Give up when the server says nothing for so many seconds
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_seconds)]
    timeout: Duration,

    /// Print what would happen to a tree, and change nothing
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Remove from the directories that are sent, at the end, what the sender has not
    #[arg(long)]
    delete: bool,

    /// Leave out of a tree, and do not delete, what this matches (rsync's *, **, ?, and a slash at
    /// either end)
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,

    /// Symbolic links of a tree that are kept
    #[arg(long, value_enum, value_name = "WHICH", default_value = "inside")]
    links: Links,

    /// Do not wait until a tree has reached the disk
    #[arg(long)]
    no_sync: bool,
}

/// The symbolic links that are kept.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Links {
    /// Links that do not lead out of the tree
    Inside,
    /// Every link, as it is
    All,
    /// None
    None,
}

/// The checksum of octets on their way from disk to disk.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Checksum {
    /// CRC-32C of each chunk of at most 512 KiB
    Crc32c,
    /// SHA-256 of each whole file, too
    Sha256,
    /// Nothing beside the CRC of each FPDU, which the connection has by default
    None,
}

impl Common {
    fn options(&self) -> rddp_files::Options {
        rddp_files::Options {
            device: self.device.choice(),
            json: self.json,
            limit: self.limit,
            no_clobber: self.no_clobber,
            retry: self.retry,
            skip_special: self.skip_special,
            token: self.token.clone(),
            large_fpdus: self.large_fpdus,
            congestion: self.congestion.clone(),
            again: self.again,
            check: match self.checksum {
                Checksum::Crc32c => rddp_files::Check::Crc32c,
                Checksum::Sha256 => rddp_files::Check::Sha256,
                Checksum::None => rddp_files::Check::None,
            },
            parallel: self.parallel,
            timeout: self.timeout,
            links: match self.links {
                Links::Inside => rddp_files::Links::Inside,
                Links::All => rddp_files::Links::All,
                Links::None => rddp_files::Links::None,
            },
            exclude: self.exclude.clone(),
            delete: self.delete,
            dry_run: self.dry_run,
            no_sync: self.no_sync,
        }
    }
}

impl PutArgs {
    pub(crate) fn json(&self) -> bool {
        self.common.json
    }

    pub(crate) fn run(&self) -> Result<(), Failure> {
        rddp_files::put(&self.names, self.recursive, &self.common.options())
    }
}

impl GetArgs {
    pub(crate) fn json(&self) -> bool {
        self.common.json
    }

    pub(crate) fn run(&self) -> Result<(), Failure> {
        rddp_files::get(&self.names, self.recursive, &self.common.options())
    }
}

impl LsArgs {
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    pub(crate) fn run(&self) -> Result<(), Failure> {
        rddp_files::ls(&rddp_files::Listing {
            remote: self.remote.clone(),
            device: self.device.choice(),
            recursive: self.recursive,
            json: self.json,
            retry: self.retry,
            skip_special: self.skip_special,
            token: self.token.clone(),
            timeout: self.timeout,
        })
    }
}

fn parse_rate(text: &str) -> Result<u64, String> {
    match parse_octets(text)? {
        0 => Err("a limit of 0 moves nothing".into()),
        rate => Ok(rate),
    }
}
