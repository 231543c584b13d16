//! The numbers of a handshake, and its strings.

pub(super) const NBD_MAGIC: &[u8; 8] = b"NBDMAGIC";
pub(super) const OPTION_MAGIC: &[u8; 8] = b"IHAVEOPT";
pub(super) const REPLY_MAGIC: u64 = 0x3_e889_0455_65a9;

pub(super) const FIXED_NEWSTYLE: u16 = 1;
pub(super) const NO_ZEROES: u16 = 2;

/// Octets of the data of an option: two strings of the longest that there are (4,096) and more. A
/// longer one is not read.
pub(super) const MAX_OPTION: u32 = 16 * 1024;

pub(super) const OPT_EXPORT_NAME: u32 = 1;
pub(super) const OPT_ABORT: u32 = 2;
pub(super) const OPT_LIST: u32 = 3;
pub(super) const OPT_INFO: u32 = 6;
pub(super) const OPT_GO: u32 = 7;
pub(super) const OPT_STRUCTURED_REPLY: u32 = 8;
pub(super) const OPT_LIST_META_CONTEXT: u32 = 9;
pub(super) const OPT_SET_META_CONTEXT: u32 = 10;

pub(super) const REP_ACK: u32 = 1;
pub(super) const REP_SERVER: u32 = 2;
pub(super) const REP_INFO: u32 = 3;
pub(super) const REP_META_CONTEXT: u32 = 4;
pub(super) const REP_ERR_UNSUP: u32 = 0x8000_0001;
pub(super) const REP_ERR_INVALID: u32 = 0x8000_0003;
pub(super) const REP_ERR_UNKNOWN: u32 = 0x8000_0006;

pub(super) const INFO_EXPORT: u16 = 0;
pub(super) const INFO_NAME: u16 = 1;
pub(super) const INFO_DESCRIPTION: u16 = 2;
pub(super) const INFO_BLOCK_SIZE: u16 = 3;

pub(super) const HAS_FLAGS: u16 = 0x01;
pub(super) const READ_ONLY: u16 = 0x02;
pub(super) const SEND_FLUSH: u16 = 0x04;
pub(super) const SEND_FUA: u16 = 0x08;
pub(super) const SEND_TRIM: u16 = 0x20;
pub(super) const SEND_WRITE_ZEROES: u16 = 0x40;
pub(super) const SEND_DF: u16 = 0x80;
pub(super) const CAN_MULTI_CONN: u16 = 0x0100;

pub(super) const ALLOCATION: &[u8] = b"base:allocation";

pub(super) fn be32(octets: &[u8]) -> Option<u32> {
    octets.first_chunk().map(|octets| u32::from_be_bytes(*octets))
}

pub(super) fn with_len(octets: &[u8]) -> Vec<u8> {
    [&(octets.len() as u32).to_be_bytes(), octets].concat()
}

/// Splits a string with its length in front from what is behind it.
pub(super) fn name_and_rest(data: &[u8]) -> Option<(&[u8], &[u8])> {
    data.get(4..)?.split_at_checked(be32(data)? as usize)
}

pub(super) fn be16(octets: &[u8]) -> Option<u16> {
    octets.first_chunk().map(|octets| u16::from_be_bytes(*octets))
}
