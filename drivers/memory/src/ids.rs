//! The ids of the resources in the simulated cloud.

/// A sequence of resource ids in the form of those of OpenStack: UUIDs.
#[derive(Debug, Default)]
pub(crate) struct IdSequence {
    /// The number of ids that were returned.
    pub(crate) count: u32,
}

impl IdSequence {
    /// Returns the next id. It contains the digit `kind`, by which the ids of different sequences differ.
    pub(crate) fn next(&mut self, kind: u8) -> String {
        self.count += 1;
        format!("{:08x}-0000-4000-800{kind}-{:012x}", self.count, self.count)
    }
}
