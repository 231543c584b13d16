//! `rddp run --verbs`, `rddp install` and `rddp doctor --verbs`.
//!
//! They need `librddp_verbs.so`, which `cargo build -p rddp-verbs-abi` makes (tests do not), and
//! programs of Debian's ibverbs-utils and rdmacm-utils. What is missing is said.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::program::{self, Ended, free_port, run, until};

/// Returns whether the library and these programs are there; says which is not.
fn has(programs: &[&str]) -> bool {
    let folder = Path::new(env!("CARGO_BIN_EXE_rddp")).parent().unwrap();
    let mut missing: Vec<&str> = Vec::new();
    if !["", "deps"].iter().any(|near| folder.join(near).join("librddp_verbs.so").exists()) {
        missing.push("librddp_verbs.so (cargo build -p rddp-verbs-abi)");
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &&&str| std::env::split_paths(&path).any(|folder| folder.join(name).exists());
    missing.extend(programs.iter().filter(|name| !is_there(name)));
    missing.iter().for_each(|name| eprintln!("not tried: there is no {name}"));
    missing.is_empty()
}

fn run_by(rddp: &Path, args: &[&str]) -> Ended {
    Command::new(rddp).args(args).stdin(Stdio::null()).output().unwrap().into()
}

/// Compiles a program of C, and returns its path.
fn compiled(scratch: &TempDir, source: &str, options: &[&str]) -> String {
    let file = scratch.path().join("program.c");
    std::fs::write(&file, source).unwrap();
    let program = scratch.path().join("program").to_str().unwrap().to_owned();
    let status = Command::new("cc").arg(&file).args(["-o", &program]).args(options).status();
    assert!(status.expect("these tests need a C compiler (cc)").success());
    program
}

const NOTHING: &str = "int main(void) { return 0; }\n";

#[test]
fn programs_see_the_device() {
    if !has(&["ibv_devices"]) {
        return;
    }
    let shown = run(&["run", "--verbs", "--", "ibv_devices"]).ok();
    assert!(shown.stdout.contains("rddp0"), "{shown:?}");
    assert_eq!(shown.stderr, "");
}

#[test]
fn the_library_is_found_by_the_real_names_and_loaded_once() {
    if !has(&[]) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let source = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdio.h>
        #include <string.h>
        int main(void) {
            const char *names[] = { "libibverbs.so.1", "libibverbs.so", "librdmacm.so.1", "librdmacm.so" };
            for (int i = 0; i < 4; i++) {
                void *library = dlopen(names[i], RTLD_NOW);
                void *found = library ? dlsym(library, "rdma_create_id") : NULL;
                if (!found) { printf("%s: %s\n", names[i], dlerror()); return 1; }
                if (found != dlsym(RTLD_DEFAULT, "rdma_create_id")) { puts("twice"); return 1; }
            }
            return 0;
        }"#;
    let program = compiled(&scratch, source, &["-ldl"]);
    run(&["run", "--verbs", "--", &program]).ok();
}

#[test]
fn sockets_are_switched_under_verbs_only_if_asked_for() {
    if !has(&[]) {
        return;
    }
    let show = ["sh", "-c", "echo $RDDP_FAMILY; echo $LD_PRELOAD; echo $LD_LIBRARY_PATH"];
    let with = |options: &[&str]| run(&[&["run", "--verbs"], options, &["--"], &show].concat()).ok().stdout;
    let alone = with(&[]);
    assert!(!alone.contains("librddp_sockets.so") && alone.contains("/librddp_verbs.so\n"), "{alone}");
    for family in ["ddp", "tcp"] {
        let both = with(&[&format!("--{family}")]);
        let lines: Vec<_> = both.lines().collect();
        let (sockets, verbs) = lines[1].split_once(':').unwrap();
        assert_eq!(lines[0], family);
        assert!(sockets.ends_with("/librddp_sockets.so") && verbs.ends_with("/librddp_verbs.so"), "{both}");
    }
    let mut command = program::command(&[&["run", "--verbs", "--"], &show[..]].concat());
    let output = command.env("LD_LIBRARY_PATH", "/one").env("RDDP_FAMILY", "ddp").output().unwrap();
    let shown = Ended::from(output).ok().stdout;
    assert!(shown.ends_with(":/one\n") && shown.contains("librddp_sockets.so"), "{shown}");
}

#[test]
fn the_files_of_devices_are_shown_under_roce_alone() {
    if !has(&[]) {
        return;
    }
    let show = ["sh", "-c", "cat /sys/class/infiniband_verbs/uverbs1/ibdev; test -c /dev/infiniband/uverbs1"];
    let list = "mlx5_0=127.0.0.1,rddp_test=127.0.0.2";
    let shown = run(&[&["run", "--roce", list, "--"][..], &show].concat()).ok();
    assert_eq!((shown.stdout.as_str(), shown.stderr.as_str()), ("rddp_test\n", ""));
    let alone = run(&["run", "--verbs", "--", "sh", "-c", "echo $LD_PRELOAD"]).ok().stdout;
    assert!(!alone.contains("librddp_paths.so"), "{alone}");
    run(&["run", "--roce", "mlx5_0", "--", "true"]).failed(2, &["is not NAME=ADDRESS"]);
}

#[test]
fn a_tree_of_devices_is_written_into_an_empty_folder() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("tree");
    let tree = ["roce", "tree", folder.to_str().unwrap()];
    let told = run(&[&tree[..], &["--roce", "mlx5_0=127.0.0.1"]].concat()).ok().stdout;
    assert_eq!(told, "mlx5_0: on lo\n");
    let gid = std::fs::read_to_string(folder.join("sys/class/infiniband/mlx5_0/ports/1/gids/0")).unwrap();
    assert_eq!(gid, "0000:0000:0000:0000:0000:ffff:7f00:0001\n");
    run(&tree).failed(1, &["not empty", "try: "]);
}

/// A program that is ended with the test.
struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        // The program took over the process that was started.
        let _ = kill(Pid::from_raw(self.0.id().try_into().unwrap()), Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

#[test]
fn rping_pings_itself_also_with_switched_sockets() {
    if !has(&["rping"]) {
        return;
    }
    for how in [&["run", "--verbs", "--"][..], &["run", "--verbs", "--ddp", "--"]] {
        let port = free_port().port().to_string();
        let server = [how, &["rping", "-s", "-P", "-a", "127.0.0.1", "-p", &port]].concat();
        let _server = Background(program::command(&server).spawn().unwrap());
        let client = [how, &["rping", "-c", "-V", "-C", "10", "-a", "127.0.0.1", "-p", &port]].concat();
        // Until the server listens, its port refuses.
        until("rping has pinged", || run(&client).code == 0);
    }
}

#[test]
fn programs_that_the_library_cannot_reach_are_refused() {
    if !has(&[]) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let program = compiled(&scratch, NOTHING, &["-static"]);
    run(&["run", "--verbs", "--", &program]).failed(126, &["is linked statically", "try: "]);
    run(&["doctor", "--verbs", &program]).failed(1, &["is linked statically"]);
    run(&["doctor", "--roce", &program]).failed(1, &["is linked statically"]);
    run(&["run", "--verbs", "--", "no-such-program"]).failed(127, &["no-such-program"]);
}

#[test]
fn programs_with_a_real_library_inside_are_refused() {
    if !has(&[]) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let inside =
        r#"const char *volatile text; int main(void) { text = "libibverbs: Warning: %s"; return 0; }"#;
    let program = compiled(&scratch, inside, &[]);
    run(&["run", "--verbs", "--", &program]).failed(126, &["has libibverbs inside", "try: link it"]);
    run(&["doctor", "--verbs", &program]).failed(1, &["has libibverbs inside"]);
    // The shared library's own users may say its name.
    let folder = scratch.path().to_str().unwrap();
    compiled(&scratch, "int nothing;", &["-shared", "-fPIC", "-Wl,-soname,libibverbs.so.1"]);
    std::fs::rename(&program, scratch.path().join("libibverbs.so.1")).unwrap();
    let linked = ["-Wl,--no-as-needed", &format!("-L{folder}"), "-l:libibverbs.so.1"];
    let program = compiled(&scratch, inside, &linked);
    run(&["run", "--verbs", "--", &program]).ok();
}

#[test]
fn a_program_is_looked_at_for_devices_that_look_like_roce() {
    let scratch = tempfile::tempdir().unwrap();
    let asks = r#"int ibv_attach_mcast(void);
        const char *volatile text; int main(void) { text = "/sys/class/infiniband/%s"; return ibv_attach_mcast(); }"#;
    let folder = scratch.path().to_str().unwrap();
    let stub = compiled(
        &scratch,
        "int ibv_attach_mcast(void) { return 0; }",
        &["-shared", "-fPIC", "-Wl,-soname,libmlx5.so.1"],
    );
    std::fs::rename(&stub, scratch.path().join("libmlx5.so.1")).unwrap();
    let program = compiled(&scratch, asks, &[&format!("-L{folder}"), "-l:libmlx5.so.1"]);
    let look = |list: &str| {
        let rddp = Command::new(env!("CARGO_BIN_EXE_rddp"))
            .args(["doctor", "--roce", &program])
            .env("RDDP_ROCE", list)
            .output()
            .unwrap();
        (rddp.status.code(), String::from_utf8_lossy(&rddp.stdout).into_owned())
    };
    let (code, told) = look("mlx5_0=127.0.0.1");
    let words =
        ["mlx5_0, 127.0.0.1 on lo", "is linked with libmlx5.so.1", "ibv_attach_mcast", "finds the device"];
    assert!(code == Some(0) && words.iter().all(|part| told.contains(part)), "{code:?} {told}");
    let (code, told) = look("mlx5_0=192.0.2.77");
    assert!(code == Some(1) && told.contains("no address of this host"), "{code:?} {told}");
}

#[test]
fn programs_with_file_capabilities_are_refused_to_ordinary_users() {
    let scratch = tempfile::tempdir().unwrap();
    let program = compiled(&scratch, NOTHING, &[]);
    let set = Command::new("setcap").args(["cap_net_raw+ep", &program]).stderr(Stdio::null()).status();
    if !nix::unistd::getuid().is_root() || !set.is_ok_and(|status| status.success()) {
        return eprintln!("not tried: file capabilities need root and setcap");
    }
    run(&["run", "--", &program]).ok();
    let rddp = scratch.path().join("rddp");
    for path in [&rddp, &scratch.path().join("librddp_sockets.so")] {
        let from = Path::new(env!("CARGO_BIN_EXE_rddp")).parent().unwrap().join(path.file_name().unwrap());
        let near = from.parent().unwrap().join("deps").join(path.file_name().unwrap());
        std::fs::copy(if from.exists() { from } else { near }, path).unwrap();
    }
    std::fs::set_permissions(scratch.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = Command::new(&rddp);
    std::os::unix::process::CommandExt::uid(&mut command, 65534);
    let ended = Ended::from(command.args(["run", "--", &program]).output().unwrap());
    ended.failed(126, &["has file capabilities", "try: "]);
}

#[test]
fn an_rpath_to_real_libraries_is_named() {
    if !has(&[]) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("theirs");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("libibverbs.so.1"), "").unwrap();
    let old = ["-Wl,--disable-new-dtags", "-Wl,-rpath,/nonexistent:$ORIGIN/theirs"];
    let program = compiled(&scratch, NOTHING, &old);
    let ended = run(&["run", "--verbs", "--", &program]).ok();
    assert!(ended.stderr.contains("RPATH") && ended.stderr.contains("theirs/libibverbs.so.1"), "{ended:?}");
    let told = run(&["doctor", "--verbs", &program]).ok();
    assert!(told.stdout.contains("theirs/libibverbs.so.1"), "{told:?}");
    // A RUNPATH comes behind LD_LIBRARY_PATH.
    let program = compiled(&scratch, NOTHING, &["-Wl,--enable-new-dtags", old[1]]);
    assert_eq!(run(&["run", "--verbs", "--", &program]).ok().stderr, "");
}

/// Returns the command of a copy of rddp alone in a folder.
fn copy_without_libraries(scratch: &TempDir) -> PathBuf {
    copy_to(scratch.path())
}

/// Copies the command into a folder, by a process of its own: a test that starts a program at this
/// moment would else hand on a descriptor that writes the copy, which then cannot be run (ETXTBSY).
fn copy_to(folder: &Path) -> PathBuf {
    let rddp = folder.join("rddp");
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_rddp")).arg(&rddp).status().unwrap();
    assert!(copied.success());
    rddp
}

#[test]
fn a_missing_library_is_told_with_what_makes_it() {
    let scratch = tempfile::tempdir().unwrap();
    let rddp = copy_without_libraries(&scratch);
    let told = ["there is no librddp_verbs.so", "try: cargo build"];
    run_by(&rddp, &["run", "--verbs", "--", "true"]).failed(1, &told);
    let shown = run_by(&rddp, &["doctor", "--verbs", "true"]).ok();
    assert!(shown.stdout.contains(told[0]), "{shown:?}");
}

#[test]
fn a_command_of_cargo_install_tells_how_to_get_the_libraries() {
    let scratch = tempfile::tempdir().unwrap();
    let bin = scratch.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::fs::write(scratch.path().join(".crates.toml"), "").unwrap();
    let rddp = copy_to(&bin);
    for family in ["--verbs", "--ddp"] {
        let told = ["cargo install leaves libraries out", "rddp install --prefix"];
        run_by(&rddp, &["run", family, "--", "true"]).failed(1, &told);
    }
}

#[test]
fn a_library_without_symbols_is_not_run_with() {
    let scratch = tempfile::tempdir().unwrap();
    let rddp = copy_without_libraries(&scratch);
    let empty = compiled(&scratch, "int nothing;\n", &["-shared", "-fPIC"]);
    std::fs::rename(empty, scratch.path().join("librddp_verbs.so")).unwrap();
    run_by(&rddp, &["run", "--verbs", "--", "true"]).failed(1, &["exports nothing", "try: "]);
}

#[test]
fn an_installed_folder_serves_programs() {
    if !has(&[]) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let prefix = scratch.path().join("opt/rddp");
    let args = ["install", "--prefix", prefix.to_str().unwrap()];
    let told = run(&args).ok().stdout;
    let lib = prefix.join("lib");
    assert!(told.contains(&format!("export LD_LIBRARY_PATH={}", lib.display())), "{told}");
    assert!(lib.join("librddp_paths.so").is_file());
    for name in ["libibverbs.so.1", "librdmacm.so.1", "libibverbs.so"] {
        assert_eq!(std::fs::read_link(lib.join(name)).unwrap(), Path::new("librddp_verbs.so"));
    }
    assert_eq!(
        std::fs::read_link(lib.join("librddp_sockets.so")).unwrap(),
        Path::new("librddp_sockets.so.0")
    );
    let preloaded = ["run", "--ddp", "--", "sh", "-c", "echo $LD_PRELOAD"];
    let shown = run_by(&prefix.join("bin/rddp"), &preloaded).ok().stdout;
    assert!(shown.ends_with("/opt/rddp/lib/librddp_sockets.so.0\n"), "{shown}");
    // It installs itself elsewhere, and leaves what is there.
    let again = run_by(&prefix.join("bin/rddp"), &args).ok();
    assert!(again.stdout.contains("0 of them new"), "{again:?}");
    let show = ["run", "--verbs", "--", "sh", "-c", "echo $LD_LIBRARY_PATH"];
    let shown = run_by(&prefix.join("bin/rddp"), &show).ok().stdout;
    let first = shown.split([':', '\n']).next().unwrap();
    assert_eq!(Path::new(first), lib.canonicalize().unwrap());
    if has(&["ibv_devices"]) {
        let output = Command::new("ibv_devices").env("LD_LIBRARY_PATH", &lib).output().unwrap();
        assert!(Ended::from(output).ok().stdout.contains("rddp0"));
    }
}

#[test]
fn files_of_others_are_not_overwritten() {
    if !has(&[]) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    std::fs::create_dir(scratch.path().join("lib")).unwrap();
    let theirs = scratch.path().join("lib/libibverbs.so.1");
    std::fs::write(&theirs, "theirs").unwrap();
    let prefix = scratch.path().to_str().unwrap();
    run(&["install", "--prefix", prefix]).failed(1, &["libibverbs.so.1 is there", "is not rddp's", "try: "]);
    assert_eq!(std::fs::read(&theirs).unwrap(), b"theirs");
    assert!(!scratch.path().join("bin").exists());
    let spaced = format!("{prefix}/with space");
    run(&["install", "--prefix", &spaced]).failed(1, &["the dynamic linker takes no path"]);
}

#[test]
fn the_doctor_tells_which_programs_work() {
    let shown = run(&["doctor"]).ok().stdout;
    for text in ["RDMA programs", "perftest with -R", "UCX", "NCCL", "rdma link"] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    if !has(&["rping", "ibv_rc_pingpong"]) {
        return;
    }
    let told = |program: &str| run(&["doctor", "--verbs", program]).ok().stdout;
    assert!(
        told("rping").contains("loads") && told("rping").contains("can be run: is linked with librdmacm")
    );
    assert!(told("ibv_rc_pingpong").contains("cannot connect"));
    assert!(told("true").contains("neither"));
    run(&["doctor", "--verbs", "no-such-program"]).failed(1, &["no-such-program"]);
    // It names the program once.
    let refused = run(&["doctor", "--verbs", "/dev/null"]).failed(1, &["rddp: /dev/null: not a file"]);
    assert!(!refused.stderr.contains("/dev/null: /dev/null"), "{refused:?}");
    for (program, option) in [("ib_write_bw", "-R"), ("qperf", "-cm1")] {
        if has(&[program]) {
            assert!(told(program).contains(&format!("only with {option}")), "{}", told(program));
        }
    }
}

#[test]
fn settings_that_make_no_sense_are_refused_before_anything_runs() {
    let scratch = tempfile::tempdir().unwrap();
    let policy = scratch.path().join("policy");
    std::fs::write(&policy, "verbs * *:* mpa=3\n").unwrap();
    for (name, value, said, remedy) in [
        ("RDDP_VERBS_CRC", "yes", "RDDP_VERBS_CRC=yes: not a value", "on or off"),
        ("RDDP_VERBS_IRD", "200", "RDDP_VERBS_IRD=200: not a value", "a number from 0 to 128"),
        ("RDDP_VERBS_STRICT", "yes", "RDDP_VERBS_STRICT=yes: not a value", "on or off"),
        ("RDDP_VERBS_SPEAK_FIRST", "on", "there is no such setting", "RDDP_VERBS_SPEAKS_FIRST"),
        (
            "RDDP_VERBS_FAULTS",
            "op=recv nth=1 status=RETRY_EXC_ERR",
            "a recv never has the status RETRY_EXC_ERR",
            "a recv has LOC_LEN_ERR",
        ),
        ("RDDP_POLICY", policy.to_str().unwrap(), "line 1: \"3\" is no value of mpa", "1 or 2"),
    ] {
        let mut command = program::command(&["run", "--verbs", "--", "echo", "ran"]);
        let ended = command.env(name, value).output().unwrap();
        let told = String::from_utf8(ended.stderr).unwrap();
        assert_eq!((ended.status.code(), &*ended.stdout), (Some(2), &b""[..]), "{name}: {told}");
        assert!(told.contains(said) && told.contains(&format!("try: {remedy}")), "{told}");
    }
}
