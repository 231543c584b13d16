//! `rddp stat` and `rddp ss`: what connections of running programs do.
//!
//! | file | what |
//! |---|---|
//! | `process` | processes with counters, found under `/proc` |
//! | `page` | a process's file of counters, read without trust |
//! | `streams` | byte streams of programs under `rddp run`, in the same form |
//! | `sample` | all of it at one moment, joined to what the kernel's TCP counts |
//! | `diag`, `tcp_info` | the kernel's TCP connections, by netlink |
//! | `text`, `line` | tables of `stat`, lines of `ss` |
//! | `json`, `openmetrics`, `irdma` | the same for programs, and the names that irdma has for counters |
//! | `top` | the live table of `stat --top` |

mod diag;
mod irdma;
mod json;
mod line;
mod openmetrics;
mod page;
mod process;
mod sample;
mod streams;
mod tcp_info;
mod text;
mod top;

use std::time::{Duration, Instant};

use clap::{ArgGroup, Args};
use rddp_command::failure::{EXIT_CODES, Failure};
use rddp_command::units::parse_seconds;
use rddp_command::{out, signals};

use self::sample::Sample;

const EXAMPLES: &str = "\
Examples:
  rddp stat                            each program that has connections by rddp, with its counts
  rddp stat 1234                       one process
  rddp stat -i 1                       rates, each second, until Ctrl-C
  rddp stat --openmetrics > rddp.prom  for Prometheus, with its node_exporter's textfile collector
  rddp ss                              a line for each connection, beside what TCP says of it
  rddp stat --top                      the busiest connections, live

Programs are found under /proc: yours, and as root those of all users. They need not do anything for it, no port is
opened, and counts go when their process goes.";

/// Show what the programs that use rddp send, receive and meet
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("repeated").args(["interval", "top"]).multiple(true))]
#[command(after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"), after_help = "--help shows examples")]
pub(crate) struct StatArgs {
    /// Processes to look at [default: all that may be looked at]
    #[arg(value_name = "PID")]
    pids: Vec<u32>,

    /// Show the busiest connections, live; each second, or as --interval says
    #[arg(long, conflicts_with_all = ["json", "openmetrics"])]
    top: bool,

    /// Show rates, each time after so many seconds, until Ctrl-C
    #[arg(short, long, value_name = "SECONDS", value_parser = parse_interval)]
    interval: Option<Duration>,

    /// End after so many intervals
    #[arg(short = 'n', long, value_name = "NUMBER", requires = "repeated")]
    count: Option<u64>,

    /// Print counts as JSON; with --interval an object each time
    #[arg(long)]
    pub(crate) json: bool,

    /// Print counts in the text format of OpenMetrics
    #[arg(long, conflicts_with_all = ["json", "interval"])]
    openmetrics: bool,
}

/// List the connections of the programs that use rddp, beside what TCP says of each
#[derive(Debug, Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"), after_help = "--help shows examples")]
pub(crate) struct SsArgs {
    /// Processes to look at [default: all that may be looked at]
    #[arg(value_name = "PID")]
    pids: Vec<u32>,

    /// Print an object for each connection
    #[arg(long)]
    pub(crate) json: bool,
}

/// Parses the time between two looks: shorter than this would cost more than it shows.
pub(crate) fn parse_interval(text: &str) -> Result<Duration, String> {
    let shortest = Duration::from_millis(50);
    parse_seconds(text).and_then(|time| {
        if time < shortest { Err("at least 0.05 seconds lie between two looks".into()) } else { Ok(time) }
    })
}

pub(crate) fn run(args: &StatArgs) -> Result<(), Failure> {
    let first = Sample::take(&args.pids)?;
    match args.interval {
        interval if args.top => return top::run(args, first, interval.unwrap_or(top::INTERVAL)),
        None if args.openmetrics => openmetrics::print(&first),
        None if args.json => out::json(&json::processes(&first)),
        None => text::print(&first),
        Some(interval) => return repeat(args, first, interval),
    }
    Ok(())
}

/// Prints what has happened in each interval, until it is enough.
fn repeat(args: &StatArgs, first: Sample, interval: Duration) -> Result<(), Failure> {
    let mut before = first;
    let mut due = Instant::now();
    for _ in 0..args.count.unwrap_or(u64::MAX) {
        due += interval;
        signals::sleep(due.saturating_duration_since(Instant::now()))?;
        let now = Sample::take(&args.pids)?;
        if args.json {
            out::json(&json::processes(&now));
        } else {
            text::print_rates(&before, &now);
        }
        before = now;
    }
    Ok(())
}

pub(crate) fn ss(args: &SsArgs) -> Result<(), Failure> {
    let sample = Sample::take(&args.pids)?;
    for (process, connection) in sample.connections() {
        if args.json {
            out::json(&json::connection(process, connection));
        } else {
            line::print(process, connection);
        }
    }
    if !args.json {
        sample.say_if_empty();
    }
    Ok(())
}
