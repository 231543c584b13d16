//! Prints the meaning of an input: `cargo run --example show TARGET FILE`.
use std::fmt::Debug;

use arbitrary::{Arbitrary, Unstructured};

fn show<T: for<'a> Arbitrary<'a> + Debug>(octets: &[u8]) {
    println!("{:#?}", T::arbitrary(&mut Unstructured::new(octets)));
}

fn main() {
    let mut args = std::env::args().skip(1);
    let (target, file) = (args.next().expect("a target"), args.next().expect("a file"));
    let octets = std::fs::read(file).expect("a file that can be read");
    match target.as_str() {
        "mem_check" => show::<rddp_fuzz::mem_check::Input>(&octets),
        "mpa_startup" => show::<rddp_fuzz::mpa_startup::Input>(&octets),
        "port_mapper" => show::<rddp_fuzz::port_mapper::Input>(&octets),
        "rdmap_pair" => show::<rddp_fuzz::rdmap_pair::Input>(&octets),
        "rdmap_stream" => show::<rddp_fuzz::rdmap_stream::Input>(&octets),
        "rnic_stack" => show::<rddp_fuzz::rnic_stack::input::Input>(&octets),
        "rnic_startup" => show::<rddp_fuzz::rnic_startup::Input>(&octets),
        _ => println!("{octets:02x?}"),
    }
}
