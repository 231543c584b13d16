//! Memory for the octets that a batch delivers.

/// Memory for octets, filled front to back.
///
/// ```
/// use rddp_octets::Room;
///
/// let mut memory = [0; 4];
/// let mut room = &mut memory[..];
/// assert_eq!(room.store(b"abc"), 3);
/// assert_eq!((room.store(b"def"), room.free()), (1, 0));
/// assert_eq!(&memory, b"abcd");
/// ```
pub trait Room {
    /// Returns how many more octets there is room for.
    fn free(&self) -> usize;

    /// Copies as much of `octets` as there is room for, and returns how many that are.
    fn store(&mut self, octets: &[u8]) -> usize;
}

/// A slice shrinks to what is left of it.
impl Room for &mut [u8] {
    fn free(&self) -> usize {
        self.len()
    }

    fn store(&mut self, octets: &[u8]) -> usize {
        let count = octets.len().min(self.len());
        let (now, later) = std::mem::take(self).split_at_mut(count);
        now.copy_from_slice(&octets[..count]);
        *self = later;
        count
    }
}
