//! Devices of a fake library, and sockets on them.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rddp_rnic::{Rnic, RnicConfig};
use rddp_sdp::socket::{Config, Times};
use rddp_sdp_rnic::{Scheme, SdpDevice, SdpStream};
use rddp_verbs_device::Device;

#[allow(dead_code, reason = "the tests of verbs-device use the rest")]
#[path = "../../../../verbs-device/tests/devices/fake.rs"]
mod fake;

use fake::fake;
pub(super) use fake::{Kind, quirk};

pub(super) const KINDS: [Kind; 3] = [Kind::Siw, Kind::Rxe, Kind::Adapter];

/// Octets of the longest advert.
pub(super) const LONGEST_ADVERT: u32 = 256 << 10;

/// A device of a test's own.
pub(super) struct Host {
    pub(super) device: Device,
    number: c_int,
}

/// Makes a device with a name that no other test has.
pub(super) fn host(name: &str, kind: Kind, quirks: u32) -> Host {
    let name = format!("{name}{}", kind as u8);
    let number = fake().make(&name, kind, quirks);
    Host { device: Device::named_in(fake().library, &name).unwrap(), number }
}

impl Host {
    pub(super) fn address(&self, last: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([127, 100 + self.number as u8, 0, last], port))
    }

    pub(super) fn sockets(&self, config: Config) -> SdpDevice {
        self.sockets_by(config, Scheme::PerCall)
    }

    pub(super) fn sockets_by(&self, config: Config, scheme: Scheme) -> SdpDevice {
        SdpDevice::on(self.rnic(), config, scheme).unwrap()
    }

    pub(super) fn rnic(&self) -> Rnic {
        Rnic::with_device(&RnicConfig::default(), Some(self.device.clone())).unwrap()
    }

    /// Returns two ends of a connection.
    pub(super) fn pair(&self, config: Config) -> (SdpStream, SdpStream) {
        self.pair_of(&self.sockets(config))
    }

    pub(super) fn pair_of(&self, sockets: &SdpDevice) -> (SdpStream, SdpStream) {
        let listener = sockets.listen(self.address(1, 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        std::thread::scope(|scope| {
            let accepting = scope.spawn(|| listener.accept().unwrap());
            let connected = sockets.connect(addr);
            if connected.is_err() {
                listener.stop();
            }
            (connected.unwrap(), accepting.join().unwrap())
        })
    }

    pub(super) fn cut(&self) {
        (fake().cut)(self.number);
    }

    pub(super) fn end_silence(&self) {
        (fake().end_silence)();
    }

    pub(super) fn remove(&self) {
        (fake().remove)(self.number);
    }

    /// Waits until the library has no objects for the device.
    pub(super) fn until_nothing_is_left(&self) {
        let since = Instant::now();
        while (fake().objects)(self.number) > 0 {
            assert!(since.elapsed() < Duration::from_secs(20), "objects are left");
            std::thread::yield_now();
        }
    }
}

/// A way of octets from one program to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Copied,
    Read,
    Written,
}

pub(super) const WAYS: [Way; 3] = [Way::Copied, Way::Read, Way::Written];

impl Way {
    pub(super) fn config(self) -> Config {
        let threshold = (self != Way::Copied).then_some(0);
        Config {
            source_threshold: threshold,
            sink_threshold: threshold,
            sink_adverts: self == Way::Written,
            pipelined: self == Way::Written,
            longest_advert: LONGEST_ADVERT,
            // A receive that is late on a loaded machine still has its octets Read into place.
            times: Times { read_ahead: Duration::from_secs(600), ..Times::default() },
            ..Config::default()
        }
    }
}
