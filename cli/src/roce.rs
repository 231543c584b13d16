//! `rddp roce`: the files that tell of devices which look like RoCE, for programs to which they
//! have to be shown otherwise than by `rddp run --roce`.

use std::io::ErrorKind;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use rddp_command::failure::Failure;
use rddp_command::out::say;
use rddp_roce::tree::{self, Shown};

use crate::run::{devices, roce};

const EXAMPLES: &str = "\
Examples:
  rddp roce tree /opt/roce                            the files of the device of rddp run --roce
  rddp roce tree /opt/roce --roce mlx5_0=192.0.2.1    of one with a name and an address
  docker run -v /opt/roce/sys/class:/host/sys/class:ro IMAGE

rddp run --roce shows them to programs that call the C library. For others (Go) they are mounted: docs/roce.md.

Exit codes:
  0    done
  1    this host could not do it: a folder that is not empty, or that cannot be written
  2    wrong arguments
  130  interrupted
  141  nobody reads the output any more";

/// Show devices that look like RoCE to programs that read files
#[derive(Debug, Args)]
pub(crate) struct RoceArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Tree(TreeArgs),
}

/// Write the files of /sys/class/infiniband* and /dev/infiniband into a folder
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, after_help = "--help shows examples and exit codes")]
struct TreeArgs {
    /// Folder that gets sys and dev; empty, or made if it is not there
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// The devices, as of rddp run --roce
    #[arg(long, value_name = "NAME=ADDRESS,...", default_value = "", hide_default_value = true, value_parser = roce)]
    roce: String,
}

pub(crate) fn run(args: &RoceArgs) -> Result<(), Failure> {
    let Command::Tree(TreeArgs { folder, roce }) = &args.command;
    let devices = Shown::all(&devices(roce)?);
    tree::render(&devices, folder).map_err(|error| {
        let failure = Failure::failed(format!("{}: {error}", folder.display()));
        let is_full = error.kind() == ErrorKind::DirectoryNotEmpty;
        if is_full { failure.remedy("name an empty folder, or one that is not there") } else { failure }
    })?;
    for device in &devices {
        let interface = device.interface.as_deref().unwrap_or("no interface of this host");
        say!("{}: on {interface}", device.name);
    }
    Ok(())
}
