//! Both ends of the comparison: an instrument that `benches/compare/run` plays.
//!
//! ```text
//! rddp-compare server ADDRESS         the passive end; prints the port that it listens on, serves one client
//! rddp-compare client ADDRESS:PORT    the active end; takes commands on standard input, answers on standard output
//! rddp-compare register MIB           how long registering takes, without a peer
//! ```
//! Commands and answers are JSON, one a line: [`spec::Command`]. Connections stay open between
//! slices, so that two kinds of traffic can take turns in one pair of processes.
#![deny(unsafe_code)]

mod active;
mod control;
mod counted;
mod host;
mod passive;
mod rdma;
mod register;
mod spec;
mod tcp;
mod turns;

use std::process::ExitCode;

/// An error that stops a measurement; the text is for a person.
type Fault = Box<dyn std::error::Error + Send + Sync>;
type Outcome<T> = Result<T, Fault>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["server", address] => passive::serve(address),
        ["client", server] => active::obey(server),
        ["register", mib] => register::measure(mib),
        _ => Err("usage: rddp-compare server ADDRESS | client ADDRESS:PORT | register MIB".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("rddp-compare: {fault}");
            ExitCode::FAILURE
        }
    }
}
