//! `rddp serve`: a directory for put and get, one thread a client.

mod client;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::Args;
use rddp_rnic::{ConnectOptions, ConnectRequest, Rnic};
use serde::Serialize;

use self::client::Client;
use super::files::Root;
use super::protocol::GREETING;
use crate::failure::{EXIT_CODES, Failure, Kind};
use crate::out;
use crate::places::{Place, Places};
use crate::threads::{self, NO_THREAD};
use crate::units::parse_seconds;
use crate::{addr, signals};

const EXAMPLES: &str = "\
Examples:
  rddp serve /srv/files                    put and get for everybody who can reach this host
  rddp serve /srv/files --read-only        get only
  rddp serve . --bind 127.0.0.1 -p 9000    for this host only, another port

There is no password and no encryption: whoever can connect can read, and without --read-only write, what this process
may. Nothing outside the directory can be reached: absolute paths, \"..\" and symbolic links that lead out are refused.
A client costs at most some 5 MiB of memory.";

/// Serve a directory to rddp put and rddp get
#[derive(Debug, Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"), after_help = "--help shows examples")]
pub(crate) struct ServeArgs {
    /// The directory
    dir: PathBuf,

    /// Listen on this address of the host only
    #[arg(short, long, value_name = "ADDR")]
    bind: Option<IpAddr>,

    /// The port (0: any)
    #[arg(short, long, default_value_t = super::PORT)]
    port: u16,

    /// Nobody may put
    #[arg(long)]
    read_only: bool,

    /// Clients at a time; half of them (rounded up) from one address
    #[arg(long, default_value_t = 64, value_name = "COUNT")]
    max_clients: usize,

    /// Let go of a client that says nothing for so many seconds, or that is busy for 30 times as long
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_seconds)]
    idle: Duration,

    /// Print where it listens, and each transfer, as a line of JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Listening {
    listening: SocketAddr,
}

/// What all clients' threads share.
struct Server {
    rnic: Rnic,
    root: Root,
    read_only: bool,
    idle: Duration,
    json: bool,
    places: Arc<Places>,
}

pub(super) fn run(args: &ServeArgs) -> Result<(), Failure> {
    let rnic = Rnic::open()?;
    if args.dir.exists() && !args.dir.is_dir() {
        return Err(Failure::failed(format!("{}: not a directory", args.dir.display()))
            .remedy("name the directory that it is in"));
    }
    let root = Root::open(&args.dir).map_err(|error| error.failure(Kind::Failed))?;
    let (listener, addr) = addr::rdma_listener(&rnic, args.bind, args.port, &ConnectOptions::default())?;
    if args.json {
        out::json_event(&Listening { listening: addr });
    } else {
        let what = if args.read_only { "get" } else { "put and get" };
        out::event(format_args!("serving {} on {addr}: {what}", args.dir.display()));
    }
    let (read_only, idle, json) = (args.read_only, args.idle, args.json);
    let places = Arc::new(Places::new(args.max_clients, Some(args.idle)));
    let server = Arc::new(Server { rnic, root, read_only, idle, json, places });
    while !signals::stopped() {
        let request = listener.accept(Some(signals::LOOK));
        if let Some(request) = request.map_err(|error| Failure::failed(format!("accepting: {error}")))? {
            take_in(&server, request);
        }
    }
    drop(listener);
    server.drain();
    Ok(())
}

/// Starts a thread for a client, if it is one and there is room.
fn take_in(server: &Arc<Server>, request: ConnectRequest) {
    // Whether a refusal reaches the peer is the peer's business.
    if request.private_data() != GREETING {
        let _ = request.reject(b"this is rddp serve: use rddp put or rddp get of the same version");
        return;
    }
    let peer = request.peer_addr().map(|peer| addr::plain(peer).ip());
    let Some(place) = server.places.take(peer) else {
        let _ = request.reject(b"too many clients at the moment");
        return;
    };
    let for_client = server.clone();
    let started = threads::start((request, place), move |(request, place)| for_client.serve(request, &place));
    if let Err(((request, _place), error)) = started {
        out::complain!("rddp: starting a thread: {error}; others are served");
        let _ = request.reject(NO_THREAD.as_bytes());
    }
}

impl Server {
    fn serve(&self, request: ConnectRequest, place: &Place) {
        let peer =
            request.peer_addr().map_or_else(|| "a client".to_owned(), |peer| addr::plain(peer).to_string());
        match Client::accept(self, request, peer.clone(), place).and_then(Client::serve) {
            Err(failure) if failure.kind() != Kind::Interrupted => out::complain!("{peer}: {failure}"),
            _ => {}
        }
    }

    /// Gives the clients' threads, which see the stop themselves, a moment to end.
    fn drain(&self) {
        for _ in 0..20 {
            if self.places.are_free() {
                return;
            }
            thread::sleep(signals::LOOK);
        }
    }
}
