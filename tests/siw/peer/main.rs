//! `siw-peer`: the host's end of the scenarios in SCENARIOS.md, on rddp.
#![allow(missing_docs, unreachable_pub, reason = "a program of its own")]

mod fault;
mod link;
mod lost;
mod options;
mod pattern;
mod transfer;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use rddp_rnic::{ConnectError, Listener, Rnic, Status};

use self::link::Link;
use self::options::{End, Options};

pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("siw-peer: {error}");
            eprintln!(
                "usage: siw-peer active|passive ADDRESS PORT SCENARIO [KEY=VALUE...]: see SCENARIOS.md"
            );
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => {
            println!("all is as expected");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("FAIL: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Outcome<()> {
    let rnic = Rnic::open()?;
    let listener = match options.role {
        End::Passive => Some(rnic.listen(options.addr, &options.connect_options())?),
        End::Active => None,
    };
    if listener.is_some() {
        println!("listening");
    }
    // Whoever has slept once has a descriptor that wakes it, and may not have to in the first
    // connection.
    rnic.create_cq(1)?.wait(Some(Duration::from_millis(1)))?;
    let mut descriptors = Vec::new();
    for number in 0..options.connections {
        connection(options, number, &rnic, listener.as_ref())
            .map_err(|error| format!("connection {number}: {error}"))?;
        while rnic.async_event().is_some() {}
        if number == 0 {
            descriptors = open_descriptors()?;
        }
    }
    if options.scenario == "reject" {
        // A process that ends closes TCP, and siw reads nothing of a Reply whose FIN has come.
        std::thread::sleep(Duration::from_millis(500));
    }
    let mut left = settled_descriptors(descriptors.len())?;
    if left.len() <= descriptors.len() {
        return Ok(());
    }
    for kept in descriptors {
        left.iter().position(|name| *name == kept).map(|index| left.swap_remove(index));
    }
    Err(format!("descriptors that were not open after the first connection: {left:?}").into())
}

/// Returns the open descriptors, once those of the last connection have had time to be closed.
fn settled_descriptors(most: usize) -> Outcome<Vec<String>> {
    let deadline = Instant::now() + Duration::from_secs(2);
    while open_descriptors()?.len() > most && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    open_descriptors()
}

fn connection(options: &Options, number: u64, rnic: &Rnic, listener: Option<&Listener>) -> Outcome<()> {
    let (rights, apart) = fault::token(&options.kind)?;
    let mut link = Link::prepare(options, number, rnic, rights, apart)?;
    play(&mut link, listener).map_err(|error| {
        let (sent, received) = (link.qp.terminate_sent(), link.qp.terminate_received());
        let events: Vec<_> = rnic.async_events().map(|event| event.kind).collect();
        format!("{error} ({}, sent {sent:?}, received {received:?}, {events:?})", link.qp.state()).into()
    })
}

fn play(link: &mut Link<'_>, listener: Option<&Listener>) -> Outcome<()> {
    match (link.options.scenario.as_str(), listener) {
        ("reject", Some(listener)) => {
            let request = link.take_request(listener)?;
            link.reject(request)
        }
        ("reject", None) => match link.connect()? {
            Ok(()) => Err("accepted where a rejection is expected".into()),
            Err(error) => link.check_rejection(&error),
        },
        ("refused", Some(listener)) => refused_passive(link, listener),
        ("refused", None) => refused_active(link),
        (scenario, listener) => {
            match listener {
                Some(listener) => {
                    let request = link.take_request(listener)?;
                    link.accept(request)?;
                }
                None => link.connect()??,
            }
            link.exchange_adverts()?;
            match scenario {
                "fault" => fault::run(link),
                "lost" => lost::run(link),
                _ => transfer::run(link),
            }
        }
    }
}

/// The connection fails, in the startup or right after it, and brings no message.
fn refused_active(link: &Link<'_>) -> Outcome<()> {
    match link.connect()? {
        Err(ConnectError::Tcp(error)) => Err(format!("TCP failed: {error}").into()),
        Err(error) => {
            link.say(&format!("refused: {error}"));
            Ok(())
        }
        Ok(()) => Err("connected where a refusal is expected".into()),
    }
}

fn refused_passive(link: &mut Link<'_>, listener: &Listener) -> Outcome<()> {
    let deadline = Instant::now() + link.options.wait;
    if let Some(request) = listener.accept(Some(link.options.wait))? {
        match link.accept(request) {
            Ok(()) => {}
            Err(error) => {
                link.say(&format!("could not accept: {error}"));
                return Ok(());
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if link.message_within(left)? {
            return Err("a message arrived".into());
        }
    }
    Ok(())
}

impl Link<'_> {
    fn message_within(&mut self, patience: Duration) -> Outcome<bool> {
        Ok(self.receive_within(patience)? && self.expect_received(Status::Flushed).is_err())
    }
}

/// Returns what each open descriptor is of.
fn open_descriptors() -> Outcome<Vec<String>> {
    let links = std::fs::read_dir("/proc/self/fd")?.map(|entry| std::fs::read_link(entry?.path()));
    // What is closed meanwhile is left out.
    let mut found: Vec<_> = links.flatten().map(|link| link.display().to_string()).collect();
    found.sort();
    Ok(found)
}
