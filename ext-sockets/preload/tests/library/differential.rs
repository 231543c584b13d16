use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::support::{command, compile, succeeded};

const SOURCES: [&str; 5] =
    ["calls/main.c", "calls/setup.c", "calls/moving.c", "calls/kernel.c", "calls/waiting.c"];

/// Output of one run: the lines of the program, and of the child that writes to a file.
fn run(program: &Path, with_library: bool, scratch: &Path) -> String {
    run_as(program, with_library, scratch, &[])
}

fn run_as(program: &Path, with_library: bool, scratch: &Path, arguments: &[&str]) -> String {
    let folder = scratch.join(if with_library { "with" } else { "without" });
    let mut run = command(program, with_library, &folder);
    if !arguments.is_empty() {
        run.args(arguments).env("RDDP_FAMILY", "ddp");
    }
    let mut lines = succeeded(&run.output().unwrap());
    lines += &std::fs::read_to_string(folder.join("lines")).unwrap_or_default();
    lines
}

#[track_caller]
fn same_lines(bare: &str, preloaded: &str) {
    for (number, (bare, preloaded)) in bare.lines().zip(preloaded.lines()).enumerate() {
        assert_eq!(preloaded, bare, "line {}", number + 1);
    }
    assert_eq!(preloaded.lines().count(), bare.lines().count());
}

#[test]
fn plain_sockets_have_the_results_and_errnos_that_they_have_without_the_library() {
    for options in [&["-O0"][..], &["-O2", "-D_FORTIFY_SOURCE=2", "-D_FILE_OFFSET_BITS=64"]] {
        let scratch = TempDir::new().unwrap();
        let program = compile(&SOURCES, scratch.path(), options);
        let bare = run(&program, false, scratch.path());
        assert!(bare.lines().count() > 250, "{bare}");
        same_lines(&bare, &run(&program, true, scratch.path()));
    }
}

/// Lines in which sockets in DDPMODE differ from TCP's.
const OTHERWISE: [(&str, &str); 7] = [
    // A null pointer is refused before it is known whether there are octets.
    ("recv(b, BAD, 300, MSG_DONTWAIT) = -1, 11", "recv(b, BAD, 300, MSG_DONTWAIT) = -1, 14"),
    // DDPMODE has no urgent octets; the reads behind them that this send would cut are not cut
    // either.
    ("send(a, buf, 4, MSG_OOB) = 4, 0", "send(a, buf, 4, MSG_OOB) = -1, 95"),
    (
        "recvfrom(b, buf + 100, 7, MSG_WAITALL, NULL, NULL) = 3, 0",
        "recvfrom(b, buf + 100, 7, MSG_WAITALL, NULL, NULL) = 7, 0",
    ),
    ("recv(b, buf, sizeof buf, MSG_DONTWAIT) = 28, 0", "recv(b, buf, sizeof buf, MSG_DONTWAIT) = 21, 0"),
    // A program must do itself what these calls do within the kernel.
    ("splice(tube[0], NULL, a, NULL, 3, 0) = 3, 0", "splice(tube[0], NULL, a, NULL, 3, 0) = -1, 22"),
    ("splice(-1, NULL, b, NULL, 3, 0) = -1, 9", "splice(-1, NULL, b, NULL, 3, 0) = -1, 22"),
    (
        "splice(b, NULL, tube[1], NULL, 3, SPLICE_F_NONBLOCK) = 3, 0",
        "splice(b, NULL, tube[1], NULL, 3, SPLICE_F_NONBLOCK) = -1, 22",
    ),
];

#[test]
fn sockets_in_ddpmode_have_the_results_that_tcp_has() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&SOURCES, scratch.path(), &["-O1"]);
    let bare = run_as(&program, false, scratch.path(), &["ddpmode"]);
    let wanted = bare.lines().map(|line| {
        let other = OTHERWISE.iter().find(|(tcp, _)| *tcp == line).map_or(line, |(_, ddp)| ddp);
        other.to_owned() + "\n"
    });
    same_lines(&wanted.collect::<String>(), &run_as(&program, true, scratch.path(), &["ddpmode"]));
}

#[test]
fn plain_sockets_make_the_system_calls_that_they_make_without_the_library() {
    if Command::new("strace").arg("-V").output().is_err() {
        eprintln!("not checked: there is no strace here");
        return;
    }
    let scratch = TempDir::new().unwrap();
    let program = compile(&SOURCES, scratch.path(), &["-O1"]);
    let bare = trace(&program, false, scratch.path());
    assert!(bare.lines().count() > 400, "{bare}");
    same_lines(&bare, &trace(&program, true, scratch.path()));
}

/// Returns the system calls of a run from the first of `main` on, without the parts that differ
/// from run to run.
fn trace(program: &Path, with_library: bool, scratch: &Path) -> String {
    let folder = scratch.join(if with_library { "with" } else { "without" });
    let log = scratch.join("trace");
    let mut run = command(Path::new("strace"), false, &folder);
    // One log for each process: the order between processes varies.
    run.args(["-ff", "-qq", "-a1", "-e", "signal=none", "-o"]).arg(&log);
    if with_library {
        run.arg("-E").arg(format!("LD_PRELOAD={}", crate::support::library().display()));
    }
    succeeded(&run.arg(program).output().unwrap());
    let mut logs: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(scratch).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with("trace.") {
            logs.push(path);
        }
    }
    // Process IDs grow.
    logs.sort_by_key(|path| path.extension().unwrap().to_string_lossy().parse::<u32>().unwrap());
    let mut lines = String::new();
    for path in logs {
        let text = std::fs::read_to_string(&path).unwrap();
        // The calls before are the loading of libraries.
        let own = text.split_once("write(1, \"\", 0)").map_or(&text[..], |(_, own)| own);
        lines.extend(
            own.lines().filter(|line| !of_malloc(line)).map(|line| without_what_differs(line) + "\n"),
        );
        std::fs::remove_file(path).unwrap();
    }
    lines
}

/// Returns whether a call is one of the heap's, whose beginning and growth depend on allocations
/// before `main`.
fn of_malloc(line: &str) -> bool {
    ["brk(", "getrandom(", "mmap(", "munmap("].iter().any(|call| line.starts_with(call))
}

/// Replaces addresses, process IDs and ports by `#`.
fn without_what_differs(line: &str) -> String {
    let mut words = String::new();
    let mut rest = line;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, number) = rest.split_at(start);
        let end = number.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(number.len());
        let (number, after) = number.split_at(end);
        let differs = number.starts_with("0x7") && number.len() > 10
            || number.starts_with("0x5") && number.len() > 10
            || before.ends_with("htons(")
            || number.len() > 2 && number.bytes().all(|octet| octet.is_ascii_digit());
        words += before;
        words += if differs { "#" } else { number };
        rest = after;
    }
    words + rest
}
