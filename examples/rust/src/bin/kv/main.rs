//! A key-value store whose GETs are RDMA Reads: the client finds the value in the server's memory,
//! and no code of the server runs for that. PUTs are messages. `kv_tcp` is the same over plain TCP.
//!
//!     kv serve ADDR
//!     kv put ADDR KEY VALUE
//!     kv get ADDR KEY
#![forbid(unsafe_code)]

mod client;
mod server;
mod table;

use rddp_examples::Outcome;

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", addr] => server::serve(addr),
        ["put", addr, key, value] => client::Client::connect(addr)?.put(key.as_bytes(), value.as_bytes()),
        ["get", addr, key] => {
            let value = client::Client::connect(addr)?.get(key.as_bytes())?.ok_or("no such key")?;
            println!("{}", String::from_utf8_lossy(&value));
            Ok(())
        }
        _ => Err("kv serve ADDR | kv put ADDR KEY VALUE | kv get ADDR KEY".into()),
    }
}
