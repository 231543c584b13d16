fn main() {
    for f in std::env::args().skip(1) {
        rddp_fuzz::sdp_pair::run(&std::fs::read(f).unwrap());
    }
}
