//! A device as programs see it: its names, numbers and limits.

use std::net::IpAddr;

use nix::errno::Errno;
use rddp_policy::RoceDevice;
use rddp_rnic::Rnic;
use rddp_roce::{eui_64, local_mac};

use crate::errors::Outcome;
use crate::refusal::because;
use crate::settings::Settings;

/// A kind of device that this library shows to programs. More than one may be shown.
#[derive(Debug)]
pub(crate) struct Device {
    /// The name, of the device and of its `uverbs` file, which there is not.
    pub(crate) name: &'static str,
    pub(crate) uverbs: &'static str,
    /// An EUI-64, in the order of its octets.
    pub(crate) guid: [u8; 8],
    /// The one GID of the one port.
    pub(crate) gid: [u8; 16],
    pub(crate) limits: Limits,
    /// The address of a device that looks like RoCE: its queue pairs are joined by numbers.
    pub(crate) roce: Option<IpAddr>,
    /// Refuses what adapters refuse; always true for a device that looks like RoCE.
    pub(crate) strict: bool,
    /// Settings of its connections; `None` if they make no sense, and then it does not open.
    settings: Option<Settings>,
}

/// The greatest values that a program may ask for.
#[derive(Debug)]
pub(crate) struct Limits {
    pub(crate) requests: u32,
    pub(crate) sge: u32,
    pub(crate) inline: u32,
    pub(crate) cqes: u32,
    /// Inbound and outbound Reads at a time; 255 says "the most" in the connection manager.
    pub(crate) depth: u8,
    pub(crate) message: u32,
}

impl Device {
    /// The iWARP device, on whatever interfaces and addresses the host has.
    pub(crate) fn iwarp(index: u8, settings: Option<Settings>) -> Self {
        let mac = local_mac(index);
        let guid = eui_64(mac);
        let mut gid = [0; 16];
        gid[..6].copy_from_slice(&mac);
        // Test suites skip a port whose GID has a second half of zeros.
        gid[8..].copy_from_slice(&guid);
        Device {
            name: "rddp0",
            uverbs: "uverbs0",
            guid,
            gid,
            limits: Limits {
                requests: 32768,
                sge: Rnic::CAPABILITIES.max_sge as u32,
                inline: Rnic::CAPABILITIES.max_inline as u32,
                cqes: 1 << 22,
                depth: 128,
                message: i32::MAX as u32,
            },
            roce: None,
            strict: settings.as_ref().is_some_and(|settings| settings.strict),
            settings,
        }
    }

    /// A device that looks like RoCE, with an address. Programs hold its name for ever.
    pub(crate) fn roce(index: u8, named: &RoceDevice, settings: Option<Settings>) -> Self {
        let address = named.address.unwrap_or_else(rddp_roce::default_address);
        let iwarp = Self::iwarp(index, settings);
        Device {
            name: Box::leak(named.name.clone().into_boxed_str()),
            uverbs: Box::leak(format!("uverbs{index}").into_boxed_str()),
            gid: rddp_roce::gid(address),
            roce: Some(address),
            strict: true,
            limits: Limits { depth: 16, ..iwarp.limits },
            ..iwarp
        }
    }

    /// Returns the settings of connections: `EINVAL` if they make no sense.
    pub(crate) fn settings(&self) -> Outcome<&Settings> {
        self.settings
            .as_ref()
            .ok_or_else(|| because(Errno::EINVAL, "the settings make no sense (told on standard error)"))
    }

    /// Returns whether programs are told of atomics.
    pub(crate) fn has_atomics(&self) -> bool {
        self.roce.is_some() || self.settings.as_ref().is_some_and(Settings::may_give_extensions)
    }
}
