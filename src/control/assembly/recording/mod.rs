//! Drivers for a dry run: reads go to the real driver, changes are recorded in the plan.
//!
//! A recorded change returns the simplest plausible result, so that the handler continues. An id that the external system would choose
//! begins with [`PLANNED`], an address that it would choose is `0.0.0.0` or `::`, and everything is ready at once. Later reads do not
//! show recorded changes. If the result cannot be known, the call fails and the plan of the object ends there.

#[cfg(feature = "app-hosting")]
mod app_hosting;
#[cfg(feature = "network")]
mod load_balancer;
#[cfg(feature = "network")]
mod namespace_subnet;
#[cfg(feature = "network")]
mod network_policy;
#[cfg(feature = "prefix-ip")]
mod prefix;
#[cfg(feature = "network")]
mod public_ip;
#[cfg(feature = "network")]
mod vif;

use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;

use staffetta_driver::{DriverError, Owner, Reason};
use staffetta_handler::{DryRunPlan, ObjectRef, PlannedCall};

/// The prefix of ids that the external system would choose in a real run.
const PLANNED: &str = "planned-";

/// A driver of the trait `D` that reads from the real driver and records changes.
pub(super) struct Recording<D: ?Sized> {
    driver: Arc<D>,
    plan: DryRunPlan,
    /// The name of the driver trait in the configuration, such as `pod_vif`.
    by: &'static str,
    /// The kind of the objects that own the resources of the driver.
    kind: &'static str,
}

impl<D: ?Sized> Recording<D> {
    /// Wraps `driver`, whose trait is registered as `by`. The owners of its resources are objects of the kind `kind`.
    pub(super) fn new(driver: Arc<D>, plan: DryRunPlan, by: &'static str, kind: &'static str) -> Self {
        Self { driver, plan, by, kind }
    }

    /// Records a call for `owner`, or if that is `None` for the object that the handler is processing.
    fn record(&self, owner: Option<&Owner>, call: PlannedCall) {
        let Some(Owner { namespace, name, uid }) = owner else { return self.plan.add(call) };
        let namespace = Some(namespace.as_str()).filter(|namespace| !namespace.is_empty());
        let object = ObjectRef { kind: Cow::Borrowed(self.kind), namespace, name, uid: uid.as_str() };
        self.plan.add_for(object, call);
    }

    /// Records a call whose result cannot be known, and returns the error that ends the plan of the object.
    fn end(&self, owner: &Owner, call: PlannedCall, step: &'static str) -> DriverError {
        self.record(Some(owner), call.last());
        DriverError::new(Reason::Refused, step)
            .detail("this is a dry run, and what follows depends on the result")
    }

    /// Returns the plan entry of a call of this driver trait, without arguments. `what` is the action, such as `request a VIF`.
    fn call(&self, what: &str) -> PlannedCall {
        PlannedCall::new(self.by, what)
    }
}

/// Joins the values with commas, as an argument of a planned call.
fn list(values: impl IntoIterator<Item = impl Display>) -> String {
    values.into_iter().map(|value| value.to_string()).collect::<Vec<_>>().join(", ")
}

/// Returns the id `planned-NAME`, in place of one that the external system would choose.
fn planned(name: impl Display) -> String {
    format!("{PLANNED}{name}")
}

#[cfg(test)]
mod testing;
