//! `sa_mask` of the program's handlers of other signals, which run with none of ours blocked.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::actions::LAST;
use crate::chain::SIGNALS;
use crate::{mask, system};

/// Which of [`SIGNALS`] the program has each handler block.
static TAKEN_OUT: [AtomicU8; LAST as usize + 1] = [const { AtomicU8::new(0) }; LAST as usize + 1];

fn taken_out(signal: c_int) -> Option<&'static AtomicU8> {
    TAKEN_OUT.get(usize::try_from(signal).ok()?)
}

/// `sigaction` of another signal.
pub(crate) fn sigaction(signal: c_int, new: Option<&libc::sigaction>) -> Result<libc::sigaction, c_int> {
    let mut scrubbed = new.copied();
    let bits = scrubbed.as_mut().map(|new| mask::scrub(&mut new.sa_mask));
    let mut before = system::action(signal, scrubbed.as_ref())?;
    if let Some(noted) = taken_out(signal) {
        let bits = bits.map(|bits| bits as u8);
        let were =
            bits.map_or_else(|| noted.load(Ordering::Relaxed), |bits| noted.swap(bits, Ordering::Relaxed));
        mask::restore(&mut before.sa_mask, were.into());
    }
    Ok(before)
}

/// Does so for the handlers that are installed.
pub(crate) fn take_over() {
    for signal in (1..=LAST).filter(|signal| !SIGNALS.contains(signal)) {
        if let Ok(mut action) = system::action(signal, None)
            && crate::chain::calls(&action)
            && let bits @ 1.. = mask::scrub(&mut action.sa_mask)
            && let Some(noted) = taken_out(signal)
        {
            noted.store(bits as u8, Ordering::Relaxed);
            let _ = system::action(signal, Some(&action));
        }
    }
}
