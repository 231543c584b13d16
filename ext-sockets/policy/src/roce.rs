//! Devices that look like RoCE: names and addresses, as `rddp run --roce` and the environment have
//! them.

use core::net::IpAddr;

/// A device that looks like RoCE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoceDevice {
    /// The name by which programs know it.
    pub name: String,
    /// The address that it has, of this host; `None`: that of the default route's interface.
    pub address: Option<IpAddr>,
}

/// A list of devices that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RoceFault {
    /// An entry has no `=`.
    #[error("{0:?} is not NAME=ADDRESS")]
    Entry(String),
    /// A name that no device can have.
    #[error("{0:?} is no name of a device, which has 1 to 63 letters, digits, _ and -")]
    Name(String),
    /// A name that stands twice.
    #[error("{0:?} stands twice")]
    Twice(String),
    /// An address that is none of one host.
    #[error("{0:?} is no address of a host")]
    Address(String),
    /// There are too many.
    #[error("there are more than {} devices", RoceDevice::MOST)]
    TooMany,
}

impl RoceFault {
    /// The remedy for all of them.
    pub const REMEDY: &str =
        "name devices as mlx5_0=192.0.2.1,mlx5_1=2001:db8::1, or none; a program stands behind --";
}

impl RoceDevice {
    /// The variable of the environment that has the list.
    pub const VARIABLE: &str = "RDDP_ROCE";

    /// The variable that names the folder of files which tell programs of the devices.
    pub const PATHS: &str = "RDDP_PATHS";

    /// The greatest number of devices.
    pub const MOST: usize = 16;

    /// Reads a list, `NAME=ADDRESS,...`. An empty one is a device with a name of ours.
    ///
    /// ```
    /// let devices = rddp_policy::RoceDevice::list("mlx5_0=192.0.2.1,mlx5_1=2001:db8::1")?;
    /// assert_eq!((devices.len(), &*devices[1].name), (2, "mlx5_1"));
    /// # Ok::<(), rddp_policy::RoceFault>(())
    /// ```
    pub fn list(text: &str) -> Result<Vec<RoceDevice>, RoceFault> {
        if text.is_empty() {
            return Ok(vec![RoceDevice { name: "rddp_roce0".to_owned(), address: None }]);
        }
        let mut devices: Vec<RoceDevice> = Vec::new();
        for entry in text.split(',') {
            let device = RoceDevice::entry(entry)?;
            if devices.iter().any(|other| other.name == device.name) {
                return Err(RoceFault::Twice(device.name));
            }
            devices.push(device);
        }
        if devices.len() > RoceDevice::MOST { Err(RoceFault::TooMany) } else { Ok(devices) }
    }

    fn entry(entry: &str) -> Result<RoceDevice, RoceFault> {
        let (name, address) = entry.split_once('=').ok_or_else(|| RoceFault::Entry(entry.to_owned()))?;
        let is_good = |letter: u8| letter.is_ascii_alphanumeric() || letter == b'_' || letter == b'-';
        if name.is_empty() || name.len() > 63 || !name.bytes().all(is_good) {
            return Err(RoceFault::Name(name.to_owned()));
        }
        let found: Option<IpAddr> = address.parse().ok();
        let found = found.filter(|found| !found.is_unspecified() && !found.is_multicast());
        let found = found.ok_or_else(|| RoceFault::Address(address.to_owned()))?;
        Ok(RoceDevice { name: name.to_owned(), address: Some(found) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_makes_no_sense_is_told() {
        let fault = |text: &str| RoceDevice::list(text).unwrap_err();
        assert_eq!(fault("ibv_devinfo"), RoceFault::Entry("ibv_devinfo".to_owned()));
        assert_eq!(fault("a b=127.0.0.1"), RoceFault::Name("a b".to_owned()));
        assert_eq!(fault("a=127.0.0.1,a=127.0.0.2"), RoceFault::Twice("a".to_owned()));
        for address in ["", "host", "0.0.0.0", "224.0.0.1", "::"] {
            assert_eq!(fault(&format!("a={address}")), RoceFault::Address(address.to_owned()));
        }
        let many: Vec<String> = (0..17).map(|at| format!("d{at}=127.0.0.1")).collect();
        assert_eq!(fault(&many.join(",")), RoceFault::TooMany);
        assert_eq!(RoceDevice::list("").map(|list| list.len()), Ok(1));
    }
}
