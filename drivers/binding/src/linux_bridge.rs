//! VIFs of the class `VIFBridge`: a veth pair, whose end on the node is a port of a Linux bridge.

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::link::LinkAttribute;
use staffetta_driver::{DriverError, Reason, VifAttachment, VifClass};

use crate::error::failed;
use crate::namespace::{NetworkNamespaces, run_in_namespace};
use crate::netlink::RouteSocket;
use crate::{ethtool, host_interface, messages, pod_interface};

/// Connects the pod to the Linux bridge of the VIF, which exists already. Does not check whether the bridge is permitted. `datapath` is
/// that of the Open vSwitch behind the bridge; empty if there is none.
pub(crate) fn plug(attachment: &VifAttachment, datapath: &str) -> Result<(), DriverError> {
    pod_interface::validate(attachment)?;
    let bridge = bridge(attachment)?;
    run_in_namespace(&attachment.netns, |namespaces| {
        pod_interface::check_addresses(attachment, namespaces)?;
        let bridge = host_interface::index(&namespaces.host, bridge, "find the bridge of the VIF")?;
        create_pair(attachment, namespaces, Some(bridge))?;
        ethtool::prepare_for(datapath, &attachment.interface)?;
        pod_interface::configure(attachment, namespaces)
    })
}

/// Returns an error unless the interface in the pod is that of the VIF, and its end on the node is a port of the bridge.
pub(crate) fn check(attachment: &VifAttachment) -> Result<(), DriverError> {
    let bridge = bridge(attachment)?;
    let step = "check the interface on the node";
    run_in_namespace(&attachment.netns, |namespaces| {
        pod_interface::check(attachment, namespaces)?;
        let index = host_interface::index(&namespaces.host, bridge, step)?;
        let name = attachment.host_interface();
        let link = namespaces.host.link(&name).map_err(failed(step))?;
        if link.is_some_and(|link| link.attributes.contains(&LinkAttribute::Controller(index))) {
            return Ok(());
        }
        let detail = format!("{name} is not a port of the bridge {bridge}");
        Err(DriverError::new(Reason::NotFound, step).detail(detail))
    })
}

/// Returns the name of the Linux bridge of the VIF. Fails for a VIF of a class other than `VIFBridge`.
pub(crate) fn bridge(attachment: &VifAttachment) -> Result<&str, DriverError> {
    match &attachment.vif.class {
        VifClass::Bridge { bridge_name, .. } => Ok(bridge_name),
        class => Err(DriverError::new(Reason::Unsupported, "bind the VIF").detail(class.name().to_owned())),
    }
}

/// Creates the veth pair of the VIF, in place of a leftover of the same owner. Fails if the interface on the node has another owner or
/// is of another program, or if the pod has an interface of that name with another MAC address. The end on the node becomes a port of
/// the bridge with the index `bridge`; `None` connects it to no bridge.
pub(crate) fn create_pair(
    attachment: &VifAttachment,
    namespaces: &NetworkNamespaces,
    bridge: Option<u32>,
) -> Result<(), DriverError> {
    let (name, owner) = (attachment.host_interface(), attachment.owner.as_str());
    let request = || {
        let pod = pod_interface::pod_interface_spec(attachment, namespaces);
        messages::new_veth(&name, host_interface::mark(owner), bridge, pod)
    };
    // The first attempt succeeds unless there is a leftover, and saves the question for one.
    if namespaces.host.change(request(), NLM_F_CREATE | NLM_F_EXCL).is_ok() {
        return Ok(());
    }
    pod_interface::remove(attachment, namespaces)?;
    host_interface::remove_leftover(&namespaces.host, &name, Some(owner))?;
    namespaces.host.change(request(), NLM_F_CREATE | NLM_F_EXCL).map_err(|error| {
        failed("create the interfaces")(error).detail(format!("{name} and {}", attachment.interface))
    })
}

/// Removes the veth pair of the VIF: by its end in the pod, if that has the MAC address of the VIF, and by its end on the node, if that has
/// the mark of the owner.
pub(crate) fn remove_pair(attachment: &VifAttachment) -> Result<(), DriverError> {
    pod_interface::remove_from(attachment)?;
    let host = RouteSocket::open().map_err(failed("remove the interface on the node"))?;
    host_interface::remove(&host, &attachment.host_interface(), Some(&attachment.owner))
}
