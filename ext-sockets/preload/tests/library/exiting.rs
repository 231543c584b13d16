//! Programs that exit while other threads use their sockets: over plain TCP these see nothing of
//! it, and the status is the program's.

use tempfile::TempDir;

use crate::support::{FRAMED, command, compile};

const WAYS: [&str; 4] = ["with_writers", "with_all_calls", "behind_a_slow_handler", "to_a_server"];
/// Each ends at another moment; before the exit kept the threads back, one in three failed.
const TIMES: usize = 8;

#[test]
fn an_exit_keeps_its_status_and_tells_no_other_thread() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["exiting.c"], scratch.path(), &["-pthread"]);
    for family in FRAMED.iter().map(Some).chain([None]) {
        for (way, time) in WAYS.iter().flat_map(|way| (0..TIMES).map(move |time| (way, time))) {
            let mut command = command(&program, family.is_some(), scratch.path());
            command.args([way, time.to_string().as_str()]);
            let output = command.envs(family.map(|family| ("RDDP_FAMILY", family))).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!((output.status.code(), said.as_str()), (Some(7), ""), "{way} {time}, {family:?}");
        }
    }
}
