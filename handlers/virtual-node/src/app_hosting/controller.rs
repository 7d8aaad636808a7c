//! What is done for a `CiscoDevice` itself: its status, its finalizer, its end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use staffetta_driver::virtual_node::Progress;
use staffetta_driver::{Owner, Reason};
use staffetta_handler::{
    HandlerError, Identity, Outlet, ResourceEventHandler, Signal, SignalHandler, Source,
};

use super::HANDLER;
use super::cisco_device::CiscoDevice;
use super::devices::{Devices, Verdict};
use super::error::DeviceError;
use super::status::{same, status};
use crate::back_end::Reply;
use crate::fleet::Fleet;
use crate::machine::{Machine, NodeObject};
use crate::node::has_keeper;
use crate::notes::{Told, description_note, rest_of};
use crate::reach::Outage;
use crate::shared::Shared;
use crate::workload::Workload;

/// By it an object waits until nothing of its device is left in the cluster, and nothing of the cluster on the device.
pub(super) const FINALIZER: &str = "cisco.vk/device-cleanup";

/// How often it is looked whether the status of a device is still right.
const ROUND: Duration = Duration::from_secs(1);

/// There may be something to do for a `CiscoDevice`: its device can be reached, or not any more.
#[derive(Clone, Debug)]
pub(super) struct DeviceDue(Identity);

impl Signal for DeviceDue {
    fn identity(&self) -> &Identity {
        &self.0
    }
}

/// What is done for `CiscoDevice`s themselves.
pub(super) struct Controller {
    client: Client,
    devices: Arc<Devices>,
    nodes: Arc<Shared>,
}

impl Controller {
    pub(super) fn new(client: Client, devices: Arc<Devices>, nodes: Arc<Shared>) -> Self {
        Self { client, devices, nodes }
    }

    pub(super) fn fleet(&self) -> Arc<Fleet> {
        Arc::clone(&self.nodes.fleet)
    }

    /// The object as it is by now: an attempt that is repeated must not write over what the one before it wrote.
    fn newest(&self, object: &Arc<CiscoDevice>) -> Arc<CiscoDevice> {
        self.devices.object(&Identity::of_object(&**object)).unwrap_or_else(|| Arc::clone(object))
    }

    async fn settle(&self, object: &CiscoDevice) -> Result<(), DeviceError> {
        let verdict = self.devices.verdict(object);
        if !has_finalizer(object) {
            let finalizers = object.finalizers().iter().map(String::as_str).chain([FINALIZER]);
            let metadata = json!({ "finalizers": finalizers.collect::<Vec<_>>() });
            // The event of this write comes back, and the status is looked at then.
            return self.patch(object, None, json!({ "metadata": metadata }), "add the finalizer").await;
        }
        self.write_status(object, &verdict).await?;
        match verdict {
            Verdict::Holds => Ok(()),
            Verdict::Invalid(reason) => Err(DeviceError::Invalid(reason)),
            Verdict::Taken(by) => Err(DeviceError::Taken(by)),
        }
    }

    async fn write_status(&self, object: &CiscoDevice, verdict: &Verdict) -> Result<(), DeviceError> {
        let machine = self.nodes.fleet.get(&object.name_any()).filter(|_| *verdict == Verdict::Holds);
        let wanted = status(object, verdict, machine.as_deref(), Timestamp::now());
        if same(object.status.as_ref(), &wanted) {
            return Ok(());
        }
        self.patch(object, Some("status"), json!({ "status": wanted }), "write the status").await
    }

    /// Takes a device out of the cluster: nothing new goes there, what is there is removed, then its node goes.
    async fn take_out(&self, object: &CiscoDevice) -> Result<(), DeviceError> {
        if !has_finalizer(object) {
            return Ok(());
        }
        let (name, uid) = (object.name_any(), object.metadata.uid.clone().unwrap_or_default());
        let verdict = self.devices.verdict(object);
        self.write_status(object, &verdict).await?;
        if self.devices.is_held_by(&name, &uid) {
            let machine = self.nodes.fleet.get(&name);
            let machine = machine.ok_or(DeviceError::Leaving("it was not read yet"))?;
            machine.retire(true);
            self.clear(object, &machine).await?;
            self.devices.leave(&name, &uid);
        }
        let heir = self.devices.of(&name).is_some();
        if let Some(machine) = self.nodes.fleet.get(&name).filter(|_| heir) {
            machine.retire(false);
        }
        let node = self.nodes.cluster.node(&name).filter(|node| has_keeper(node, self.nodes.keeper()));
        if self.devices.has_left(&name, &uid) && !heir && node.is_some() {
            return Err(DeviceError::Leaving("its node still exists"));
        }
        let finalizers: Vec<_> =
            object.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER).collect();
        let metadata = json!({ "finalizers": finalizers });
        self.patch(object, None, json!({ "metadata": metadata }), "remove the finalizer").await
    }

    /// Rids a device that can be reached of all that is ours, as it is there by now. One that cannot be reached is let go as it
    /// is: nobody could wait for it. One of which that is not known yet is waited for.
    async fn clear(&self, object: &CiscoDevice, machine: &Machine) -> Result<(), DeviceError> {
        if let Some(outage) = machine.outage() {
            self.tell_of_rest(object, machine, &outage);
            return Ok(());
        }
        let unread = || {
            machine.poke();
            DeviceError::Leaving("it was not read yet")
        };
        let back_end = machine.back_end().filter(|_| machine.is_up()).ok_or_else(unread)?;
        let there: Vec<Owner> = match back_end.inventory().await {
            Ok(Reply::Now(workloads)) => {
                let ours = workloads.iter().filter(|workload| self.is_ours(workload));
                ours.map(|workload| workload.owner.clone()).collect()
            }
            Ok(Reply::Later) => machine.ours(),
            // Whether that is an outage is found out by who reads the machine.
            Err(_) => return Err(unread()),
        };
        let mut left = false;
        for owner in there {
            match back_end.remove(&owner).await {
                Ok(Progress::Done) => {}
                Ok(_) => left = true,
                Err(error) if error.reason() == Reason::Unavailable => left = true,
                Err(error) => return Err(DeviceError::Remove(error)),
            }
        }
        if left {
            machine.poke();
            return Err(DeviceError::Leaving("applications are being removed from it"));
        }
        Ok(())
    }

    /// Whether it carries our mark, or runs for a pod of this cluster.
    fn is_ours(&self, workload: &Workload) -> bool {
        workload.ours || self.nodes.cluster.knows(workload.owner.uid.as_str())
    }

    /// A device that cannot be reached goes with what runs there, as far as that is known: somebody ought to know.
    fn tell_of_rest(&self, object: &CiscoDevice, machine: &Machine, outage: &Outage) {
        let rest = rest_of(machine.ours().len());
        let text =
            format!("the device is let go while it cannot be reached, with {rest}: {}", outage.message);
        let regarding = Identity::of_object(object);
        self.nodes.notes.tell(description_note(HANDLER, regarding, Told::Left, text));
    }

    async fn patch(
        &self,
        object: &CiscoDevice,
        subresource: Option<&str>,
        mut patch: Value,
        step: &'static str,
    ) -> Result<(), DeviceError> {
        patch["metadata"]["resourceVersion"] = json!(object.metadata.resource_version);
        patch["metadata"]["uid"] = json!(object.metadata.uid);
        let namespace = object.namespace().unwrap_or_default();
        let devices: Api<CiscoDevice> = Api::namespaced(self.client.clone(), &namespace);
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

    async fn on_present(&self, object: &Arc<CiscoDevice>) -> Result<(), DeviceError> {
        self.settle(&self.newest(object)).await
    }

    async fn on_finalize(&self, object: &Arc<CiscoDevice>) -> Result<(), DeviceError> {
        self.take_out(&self.newest(object)).await
    }
}

impl SignalHandler<DeviceDue> for Controller {
    type Error = DeviceError;

    async fn on_signal(&self, signal: &DeviceDue) -> Result<(), DeviceError> {
        match self.devices.object(signal.identity()) {
            Some(object) if object.metadata.deletion_timestamp.is_none() && has_finalizer(&object) => {
                let verdict = self.devices.verdict(&object);
                self.write_status(&object, &verdict).await
            }
            _ => Ok(()),
        }
    }
}

/// Looks in rounds whether the statuses of devices are still right: of a device that can be reached or not any more, nobody sends
/// an event of its object.
pub(super) struct Rounds {
    devices: Arc<Devices>,
    fleet: Arc<Fleet>,
}

impl Rounds {
    pub(super) fn new(devices: Arc<Devices>, fleet: Arc<Fleet>) -> Self {
        Self { devices, fleet }
    }
}

/// What of a machine the status of its device tells.
#[derive(Debug, PartialEq, Eq)]
struct Sight {
    condition: &'static str,
    outage: Option<&'static str>,
    trouble: Option<&'static str>,
    object: NodeObject,
}

impl Sight {
    fn of(machine: &Machine) -> Self {
        let trouble = machine.health().and_then(|health| health.trouble.as_ref().map(|trouble| trouble.0));
        let outage = machine.outage().map(|outage| outage.reason);
        Self { condition: machine.condition(), outage, trouble, object: machine.object() }
    }
}

impl Source for Rounds {
    async fn run(&self, outlet: Outlet) -> Result<(), HandlerError> {
        let mut told: HashMap<String, Option<Sight>> = HashMap::new();
        loop {
            let objects = self.devices.objects();
            let mut now = HashMap::with_capacity(objects.len());
            for object in objects {
                let sight = self.fleet.get(&object.name_any()).map(|machine| Sight::of(&machine));
                let uid = object.uid().unwrap_or_default();
                if told.get(&uid) != Some(&sight) {
                    outlet.signal(DeviceDue(Identity::of_object(&*object)));
                }
                now.insert(uid, sight);
            }
            told = now;
            tokio::time::sleep(ROUND).await;
        }
    }
}
