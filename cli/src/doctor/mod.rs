//! `rddp doctor`: shows what this host offers to rddp, and what to change.
//!
//! | file | what |
//! |---|---|
//! | `finding` | one fact about the host, and how it is printed |
//! | `interfaces`, `tcp`, `limits`, `processor` | this host |
//! | `placement` | whether the kernel could place Writes |
//! | `sockets` | what `rddp run` needs |
//! | `verbs` | what RDMA programs need, and which of them work |
//! | `roce` | the same under `rddp run --roce` |
//! | `software` | the limits of the library that all of rddp is built on |
//! | `devices` | RDMA devices of the kernel, which could be mistaken for rddp's |
//! | `peer` | another host, if one is named |

mod devices;
mod finding;
mod interfaces;
mod limits;
mod peer;
mod placement;
mod processor;
mod roce;
mod sockets;
mod software;
mod tcp;
mod verbs;

use std::ffi::OsString;
use std::path::Path;

use clap::Args;
use rddp_command::failure::{Failure, FailureKind};
use rddp_command::out;
use serde::Serialize;

use self::finding::{Finding, Level, Topic, print};
use self::interfaces::Interface;

const EXAMPLES: &str = "\
Examples:
  rddp doctor                          this host
  rddp doctor 192.0.2.1                that one too: does its port mapper answer, does an iWARP listener on port 7174?
  rddp doctor 192.0.2.1:20049          the same for another port
  rddp doctor --verbs rping            can this RDMA program be run by rddp run --verbs?
  rddp doctor --roce ib_write_bw       can this one be run by rddp run --roce, and which device would it see?
  rddp doctor --json | jq '.findings[] | select(.level != \"ok\")'

Marks:
  (none)  as it should be, or for information
  *       could be better: the arrow says how
  !       prevents rddp from working

Exit codes:
  0    nothing has the mark !
  1    something has it: this host, or the program
  2    wrong arguments
  3    the peer has it: it is not there, or does not speak iWARP
  130  interrupted
  141  nobody reads the output any more";

/// Check what this host offers to rddp, and show what to change
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, after_help = "--help shows examples and exit codes")]
pub(crate) struct DoctorArgs {
    /// Another host to check
    #[arg(value_name = "HOST[:PORT]")]
    host: Option<String>,

    /// Look only at this RDMA program
    #[arg(long, value_name = "PROGRAM", conflicts_with = "host")]
    verbs: Option<OsString>,

    /// Look only at this RDMA program, and at the devices that look like RoCE
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["host", "verbs"])]
    roce: Option<OsString>,

    /// Print the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The result for `--json`.
#[derive(Serialize)]
struct Report {
    interfaces: Vec<Interface>,
    findings: Vec<Finding>,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let (interfaces, findings) = match (&args.verbs, &args.roce) {
        (Some(program), _) => (Vec::new(), verbs::look_at(program)),
        (_, Some(program)) => (Vec::new(), roce::look_at(program)?),
        _ => host(args.host.as_deref())?,
    };
    let report = Report { interfaces, findings };
    if args.json {
        out::json(&report);
    } else {
        print(&report.findings);
    }
    verdict(&report.findings)
}

/// Looks at this host, and at another one if it is named.
fn host(host: Option<&str>) -> Result<(Vec<Interface>, Vec<Finding>), Failure> {
    let root = Path::new("/");
    let (interfaces, mut findings) = interfaces::inspect(root);
    findings.extend(tcp::inspect(root));
    findings.extend(limits::inspect()?);
    findings.extend(processor::inspect(root));
    findings.push(placement::inspect(root));
    findings.extend(sockets::inspect(root));
    findings.extend(verbs::inspect());
    findings.extend(software::inspect());
    findings.extend(devices::inspect(root));
    let peer = host.map(peer::inspect).transpose()?;
    findings.extend(peer.into_iter().flatten());
    Ok((interfaces, findings))
}

fn verdict(findings: &[Finding]) -> Result<(), Failure> {
    match findings.iter().find(|finding| finding.level == Level::Bad) {
        None => Ok(()),
        Some(bad) => {
            let kind = if bad.topic == Topic::Peer { FailureKind::Peer } else { FailureKind::Failed };
            // What is said of a program names it.
            let subject = if bad.topic == Topic::Verbs { "" } else { &format!("{}: ", bad.subject) };
            Err(Failure::new(kind, format!("{subject}{}", bad.value)))
        }
    }
}
