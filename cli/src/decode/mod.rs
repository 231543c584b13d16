//! `rddp decode`: the messages of MPA, DDP, RDMAP and SDP in a capture.

mod file;
mod json;

use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use rddp_command::failure::{Failure, FailureKind};
use rddp_command::out;
use rddp_decode::{Event, Summary, decode};

const EXAMPLES: &str = "\
Examples:
  tcpdump -i lo -s 0 -w lo.pcap       captures all octets of packets
  RDDP_CAPTURE=/tmp/%p.pcapng rddp ping 192.0.2.1
                                      the same without root, of what one process sends and receives by rddp
  rddp decode lo.pcap                 a line for each FPDU and each message
  rddp decode lo.pcap --json | jq     an object on each line
  rddp decode lo.pcap --problems      what is wrong, and nothing else; exit code 4 if anything is

A connection is read from its MPA startup on, unless RDDP_CAPTURE has marked it as plain TCP. On a connection that opens with a Hello, messages of
SDP are shown behind their FPDUs. Lines with WRONG are faults of the sender, or octets that the
capture has not. Packets may be those of VLANs and tunnels (VXLAN, GENEVE, GRE, ERSPAN, MPLS,
PPPoE, IP in IP). What was not read is counted by its reason at the end.

Exit codes:
  0    done; with --problems, a startup was read and there are no problems
  1    the file cannot be read, or not all of it; with --problems, no connection of iWARP is in it
  2    wrong arguments
  4    with --problems: there are problems
  130  interrupted
  141  nobody reads the output any more";

/// Show the messages of MPA, DDP, RDMAP and SDP in a capture (pcap or pcapng, also in gzip)
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, after_help = "--help shows examples")]
pub(crate) struct DecodeArgs {
    /// The capture
    file: PathBuf,

    /// Show only what is wrong or cannot be read, and fail if anything is, or nothing could be read
    #[arg(short, long)]
    problems: bool,

    /// Print JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &DecodeArgs) -> Result<(), Failure> {
    let name = args.file.display();
    let (file, cut) = file::read(&args.file)?;
    let mut printer = Printer { args, begun: None, out: BufWriter::new(io::stdout().lock()), failed: None };
    let decoded = decode(&file, |event| printer.event(&event));
    let flushed = printer.out.flush();
    if let Some(error) = printer.failed.or(flushed.err()) {
        return Err(match error.kind() {
            ErrorKind::BrokenPipe => Failure::new(FailureKind::NobodyReads, "nobody reads the output"),
            _ => Failure::failed(format!("writing to standard output: {error}")),
        });
    }
    drop(printer.out);
    let unreadable = |error| Failure::failed(format!("{name}: {error}"));
    let summary = match decoded {
        Ok(summary) => summary,
        Err(error) => return Err(cut.unwrap_or_else(|| unreadable(error))),
    };
    conclude(args, &summary);
    // Octets that gzip did not give are why the file ends too early.
    if let Some(failure) = cut.or_else(|| summary.stopped.map(unreadable)) {
        return Err(failure);
    }
    if args.problems { judge(args, &summary) } else { Ok(()) }
}

/// Fails if anything is wrong, or nothing could be read.
fn judge(args: &DecodeArgs, summary: &Summary) -> Result<(), Failure> {
    let name = args.file.display();
    if summary.problems > 0 {
        return Err(Failure::mismatch(format!("{name}: {}", problems(summary))));
    }
    if summary.startups == 0 {
        let remedy = "capture whole packets from the beginning of a connection on: tcpdump -s 0";
        return Err(Failure::failed(format!("{name}: no connection of iWARP in it")).remedy(remedy));
    }
    Ok(())
}

fn conclude(args: &DecodeArgs, summary: &Summary) {
    if args.json {
        out::json(&json::summary(summary));
        return;
    }
    for (reason, count) in &summary.unread {
        out::line(format_args!("not read: {count} packets: {reason}"));
    }
    let Summary { packets, connections, plain, fpdus, cut_fpdus, sdp, .. } = summary;
    if *cut_fpdus > 0 {
        out::line(format_args!(
            "not captured whole: {cut_fpdus} FPDUs: their payload and CRC are not checked"
        ));
    }
    let (unread, problems) = (unread(summary), problems(summary));
    let plain = if *plain > 0 { format!(" ({plain} plain TCP)") } else { String::new() };
    out::line(format_args!(
        "{packets} packets ({unread} not read), {connections} connections{plain}, {fpdus} FPDUs, \
         {sdp} messages of SDP, {problems}"
    ));
}

/// Returns the number of packets that were not read.
fn unread(summary: &Summary) -> usize {
    summary.unread.values().sum()
}

/// Returns the number of problems, and which Terminates are among them.
fn problems(summary: &Summary) -> String {
    let count = summary.terminates.values().sum::<usize>();
    let codes = summary.terminates.iter().map(|(code, count)| {
        let code = code.map_or("not captured".to_owned(), |code| format!("{code:#06x}"));
        if *count == 1 { code } else { format!("{count} x {code}") }
    });
    let codes = codes.collect::<Vec<_>>().join(", ");
    let problems = summary.problems;
    match count {
        0 => format!("{problems} problems"),
        1 => format!("{problems} problems (1 Terminate: {codes})"),
        _ => format!("{problems} problems ({count} Terminates: {codes})"),
    }
}

/// Prints events as they come.
struct Printer<'a, W: Write> {
    args: &'a DecodeArgs,
    /// The time of the first event, from which others count.
    begun: Option<Duration>,
    out: W,
    failed: Option<io::Error>,
}

impl<W: Write> Printer<'_, W> {
    fn event(&mut self, event: &Event) {
        let is_wanted = !self.args.problems || event.what.is_problem();
        let begun = *self.begun.get_or_insert(event.time);
        if !is_wanted || self.failed.is_some() {
            return;
        }
        let printed = if self.args.json {
            out::to_json(&json::event(event))
                .map_err(io::Error::from)
                .and_then(|text| writeln!(self.out, "{text}"))
        } else {
            let time = event.time.saturating_sub(begun).as_secs_f64();
            let Event { connection, from, to, what, .. } = event;
            writeln!(self.out, "{time:.6} #{connection} {from} > {to} {what}")
        };
        self.failed = printed.err();
    }
}
