//! The option `--device` of the commands that connect, and of those that listen.

use clap::Args;
use rddp_command::device::Choice;
use rddp_command::failure::Failure;

const ONE: &str = "Device that moves the octets: soft, a name, or auto (what leads to the peer) \
     [default: RDDP_DEVICE or soft]";

const SEVERAL: &str = "Devices to listen on: soft alone so far, RDMA devices are refused by name \
     [default: RDDP_DEVICE or soft]";

/// The device of a command that connects.
#[derive(Debug, Args)]
pub(crate) struct Device {
    #[arg(long, value_name = "DEVICE", value_parser = Choice::parse, help = ONE)]
    device: Option<Choice>,
}

impl Device {
    pub(crate) fn choice(&self) -> Choice {
        self.device.clone().unwrap_or_default()
    }
}

/// The devices of a command that listens.
#[derive(Debug, Args)]
pub(crate) struct Devices {
    #[arg(long = "device", value_name = "DEVICE,...", value_delimiter = ',', value_parser = Choice::parse)]
    #[arg(help = SEVERAL)]
    devices: Vec<Choice>,
}

impl Devices {
    /// Returns the devices of a server.
    pub(crate) fn all(&self) -> Result<Vec<Choice>, Failure> {
        if self.devices.contains(&Choice::Auto) {
            return Err(Failure::usage("--device auto: there is no peer yet that a device could lead to")
                .remedy("name the devices, as in --device soft,rxe0"));
        }
        if self.devices.is_empty() {
            return Ok(vec![Choice::Unsaid]);
        }
        let mut all = self.devices.clone();
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    /// Returns the device of a client.
    pub(crate) fn one(&self) -> Result<Choice, Failure> {
        match &self.devices[..] {
            [] => Ok(Choice::Unsaid),
            [one] => Ok(one.clone()),
            _ => Err(Failure::usage("--device: a client has one device")),
        }
    }
}
