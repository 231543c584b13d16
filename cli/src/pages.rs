//! `rddp pages`: man pages and shell completions, made from the arguments' own descriptions.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::builder::Resettable;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use rddp_command::failure::Failure;

const NAME: &str = "rddp";

/// The shells that get completions.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

/// Variables of the environment that all subcommands obey.
const ENVIRONMENT: [(&str, &str); 3] = [
    ("RDDP_LOG", "what to tell on standard error: for example rnic=debug,switch=info, or debug for all"),
    ("RUST_LOG", "the same, where RDDP_LOG is not set"),
    (
        "RDDP_CAPTURE",
        "a file of pcapng that gets what goes over iWARP connections; %p in its name is the process",
    ),
];

/// Variables of programs that `rddp run` runs, besides.
const PROGRAMS: [(&str, &str); 13] = [
    ("RDDP_LOG_FILE", "a file for what RDDP_LOG tells, in place of standard error; %p is the process"),
    ("RDDP_POLICY", "a policy's file, as of --policy"),
    ("RDDP_SDP_DEVICE", "the RDMA device for connections that are SDP, in place of TCP"),
    ("RDDP_FAMILY", "one word for all connections: tcp, ddp, both, sdp, sdp-or-tcp"),
    ("RDDP_STARTUP_TIMEOUT", "milliseconds for a peer to speak MPA, SDP or neither"),
    ("RDDP_PROGRESS", "caller or threads: who does what a socket does on its own"),
    ("RDDP_SDP_*", "SOURCE_THRESHOLD, SINK_THRESHOLD, BCOPY, BUFS, MODE and FAMILIES: settings of SDP"),
    (
        "RDDP_PLACEMENT",
        "user, auto or kernel: what places for raw mode; RDDP_PLACEMENT_INTERFACES and _TRUSTED go with it",
    ),
    (
        "RDDP_VERBS_*",
        "MPA, CRC, MARKERS, LARGE_FPDUS, PEER_TO_PEER, RTR, SPEAKS_FIRST, IRD, ORD, EXTENSIONS: a policy's words for all peers",
    ),
    ("RDDP_ROCE", "NAME=ADDRESS,...: devices that look like RoCE, as of --roce"),
    ("RDDP_VERBS_STRICT", "on: the iWARP device refuses what adapters refuse"),
    ("RDDP_VERBS_FAULTS", "rules of faults that are made on demand, for tests, with ; between them"),
    ("LIBSDP_CONFIG_FILE, SIMPLE_LIBSDP, ALWAYS_USE_SDP", "as libsdp has them, where none of ours is set"),
];

/// Write man pages to DIR/man1 and completions to DIR/bash, DIR/zsh and DIR/fish
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct PagesArgs {
    /// Folder that gets them; made if it is not there
    dir: PathBuf,
}

pub(crate) fn run(args: &PagesArgs, command: &Command) -> Result<(), Failure> {
    write(&args.dir, command)
        .map_err(|error| Failure::failed(format!("writing to {}: {error}", args.dir.display())))
}

fn write(dir: &Path, command: &Command) -> io::Result<()> {
    let man = dir.join("man1");
    fs::create_dir_all(&man)?;
    let mut without_help = command.clone().disable_help_subcommand(true);
    without_help.build();
    write_pages(&without_help, &man, None)?;
    for shell in SHELLS {
        let dir = dir.join(shell.to_string());
        fs::create_dir_all(&dir)?;
        clap_complete::generate_to(shell, &mut without_hidden(command), NAME, dir)?;
    }
    Ok(())
}

/// Writes the page of a command, and those of its subcommands. `above` is the command whose
/// subcommand it is.
fn write_pages(command: &Command, dir: &Path, above: Option<&Command>) -> io::Result<()> {
    let text = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let rest = command.clone().after_help(Resettable::Reset).after_long_help(Resettable::Reset);
    let source = format!("{NAME} {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(rest).source(source);
    let mut page = Vec::new();
    man.render(&mut page)?;
    sections(&text).to_writer(&mut page)?;
    environment(command).to_writer(&mut page)?;
    see_also(command, above).to_writer(&mut page)?;
    fs::write(dir.join(man.get_filename()), page)?;
    shown(command).try_for_each(|sub| write_pages(sub, dir, Some(command)))
}

/// Returns the command without its hidden subcommands, which `clap_complete` would offer.
fn without_hidden(command: &Command) -> Command {
    Command::new(NAME).args(command.get_arguments()).subcommands(shown(command))
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set())
}

/// Returns the text behind the options as sections. Indented lines stay as they are, which
/// `clap_mangen` would fill.
fn sections(text: &str) -> Roff {
    let mut roff = Roff::new();
    let mut is_indented = false;
    for line in text.lines() {
        if is_indented != line.starts_with(' ') {
            is_indented = !is_indented;
            roff.control(if is_indented { "nf" } else { "fi" }, []);
        }
        match line {
            "" => roff.control("PP", []),
            "Examples:" => roff.control("SH", ["EXAMPLES"]),
            "Exit codes:" => roff.control("SH", ["EXIT STATUS"]),
            line => roff.text([roman(line)]),
        };
    }
    roff
}

fn environment(command: &Command) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["ENVIRONMENT"]);
    let programs = if command.get_name() == "run" { &PROGRAMS[..] } else { &[] };
    for (name, what) in ENVIRONMENT.iter().chain(programs) {
        roff.control("TP", []).text([bold(*name)]).text([roman(*what)]);
    }
    roff
}

/// Names the pages of the command above and of those beside this one; a command's own subcommands
/// have a section already.
fn see_also(command: &Command, above: Option<&Command>) -> Roff {
    let mut roff = Roff::new();
    let Some(above) = above else { return roff };
    let others = shown(above).filter(|other| other.get_name() != command.get_name());
    // The command itself has no other name to show.
    let name = |command: &Command| command.get_display_name().unwrap_or(NAME).to_owned();
    let pages = [above].into_iter().chain(others).map(|command| format!("{}(1)", name(command)));
    let pages: Vec<_> = pages.collect();
    roff.control("SH", ["SEE ALSO"]).text([roman(pages.join(", "))]);
    roff
}
