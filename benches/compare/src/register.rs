//! Measures the time of registering memory, and whether registering touches pages.
//!
//! The only unsafe code here: to register memory that is not rddp's is to promise that it stays.

use std::ptr::NonNull;
use std::time::Instant;

use rddp_rnic::{Access, ProtectionDomain, RegionOptions, Rnic};
use serde::Serialize;

use crate::Outcome;
use crate::host::resident;

#[derive(Serialize)]
struct Registration {
    how: &'static str,
    octets: usize,
    seconds: f64,
    /// Octets of memory that became present meanwhile.
    touched: u64,
}

/// Prints one line for each way.
pub(crate) fn measure(mib: &str) -> Outcome<()> {
    let len = mib.parse::<usize>()? << 20;
    let pd = Rnic::open()?.alloc_pd();
    // The first registration looks up things that later ones need not look up.
    register_own(&pd, 1 << 20)?;
    report("register", 1 << 20, || register_own(&pd, 1 << 20))?;
    report("register", len, || register_own(&pd, len))?;
    let ways = [("allocate", false, false), ("populate", true, false), ("mlock", false, true)];
    for (how, populate, lock) in ways {
        let options = RegionOptions { populate, lock, ..RegionOptions::default() };
        let outcome = report(how, len, || {
            let begun = Instant::now();
            let region = pd.allocate_with(len, Access::LOCAL_WRITE | Access::REMOTE_WRITE, &options)?;
            Ok((begun.elapsed().as_secs_f64(), region))
        });
        if let Err(fault) = outcome {
            eprintln!("{how}: {fault}");
        }
    }
    Ok(())
}

/// Prints a line about `make`, which returns the time it took and the value that keeps the memory.
fn report<T>(how: &'static str, octets: usize, make: impl FnOnce() -> Outcome<(f64, T)>) -> Outcome<()> {
    let before = resident()?;
    let (seconds, _kept) = make()?;
    let touched = resident()?.saturating_sub(before);
    println!("{}", serde_json::to_string(&Registration { how, octets, seconds, touched })?);
    Ok(())
}

/// Registers memory of the program's own that nobody has touched.
#[allow(unsafe_code)]
fn register_own(pd: &ProtectionDomain, len: usize) -> Outcome<(f64, ())> {
    let mut memory = vec![0_u8; len];
    let ptr = NonNull::new(memory.as_mut_ptr()).ok_or("memory at address 0")?;
    let begun = Instant::now();
    // SAFETY: `memory` outlives the region, which is dropped first, and nobody reads or writes it
    // meanwhile.
    let region = unsafe { pd.register(ptr, len, Access::LOCAL_WRITE | Access::REMOTE_WRITE)? };
    let seconds = begun.elapsed().as_secs_f64();
    drop(region);
    Ok((seconds, ()))
}
