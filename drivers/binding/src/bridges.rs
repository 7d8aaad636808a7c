//! The bridges of the node to which pods may be connected.

use staffetta_driver::{DriverError, Reason};

/// The names of the bridges of the node to which pods may be connected. A name that ends in `*` permits each bridge whose name begins with
/// the text before the `*`.
///
/// The list protects the other bridges of the node, such as those of virtual machines or of a management network: the annotation of a pod
/// names its bridge, and tenants can write annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermittedBridges(Vec<String>);

impl PermittedBridges {
    /// Creates the list with these names.
    pub fn new(names: Vec<String>) -> Self {
        Self(names)
    }

    /// Fails with [`Reason::Refused`] unless the bridge `name` is permitted.
    pub(crate) fn check(&self, name: &str) -> Result<(), DriverError> {
        if self.0.iter().any(|permitted| permits(permitted, name)) {
            return Ok(());
        }
        // No interface has a longer name, and the name is that of a tenant.
        let shown: String = name.chars().take(15).collect();
        let permitted = self.0.join(", ");
        Err(DriverError::new(Reason::Refused, "connect the VIF to its bridge")
            .detail(format!("the bridge `{shown}` is not among those of `binding.bridges`: {permitted}")))
    }
}

/// Returns `true` if `permitted`, an entry of the list, permits the bridge `name`.
fn permits(permitted: &str, name: &str) -> bool {
    match permitted.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == permitted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_is_permitted_by_its_name_or_by_the_start_of_it() {
        let bridges = PermittedBridges::new(vec!["br-int".to_owned(), "brq*".to_owned()]);
        for name in ["br-int", "brq0a1b2c3d-00"] {
            assert!(bridges.check(name).is_ok(), "{name}");
        }
        for name in ["", "br-in", "br-int2", "br-ex", "docker0", "br", "*"] {
            assert_eq!(bridges.check(name).unwrap_err().reason(), Reason::Refused, "{name}");
        }
        assert!(PermittedBridges::new(Vec::new()).check("br-int").is_err());
        let message = bridges.check(&"x".repeat(100)).unwrap_err().to_string();
        assert!(message.contains("`xxxxxxxxxxxxxxx`") && message.contains("br-int, brq*"), "{message}");
    }
}
