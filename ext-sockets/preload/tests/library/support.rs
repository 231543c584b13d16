use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The families of byte streams in FPDUs, with which a test of them is made.
pub(crate) const FRAMED: &[&str] = &["ddp", "sdp"];

/// Returns the path of the library that cargo has built for these tests.
pub(crate) fn library() -> PathBuf {
    let path = std::env::current_exe().unwrap().with_file_name("librddp_sockets.so");
    assert!(path.is_file(), "{} is not there", path.display());
    path
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// Compiles these files of `programs/`.
pub(crate) fn compile(sources: &[&str], into: &Path, options: &[&str]) -> PathBuf {
    let program = into.join("program");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include");
    let output = Command::new("cc")
        .args(["-std=gnu11", "-w", "-I"])
        .arg(include)
        .args(sources.iter().map(|source| programs().join(source)))
        .args(options) // after the files: some are libraries
        .arg("-o")
        .arg(&program)
        .output()
        .expect("these tests need a C compiler (cc)");
    succeeded(&output);
    program
}

/// Returns the output of a program that ended well.
#[track_caller]
pub(crate) fn succeeded(output: &Output) -> String {
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    assert!(output.status.success(), "{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Returns a command that runs the program with or without the library, in a folder of its own,
/// with no input.
pub(crate) fn command(program: &Path, with_library: bool, folder: &Path) -> Command {
    std::fs::create_dir_all(folder).unwrap();
    let mut command = Command::new(program);
    // Cargo names folders in which an older library may lie.
    command
        .current_dir(folder)
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("LD_PRELOAD")
        .stdin(std::process::Stdio::null());
    if with_library {
        command.env("LD_PRELOAD", library());
    }
    command
}
