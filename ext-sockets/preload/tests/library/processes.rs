use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::support::{FRAMED, command, compile, succeeded};

const WAYS: [&str; 13] = [
    "child_serves",
    "prefork",
    "reader_and_writer",
    "inetd",
    "inetd_fresh",
    "vforked",
    "passed",
    "passed_again",
    "closed_in_between",
    "exits_with_octets",
    "stranger",
    "cancelled",
    "stdio",
];

fn run(program: &Path, way: &str, family: Option<&str>, scratch: &Path) -> Command {
    let mut command = command(program, family.is_some(), scratch);
    command.arg(way).envs(family.map(|family| ("RDDP_FAMILY", family)));
    command
}

#[test]
fn processes_that_share_a_connection_move_every_octet_as_over_plain_tcp() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["processes.c"], scratch.path(), &["-pthread"]);
    for way in WAYS {
        // Without the library a process without part in the connection reads the octets.
        if way != "stranger" {
            let plain = succeeded(&run(&program, way, None, scratch.path()).output().unwrap());
            assert_eq!(plain, "as it should be\n", "{way}, plain");
        }
        for family in FRAMED {
            let said = succeeded(&run(&program, way, Some(family), scratch.path()).output().unwrap());
            assert_eq!(said, "as it should be\n", "{way}, {family}");
        }
    }
}
