//! The hasher of a map whose keys are digests already.

use std::hash::Hasher;

/// Hands on the digest that an [`OrderingKey`](crate::OrderingKey) already is.
#[derive(Default)]
pub(crate) struct Digest(u64);

impl Hasher for Digest {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, digest: u64) {
        self.0 = digest;
    }
}
