//! `rddp block`: disks by NBD, and by NVMe over RDMA.
//!
//! | module | what |
//! |---|---|
//! | `serve` | the command: which disks, where |
//! | `listen` | its ports, and who is let in |
//! | `server` | the thread that serves all clients |
//! | `troubles` | what it warns of |
//! | `session` | one client of whatever protocol, and what all are served by |
//! | `client` | a client of NBD: its handshake, its requests under way |
//! | `payload` | the payload of a write of such a client |
//! | `nvme` | a host of NVMe: its queues, their commands under way |
//! | `disk` | the file of an export, and the threads that wait for it |
//! | `pool` | jobs that wait for those threads |
//! | `copy` | the command: an image from a disk to another |
//! | `ls` | the command: the disks of a server |
//! | `bench` | the command: how fast a disk is |
//! | `place` | names of disks on the command line |
//! | `end` | a disk to copy from or to, here or far away |
//! | `uri` | names of disks far away |
//! | `nbd` | such a disk of an NBD server |
//! | `initiator` | such a disk of an NVMe target |
//! | `silence` | how long a server may owe an answer |
//! | `desk` | what one thread works with such ends by |
//! | `bell` | ends the wait of that thread |
//! | `buffers` | registered memory for payloads |
//! | `shares` | how much of it a disk has |

mod bell;
mod bench;
mod buffers;
mod client;
mod copy;
mod desk;
mod disk;
mod end;
mod initiator;
mod listen;
mod ls;
mod nbd;
mod nvme;
mod payload;
mod place;
mod pool;
mod serve;
mod server;
mod session;
mod shares;
mod silence;
mod troubles;
mod uri;

use std::time::Duration;

use clap::{Args, Subcommand};
use rddp_command::failure::Failure;
use rddp_command::units::parse_seconds;

/// The port that clients of NBD take where none is named.
const PORT: u16 = 10809;

/// Serve, copy, list and measure disks
#[derive(Debug, Args)]
pub(crate) struct BlockArgs {
    #[command(subcommand)]
    command: BlockCommand,
}

#[derive(Debug, Subcommand)]
enum BlockCommand {
    Serve(serve::ServeArgs),
    Copy(copy::CopyArgs),
    Ls(ls::LsArgs),
    Bench(bench::BenchArgs),
}

/// Options of a client of any server
#[derive(Debug, Args)]
struct ClientArgs {
    /// Seconds for which a server may owe an answer and say nothing
    #[arg(long, default_value = "120", value_name = "SECONDS", value_parser = parse_seconds)]
    timeout: Duration,

    /// Name of this host for NVMe targets [default: that of /etc/nvme/hostnqn, or one made up]
    #[arg(long, value_name = "NQN")]
    host_nqn: Option<String>,
}

impl BlockArgs {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        match &self.command {
            BlockCommand::Serve(args) => args.run(),
            BlockCommand::Copy(args) => args.run(),
            BlockCommand::Ls(args) => args.run(),
            BlockCommand::Bench(args) => args.run(),
        }
    }

    pub(crate) fn json(&self) -> bool {
        match &self.command {
            BlockCommand::Serve(args) => args.json,
            BlockCommand::Copy(args) => args.json,
            BlockCommand::Ls(args) => args.json,
            BlockCommand::Bench(args) => args.json,
        }
    }
}
