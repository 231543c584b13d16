//! Layer `crc`: values, the order of their octets on the wire, the residue.

use rddp_mpa::{crc32c, crc32c_append};

use crate::{hex, name, number, vectors};

// RFC 5044 §4.4
#[test]
fn every_crc_vector_holds() {
    for vector in vectors("crc", 8) {
        let data = hex(&vector["in"]["data_hex"]);
        let value = crc32c(&data);
        let expect = &vector["expect"];
        assert_eq!(u64::from(value), number(&expect["value"]), "{}", name(&vector));
        if !expect["wire_hex"].is_null() {
            assert_eq!(value.to_le_bytes()[..], hex(&expect["wire_hex"]), "{}", name(&vector));
        }
        if !expect["register_before_final_complement"].is_null() {
            assert_eq!(u64::from(!value), number(&expect["register_before_final_complement"]));
        }
        for at in 0..=data.len() {
            assert_eq!(
                crc32c_append(crc32c(&data[..at]), &data[at..]),
                value,
                "{} cut at {at}",
                name(&vector)
            );
        }
    }
}
