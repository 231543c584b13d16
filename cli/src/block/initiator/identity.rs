//! The name of this host, which targets may allow or not.

use std::fs;

use rddp_block::nvme::MAX_NQN;
use rddp_block::nvme::host::Host;
use rddp_command::failure::Failure;

/// The file that nvme-cli has for it.
const FILE: &str = "/etc/nvme/hostnqn";

/// Returns the host by the name that was given, or that of nvme-cli's, or one made up.
pub(super) fn host(given: Option<&str>) -> Result<Host, Failure> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| Failure::failed(format!("random numbers: {error}")))?;
    let of_file = || fs::read_to_string(FILE).ok().map(|text| text.trim().to_owned());
    let known = given.map(str::to_owned).or_else(of_file).filter(|nqn| !nqn.is_empty());
    let nqn = known.unwrap_or_else(|| {
        let number = u128::from_be_bytes(id);
        let part =
            |shift: u32, digits: usize| format!("{:0digits$x}", number >> shift & ((1 << (4 * digits)) - 1));
        let parts = [part(96, 8), part(80, 4), part(64, 4), part(48, 4), part(0, 12)];
        format!("nqn.2014-08.org.nvmexpress:uuid:{}", parts.join("-"))
    });
    if nqn.len() > MAX_NQN || nqn.contains('\0') {
        return Err(Failure::usage(format!("{nqn}: no name of a host")).remedy("--host-nqn names another"));
    }
    Ok(Host { nqn, id })
}
