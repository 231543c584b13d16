//! RDMA programs under `rddp run --roce`: the device that one would see, and what it asks for.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use rddp_command::failure::Failure;
use rddp_policy::RoceDevice;
use rddp_roce::tree::Shown;

use super::finding::{Finding, Level};
use super::verbs::{self, found, linked_with};
use crate::run::devices;
use crate::run::dynamic::Dynamic;
use crate::run::library::Library;

/// Looks whether a program can be run, and what it would find.
pub(super) fn look_at(name: &OsStr) -> Result<Vec<Finding>, Failure> {
    let mut findings = vec![verbs::library(), files()];
    findings.extend(shown()?);
    match verbs::loads(name) {
        Ok(loads) => findings.extend(of_program(&name.to_string_lossy(), &loads)),
        Err(refused) => findings.push(refused),
    }
    Ok(findings)
}

/// Tells of the library that shows files of the devices.
fn files() -> Finding {
    let subject = "library (rddp run --roce)";
    match Library::Paths.find() {
        Ok(path) => found(subject, path.display().to_string()),
        Err(why) => found(subject, why.to_string()).but(Level::Warn, why.how().unwrap_or("install it")),
    }
}

/// Tells of the devices that programs would see: of the variable, or without a list.
fn shown() -> Result<Vec<Finding>, Failure> {
    let list = std::env::var(RoceDevice::VARIABLE).unwrap_or_default();
    let of_one = |device: Shown| {
        let address = address(device.gid);
        match device.interface {
            Some(interface) => found("device", format!("{}, {address} on {interface}", device.name)),
            None => found("device", format!("{}, {address}: no address of this host", device.name))
                .but(Level::Bad, "name an address of this host: rddp run --roce NAME=ADDRESS"),
        }
    };
    Ok(Shown::all(&devices(&list)?).into_iter().map(of_one).collect())
}

fn address(gid: [u8; 16]) -> std::net::IpAddr {
    std::net::Ipv6Addr::from(gid).to_canonical()
}

fn of_program(subject: &str, loads: &Path) -> Vec<Finding> {
    let dynamic = Dynamic::read(loads);
    let mut findings = vec![linked(subject, &dynamic)];
    findings.extend(lacks(&dynamic));
    findings.push(reads(&fs::read(loads).unwrap_or_default()));
    findings.extend(verbs::rpath(loads));
    findings
}

/// Tells what the program is linked with.
fn linked(subject: &str, dynamic: &Dynamic) -> Finding {
    let stands_on = ["libucp.so", "libuct.so", "libnccl.so", "librdmacm.so", "libibverbs.so"];
    match linked_with(dynamic, &stands_on) {
        Some(name) => found(subject, format!("can be run: is linked with {name}")),
        None => found(subject, "can be run: is linked with neither libibverbs nor librdmacm")
            .but(Level::Note, "if libraries or plugins of it load them, they get rddp's"),
    }
}

/// Tells what the program can ask for and the device lacks.
fn lacks(dynamic: &Dynamic) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(name) = linked_with(dynamic, &["libmlx5.so", "libmlx4.so", "libefa.so", "libhns.so"]) {
        findings.push(
            found("adapters' own calls", format!("is linked with {name}"))
                .but(Level::Note, "its calls find no adapter of theirs: leave options that need one"),
        );
    }
    let joins = ["ibv_attach_mcast", "rdma_join_multicast", "rdma_join_multicast_ex"];
    if let Some(name) = joins.into_iter().find(|name| dynamic.has(name)) {
        findings.push(
            found("multicast", format!("calls {name}"))
                .but(Level::Note, "the device has no multicast: leave options that need it"),
        );
    }
    findings
}

/// Tells whether files of devices are named in the program.
fn reads(octets: &[u8]) -> Finding {
    const FOLDERS: [&str; 2] = ["/sys/class/infiniband", "/dev/infiniband"];
    let has = |folder: &&&str| octets.windows(folder.len()).any(|part| part == folder.as_bytes());
    match FOLDERS.iter().find(has) {
        Some(folder) => found("files of devices", format!("reads {folder}, where it finds the device")),
        None => found("files of devices", "names none itself"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_a_program_names_are_found() {
        assert!(reads(b"\0/sys/class/infiniband/%s\0").value.starts_with("reads /sys/class/infiniband"));
        assert_eq!(reads(b"/sys/class/net").value, "names none itself");
    }

    #[test]
    fn an_address_is_shown_as_the_user_writes_it() {
        let both = ["192.0.2.1", "2001:db8::1"];
        for text in both {
            assert_eq!(address(rddp_roce::gid(text.parse().unwrap())).to_string(), text);
        }
    }
}
