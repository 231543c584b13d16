#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| rddp_fuzz::rnic_datagrams::run(octets));
