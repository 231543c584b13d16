//! `files_peer`: any octets as a message, as records of a tree, or as a greeting of `rddp serve`.

/// Runs one input, of which the first octet says what the others are.
pub fn run(octets: &[u8]) {
    rddp_files::fuzzed::from_peer(octets);
}
