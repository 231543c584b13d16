use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::support::{command, compile, succeeded};

const SOURCES: [&str; 5] =
    ["calls/main.c", "calls/setup.c", "calls/moving.c", "calls/kernel.c", "calls/waiting.c"];

/// What one run has left: its lines, and the lines of the child that writes to a file.
fn run(program: &Path, with_library: bool, scratch: &Path) -> String {
    let folder = scratch.join(if with_library { "with" } else { "without" });
    let mut lines = succeeded(&command(program, with_library, &folder).output().unwrap());
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

/// The system calls of a run from the first of `main` on, without what differs from run to run.
fn trace(program: &Path, with_library: bool, scratch: &Path) -> String {
    let folder = scratch.join(if with_library { "with" } else { "without" });
    let log = scratch.join("trace");
    let mut run = command(Path::new("strace"), false, &folder);
    // A log for each process: the order between processes is nobody's business.
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
    // Process ids grow.
    logs.sort_by_key(|path| path.extension().unwrap().to_string_lossy().parse::<u32>().unwrap());
    let mut lines = String::new();
    for path in logs {
        let text = std::fs::read_to_string(&path).unwrap();
        // What comes before is the loading of libraries.
        let own = text.split_once("write(1, \"\", 0)").map_or(&text[..], |(_, own)| own);
        lines.extend(
            own.lines().filter(|line| !of_malloc(line)).map(|line| without_what_differs(line) + "\n"),
        );
        std::fs::remove_file(path).unwrap();
    }
    lines
}

/// Where the heap is begun and grown depends on what was allocated before `main`.
fn of_malloc(line: &str) -> bool {
    ["brk(", "getrandom(", "mmap(", "munmap("].iter().any(|call| line.starts_with(call))
}

/// Addresses, process ids and ports become `#`.
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
