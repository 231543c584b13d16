//! `rddp serve`: its arguments, for the crate `rddp_files`.

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rddp_command::failure::{EXIT_CODES, Failure};
use rddp_command::units::{parse_octets, parse_seconds};
use rddp_files::{Choice, LARGEST_CHUNK, MOST_CHUNKS, Plan};

use crate::congestion;
use crate::device::Devices;

const EXAMPLES: &str = "\
Examples:
  rddp serve /srv/files                              get, from this host only
  rddp serve /srv/files --writable                   put and get, from this host only
  rddp serve /srv/files --bind ::                    get, for everybody who can reach this host
  rddp serve . --bind 192.0.2.1 --device soft,rxe0   by software and by a RoCE device at once
  rddp serve --new-token token                       make a token, for:
  rddp serve . --bind :: --writable --token token    put and get, only for those who have the token

With --token a client has to prove that it has the token, which itself is not sent (HMAC-SHA256 of the server's nonce
and the request). Without a token, whoever can connect can read, and with --writable write, what this process may.
Nothing is encrypted either way: who sees the packets sees the files, and who can change packets can change them.
Nothing outside the directory can be reached: absolute paths, \"..\" and symbolic links that lead out are refused.
A client costs at most some 5 MiB of memory, or, with --strategy naive, as much as its file has (up to 1 GiB). One that
has asked for nothing, or has not proven that it has the token, takes no place, and is disconnected after 10 s, whatever
--idle. Where all places are taken, a client that moves less than 4 KiB a second loses its place to a new one, and is
disconnected within seconds.
A listening TCP socket that systemd passes (LISTEN_FDS) is taken in place of --bind and --port.";

const TOKEN_HELP: &str =
    "Serve only clients that have the token in this file [default: that of RDDP_TOKEN_FILE]";

/// Serve a directory to rddp put and rddp get
#[derive(Debug, Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"), after_help = "--help shows examples")]
pub(crate) struct ServeArgs {
    /// Directory to serve
    #[arg(required_unless_present = "new_token")]
    dir: Option<PathBuf>,

    /// Listen on this address of the host (::, or 0.0.0.0 where there is no IPv6: on all)
    #[arg(short, long, value_name = "ADDR", default_value = "127.0.0.1")]
    bind: IpAddr,

    /// Port to listen on (0: any)
    #[arg(short, long, default_value_t = rddp_files::PORT)]
    port: u16,

    /// Allow clients to put as well
    #[arg(long)]
    writable: bool,

    /// Symbolic links that clients may put: all, or those that do not lead out of their trees
    #[arg(long, value_enum, value_name = "WHICH", default_value = "inside")]
    links: Links,

    #[arg(long, value_name = "FILE", help = TOKEN_HELP)]
    token: Option<PathBuf>,

    /// Make a file with a new token, and serve nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dir", "token"])]
    new_token: Option<PathBuf>,

    /// Clients at a time; half of them (rounded up) from one address, or one IPv6 network
    #[arg(long, default_value = "64", value_name = "COUNT")]
    max_clients: NonZeroUsize,

    /// Disconnect a client that says nothing for so many seconds, or that is busy for 30 times as
    /// long
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_seconds)]
    idle: Duration,

    /// TCP's congestion control at this end [default: the host's]
    #[arg(long, value_name = "NAME", value_parser = congestion::parse)]
    congestion: Option<String>,

    /// Way in which single files are given to rddp get
    #[arg(long, value_enum, value_name = "STRATEGY", default_value = "auto")]
    #[arg(requires_if("map", "immutable"))]
    strategy: Strategy,

    /// Promise that files do not change: they may be replaced by others, and are never written
    #[arg(long)]
    immutable: bool,

    /// Octets of a chunk, for the strategies slots and pipelined
    #[arg(long, value_name = "OCTETS", default_value = "512K", value_parser = parse_chunk)]
    chunk: usize,

    /// Chunks under way at a time, for the same
    #[arg(long, value_name = "COUNT", default_value_t = MOST_CHUNKS, value_parser = parse_depth)]
    depth: usize,

    #[command(flatten)]
    device: Devices,

    /// Print the address, and each transfer, as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The symbolic links that clients may put.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Links {
    /// Links that do not lead out of the tree that is put
    Inside,
    /// Every link
    All,
}

/// The way in which a server gives a file.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Strategy {
    /// By what costs least of those that are possible
    Auto,
    /// The file is read whole (up to 1 GiB), and then Read from memory
    Naive,
    /// Slots of memory are read as they become free
    Slots,
    /// Slots of memory are read by a thread, while others are on their way
    Pipelined,
    /// The client Reads the file itself
    Region,
    /// The client Reads a mapping of the file, which is kept (with --immutable)
    Map,
}

impl ServeArgs {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let dir = match (&self.new_token, &self.dir) {
            (Some(path), _) => return rddp_files::make_token(path),
            (None, Some(dir)) => dir.clone(),
            (None, None) => return Err(Failure::usage("no directory is named")),
        };
        rddp_files::serve(&rddp_files::Serving {
            dir,
            bind: self.bind,
            port: self.port,
            devices: self.device.all()?,
            writable: self.writable,
            links_out: matches!(self.links, Links::All),
            token: self.token.clone(),
            max_clients: self.max_clients,
            idle: self.idle,
            congestion: self.congestion.clone(),
            plan: Plan {
                choice: self.choice(),
                chunk: self.chunk,
                depth: self.depth,
                immutable: self.immutable,
            },
            json: self.json,
        })
    }

    fn choice(&self) -> Choice {
        match self.strategy {
            Strategy::Auto => Choice::Auto,
            Strategy::Naive => Choice::Naive,
            Strategy::Slots => Choice::Slots,
            Strategy::Pipelined => Choice::Pipelined,
            Strategy::Region => Choice::Region,
            Strategy::Map => Choice::Map,
        }
    }
}

/// Octets of the shortest chunk.
const SMALLEST_CHUNK: usize = 4096;

fn parse_chunk(text: &str) -> Result<usize, String> {
    let octets = parse_octets(text)?;
    let chunk = usize::try_from(octets).ok().filter(|len| (SMALLEST_CHUNK..=LARGEST_CHUNK).contains(len));
    chunk.ok_or_else(|| format!("a chunk has from {SMALLEST_CHUNK} to {LARGEST_CHUNK} octets"))
}

fn parse_depth(text: &str) -> Result<usize, String> {
    let depth = text.parse().ok().filter(|depth| (1..=MOST_CHUNKS).contains(depth));
    depth.ok_or_else(|| format!("from 1 to {MOST_CHUNKS} chunks are under way at a time"))
}
