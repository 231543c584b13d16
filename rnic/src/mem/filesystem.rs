//! Tells shared memory from files that others may write, by the file system of a mapped file.
//!
//! Shared memory (`tmpfs`: a memfd, `/dev/shm`, shared anonymous and System V memory; huge pages of
//! the same kinds) belongs to processes that work together. Any other file may be written by
//! whoever may open it, and devices change theirs at any time.
#![forbid(unsafe_code)]

use std::io::BufRead;
use std::os::fd::AsFd;
use std::sync::OnceLock;

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{fstat, major, minor};

/// A file system, by the number of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) major: u32,
    pub(super) minor: u32,
}

impl Device {
    /// `fe:00` in the text of `/proc/self/maps`.
    pub(super) fn parse_hex(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once(':')?;
        Some(Self {
            major: u32::from_str_radix(major, 16).ok()?,
            minor: u32::from_str_radix(minor, 16).ok()?,
        })
    }

    /// Returns whether this file system is shared memory. What cannot be found out counts as files.
    pub(super) fn is_shared_memory(self) -> bool {
        of_memfds() == Some(self) || self.is_mounted_memory().unwrap_or(false)
    }

    fn is_mounted_memory(self) -> std::io::Result<bool> {
        let mounts = std::fs::File::open("/proc/self/mountinfo")?;
        for line in std::io::BufReader::new(mounts).split(b'\n') {
            if let Some((device, kind)) = parse_mount(&String::from_utf8_lossy(&line?))
                && device == self
            {
                return Ok(matches!(kind, "tmpfs" | "hugetlbfs"));
            }
        }
        Ok(false)
    }
}

/// The kernel's own `tmpfs`, which is mounted nowhere:
/// that of memfds and of shared anonymous memory.
fn of_memfds() -> Option<Device> {
    static DEVICE: OnceLock<Option<Device>> = OnceLock::new();
    *DEVICE.get_or_init(|| {
        let file = memfd_create(c"rddp", MFdFlags::MFD_CLOEXEC).ok()?;
        let device = fstat(file.as_fd()).ok()?.st_dev;
        Some(Device { major: major(device) as u32, minor: minor(device) as u32 })
    })
}

/// Device and type of `36 35 0:31 / /dev/shm rw,nosuid shared:3 - tmpfs tmpfs rw`.
fn parse_mount(line: &str) -> Option<(Device, &str)> {
    let (mount, system) = line.split_once(" - ")?;
    let (major, minor) = mount.split(' ').nth(2)?.split_once(':')?;
    Some((Device { major: major.parse().ok()?, minor: minor.parse().ok()? }, system.split(' ').next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(of: impl AsFd) -> Device {
        let device = fstat(of.as_fd()).unwrap().st_dev;
        Device { major: major(device) as u32, minor: minor(device) as u32 }
    }

    #[test]
    fn lines_of_the_list_of_mounts_are_understood() {
        let tmpfs = "36 35 0:31 / /dev/shm rw,nosuid shared:3 - tmpfs tmpfs rw,inode64";
        assert_eq!(parse_mount(tmpfs), Some((Device { major: 0, minor: 31 }, "tmpfs")));
        let ext4 = r"24 1 254:0 / /a\040b rw,relatime - ext4 /dev/vda rw";
        assert_eq!(parse_mount(ext4), Some((Device { major: 254, minor: 0 }, "ext4")));
        for rubbish in ["", "24 1 254:0 / /", "24 1 x:0 / / rw - ext4 a b", "24 - ext4 a b"] {
            assert_eq!(parse_mount(rubbish), None, "{rubbish}");
        }
        assert_eq!(Device::parse_hex("fe:1f"), Some(Device { major: 254, minor: 31 }));
        assert_eq!(Device::parse_hex("fe"), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn memfds_are_shared_memory_and_proc_is_not() {
        assert!(device(memfd_create(c"test", MFdFlags::empty()).unwrap()).is_shared_memory());
        assert!(!device(std::fs::File::open("/proc/self/maps").unwrap()).is_shared_memory());
        assert!(!Device { major: 4095, minor: 77 }.is_shared_memory(), "unknown");
    }
}
