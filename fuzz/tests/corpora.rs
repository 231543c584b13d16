//! Runs every stored input through its target, without a fuzzer.
//!
//! The inputs of `port_mapper` are left out: it needs a fixed UDP port, which may be in use where
//! tests run.

use std::path::Path;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut count = 0;
    for file in std::fs::read_dir(&folder).unwrap() {
        let path = file.unwrap().path();
        println!("{}", path.display());
        run(&std::fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count > 1, "{} holds hardly anything", folder.display());
}

macro_rules! corpora {
    ($($target:ident)*) => {$(
        #[test]
        fn $target() {
            replay(stringify!($target), rddp_fuzz::$target::run);
        }
    )*};
}

corpora! {
    block_nbd block_nvme ddp_segment decode_capture files_peer mem_check mpa_deframe mpa_startup octets_duplex
    octets_incoming rdmap_pair rdmap_stream
    rdmap_terminate rnic_datagrams rnic_records rnic_stack rnic_startup sdp_machine sdp_message sdp_pair switch_policy
    switch_stream
}
