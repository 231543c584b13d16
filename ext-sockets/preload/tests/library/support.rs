use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

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

/// Returns a program of these files of `programs/`: a link in the folder to what was compiled when
/// first asked for. Dozens of tests run the same few programs.
pub(crate) fn compile(sources: &[&str], into: &Path, options: &[&str]) -> PathBuf {
    type Programs = HashMap<String, Arc<OnceLock<PathBuf>>>;
    static COMPILED: LazyLock<Mutex<Programs>> = LazyLock::new(Mutex::default);
    let asked = format!("{sources:?} {options:?}");
    let compiled = Arc::clone(COMPILED.lock().unwrap().entry(asked.clone()).or_default());
    let program = into.join("program");
    let kept = compiled.get_or_init(|| compiled_anew(sources, options, &asked));
    let _ = std::fs::remove_file(&program); // of an earlier call for this folder
    std::os::unix::fs::symlink(kept, &program).unwrap();
    program
}

fn compiled_anew(sources: &[&str], options: &[&str], asked: &str) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    asked.hash(&mut hasher);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join(format!("{:016x}", hasher.finish()));
    // Another process of these tests may be running the one of that name.
    let fresh = program.with_extension(std::process::id().to_string());
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include");
    let output = Command::new("cc")
        .args(["-std=gnu11", "-w", "-I"])
        .arg(include)
        .args(sources.iter().map(|source| programs().join(source)))
        .args(options) // after the files: some are libraries
        .arg("-o")
        .arg(&fresh)
        .output()
        .expect("these tests need a C compiler (cc)");
    succeeded(&output);
    std::fs::rename(fresh, &program).unwrap();
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
