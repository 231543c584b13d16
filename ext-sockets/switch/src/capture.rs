//! The capture that `RDDP_CAPTURE` asks for.

use crate::journal;

/// Begins it, or logs why there is none.
pub fn begin() {
    if let Err(error) = rddp_capture::begin() {
        let variable = rddp_capture::VARIABLE;
        journal::without_policy(format_args!(
            "{variable}: {error}; nothing is captured; try: the name of a file that can be written"
        ));
    }
}
