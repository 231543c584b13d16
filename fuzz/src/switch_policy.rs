//! `switch_policy`: any file as the policy of the socket switch.
//!
//! Every line is a rule, a setting, a fault or nothing. Each line parsed alone gives the same as
//! within the file.

use std::net::SocketAddr;

use rddp_policy::{Family, Policy, Side};

/// Runs one input, which is a policy file.
pub fn run(octets: &[u8]) {
    let (policy, faults) = Policy::parse(octets);
    let mut alone = Vec::new();
    for (number, line) in octets.split(|octet| *octet == b'\n').enumerate() {
        let (rule, own) = Policy::parse(line);
        assert!(own.len() <= 1);
        assert!(own.iter().all(|fault| fault.line == 1 && !fault.remedy().is_empty()));
        let told = faults.iter().filter(|fault| fault.line == number + 1).map(|fault| &fault.reason);
        assert!(told.eq(own.iter().map(|fault| &fault.reason)));
        alone.push(rule);
    }
    for side in [Side::Client, Side::Server] {
        for addr in addresses() {
            for program in [&b"curl"[..], b"", &octets[..octets.len().min(16)]] {
                // The policy's answer is that of one of its lines alone, or plain TCP.
                let family = policy.family(side, program, addr);
                let any = alone.iter().any(|rule| rule.family(side, program, addr) == family);
                assert!(any || family == Family::Tcp);
            }
        }
    }
}

fn addresses() -> [SocketAddr; 4] {
    [
        ([192, 0, 2, 1], 80).into(),
        ([0, 0, 0, 0], 0).into(),
        (0x2001_0db8_0000_0000_0000_0000_0000_0001u128.to_be_bytes(), 443).into(),
        (0x0000_0000_0000_0000_0000_ffff_c000_0201u128.to_be_bytes(), 65535).into(),
    ]
}
