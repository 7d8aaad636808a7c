//! Binds and unbinds the VIFs of a pod, with a record of what has to be undone.

use std::panic::resume_unwind;
use std::sync::Arc;

use staffetta_cni::error::{CniError, Code};
use staffetta_driver::{DriverError, MacAddress, Reason, VifAttachment, VifBindingDriver};
use staffetta_network::os_vif::PodState;
use tokio::task::spawn_blocking;
use tracing::warn;

use super::CniDaemon;
use crate::pods::PodEntry;
use crate::records::{ClaimError, Record, RecordError};
use crate::target::PodTarget;

/// Returns the VIFs of a pod, the default VIF first, each with the network namespace and the interface to which it is bound. The default
/// route leads through the default VIF.
pub(super) fn attachments(target: &PodTarget, state: &PodState) -> Vec<VifAttachment> {
    let attachment = |vif: &staffetta_driver::Vif, interface: &str, default_route| VifAttachment {
        vif: vif.clone(),
        netns: target.netns.clone(),
        interface: interface.to_owned(),
        default_route,
        owner: target.owner(),
    };
    let default = attachment(&state.default_vif, &target.interface, true);
    let additional = state.additional_vifs.iter().map(|(name, vif)| attachment(vif, name, false));
    std::iter::once(default).chain(additional).collect()
}

/// Returns `true` if the VIFs in the annotation of the pod are still those in `bound`, active or not; `false` if it contains other VIFs,
/// or none that can be bound.
pub(super) fn are_of(bound: &[VifAttachment], target: &PodTarget, pod: &PodEntry) -> bool {
    pod.vifs.as_ref().is_ok_and(|state| same(bound, &attachments(target, state)))
}

impl CniDaemon {
    /// Binds the VIFs of the pod `uid`. Idempotent: changes nothing if the same VIFs are already bound to the same sandbox, and their
    /// drivers find them as required. Otherwise it first unbinds those that an earlier command bound to the pod. If a VIF cannot be bound,
    /// all are unbound again as far as possible. Fails if the pod was deleted, or if the sandbox has its VIFs as another interface.
    pub(super) async fn bind(
        self: &Arc<Self>,
        target: &PodTarget,
        uid: &str,
        state: &PodState,
    ) -> Result<(), CniError> {
        let attachments = attachments(target, state);
        check_interfaces(&attachments, self.node_port.get())?;
        self.drivers(&attachments)?;
        let _held = self.locks.lock(&target.pod()).await;
        if !self.pods.contains(uid) {
            return Err(CniError::new(
                Code::UnknownContainer,
                format!("the pod {} was deleted", target.pod()),
            ));
        }
        if let Some(earlier) = self.records.get(uid) {
            if earlier.container_id == target.container_id && earlier.owner() != target.owner() {
                let message = "the VIFs of the pod are bound to this container as another interface";
                return Err(CniError::new(Code::Failed, message).details(shown(earlier.owner())));
            }
            if same(&earlier.attachments, &attachments) {
                let bound = earlier.attachments.clone();
                if self.each(bound, |driver, attachment| driver.check(attachment)).await.is_ok() {
                    return Ok(());
                }
            }
            self.release(earlier).await?;
        }
        let record = Record {
            uid: uid.to_owned(),
            namespace: target.namespace.clone(),
            name: target.name.clone(),
            container_id: target.container_id.clone(),
            boot_id: self.records.boot_id.clone(),
            attachments,
        };
        self.claim(record.clone()).await?;
        let plugged =
            self.each(record.attachments.clone(), |driver, attachment| driver.plug(attachment)).await;
        if let Err(error) = plugged {
            if let Err(rollback) = self.release(record).await {
                warn!(
                    namespace = target.namespace,
                    name = target.name,
                    error = rollback.msg,
                    details = rollback.details,
                    "a pod that was bound in part cannot be unbound; its record is kept"
                );
            }
            return Err(error);
        }
        Ok(())
    }

    /// Adds the record of a pod whose VIFs are about to be bound. If the record of another pod of this node has the same port or address,
    /// fails, unless that pod is known not to exist any more: then its VIFs are unbound first.
    async fn claim(self: &Arc<Self>, record: Record) -> Result<(), CniError> {
        // The second conflict of a pod may be with another pod than the first.
        for _ in 0..=record.attachments.len() {
            match self.records.claim(record.clone()) {
                Ok(()) => return Ok(()),
                Err(ClaimError::Unwritten(error)) => return Err(unrecorded(&error)),
                Err(ClaimError::Taken(other, _)) if self.is_ready() && !self.pods.contains(&other.uid) => {
                    self.release(*other).await?;
                }
                Err(ClaimError::Taken(other, property)) => {
                    return Err(CniError::new(
                        Code::Failed,
                        format!("{property} is bound to another pod of this node"),
                    )
                    .details(format!("{}/{}", other.namespace, other.name)));
                }
            }
        }
        Err(CniError::new(
            Code::TryAgainLater,
            "the addresses of the pod are bound to pods that are being removed",
        ))
    }

    /// Unbinds the VIFs of a record, and removes the record. If one cannot be unbound, the others still are, and then the first error is
    /// returned.
    pub(super) async fn release(self: &Arc<Self>, record: Record) -> Result<(), CniError> {
        let mut result = Ok(());
        for attachment in record.attachments {
            let unplugged = self.each(vec![attachment], |driver, attachment| driver.unplug(attachment)).await;
            result = result.and(unplugged);
        }
        result.inspect(|()| self.records.remove(&record.uid))
    }

    /// Unbinds what the container of a command has, although there is no record of it. What its pod shows does not matter: tenants can
    /// write annotations. A file of the pod that is no record, because a power failure has cut it off, is removed.
    pub(super) async fn release_unrecorded(self: &Arc<Self>, target: &PodTarget) -> Result<(), CniError> {
        if let Some(uid) = target.uid.as_deref().filter(|uid| self.records.get(uid).is_none()) {
            self.records.remove(uid);
        }
        let (owner, target) = (target.owner(), target.clone());
        let drivers: Vec<_> = self.bindings.values().cloned().collect();
        let _permit = self.permits.acquire().await;
        let task = spawn_blocking(move || {
            let unplug = |driver: &Arc<dyn VifBindingDriver>| {
                driver.unplug_unrecorded(&owner, &target.netns, &target.interface)
            };
            drivers.iter().try_for_each(unplug)
        });
        let unplugged = task.await.unwrap_or_else(|error| resume_unwind(error.into_panic()));
        unplugged.map_err(|error| {
            CniError::new(code(&error), "a container without a record cannot be unbound")
                .details(staffetta_handler::causes(&error))
        })
    }

    /// Calls `work` for each VIF with the driver of its class, on a thread for blocking calls, until one call fails. Once begun, the calls
    /// go on when the caller is cancelled, so that nothing stops in the middle.
    pub(super) async fn each(
        self: &Arc<Self>,
        attachments: Vec<VifAttachment>,
        work: impl Fn(&dyn VifBindingDriver, &VifAttachment) -> Result<(), DriverError> + Send + 'static,
    ) -> Result<(), CniError> {
        let drivers = self.drivers(&attachments)?;
        let _permit = self.permits.acquire().await;
        let task = spawn_blocking(move || {
            let mut all = attachments.iter().zip(drivers);
            all.try_for_each(|(attachment, driver)| {
                work(&*driver, attachment).map_err(|error| refused(attachment, &error))
            })
        });
        task.await.unwrap_or_else(|error| resume_unwind(error.into_panic()))
    }

    /// Returns the driver of each VIF, which is that of its class. Fails if a class has no driver.
    fn drivers(&self, attachments: &[VifAttachment]) -> Result<Vec<Arc<dyn VifBindingDriver>>, CniError> {
        let driver = |attachment: &VifAttachment| {
            let class = attachment.vif.class.name();
            self.bindings.get(class).cloned().ok_or_else(|| {
                let known: Vec<_> = self.bindings.keys().map(String::as_str).collect();
                CniError::new(
                    Code::Failed,
                    format!("this node cannot bind a VIF of the class `{}`", shown(class)),
                )
                .details(format!("it binds {}", known.join(", ")))
            })
        };
        attachments.iter().map(driver).collect()
    }
}

/// Returns an error if two VIFs of the pod have the same interface, in the pod or on the node, or if one has the interface or the MAC
/// address of the node's own port: then all pods of the node would lose it.
fn check_interfaces(
    attachments: &[VifAttachment],
    node_port: Option<&(String, MacAddress)>,
) -> Result<(), CniError> {
    for (index, one) in attachments.iter().enumerate() {
        let on_node = one.host_interface();
        let refused = |message| Err(CniError::new(Code::Failed, message).details(shown(one.vif.id.as_str())));
        if node_port.is_some_and(|(interface, mac)| on_node == *interface || one.vif.address == *mac) {
            return refused("the VIF is the port of the node itself");
        }
        let mut others = attachments[..index].iter();
        if others.any(|other| other.interface == one.interface || other.host_interface() == on_node) {
            return refused("two VIFs of the pod have the same interface or port");
        }
    }
    Ok(())
}

/// Returns `true` if both lists contain the same VIFs in the same order, bound to the same interfaces of the same container.
fn same(one: &[VifAttachment], other: &[VifAttachment]) -> bool {
    let place = |attachment: &VifAttachment| {
        (attachment.netns.clone(), attachment.interface.clone(), attachment.owner.clone())
    };
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .all(|(one, other)| place(one) == place(other) && one.vif.binding() == other.vif.binding())
}

/// Returns the error of the plugin for a VIF that cannot be bound.
fn refused(attachment: &VifAttachment, error: &DriverError) -> CniError {
    CniError::new(
        code(error),
        format!(
            "the VIF {} cannot be bound as {}",
            shown(attachment.vif.id.as_str()),
            shown(&attachment.interface)
        ),
    )
    .details(staffetta_handler::causes(error))
}

/// Returns the code of an error: 11 (try again later) of the CNI specification if it may pass by itself. The kubelet repeats the command in
/// any case.
fn code(error: &DriverError) -> Code {
    match error.reason() {
        Reason::Conflict | Reason::Unavailable | Reason::Awaited => Code::TryAgainLater,
        _ => Code::Failed,
    }
}

/// Returns the error of the plugin for a record that cannot be written.
fn unrecorded(error: &RecordError) -> CniError {
    CniError::new(Code::Io, "the record of the pod cannot be changed")
        .details(staffetta_handler::causes(error))
}

/// Returns the first 64 characters of a text for an error message; a tenant may have written the text.
fn shown(text: &str) -> String {
    text.chars().take(64).collect()
}
