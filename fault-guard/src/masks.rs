//! The masks (`sa_mask`) of the program's handlers for other signals: SIGBUS and SIGSEGV are
//! removed from them, so that such a handler runs with neither blocked.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::actions::LAST;
use crate::chain::SIGNALS;
use crate::{mask, system};

/// The members of [`SIGNALS`] that the program wants blocked in the handler of each signal.
static TAKEN_OUT: [AtomicU8; LAST as usize + 1] = [const { AtomicU8::new(0) }; LAST as usize + 1];

fn taken_out(signal: c_int) -> Option<&'static AtomicU8> {
    TAKEN_OUT.get(usize::try_from(signal).ok()?)
}

/// Does what `sigaction` does, for a signal that is not in [`SIGNALS`].
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

/// Removes [`SIGNALS`] from the masks of the handlers that are installed.
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
