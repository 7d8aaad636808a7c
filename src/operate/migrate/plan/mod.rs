//! The plan of a migration: a pure function of the state of the cluster and of the cloud.

mod idle;
mod namespaces;
mod pods;
mod policies;
mod services;
mod vifs;

use std::fmt;

use staffetta_driver::{Adoption, ExistingMark, Owner, UnusedResource};

use super::kuryr::{KuryrKind, KuryrResources, ObjectKey, finalizers_of};
use super::read::ClusterState;
use super::write::MetadataWrite;

/// One step of a migration. Each can be repeated with the same result.
#[derive(Clone, Debug)]
pub(super) enum MigrationStep {
    /// Gives a resource of the cloud the ownership mark of the Kubernetes object to which it belongs.
    Adopt(Adoption),
    /// Changes the annotations and finalizers of an object.
    Write(Box<MetadataWrite>),
    /// Deletes a resource that nothing uses.
    Delete(UnusedResource),
}

/// The reason why an object is not taken over by this run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Obstacle {
    /// A person must decide or correct something first. The text tells what.
    #[error("refused: {0}")]
    Refused(String),
    /// Nothing is wrong; a later run of the command continues. The text tells what it waits for.
    #[error("later: {0}")]
    Later(String),
}

/// An object with the steps that take it over.
#[derive(Debug)]
pub(super) struct PlannedTakeover {
    /// The kind of the object, or `Port` for an idle port.
    pub(super) kind: &'static str,
    /// The namespace and the name of the object; for an idle port, an empty namespace and the id of the port.
    pub(super) key: ObjectKey,
    /// The steps in the order of their execution, or the reason why there are none.
    pub(super) steps: Result<Vec<MigrationStep>, Obstacle>,
}

/// Returns the objects that are not taken over yet, each with its steps. Namespaces come first, whose networks new pods need.
pub(super) fn plan(state: &ClusterState, delete_idle_ports: bool) -> Vec<PlannedTakeover> {
    let mut planned = namespaces::plan(state);
    planned.extend(pods::plan(state));
    planned.extend(services::plan(state));
    planned.extend(policies::plan(state));
    planned.extend(idle::plan(state, delete_idle_ports));
    planned.retain(|object| object.steps.as_ref().map_or(true, |steps| !steps.is_empty()));
    planned
}

impl MigrationStep {
    /// Returns the step in a few words, such as `mark port ID`, for the plan that the command prints.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Adopt(Adoption::Port { port, .. }) => format!("mark port {}", port.id),
            Self::Adopt(Adoption::LoadBalancer(id, _)) => format!("mark load balancer {id}"),
            Self::Adopt(Adoption::PublicIp(id, _)) => format!("mark floating IP {id}"),
            Self::Adopt(Adoption::Network(id, ..)) => format!("mark network {id}"),
            Self::Write(write) => write.describe(),
            Self::Delete(UnusedResource::Port(id)) => format!("delete port {id}"),
            Self::Delete(UnusedResource::SecurityGroup(id, _)) => format!("delete security group {id}"),
        }
    }
}

/// The steps of one object, in the order of their execution. Writes that change nothing are left out.
#[derive(Default)]
struct StepList(Vec<MigrationStep>);

impl StepList {
    /// Adds `adoption`, the adoption of a cloud resource whose ownership mark is `mark`. Adds nothing if it is the mark of `owner`, and
    /// fails with [`Obstacle::Refused`] if it is that of anybody else. `name` names the resource in the message.
    fn adopt(
        &mut self,
        mark: &ExistingMark,
        owner: &Owner,
        name: impl fmt::Display,
        adoption: Adoption,
    ) -> Result<(), Obstacle> {
        match mark {
            ExistingMark::Unmarked => self.0.push(MigrationStep::Adopt(adoption)),
            ExistingMark::Owned(marked) if marked.uid == owner.uid => {}
            ExistingMark::Owned(_) | ExistingMark::Foreign => {
                return Err(refused(format!("{name} has the mark of another owner")));
            }
        }
        Ok(())
    }

    /// Adds a write of annotations and finalizers, unless it changes nothing.
    fn write(&mut self, write: MetadataWrite) {
        if !write.is_empty() {
            self.0.push(MigrationStep::Write(Box::new(write)));
        }
    }

    /// Adds the removal of Kuryr's finalizers from the custom resource with this namespace and name, if there is one.
    fn release(&mut self, kind: KuryrKind, resources: &KuryrResources, key: &ObjectKey) {
        if let Some(object) = resources.get(key) {
            self.write(MetadataWrite::new(kind.resource(), &object.metadata, &finalizers_of(object)));
        }
    }
}

/// Returns an [`Obstacle::Refused`] with this reason.
fn refused(reason: impl Into<String>) -> Obstacle {
    Obstacle::Refused(reason.into())
}
