//! Fields of fixed-size headers: big-endian numbers, read and written from front to back.

/// Reads fields from the front of octets whose length has been checked.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take())
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_first_chunk().expect("the header's length was checked");
        self.0 = rest;
        *field
    }
}

/// Writes fields one behind the other.
pub(crate) struct Out<'a>(pub(crate) &'a mut [u8]);

impl Out<'_> {
    pub(crate) fn u32(&mut self, field: u32) {
        self.put(field.to_be_bytes());
    }

    pub(crate) fn u64(&mut self, field: u64) {
        self.put(field.to_be_bytes());
    }

    fn put<const N: usize>(&mut self, field: [u8; N]) {
        self.octets(&field);
    }

    pub(crate) fn octets(&mut self, octets: &[u8]) {
        let (front, rest) = core::mem::take(&mut self.0).split_at_mut(octets.len());
        front.copy_from_slice(octets);
        self.0 = rest;
    }
}
