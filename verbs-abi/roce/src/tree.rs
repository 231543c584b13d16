//! The files below `/sys/class/infiniband*` and `/dev/infiniband` that tell of the devices, as the
//! kernel would have them.
//!
//! Files of sysfs are text. A character device cannot be made by an ordinary user, so those of
//! `/dev/infiniband` are links to `/dev/null`, which programs can open and not talk to.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::Path;

use rddp_policy::RoceDevice;

use crate::{GIDS, PORT_CAPABILITIES, default_address, eui_64, gid, interface_of, local_mac};

/// A device as the files show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Name of the device.
    pub name: String,
    /// Node GUID, in the order of its octets.
    pub guid: [u8; 8],
    /// The GID of its address.
    pub gid: [u8; 16],
    /// The interface that has its address, if there is one.
    pub interface: Option<String>,
}

/// A file or a link of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A file with this text.
    File(String),
    /// A link to this path.
    Link(&'static str),
}

impl Shown {
    /// Looks up on this host what belongs to the device that stands at `index` of a list.
    pub fn here(device: &RoceDevice, index: u8) -> Self {
        let address = device.address.unwrap_or_else(default_address);
        Shown {
            name: device.name.clone(),
            guid: eui_64(local_mac(index)),
            gid: gid(address),
            interface: interface_of(address),
        }
    }

    /// Returns the devices of a list.
    pub fn all(devices: &[RoceDevice]) -> Vec<Self> {
        devices.iter().zip(0..).map(|(device, index)| Shown::here(device, index)).collect()
    }
}

/// Returns paths without a `/` in front, and what stands at them.
pub fn entries(devices: &[Shown]) -> Vec<(String, Entry)> {
    let mut found = vec![
        file("sys/class/infiniband_verbs", "abi_version", "6"),
        ("dev/infiniband/rdma_cm".to_owned(), Entry::Link(NULL)),
    ];
    for (index, device) in devices.iter().enumerate() {
        found.extend(of_device(device));
        found.extend(of_port(device));
        found.extend(of_verbs(device, index));
    }
    found
}

/// Writes the tree into a folder, which is made if it is not there and else is empty.
pub fn render(devices: &[Shown], folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    if fs::read_dir(folder)?.next().is_some() {
        return Err(io::ErrorKind::DirectoryNotEmpty.into());
    }
    for (path, entry) in entries(devices) {
        let path = folder.join(path);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        match entry {
            Entry::File(text) => read_only(&path)?.write_all(text.as_bytes())?,
            Entry::Link(to) => symlink(to, path)?,
        }
    }
    Ok(())
}

/// Returns whether a folder has the tree as it would be rendered.
pub fn is_whole(devices: &[Shown], folder: &Path) -> bool {
    entries(devices).into_iter().all(|(path, entry)| match entry {
        Entry::File(text) => fs::read(folder.join(path)).is_ok_and(|found| found == text.as_bytes()),
        Entry::Link(to) => fs::read_link(folder.join(path)).is_ok_and(|found| found == Path::new(to)),
    })
}

fn read_only(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new().write(true).create_new(true).mode(0o444).open(path)
}

fn of_device(device: &Shown) -> Vec<(String, Entry)> {
    let folder = format!("sys/class/infiniband/{}", device.name);
    let guid = words(&device.guid);
    [
        ("node_type", "1: CA"),
        ("node_desc", "rddp, private: no adapter understands it"),
        ("node_guid", &guid),
        ("sys_image_guid", &guid),
        ("fw_ver", env!("CARGO_PKG_VERSION")),
        ("hw_rev", "0"),
        ("hca_type", "rddp"),
        ("board_id", "rddp"),
    ]
    .map(|(name, text)| file(&folder, name, text))
    .into()
}

fn of_port(device: &Shown) -> Vec<(String, Entry)> {
    let folder = format!("sys/class/infiniband/{}/ports/1", device.name);
    let of_all = [
        ("state", "4: ACTIVE"),
        ("phys_state", "5: LinkUp"),
        ("rate", "40 Gb/sec (4X QDR)"),
        ("link_layer", "Ethernet"),
        ("lid", "0x0"),
        ("sm_lid", "0x0"),
        ("lid_mask_count", "0"),
        ("sm_sl", "0"),
        ("pkeys/0", "0xffff"),
        ("cap_mask", &format!("{PORT_CAPABILITIES:#010x}")),
    ];
    let mut found: Vec<_> = of_all.map(|(name, text)| file(&folder, name, text)).into();
    for index in 0..GIDS {
        found.push(file(&folder, &format!("gids/{index}"), &words(&device.gid)));
        found.push(file(&folder, &format!("gid_attrs/types/{index}"), "RoCE v2"));
        if let Some(interface) = &device.interface {
            found.push(file(&folder, &format!("gid_attrs/ndevs/{index}"), interface));
        }
    }
    found
}

fn of_verbs(device: &Shown, index: usize) -> Vec<(String, Entry)> {
    let folder = format!("sys/class/infiniband_verbs/uverbs{index}");
    vec![
        file(&folder, "ibdev", &device.name),
        file(&folder, "abi_version", "1"),
        (format!("dev/infiniband/uverbs{index}"), Entry::Link(NULL)),
    ]
}

const NULL: &str = "/dev/null";

fn file(folder: &str, name: &str, text: &str) -> (String, Entry) {
    (format!("{folder}/{name}"), Entry::File(format!("{text}\n")))
}

/// Returns octets as sysfs shows GUIDs and GIDs: `0002:c903:0000:0001`.
fn words(octets: &[u8]) -> String {
    let word = |two: &[u8]| two.iter().map(|octet| format!("{octet:02x}")).collect::<String>();
    octets.chunks(2).map(word).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &str, interface: Option<&str>) -> Shown {
        Shown {
            name: name.to_owned(),
            guid: [0, 0xa1, 2, 0xff, 0xfe, 3, 4, 5],
            gid: gid("192.0.2.1".parse().unwrap()),
            interface: interface.map(str::to_owned),
        }
    }

    fn text<'a>(entries: &'a [(String, Entry)], path: &str) -> Option<&'a str> {
        entries.iter().find(|(at, _)| at == path).map(|(_, entry)| match entry {
            Entry::File(text) => text.as_str(),
            Entry::Link(to) => to,
        })
    }

    #[test]
    fn a_device_is_shown_by_the_numbers_that_programs_see() {
        let found = entries(&[shown("mlx5_0", Some("eth7"))]);
        let device = |name: &str| text(&found, &format!("sys/class/infiniband/mlx5_0/{name}"));
        assert_eq!(device("node_guid"), Some("00a1:02ff:fe03:0405\n"));
        assert_eq!(device("ports/1/link_layer"), Some("Ethernet\n"));
        assert_eq!(device("ports/1/cap_mask"), Some("0x00090000\n"));
        for index in ["0", "3", "7"] {
            let gid = device(&format!("ports/1/gids/{index}"));
            assert_eq!(gid, Some("0000:0000:0000:0000:0000:ffff:c000:0201\n"));
            assert_eq!(device(&format!("ports/1/gid_attrs/types/{index}")), Some("RoCE v2\n"));
            assert_eq!(device(&format!("ports/1/gid_attrs/ndevs/{index}")), Some("eth7\n"));
        }
        assert_eq!(device("ports/1/gids/8"), None);
    }

    #[test]
    fn each_device_has_a_number_of_its_own() {
        let found = entries(&[shown("a", None), shown("b", None)]);
        for (index, name) in [(0, "a\n"), (1, "b\n")] {
            assert_eq!(text(&found, &format!("sys/class/infiniband_verbs/uverbs{index}/ibdev")), Some(name));
            assert_eq!(text(&found, &format!("dev/infiniband/uverbs{index}")), Some("/dev/null"));
        }
        assert!(!found.iter().any(|(path, _)| path.contains("ndevs")), "no interface has the address");
    }

    #[test]
    fn a_tree_is_rendered_whole_and_into_an_empty_folder_alone() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("a/tree");
        let devices = [shown("mlx5_0", Some("eth7"))];
        render(&devices, &folder).unwrap();
        assert!(is_whole(&devices, &folder));
        assert!(!is_whole(&[shown("mlx5_0", None), shown("b", None)], &folder));
        fs::remove_file(folder.join("dev/infiniband/uverbs0")).unwrap();
        assert!(!is_whole(&devices, &folder));
        let again = render(&devices, &folder).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::DirectoryNotEmpty);
    }
}
