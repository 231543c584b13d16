//! Messages of SDP, as octets and as values.
