//! Questions of programs about the device of the host that moves the octets, if there is one.

use std::net::{IpAddr, SocketAddr};

use rddp_verbs_device::Device;

use crate::config::RnicConfig;
use crate::device::Rnic;

impl Rnic {
    /// Returns the name of the device: that of a device of the host, or `soft`.
    ///
    /// ```
    /// use rddp_rnic::{Rnic, RnicConfig};
    /// let config = RnicConfig { device: Some("soft".into()), ..RnicConfig::default() };
    /// assert_eq!(Rnic::with_config(&config)?.device(), "soft");
    /// # Ok::<(), rddp_rnic::Error>(())
    /// ```
    pub fn device(&self) -> &str {
        self.0.anywhere().host.as_ref().map_or(RnicConfig::SOFTWARE, |host| host.device().name())
    }

    /// Returns the addresses of this host that are the device's, if it is one of the host. Software
    /// has all of the host's.
    pub fn own_addresses(&self) -> Option<Vec<IpAddr>> {
        self.0.anywhere().host.as_ref().map(|host| host.device().addresses())
    }

    /// Returns the name of the host's device that the way to an address leads through, if one is
    /// found within two seconds: what [`RnicConfig::device`] may be for connections there. To this
    /// host itself, by its loopback, there is none.
    ///
    /// ```
    /// assert_eq!(rddp_rnic::Rnic::device_towards("127.0.0.1:7174".parse().unwrap()), None);
    /// ```
    pub fn device_towards(address: SocketAddr) -> Option<String> {
        Device::towards(address)
    }
}
