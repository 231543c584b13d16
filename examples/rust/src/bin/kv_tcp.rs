//! The twin of `kv` over plain TCP: a thread of the server answers each GET, too.
//!
//!     kv_tcp serve ADDR
//!     kv_tcp put ADDR KEY VALUE
//!     kv_tcp get ADDR KEY
//!
//! Each request is a line of words, and so is each answer: `put KEY VALUE`, `get KEY`.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Mutex, PoisonError};

use rddp_examples::Outcome;

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", addr] => serve(addr),
        ["put", addr, key, value] => ask(addr, &format!("put {key} {value}")).map(drop),
        ["get", addr, key] => {
            println!("{}", ask(addr, &format!("get {key}"))?);
            Ok(())
        }
        _ => Err("kv_tcp serve ADDR | kv_tcp put ADDR KEY VALUE | kv_tcp get ADDR KEY".into()),
    }
}

type Table = Mutex<HashMap<String, String>>;

/// Serves for ever, each client in a thread of its own.
fn serve(addr: &str) -> Outcome<()> {
    let (listener, table) = (TcpListener::bind(addr)?, &Table::default());
    println!("listening on {}", listener.local_addr()?);
    std::thread::scope(|scope| {
        loop {
            let (stream, _) = listener.accept()?;
            scope.spawn(move || answer(&stream, table));
        }
    })
}

/// Answers the requests of one client.
fn answer(stream: &TcpStream, table: &Table) -> std::io::Result<()> {
    let (reader, mut writer) = (BufReader::new(stream), stream);
    for line in reader.lines() {
        let line = line?;
        let mut words = line.splitn(3, ' ');
        let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = match (words.next(), words.next(), words.next()) {
            (Some("put"), Some(key), Some(value)) => {
                table.insert(key.into(), value.into());
                "ok ".into()
            }
            (Some("get"), Some(key), None) => match table.get(key) {
                Some(value) => format!("ok {value}"),
                None => "no such key".into(),
            },
            _ => "malformed".into(),
        };
        drop(table);
        writeln!(writer, "{answer}")?;
    }
    Ok(())
}

/// Returns what the server answers to a request.
fn ask(addr: &str, request: &str) -> Outcome<String> {
    let mut stream = TcpStream::connect(addr)?;
    writeln!(stream, "{request}")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    let answer = answer.trim_end_matches('\n');
    answer.strip_prefix("ok ").map(str::to_owned).ok_or_else(|| answer.into())
}
