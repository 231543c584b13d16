#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| rddp_fuzz::octets_duplex::run(octets));
