//! The drivers that bind VIFs to pods on the node where the pods run.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::DriverError;
use crate::vif::{Vif, VifClass};

/// A VIF of a pod, and the place in the pod where it is bound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VifAttachment {
    /// The VIF. Its MAC address and its addresses belong to this pod alone on the node; all other fields are as the annotation
    /// of the pod gives them.
    pub vif: Vif,
    /// The file of the pod's network namespace. It does not exist any more if the pod has ended.
    pub netns: PathBuf,
    /// The name of the interface in the pod: 1 to 15 characters without `/` and white space.
    pub interface: String,
    /// `true` if the default route of the pod leads through this interface.
    pub default_route: bool,
    /// The sandbox and the interface that the container runtime named in `ADD`, as `CONTAINER/INTERFACE`. What a driver creates on the node
    /// carries it, as a mark.
    pub owner: String,
}

/// Binds the VIFs of one class to pods of this node. A driver is registered under the name of the [class](VifClass::name).
///
/// The methods block: the CNI daemon of the node calls them on threads for blocking work. Calls for one pod never overlap. They
/// are idempotent: the daemon may be killed in the middle of a call, and then calls [`unplug`](Self::unplug) or
/// [`plug`](Self::plug) again.
///
/// A driver changes and removes only what it created for the same [owner](VifAttachment::owner), and what nobody uses any more: a pod whose
/// VIF was refused is unbound too, and that VIF may be another pod's. An interface on the node is named after the start of the port's id
/// ([`VifAttachment::host_interface`]), which is no identity, and never after a name in the annotation.
///
/// ```
/// use staffetta_driver::{VifAttachment, DriverError, VifBindingDriver};
///
/// /// Binds VIFs that need no interface.
/// struct Nothing;
///
/// impl VifBindingDriver for Nothing {
///     fn plug(&self, _: &VifAttachment) -> Result<(), DriverError> {
///         Ok(())
///     }
///     fn unplug(&self, _: &VifAttachment) -> Result<(), DriverError> {
///         Ok(())
///     }
///     fn check(&self, _: &VifAttachment) -> Result<(), DriverError> {
///         Ok(())
///     }
/// }
/// ```
pub trait VifBindingDriver: Send + Sync {
    /// Creates the interface in the pod with its MAC address, MTU, addresses and routes, and connects it to the network.
    /// Leftovers of an earlier call are replaced. Fails with [`Reason::Conflict`](crate::Reason::Conflict) if another owner has the VIF.
    /// After an error, the caller calls [`unplug`](Self::unplug).
    fn plug(&self, attachment: &VifAttachment) -> Result<(), DriverError>;

    /// Removes the interface of the VIF from the pod, and its connection to the network. What does not exist, or has another owner, counts
    /// as removed.
    fn unplug(&self, attachment: &VifAttachment) -> Result<(), DriverError>;

    /// Removes what this driver created for `owner` and what belongs to the interface `interface` in the network namespace `netns`. The
    /// daemon calls it when it has no record of the owner, so the VIFs are unknown. Does nothing by default: an interface vanishes with its
    /// namespace.
    fn unplug_unrecorded(&self, owner: &str, netns: &Path, interface: &str) -> Result<(), DriverError> {
        let _ = (owner, netns, interface);
        Ok(())
    }

    /// Returns an error if the interface in the pod, or its connection to the network, does not exist as [`plug`](Self::plug) makes it.
    fn check(&self, attachment: &VifAttachment) -> Result<(), DriverError>;

    /// Announces the addresses of the pod to its network, so that neighbours replace what they know of an earlier owner. The daemon calls
    /// it when the port is active, because the network drops what the pod sends before. Does nothing by default, and if the pod has ended.
    fn announce(&self, attachment: &VifAttachment) -> Result<(), DriverError> {
        let _ = attachment;
        Ok(())
    }
}

impl VifAttachment {
    /// Returns the name of the interface on the node: `tap` and the first 11 characters of the port's id, as Neutron's agents
    /// expect it. The daemon refuses a VIF whose id begins with the same 11 characters as that of another pod on its node.
    pub fn host_interface(&self) -> String {
        interface_name("tap", self.vif.id.as_str())
    }
}

/// Returns the name of an interface of the port `id`: `prefix` (at most 4 characters) and the start of the id, at most 14 characters in
/// all.
pub fn interface_name(prefix: &str, id: &str) -> String {
    prefix.chars().chain(id.chars()).take(14).collect()
}

impl VifClass {
    /// Returns the name of the class in `os_vif`, such as `VIFOpenVSwitch`.
    pub fn name(&self) -> &str {
        match self {
            Self::OpenVSwitch { .. } => "VIFOpenVSwitch",
            Self::Bridge { .. } => "VIFBridge",
            Self::VHostUser { .. } => "VIFVHostUser",
            Self::VlanNested { .. } => "VIFVlanNested",
            Self::MacvlanNested { .. } => "VIFMacvlanNested",
            Self::DpdkNested { .. } => "VIFDPDKNested",
            Self::Other { name, .. } => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_interface_is_the_one_that_neutron_gives_it() {
        assert_eq!(interface_name("tap", "889e8fb0-8b3a-4f0e-9a77-0123456789ab"), "tap889e8fb0-8b");
        assert_eq!(interface_name("tap", "p1"), "tapp1");
    }
}
