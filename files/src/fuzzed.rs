//! Octets of a peer, as the fuzz target `files_peer` feeds them to all that parses them. Panics
//! where what is accepted does not come back as it came, or reaches further than it may.

use serde::Serialize;

use super::checksum::Check;
use super::extents::Extents;
use super::greeting::Hello;
use super::protocol::{Chunk, Message, SLOT, SLOTS, ToClient, ToServer, parse};
use super::tree;

/// Takes octets, the first of which says what the others are.
pub fn from_peer(octets: &[u8]) {
    let Some((kind, octets)) = octets.split_first() else { return };
    match kind % 5 {
        0 => {
            if let Some(ToServer::Chunk(chunk)) = message(octets) {
                chunk_fits(chunk);
            }
        }
        1 => match message(octets) {
            Some(ToClient::Chunk(chunk)) => chunk_fits(chunk),
            Some(ToClient::Extents { list, to }) => {
                let size = to.saturating_add(octets.len() as u64 % 3);
                let mut extents = Extents::unknown(0, size);
                if extents.add(list, to).is_ok() {
                    extents_fit(extents, size);
                }
            }
            _ => {}
        },
        2 => tree::reads_back(octets, Check::Crc32c),
        3 => tree::reads_back(octets, Check::None),
        _ => {
            if let Ok(hello) = Hello::parse(octets) {
                assert_eq!(Hello::parse(&hello.emit()), Ok(hello));
            }
        }
    }
}

fn message<T: Message>(octets: &[u8]) -> Option<T> {
    let (message, behind) = parse::<T>(octets).ok()?;
    let text = text_of(&message);
    let (again, behind_again) = parse::<T>(&[&text[..], behind].concat())
        .map(|(again, behind)| (text_of(&again), behind.to_vec()))
        .unwrap_or_default();
    assert!(again == text && behind_again == behind, "{}", String::from_utf8_lossy(&text));
    Some(message)
}

fn text_of(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).unwrap_or_default()
}

fn chunk_fits(chunk: Chunk) {
    let size = chunk.offset.saturating_add(SLOT as u64 / 2);
    if chunk.check_ahead(0, size).is_ok() {
        assert!(chunk.slot < SLOTS && chunk.len > 0 && chunk.len <= SLOT, "{chunk:?}");
        assert!(chunk.offset.checked_add(chunk.len as u64).is_some_and(|end| end <= size), "{chunk:?}");
    }
}

fn extents_fit(mut extents: Extents, size: u64) {
    let mut behind = 0;
    // An extent may have very many pieces.
    for _ in 0..100 {
        let Some((offset, len)) = extents.next(SLOT) else { return };
        assert!(offset >= behind && len > 0 && len <= SLOT && len as u64 <= size - offset);
        behind = offset + len as u64;
    }
}

#[cfg(test)]
mod tests {
    use rddp_test_support::{Random, random_octets};

    /// A short run without a fuzzer.
    #[test]
    fn octets_of_a_peer_are_taken_or_refused() {
        let texts = [
            r#"{"Get":{"path":"f","have":0,"sha256":""}}"#,
            r#"{"Chunk":{"slot":7,"offset":9,"len":9,"crc":1}}"#,
            r#"{"Extents":{"list":[[1,2],[4,1]],"to":9}}"#,
            r#"{"Give":{"size":3,"mode":1,"from":0,"modified":{"seconds":1,"nanos":2},"here":{"sha256":""}}}abc"#,
            "rddp-files 3\0",
        ];
        for seed in 0..20_000 {
            let mut random = Random::new(seed);
            let mut octets = [&[seed as u8], texts[random.below(5)].as_bytes()].concat();
            for _ in 0..random.below(3) {
                let at = random.below(octets.len());
                octets[at] = random.number() as u8;
            }
            super::from_peer(&octets);
            super::from_peer(&random_octets(seed, 40));
        }
    }
}
