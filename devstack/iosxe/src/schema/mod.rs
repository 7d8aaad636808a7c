//! The parts of the YANG modules that a device uses: names, keys, types, ranges. Pure.

pub(crate) mod app_hosting_cfg;
mod check;
pub(crate) mod oper;
pub(crate) mod rpc;

pub(crate) use check::{Invalid, check};

/// A node of a module's tree.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Node {
    /// A value.
    Leaf(Type),
    /// A container of other nodes.
    Container(&'static [Field]),
    /// Entries that a key tells apart; RFC 7951 writes them as an array.
    List {
        /// The leaves that are the key, in the order of the module.
        keys: &'static [&'static str],
        /// The fields of an entry, its key included.
        fields: &'static [Field],
    },
}

/// A node and its name.
pub(crate) type Field = (&'static str, Node);

/// The type of a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Type {
    /// Text of so many characters, each of them allowed.
    Text { least: usize, most: usize, allowed: fn(char) -> bool },
    /// A number of the type's own bounds, of the range of the leaf, and of what its `must` adds.
    Number { most: u64, range: (u64, u64), must: Option<(u64, u64)> },
    /// True or false.
    Boolean,
    /// One of these words.
    Enumeration(&'static [&'static str]),
    /// An address of either family.
    Address,
    /// An IPv6 address.
    Ipv6,
    /// Six octets in hexadecimal form.
    Mac,
    /// Whatever it is: a leaf of operational data, which nobody sends.
    Any,
}

/// The node of that name among these.
pub(crate) fn child(fields: &'static [Field], name: &str) -> Option<&'static Node> {
    fields.iter().find(|(field, _)| *field == name).map(|(_, node)| node)
}
