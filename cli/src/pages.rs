//! `rddp pages`: man pages and shell completions, made from the arguments' own descriptions.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::builder::Resettable;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::failure::Failure;

const NAME: &str = "rddp";

/// The shells that get completions.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

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
    write_pages(&without_help, &man)?;
    for shell in SHELLS {
        let dir = dir.join(shell.to_string());
        fs::create_dir_all(&dir)?;
        clap_complete::generate_to(shell, &mut without_hidden(command), NAME, dir)?;
    }
    Ok(())
}

/// Writes the page of a command, and those of its subcommands.
fn write_pages(command: &Command, dir: &Path) -> io::Result<()> {
    let text = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let rest = command.clone().after_help(Resettable::Reset).after_long_help(Resettable::Reset);
    let man = Man::new(rest);
    let mut page = Vec::new();
    man.render(&mut page)?;
    sections(&text).to_writer(&mut page)?;
    fs::write(dir.join(man.get_filename()), page)?;
    shown(command).try_for_each(|sub| write_pages(sub, dir))
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
