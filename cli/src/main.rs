//! The command `rddp`.
//!
//! | module | what |
//! |---|---|
//! | `demo` | every operation once, with every octet compared |
//! | `perf` | measurements, beside plain TCP |
//! | `ping` | rping's protocol, both roles |
//! | `gateway` | plain hosts reach programs behind RDMA devices |
//! | `files`, `serve` | put, get, ls; serve: their arguments |
//! | `block` | disks by NBD |
//! | `run` | runs a program with the socket switch, or rddp's verbs, in front of its libraries |
//! | `roce` | the files that tell of devices which look like RoCE |
//! | `install` | a folder with the command and its libraries |
//! | `portmap` | the iWARP port mapper: server and client |
//! | `decode` | the messages in a capture |
//! | `stat` | counters of running programs: `stat`, `ss` |
//! | `pages` | man pages and completions, for packages |
//! | `doctor` | what this host offers, and what to change |
//! | `device` | the option `--device` |
//! | `child` | the second process, where both ends are on this host |
//! | `logging` | what the command prints of what happens |
//!
//! What subcommands have in common is in the crate `rddp_command`.
#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used)]

mod block;
mod child;
mod congestion;
mod decode;
mod demo;
mod device;
mod doctor;
mod files;
mod gateway;
mod install;
mod logging;
mod pages;
mod perf;
mod ping;
mod portmap;
mod roce;
mod run;
mod serve;
mod stat;

use std::process::ExitCode;

use clap::{Arg, ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};
use rddp_command::failure::{EXIT_CODES, Failure};
use rddp_command::out::{self, Style};
use rddp_command::signals;

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
  rddp stat                           what programs that use rddp send and receive; with --top: live
  rddp doctor                         what this host offers, and what to change

With --json, results are objects on standard output and failures objects on standard error, one a line. Each has
\"schema\": 1, a number that changes when a field goes or gets another meaning.
Set RDDP_LOG (for example RDDP_LOG=rnic=trace), or RUST_LOG, for more detail than -vv.
Set RDDP_CAPTURE=/tmp/%p.pcapng for a capture of what a process (%p) sends and receives by rddp, for Wireshark or
rddp decode.";

/// RDMA for every NIC: iWARP over plain TCP, in user space
#[derive(Debug, Parser)]
#[command(name = "rddp", version, propagate_version = true)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"), after_help = "--help shows examples and exit codes")]
struct Cli {
    /// Print what happens to standard error; twice: in detail
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,

    /// Show results and failures alone: no progress, and of a server nothing of what went well
    #[arg(short, long, global = true)]
    quiet: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::DemoArgs),
    /// Run the second process of the demo
    #[command(hide = true)]
    DemoPassive(device::Device),
    Perf(perf::PerfArgs),
    Ping(ping::PingArgs),
    Serve(serve::ServeArgs),
    Put(files::PutArgs),
    Get(files::GetArgs),
    Ls(files::LsArgs),
    Block(block::BlockArgs),
    Run(run::RunArgs),
    Roce(roce::RoceArgs),
    Install(install::InstallArgs),
    Gateway(gateway::GatewayArgs),
    Portmap(portmap::PortmapArgs),
    Stat(stat::StatArgs),
    Ss(stat::SsArgs),
    /// Point to `rddp stat --top`
    #[command(hide = true)]
    Top,
    Decode(decode::DecodeArgs),
    Doctor(doctor::DoctorArgs),
    Pages(pages::PagesArgs),
}

/// The subcommands for which `--quiet` changes nothing: they take it, and their help leaves it out.
const NEVER_QUIET: [&str; 8] = ["demo", "run", "roce", "install", "stat", "ss", "decode", "doctor"];

/// Returns the command with its subcommands, as it parses arguments and shows help.
fn parser() -> clap::Command {
    let hidden = |sub: clap::Command| {
        let quiet = Arg::new("quiet").short('q').long("quiet").action(ArgAction::SetTrue);
        sub.arg(quiet.global(true).hide(true))
    };
    NEVER_QUIET.iter().fold(Cli::command(), |command, name| command.mut_subcommand(name, hidden))
}

fn main() -> ExitCode {
    let parsed = parser().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed.map_err(|error| error.format(&mut parser())) {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    out::set_style(Style { json: cli.command.json(), quiet: cli.quiet, verbose: cli.verbose > 0 });
    logging::begin(cli.verbose);
    // A program that takes this process over handles signals itself.
    let signals = if matches!(cli.command, Command::Run(_)) { Ok(()) } else { signals::install() };
    match signals.and_then(|()| run(&cli.command, cli.verbose)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if failure.is_silent() => ExitCode::from(failure.kind().code()),
        Err(failure) => failure.report(),
    }
}

impl Command {
    /// Returns whether the command is to print JSON.
    fn json(&self) -> bool {
        match self {
            Command::Demo(args) => args.json,
            Command::Perf(args) => args.json(),
            Command::Ping(args) => args.json,
            Command::Serve(args) => args.json,
            Command::Put(args) => args.json(),
            Command::Get(args) => args.json(),
            Command::Ls(args) => args.json(),
            Command::Block(args) => args.json(),
            Command::Gateway(args) => args.json,
            Command::Portmap(args) => args.json,
            Command::Stat(args) => args.json,
            Command::Ss(args) => args.json,
            Command::Decode(args) => args.json,
            Command::Doctor(args) => args.json,
            Command::DemoPassive(_)
            | Command::Run(_)
            | Command::Roce(_)
            | Command::Install(_)
            | Command::Pages(_)
            | Command::Top => false,
        }
    }
}

/// Prints help, the version, or what is wrong with the arguments.
fn refuse(error: &clap::Error) -> ExitCode {
    let mut args = std::env::args_os().take_while(|arg| arg != "--");
    let json = args.any(|arg| arg == "--json" || arg == "-J");
    if !error.use_stderr() || !json {
        error.exit();
    }
    out::set_style(Style { json, ..Style::default() });
    misuse(&error.to_string()).report()
}

/// Returns what clap says of the arguments in paragraphs: the cause is the first of them, the
/// remedy a tip, or else how the command is used.
fn misuse(text: &str) -> Failure {
    let on_one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let paragraphs: Vec<_> = text.split("\n\n").map(on_one_line).collect();
    let cause = paragraphs.first().map_or("", String::as_str);
    let beginning = |prefix| paragraphs.iter().find_map(|text| text.strip_prefix(prefix));
    let remedy = beginning("tip: ").or_else(|| beginning("Usage: ")).unwrap_or("--help shows the options");
    Failure::usage(cause.strip_prefix("error: ").unwrap_or(cause)).remedy(remedy)
}

fn run(command: &Command, verbose: u8) -> Result<(), Failure> {
    match command {
        Command::Demo(args) => demo::run(args),
        Command::DemoPassive(device) => demo::passive::run(&device.choice()),
        Command::Perf(args) => perf::run(args),
        Command::Ping(args) => ping::run(args),
        Command::Serve(args) => args.run(),
        Command::Put(args) => args.run(),
        Command::Get(args) => args.run(),
        Command::Ls(args) => args.run(),
        Command::Block(args) => args.run(),
        Command::Run(args) => run::run(args, verbose),
        Command::Roce(args) => roce::run(args),
        Command::Install(args) => install::run(args),
        Command::Gateway(args) => args.run(),
        Command::Portmap(args) => portmap::run(args),
        Command::Stat(args) => stat::run(args),
        Command::Ss(args) => stat::ss(args),
        Command::Top => Err(Failure::usage("there is no command top").remedy("rddp stat --top")),
        Command::Decode(args) => decode::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Pages(args) => pages::run(args, &parser()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misuse_names_what_is_missing_and_how_it_is_written() {
        for (args, cause, remedy) in [
            (
                &["perf", "client"][..],
                "the following required arguments were not provided: <HOST[:PORT]>",
                "rddp perf client <HOST[:PORT]>",
            ),
            (&["stats"], "unrecognized subcommand 'stats'", "a similar subcommand exists: 'stat'"),
            (
                &["stat", "x"],
                "invalid value 'x' for '[PID]...': invalid digit found in string",
                "--help shows the options",
            ),
        ] {
            let error = parser().try_get_matches_from(["rddp"].iter().chain(args)).unwrap_err();
            let failure = misuse(&error.to_string());
            assert_eq!((failure.to_string().as_str(), failure.how()), (cause, Some(remedy)));
        }
    }
}
