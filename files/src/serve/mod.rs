//! `rddp serve`: serves a directory to put and get, with one thread for many clients.

mod activation;
mod client;
mod get;
mod served;
mod startups;
mod tree;
mod warnings;
mod workers;

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rddp_command::device::Choice;
use rddp_command::failure::{Failure, FailureKind};
use rddp_command::listeners::{At, Listeners};
use rddp_command::out;
use rddp_command::places::{Places, TOO_MANY};
use rddp_command::threads::NO_THREAD;
use rddp_command::{addr, signals};
use rddp_rnic::{ConnectOptions, ConnectRequest, Rnic};
use serde::Serialize;

use self::client::Client;
pub(super) use self::startups::Startup;
use self::startups::Startups;
use self::warnings::Warnings;
use self::workers::{Newcomer, Workers};
use super::files::Root;
use super::greeting::{Hello, NoHello};
use super::strategy::{Mappings, Plan};
use super::tasks::Hub;
use super::token::Token;

/// The wishes of a user who serves files.
#[derive(Clone, Debug)]
pub struct Serving {
    /// The directory to serve.
    pub dir: PathBuf,
    /// The address of the host to listen on.
    pub bind: IpAddr,
    /// The port to listen on.
    pub port: u16,
    /// The devices to listen on.
    pub devices: Vec<Choice>,
    /// Clients may put as well.
    pub writable: bool,
    /// Clients may put symbolic links that lead out of their trees.
    pub links_out: bool,
    /// The file with the token; if none is named, that of the environment.
    pub token: Option<PathBuf>,
    /// Clients at a time.
    pub max_clients: NonZeroUsize,
    /// Time for which a client may say nothing.
    pub idle: Duration,
    /// TCP's congestion control; the host's without one.
    pub congestion: Option<String>,
    /// The way in which single files are given.
    pub plan: Plan,
    /// The address, and each transfer, are printed as JSON.
    pub json: bool,
}

#[derive(Serialize)]
struct Listening {
    listening: SocketAddr,
    devices: Vec<At>,
}

/// State that all clients share.
struct Server {
    root: Root,
    writable: bool,
    links_out: bool,
    token: Option<Token>,
    idle: Duration,
    plan: Plan,
    mappings: Mappings,
    json: bool,
    startups: Arc<Startups>,
    places: Arc<Places>,
    warnings: Warnings,
}

/// Serves a directory until the process is asked to stop.
pub fn serve(args: &Serving) -> Result<(), Failure> {
    let dir = &args.dir;
    if let Err(error) = dir.metadata()
        && error.kind() == ErrorKind::NotFound
    {
        return Err(Failure::failed(format!("{}: no such directory", dir.display()))
            .remedy("make it first, or name another"));
    }
    if dir.exists() && !dir.is_dir() {
        return Err(Failure::failed(format!("{}: not a directory", dir.display()))
            .remedy("name the directory that it is in"));
    }
    let token = Token::of(args.token.as_deref())?;
    let root = Root::open(dir).map_err(|error| error.failure(FailureKind::Failed))?;
    let mut listeners = listen(args)?;
    listeners.devices().try_for_each(|rnic| args.plan.check(rnic))?;
    if args.json {
        out::json_event(&Listening { listening: listeners.addr(), devices: listeners.places() });
    } else {
        let what = if args.writable { "put and get" } else { "get" };
        let what = if token.is_some() { format!("{what}, with the token") } else { what.to_owned() };
        out::event(format_args!("serving {} on {}: {what}", dir.display(), listeners.shown()));
    }
    let Serving { writable, links_out, idle, plan, json, .. } = *args;
    let places = Arc::new(Places::new(args.max_clients.get(), Some(args.idle)));
    let (startups, warnings) = (Startups::new(args.idle), Warnings::default());
    let mappings = Mappings::default();
    let server = Arc::new(Server {
        root,
        writable,
        links_out,
        token,
        idle,
        plan,
        mappings,
        json,
        startups,
        places,
        warnings,
    });
    let mut workers = Workers::new(&server);
    while !signals::stopped() {
        if let Some((rnic, request)) = listeners.accept(signals::CHECK_INTERVAL)? {
            take_in(&server, &mut workers, rnic, request);
        }
    }
    let ended = listeners.end();
    server.drain();
    ended
}

/// Listens on the socket that a service manager has passed, else on the address of the arguments.
fn listen(args: &Serving) -> Result<Listeners, Failure> {
    let options = ConnectOptions { congestion: args.congestion.clone(), ..ConnectOptions::default() };
    let Some(socket) = activation::listener()? else {
        return Listeners::open(&args.devices, Some(args.bind), args.port, &options);
    };
    let failed = |error: &dyn std::error::Error| {
        Failure::failed(format!("listening on the socket of the service manager: {error}"))
    };
    let rnic = args.devices.first().unwrap_or(&Choice::Unsaid).open()?;
    let listener = rnic.listen_on(socket, activation::BACKLOG, &options).map_err(|error| failed(&error))?;
    let addr = listener.local_addr().map_err(|error| failed(&error))?;
    Ok(Listeners::of(&rnic, listener, addr))
}

/// Gives a client to a thread, if the request comes from one.
fn take_in(server: &Server, workers: &mut Workers, rnic: Rnic, request: ConnectRequest) {
    let hello = match welcome(request.private_data(), server.token.is_some()) {
        Ok(hello) => hello,
        Err(reason) => {
            server.warnings.refused(&addr::of_client(&request), reason);
            // A rejection that cannot be sent, here and below, is the client's loss alone.
            let _ = request.reject(reason.as_bytes());
            return;
        }
    };
    let host = request.peer_addr().map(|peer| addr::plain(peer).ip());
    let Some(entry) = server.startups.enter(host) else {
        server.warnings.turned_away(&TOO_MANY);
        let _ = request.reject(TOO_MANY.as_bytes());
        return;
    };
    match workers.next(&rnic) {
        Ok(worker) => worker.take(Newcomer { rnic, request, hello, host, entry }),
        Err(error) => {
            server.warnings.turned_away(&format_args!("starting a thread: {error}"));
            let _ = request.reject(NO_THREAD.as_bytes());
        }
    }
}

/// Parses a client's greeting. The error is the reason for which the client is refused.
fn welcome(private_data: &[u8], token: bool) -> Result<Hello, &'static str> {
    match Hello::parse(private_data) {
        Ok(Hello { token: true, .. }) if !token => {
            Err("this server has no token: leave --token and RDDP_TOKEN_FILE out")
        }
        Ok(Hello { token: false, .. }) if token => {
            Err("this server asks for a token: name its file with --token")
        }
        Ok(hello) => Ok(hello),
        Err(NoHello::OtherVersion) => {
            Err("rddp serve of another version: run the same version of rddp at both ends")
        }
        Err(NoHello::OtherProtocol) => Err("this is rddp serve: use rddp put or rddp get"),
    }
}

impl Server {
    async fn serve(&self, hub: Rc<Hub>, newcomer: Newcomer) {
        let peer = addr::of_client(&newcomer.request);
        let served = match Client::accept(self, &hub, newcomer, peer.clone()) {
            Ok(client) => client.serve().await,
            Err(failure) => Err(failure),
        };
        match served {
            Err(failure) if failure.kind() == FailureKind::TurnedAway => {
                self.warnings.turned_away(&failure.in_one_line());
            }
            Err(failure) if failure.kind() == FailureKind::NobodyReads => out::client_left(&peer, &failure),
            Err(failure) if failure.kind() != FailureKind::Interrupted => out::client_failed(&peer, &failure),
            _ => {}
        }
    }

    /// Gives the clients' tasks, which stop by themselves, a moment to end.
    fn drain(&self) {
        for _ in 0..20 {
            if self.places.are_free() && self.startups.are_none() {
                return;
            }
            thread::sleep(signals::CHECK_INTERVAL);
        }
    }
}
