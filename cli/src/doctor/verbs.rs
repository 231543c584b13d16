//! RDMA programs under `rddp run --verbs`: the library, which programs work, and why others do not.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::finding::{Finding, Level, Topic};
use crate::run::dynamic::Dynamic;
use crate::run::library::Library;
use crate::run::{program, verbs};

pub(super) fn inspect() -> Vec<Finding> {
    vec![
        library(),
        limits(),
        found(
            "programs that work",
            "those that connect by librdmacm: rping, perftest with -R, fio, qperf -cm1",
        ),
        found("programs that do not", "ibv_rc_pingpong, perftest without -R, gloo")
            .but(Level::Note, "they exchange queue pair numbers themselves: rddp run --roce at both ends"),
        found("UCX, NCCL", "refuse iWARP devices").but(
            Level::Note,
            "rddp run --roce at both ends, or leave them to TCP: UCX_TLS=tcp, NCCL_IB_DISABLE=1",
        ),
        found("rdma link, ibstat, /sys", "do not show rddp0").but(
            Level::Note,
            "the device is in the program's process, not in the kernel: ibv_devices shows it",
        ),
    ]
}

/// The limits that `ibv_devinfo -v` shows and the connection manager has
/// (`tests/verbs/run settings` compares them with the library's).
fn limits() -> Finding {
    found(
        "limits",
        "128 Reads and atomics in, 128 out at a time; messages up to 2147483647 octets; \
         255 octets of private data to connect",
    )
}

pub(super) fn found(subject: &str, value: impl Into<String>) -> Finding {
    Finding::ok(Topic::Verbs, subject, value)
}

pub(super) fn library() -> Finding {
    let subject = "library (rddp run --verbs)";
    let path = match verbs::library() {
        Ok(path) => path,
        Err(why) => {
            let finding = found(subject, why.to_string());
            return finding.but(Level::Warn, why.how().unwrap_or("install it"));
        }
    };
    match refusal(&path) {
        None => found(subject, format!("{}, loads", path.display())),
        Some(why) => found(subject, why).but(Level::Warn, "build the library on this host"),
    }
}

/// Returns what the dynamic linker says against loading the library into a program: this one.
fn refusal(library: &Path) -> Option<String> {
    let command = std::env::current_exe().ok()?;
    let mut trial = Command::new(command);
    trial.arg("--version").env("LD_PRELOAD", library).env("LD_BIND_NOW", "1").stdin(Stdio::null());
    match trial.output() {
        Ok(ended) if ended.status.success() && ended.stderr.is_empty() => None,
        Ok(ended) if ended.stderr.is_empty() => Some(format!("a program with it ends: {}", ended.status)),
        Ok(ended) => Some(String::from_utf8_lossy(&ended.stderr).trim().to_owned()),
        Err(error) => Some(error.to_string()),
    }
}

/// Looks whether a program can be run, and what it needs.
pub(super) fn look_at(name: &OsStr) -> Vec<Finding> {
    let loads = match loads(name) {
        Ok(loads) => loads,
        Err(refused) => return vec![library(), refused],
    };
    let mut findings = vec![library(), linked(&name.to_string_lossy(), &Dynamic::read(&loads))];
    findings.extend(rpath(&loads));
    findings
}

/// Returns the file into which the library is loaded when a program is run, or why it cannot be.
pub(super) fn loads(name: &OsStr) -> Result<PathBuf, Finding> {
    let path = program::find(name);
    let loads = path.and_then(|path| program::takes_library(&path, Library::Verbs));
    loads.and_then(|loads| verbs::refuse_own_copy(&loads).map(|()| loads)).map_err(|why| {
        let finding = found("program", why.to_string());
        finding.but(Level::Bad, why.how().unwrap_or("make it a program that may be run"))
    })
}

/// Tells of another library that a program would find.
pub(super) fn rpath(loads: &Path) -> Option<Finding> {
    let real = verbs::by_rpath(loads)?;
    Some(found("RPATH", real.display().to_string()).but(
        Level::Warn,
        "what the program looks up there at run time is not rddp's: patchelf --remove-rpath",
    ))
}

/// Returns the name of the first library that the program is linked with, of those that begin so.
pub(super) fn linked_with<'a>(dynamic: &'a Dynamic, names: &[&str]) -> Option<&'a str> {
    dynamic.needs().into_iter().find(|need| names.iter().any(|name| need.starts_with(name)))
}

/// Returns the option with which a program connects by librdmacm, if it does so on demand.
fn option_of(program: &str) -> Option<&'static str> {
    let name = Path::new(program).file_name()?.to_str()?;
    let is_of_perftest = name.strip_prefix("ib_").is_some_and(|rest| {
        let (kind, figure) = rest.split_once('_').unwrap_or_default();
        ["send", "write", "read", "atomic"].contains(&kind) && ["bw", "lat"].contains(&figure)
    });
    match name {
        _ if is_of_perftest => Some("-R"),
        "qperf" => Some("-cm1"),
        _ => None,
    }
}

/// Tells what the program is linked with.
fn linked(subject: &str, dynamic: &Dynamic) -> Finding {
    let linked = |names: &[&str]| linked_with(dynamic, names);
    let can = |what: &str| found(subject, format!("can be run: {what}"));
    if let Some(refuses) = linked(&["libucp.so", "libuct.so", "libnccl.so"]) {
        return found(subject, format!("is linked with {refuses}, which refuses iWARP devices")).but(
            Level::Warn,
            "rddp run --roce at both ends, or leave it to TCP: UCX_TLS=tcp, NCCL_IB_DISABLE=1",
        );
    }
    if linked(&["librdmacm.so"]).is_some() {
        let can = can("is linked with librdmacm");
        return match option_of(subject) {
            Some(option) => can.but(
                Level::Note,
                format!("it connects by librdmacm only with {option}, which both ends need"),
            ),
            None => can,
        };
    }
    if linked(&["libibverbs.so"]).is_some() {
        return can("is linked with libibverbs, not with librdmacm").but(
            Level::Note,
            "it sees the device, and cannot connect, as iWARP needs librdmacm: rddp run --roce at both ends",
        );
    }
    can("is linked with neither libibverbs nor librdmacm")
        .but(Level::Note, "if libraries or plugins of it load them, they get rddp's")
}
