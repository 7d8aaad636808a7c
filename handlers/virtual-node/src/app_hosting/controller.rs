//! Reconciles `CiscoDevice` objects: status, finalizer and deletion.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use staffetta_driver::Reason;
use staffetta_driver::app_hosting::HostedPod;
use staffetta_driver::virtual_node::PodProgress;
use staffetta_handler::{
    Action, HandlerError, Identity, ResourceEventHandler, Source, Trigger, TriggerHandler, TriggerSender,
};
use tokio::time::Instant;

use super::cisco_device::CiscoDevice;
use super::devices::{Devices, Verdict};
use super::error::DeviceError;
use super::status::{DevicePhase, phase, status};
use crate::back_end::{PodRemoval, Reply};
use crate::machine::Machine;
use crate::node::names_owner;
use crate::recorder::{EventReason, workload_count};
use crate::shared::Shared;

/// The finalizer of `CiscoDevice` objects. It is removed once the workloads of this cluster are removed from the device and its node is
/// deleted. The workloads of a device that is unreachable, or had no valid specification since the start of this process, stay.
pub const FINALIZER: &str = "cisco.vk/device-cleanup";

/// The interval at which the written statuses of all devices are compared with the observed states.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The time after which a status that is still not written causes another reconciliation.
const REPEAT_AFTER: Duration = Duration::from_secs(30);

/// A request to reconcile a `CiscoDevice`, because the observed state of its device changed.
#[derive(Clone, Debug)]
pub(super) struct DeviceDue(Identity);

impl Trigger for DeviceDue {
    fn identity(&self) -> &Identity {
        &self.0
    }
}

/// The reconciler of `CiscoDevice` objects.
#[derive(Clone)]
pub(super) struct Controller {
    client: Client,
    devices: Arc<Devices>,
    /// The state of the handler of the devices' virtual nodes.
    nodes: Arc<Shared>,
}

impl Controller {
    /// Creates the reconciler of the objects in `devices`, whose nodes are in `nodes`.
    pub(super) fn new(client: Client, devices: Arc<Devices>, nodes: Arc<Shared>) -> Self {
        Self { client, devices, nodes }
    }

    /// Returns the newest known state of a `CiscoDevice` object, so that a retry does not overwrite a later write.
    fn newest(&self, object: &Arc<CiscoDevice>) -> Arc<CiscoDevice> {
        self.devices.object(&Identity::of_object(&**object)).unwrap_or_else(|| Arc::clone(object))
    }

    /// Adds the finalizer to a `CiscoDevice`, or writes its status once it has the finalizer. Fails if the device is invalid, if a device
    /// of a file or the configuration has its node name, or if it takes no pods for another reason.
    async fn reconcile(&self, object: &CiscoDevice) -> Result<(), DeviceError> {
        let verdict = self.devices.verdict(object);
        if !has_finalizer(object) {
            let finalizers = object.finalizers().iter().map(String::as_str).chain([FINALIZER]);
            let metadata = json!({ "finalizers": finalizers.collect::<Vec<_>>() });
            // The event of this write comes back, and the status is looked at then.
            return self.patch(object, None, json!({ "metadata": metadata }), "add the finalizer").await;
        }
        self.write_status(object, &verdict).await?;
        match verdict {
            Verdict::Holds => self.phase(object, &verdict).check(),
            Verdict::Invalid(reason) => Err(DeviceError::Invalid(reason)),
            Verdict::Taken => Err(DeviceError::Taken),
        }
    }

    /// Returns the observed phase of the device of a `CiscoDevice` object, with its reason and message.
    fn phase(&self, object: &CiscoDevice, verdict: &Verdict) -> DevicePhase {
        let machine = self.nodes.node_store.get(&object.name_any()).map(|machine| machine.view());
        phase(object, verdict, machine.as_ref())
    }

    /// Writes the status of a `CiscoDevice`, if it differs from the observed state.
    async fn write_status(&self, object: &CiscoDevice, verdict: &Verdict) -> Result<(), DeviceError> {
        let wanted = status(object, self.phase(object, verdict), Timestamp::now());
        if object.status.as_ref() == Some(&wanted) {
            return Ok(());
        }
        self.patch(object, Some("status"), json!({ "status": wanted }), "write the status").await
    }

    /// Removes a device from the cluster. First its node gets no new pods and its workloads are removed, then its node
    /// is deleted, then the finalizer is removed. If no specification of the device was valid since this process started, its workloads
    /// stay, and an Event reports that. Returns an error that is retried while something remains.
    async fn take_out(&self, object: &CiscoDevice) -> Result<(), DeviceError> {
        if !has_finalizer(object) {
            return Ok(());
        }
        let (name, uid) = (object.name_any(), object.metadata.uid.clone().unwrap_or_default());
        let verdict = self.devices.verdict(object);
        self.write_status(object, &verdict).await?;
        let node = self.nodes.cluster.node(&name).filter(|node| names_owner(node, self.nodes.node_owner()));
        if self.devices.is_held_by(&name, &uid) {
            let machine = self.nodes.node_store.get(&name);
            let machine = machine.ok_or(DeviceError::Leaving("its workloads have not been read yet"))?;
            machine.retire();
            self.clear(object, &machine).await?;
            self.devices.leave(&name, &uid);
        } else if let Verdict::Invalid(reason) = &verdict
            && node.is_some()
            && self.devices.of(&name).is_none()
            && self.devices.object(&Identity::of_object(object)).is_some()
            && !self.devices.has_left(&name, &uid)
        {
            self.report_rest(
                object,
                self.nodes.cluster.pods_on(&name).len(),
                "without a valid description",
                reason,
            );
            self.devices.leave(&name, &uid);
            self.nodes.node_store.depart(&name);
        }
        if self.devices.has_left(&name, &uid) && node.is_some() {
            return Err(DeviceError::Leaving("its node still exists"));
        }
        let finalizers: Vec<_> =
            object.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER).collect();
        let metadata = json!({ "finalizers": finalizers });
        self.patch(object, None, json!({ "metadata": metadata }), "remove the finalizer").await
    }

    /// Removes all workloads of this cluster from a device. An unreachable device keeps its workloads, and an Event reports that: a device
    /// that never comes back must not block the deletion of its object. Returns an error that is retried while workloads remain, or if
    /// the device was not read yet.
    async fn clear(&self, object: &CiscoDevice, machine: &Machine) -> Result<(), DeviceError> {
        let view = machine.view();
        if let Some(outage) = view.outage() {
            self.report_rest(object, machine.marked_workloads().len(), "while unreachable", &outage.message);
            return Ok(());
        }
        let unread = || {
            machine.wake_reader();
            DeviceError::Leaving("its workloads have not been read yet")
        };
        let back_end = machine.back_end().filter(|_| view.reach.is_up()).ok_or_else(unread)?;
        let there: Vec<Arc<HostedPod>> = match back_end.inventory().await {
            Ok(Reply::Now(workloads)) => {
                let ours = workloads.iter().filter(|workload| self.is_ours(workload));
                ours.map(|workload| Arc::new(workload.clone())).collect()
            }
            Ok(Reply::Later) => machine.marked_workloads(),
            // The reader of the machine decides whether that is an outage.
            Err(_) => return Err(unread()),
        };
        let (mut left, mut failed) = (false, None);
        for workload in there {
            let owner = workload.owner.clone();
            let pod = self.nodes.cluster.pod(&owner.uid);
            match back_end.remove(&PodRemoval { owner, pod, workload: Some(workload) }).await {
                Ok(PodProgress::Done) => {}
                Ok(_) => left = true,
                Err(error) if error.reason() == Reason::Unavailable => left = true,
                Err(error) => failed = failed.or(Some(DeviceError::Remove(error))),
            }
        }
        if left {
            machine.wake_reader();
            // A workload that cannot be removed does not delay the others: its error comes when they are removed.
            return Err(DeviceError::Leaving("its applications are being removed"));
        }
        failed.map_or(Ok(()), Err)
    }

    /// Returns `true` if the workload carries the ownership mark of this cluster, or belongs to an existing pod.
    fn is_ours(&self, workload: &HostedPod) -> bool {
        workload.marked || self.nodes.cluster.knows(workload.owner.uid.as_str())
    }

    /// Publishes an Event about a device whose object is deleted although workloads may remain on it, of this number of `pods` (0 if it is
    /// not known). `state` is that of the device, such as `while unreachable`, and `cause` the reason for that state.
    fn report_rest(&self, object: &CiscoDevice, pods: usize, state: &str, cause: &str) {
        let rest = workload_count(pods);
        let text = format!("the device was released {state}; {rest} may remain on it: {cause}");
        self.nodes.note(Identity::of_object(object), EventReason::Left, text);
    }

    /// Patches a `CiscoDevice`, or its `subresource`, if it has not changed: the patch carries the UID and the resourceVersion. An object
    /// that does not exist any more is no error.
    async fn patch(
        &self,
        object: &CiscoDevice,
        subresource: Option<&str>,
        mut patch: Value,
        step: &'static str,
    ) -> Result<(), DeviceError> {
        patch["metadata"]["resourceVersion"] = json!(object.metadata.resource_version);
        patch["metadata"]["uid"] = json!(object.metadata.uid);
        let devices: Api<CiscoDevice> = Api::all(self.client.clone());
        let (name, params, patch) = (object.name_any(), PatchParams::default(), Patch::Merge(patch));
        let written = match subresource {
            Some(_) => devices.patch_status(&name, &params, &patch).await,
            None => devices.patch(&name, &params, &patch).await,
        };
        match written {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(source) => Err(DeviceError::Write { step, source: Box::new(source) }),
        }
    }
}

fn has_finalizer(object: &CiscoDevice) -> bool {
    object.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

impl ResourceEventHandler<CiscoDevice> for Controller {
    type Error = DeviceError;

    async fn on_present(&self, object: &Arc<CiscoDevice>) -> Result<Action, DeviceError> {
        if object.metadata.namespace.is_some() {
            let reason = "the kind CiscoDevice is namespaced in this cluster: replace its definition by that of etc/deploy";
            return Err(DeviceError::Invalid(reason.to_owned()));
        }
        self.reconcile(&self.newest(object)).await.map(Action::from)
    }

    async fn on_finalize(&self, object: &Arc<CiscoDevice>) -> Result<Action, DeviceError> {
        if object.metadata.namespace.is_some() {
            return Ok(Action::done());
        }
        self.take_out(&self.newest(object)).await.map(Action::from)
    }
}

impl TriggerHandler<DeviceDue> for Controller {
    type Error = DeviceError;

    async fn on_trigger(&self, trigger: &DeviceDue) -> Result<Action, DeviceError> {
        match self.devices.object(trigger.identity()) {
            Some(object) if object.metadata.deletion_timestamp.is_none() && has_finalizer(&object) => {
                let verdict = self.devices.verdict(&object);
                self.write_status(&object, &verdict).await.map(Action::from)
            }
            _ => Ok(Action::done()),
        }
    }
}

/// The trigger source of the reconciler. Each second, it looks for `CiscoDevice`s whose written phase or reason is not the observed one, for
/// example because a device became unreachable, which no watch event says, and triggers a reconciliation of each: once, and again after
/// [`REPEAT_AFTER`], so that a status that cannot be written causes few requests.
pub(super) struct StatusRounds(pub(super) Controller);

#[async_trait]
impl Source for StatusRounds {
    async fn run(&self, sender: TriggerSender) -> Result<(), HandlerError> {
        let mut triggered: HashMap<String, (DevicePhase, Instant)> = HashMap::new();
        loop {
            let (now, mut unwritten) = (Instant::now(), HashMap::new());
            for object in self.0.devices.objects() {
                let phase = self.0.phase(&object, &self.0.devices.verdict(&object));
                if phase.is_written(&object) {
                    continue;
                }
                let uid = object.uid().unwrap_or_default();
                let is_recent =
                    |(other, at): &(DevicePhase, Instant)| phase.is_like(other) && now < *at + REPEAT_AFTER;
                let last = triggered.remove(&uid).filter(is_recent);
                if last.is_none() {
                    sender.send(DeviceDue(Identity::of_object(&*object)));
                }
                unwritten.insert(uid, last.unwrap_or((phase, now)));
            }
            triggered = unwritten;
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }
}
