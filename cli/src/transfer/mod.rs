//! `rddp serve`, `rddp put`, `rddp get`: files by RDMA Writes and Reads.
//!
//! | file | what |
//! |---|---|
//! | `greeting`, `token` | which protocol, and who may use it |
//! | `protocol`, `talk` | what is said, and the connection that it is said on |
//! | `files`, `checksum` | paths that stay inside; SHA-256 |
//! | `source`, `partial` | files that leave, files that arrive |
//! | `target`, `sink`, `stream` | where a get goes: files, and what is no file |
//! | `put`, `get` | the client |
//! | `serve` | the server |
//! | `remote`, `show` | `HOST[:PORT]/PATH`; progress and results |

mod checksum;
mod files;
mod get;
mod greeting;
mod partial;
mod protocol;
mod put;
mod remote;
mod serve;
mod show;
mod sink;
mod source;
mod stream;
mod talk;
mod target;
mod token;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

pub(crate) use self::serve::ServeArgs;
use self::token::Token;
use crate::failure::{EXIT_CODES, Failure};
use crate::units::{parse_octets, parse_seconds};

/// Where rddp serve waits.
const PORT: u16 = 7177;

const PUT_EXAMPLES: &str = "\
Examples:
  rddp put big.iso 192.0.2.1/big.iso     into the directory that rddp serve serves there
  rddp put big.iso 192.0.2.1/            the same
  rddp put notes '[fd77::2]:9000/a/b'    another port, a subdirectory that exists
  rddp put notes 192.0.2.1/ --token token --no-clobber

A transfer that was interrupted goes on where it ended: repeat the command. The file has its name at the server once
all of it is there and its SHA-256 is the same at both ends; until then it is NAME.rddp.part. A file that changes
meanwhile does not get there. A file that is there is replaced, which is told, unless --no-clobber is given; of a
symbolic link, the file that it leads to within the directory is. What is no regular file, or has octets but no size
as those of /proc, is not sent.";

const GET_EXAMPLES: &str = "\
Examples:
  rddp get 192.0.2.1/big.iso             to ./big.iso
  rddp get 192.0.2.1/big.iso /data/      to /data/big.iso
  rddp get '[fd77::2]:9000/a/b' notes    another port, another name
  rddp get 192.0.2.1/notes --token token --no-clobber
  rddp get 192.0.2.1/log - | less        to standard output; the result is then on standard error

A transfer that was interrupted goes on where it ended: repeat the command. The file has its name once all of it is
here and its SHA-256 is the same at both ends; until then it is NAME.rddp.part. A file that changes meanwhile is
refused. A file that is there is replaced, which is told, unless --no-clobber is given. A pipe or a device is written
to, never replaced; of a symbolic link, the file that it leads to is replaced.";

/// Send a file to rddp serve by RDMA Writes
#[derive(Debug, Args)]
#[command(after_long_help = format!("{PUT_EXAMPLES}\n\n{EXIT_CODES}"), after_help = "--help shows examples")]
pub(crate) struct PutArgs {
    /// The file
    local: PathBuf,

    /// Where it goes
    #[arg(value_name = "HOST[:PORT]/PATH")]
    remote: String,

    #[command(flatten)]
    common: Common,
}

/// Fetch a file from rddp serve by RDMA Reads
#[derive(Debug, Args)]
#[command(after_long_help = format!("{GET_EXAMPLES}\n\n{EXIT_CODES}"), after_help = "--help shows examples")]
pub(crate) struct GetArgs {
    /// The file
    #[arg(value_name = "HOST[:PORT]/PATH")]
    remote: String,

    /// Where it goes: a file, a directory, a pipe, a device, or - for standard output
    #[arg(default_value = ".")]
    local: PathBuf,

    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct Common {
    /// Do not show progress; the result is printed all the same
    #[arg(short, long)]
    quiet: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    /// Move no more octets a second than this
    #[arg(long, value_name = "OCTETS", value_parser = parse_rate)]
    limit: Option<u64>,

    /// Fail rather than replace a file that is there
    #[arg(long)]
    no_clobber: bool,

    /// Prove to the server that this file's token is its own; the token itself is not sent
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,

    /// Give up when the server says nothing for so many seconds
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_seconds)]
    timeout: Duration,
}

impl Common {
    /// The token, if one is named.
    fn token(&self) -> Result<Option<Token>, Failure> {
        self.token.as_deref().map(Token::read).transpose()
    }
}

fn parse_rate(text: &str) -> Result<u64, String> {
    match parse_octets(text)? {
        0 => Err("a limit of 0 moves nothing".into()),
        rate => Ok(rate),
    }
}

pub(crate) fn put(args: &PutArgs) -> Result<(), Failure> {
    put::run(args)
}

pub(crate) fn get(args: &GetArgs) -> Result<(), Failure> {
    get::run(args)
}

pub(crate) fn serve(args: &ServeArgs) -> Result<(), Failure> {
    serve::run(args)
}
