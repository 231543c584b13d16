//! The command `rddp`.
//!
//! | module | what |
//! |---|---|
//! | `demo` | every operation once, with every octet compared |
//! | `perf` | measurements, beside plain TCP |
//! | `ping` | rping's protocol, both roles |
//! | `transfer` | files: serve, put, get |
//! | `run` | runs a program with the socket switch, or rddp's verbs, in front of its libraries |
//! | `install` | a folder with the command and its libraries |
//! | `portmap` | the iWARP port mapper: server and client |
//! | `decode` | the messages in a capture |
//! | `pages` | man pages and completions, for packages |
//! | `doctor` | what this host offers, and what to change |
//! | `child` | the second process, where both ends are on this host |
//! | `endpoint` | one connection and all that it needs |
//! | `failure` | causes, remedies, exit codes |
//! | `places`, `threads` | the number of clients of a server, and a thread for each |
//! | `signals`, `addr`, `units`, `out` | Ctrl-C; names and addresses; numbers; standard output |
#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used)]

mod addr;
mod child;
mod decode;
mod demo;
mod doctor;
mod endpoint;
mod failure;
mod install;
mod out;
mod pages;
mod perf;
mod ping;
mod places;
mod portmap;
mod run;
mod signals;
mod threads;
mod transfer;
mod units;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{ArgAction, Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use crate::failure::{EXIT_CODES, Failure, Kind};

const EXAMPLES: &str = "\
Examples:
  rddp demo                           begin here: what RDMA does, checked and measured
  rddp perf local                     RDMA operations beside plain TCP, both ends here
  rddp ping --server                  answer pings of rddp ping, or of rping on an RDMA device
  rddp ping 192.0.2.1                 and send them
  rddp serve /srv/files               a directory, for:
  rddp put big.iso 192.0.2.1/big.iso
  rddp get 192.0.2.1/big.iso
  rddp run --ddp -- iperf3 -s         a program's TCP connections as iWARP
  rddp run --verbs -- rping -s        an RDMA program, without an RDMA device
  rddp doctor                         what this host offers, and what to change

Set RUST_LOG (for example RUST_LOG=rddp_rnic=debug) for more detail than -vv.";

/// RDMA for every NIC: iWARP over plain TCP, in user space
#[derive(Debug, Parser)]
#[command(name = "rddp", version, propagate_version = true)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"), after_help = "--help shows examples and exit codes")]
struct Cli {
    /// Print what happens to standard error; twice: in detail
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::DemoArgs),
    /// Run the second process of the demo
    #[command(hide = true)]
    DemoPassive,
    Perf(perf::PerfArgs),
    Ping(ping::PingArgs),
    Serve(transfer::ServeArgs),
    Put(transfer::PutArgs),
    Get(transfer::GetArgs),
    Run(run::RunArgs),
    Install(install::InstallArgs),
    Portmap(portmap::PortmapArgs),
    Decode(decode::DecodeArgs),
    Doctor(doctor::DoctorArgs),
    Pages(pages::PagesArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    log_to_stderr(cli.verbose);
    // A program that takes this process over handles signals itself.
    let signals = if matches!(cli.command, Command::Run(_)) { Ok(()) } else { signals::install() };
    match signals.and_then(|()| run(&cli.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if matches!(failure.kind(), Kind::Interrupted | Kind::NobodyReads) => {
            ExitCode::from(failure.kind().code())
        }
        Err(failure) => failure.report(),
    }
}

fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Demo(args) => demo::run(args),
        Command::DemoPassive => demo::passive::run(),
        Command::Perf(args) => perf::run(args),
        Command::Ping(args) => ping::run(args),
        Command::Serve(args) => transfer::serve(args),
        Command::Put(args) => transfer::put(args),
        Command::Get(args) => transfer::get(args),
        Command::Run(args) => run::run(args),
        Command::Install(args) => install::run(args),
        Command::Portmap(args) => portmap::run(args),
        Command::Decode(args) => decode::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Pages(args) => pages::run(args, &<Cli as clap::CommandFactory>::command()),
    }
}

fn log_to_stderr(verbose: u8) {
    let default = match verbose {
        0 => "error",
        1 => "info",
        _ => "debug",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // An error of logging would be reported on standard error, and by a panic if that is
        // closed.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
}
