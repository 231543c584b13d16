//! `rddp block`: disks by NBD.
//!
//! | module | what |
//! |---|---|
//! | `serve` | the command: which disks, where |
//! | `server` | the thread that serves all clients |
//! | `client` | one client: its handshake, its requests under way |
//! | `disk` | the file of an export, and the threads that wait for it |
//! | `bell` | ends the wait of that thread |
//! | `buffers` | registered memory for payloads |

mod bell;
mod buffers;
mod client;
mod disk;
mod serve;
mod server;

use clap::{Args, Subcommand};
use rddp_command::failure::Failure;

/// Serve disks
#[derive(Debug, Args)]
pub(crate) struct BlockArgs {
    #[command(subcommand)]
    command: BlockCommand,
}

#[derive(Debug, Subcommand)]
enum BlockCommand {
    Serve(serve::ServeArgs),
}

impl BlockArgs {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        match &self.command {
            BlockCommand::Serve(args) => args.run(),
        }
    }

    pub(crate) fn json(&self) -> bool {
        match &self.command {
            BlockCommand::Serve(args) => args.json,
        }
    }
}
