//! VIFs of the class `VIFBridge`: a veth pair, whose end on the node is a port of a Linux bridge.

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::link::LinkAttribute;
use staffetta_driver::{DriverError, Reason, VifAttachment, VifClass};

use crate::error::failed;
use crate::namespace::{NetworkNamespaces, run_in_namespace};
use crate::netlink::RouteSocket;
use crate::{host_interface, messages, pod_interface};

/// Connects the pod to the Linux bridge of the VIF, which exists already. Does not check whether the bridge is permitted.
pub(crate) fn plug(attachment: &VifAttachment) -> Result<(), DriverError> {
    pod_interface::validate(attachment)?;
    let bridge = bridge(attachment)?;
    run_in_namespace(&attachment.netns, |namespaces| {
        pod_interface::check_addresses(attachment, namespaces)?;
        let bridge = host_interface::index(&namespaces.host, bridge, "find the bridge of the VIF")?;
        create_pair(attachment, namespaces, Some(bridge))?;
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

/// Creates the veth pair of the VIF, in place of a leftover. Fails if another program has created the interface on the node, or if the pod
/// has an interface of that name with another MAC address. The end on the node becomes a port of the bridge with the index `bridge`; `None`
/// connects it to no bridge.
pub(crate) fn create_pair(
    attachment: &VifAttachment,
    namespaces: &NetworkNamespaces,
    bridge: Option<u32>,
) -> Result<(), DriverError> {
    let name = attachment.host_interface();
    let request =
        || messages::new_veth(&name, bridge, pod_interface::pod_interface_spec(attachment, namespaces));
    // The first attempt succeeds unless there is a leftover, and saves the question for one.
    if namespaces.host.change(request(), NLM_F_CREATE | NLM_F_EXCL).is_ok() {
        return Ok(());
    }
    host_interface::remove_leftover(&namespaces.host, &name)?;
    pod_interface::remove(attachment, namespaces)?;
    namespaces.host.change(request(), NLM_F_CREATE | NLM_F_EXCL).map_err(|error| {
        failed("create the interfaces")(error).detail(format!("{name} and {}", attachment.interface))
    })
}

/// Removes the veth pair of the VIF. An interface in the pod with the MAC address of the VIF is removed even if another program, such as
/// Kuryr's daemon, created it.
pub(crate) fn remove_pair(attachment: &VifAttachment) -> Result<(), DriverError> {
    pod_interface::remove_from(attachment)?;
    let host = RouteSocket::open().map_err(failed("remove the interface on the node"))?;
    host_interface::remove(&host, &attachment.host_interface())
}
