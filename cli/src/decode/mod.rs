//! `rddp decode`: the messages of MPA, DDP, RDMAP and SDP in a capture.

mod json;

use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use rddp_decode::{Event, Summary, What, decode};

use crate::failure::{EXIT_CODES, Failure, Kind};
use crate::out;

const EXAMPLES: &str = "\
Examples:
  tcpdump -i lo -s 0 -w lo.pcap       captures all octets of packets
  RDDP_CAPTURE=/tmp/%p.pcapng rddp ping 192.0.2.1
                                      the same without root, of what one process sends and receives by rddp
  rddp decode lo.pcap                 a line for each FPDU and each message
  rddp decode lo.pcap --json | jq     an object on each line
  rddp decode lo.pcap --problems      what is wrong, and nothing else

A connection is read from its MPA startup on. On a connection that opens with a Hello, messages of
SDP are shown behind their FPDUs. Lines with WRONG are faults of the sender, or octets that the
capture has not.";

/// Show the messages of MPA, DDP, RDMAP and SDP in a capture (pcap or pcapng)
#[derive(Debug, Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"), after_help = "--help shows examples")]
pub(crate) struct DecodeArgs {
    /// The capture
    file: PathBuf,

    /// Show only what is wrong or cannot be read
    #[arg(short, long)]
    problems: bool,

    /// Print JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &DecodeArgs) -> Result<(), Failure> {
    let name = args.file.display();
    let file = read(&args.file).map_err(|error| Failure::failed(format!("reading {name}: {error}")))?;
    let mut printer = Printer { args, begun: None, out: BufWriter::new(io::stdout().lock()), failed: None };
    let decoded = decode(&file, |event| printer.event(&event));
    let flushed = printer.out.flush();
    if let Some(error) = printer.failed.or(flushed.err()) {
        return Err(match error.kind() {
            ErrorKind::BrokenPipe => Failure::new(Kind::NobodyReads, "nobody reads the output"),
            _ => Failure::failed(format!("writing to standard output: {error}")),
        });
    }
    let summary = decoded.map_err(|error| Failure::failed(format!("{name}: {error}")))?;
    drop(printer.out);
    conclude(args, &summary);
    Ok(())
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    std::fs::read(path)
}

fn conclude(args: &DecodeArgs, summary: &Summary) {
    if args.json {
        out::json(&json::summary(summary));
        return;
    }
    let Summary { packets, others, connections, fpdus, sdp, problems } = summary;
    out::line(format_args!(
        "{packets} packets ({others} not TCP), {connections} connections, {fpdus} FPDUs, {sdp} messages of SDP, \
         {problems} problems"
    ));
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
        let is_wanted = !self.args.problems || matches!(event.what, What::Problem(_));
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
