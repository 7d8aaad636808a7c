//! News of pods and policies for which something came out differently although nothing happened to them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Resource;
use staffetta_driver::Owner;
use staffetta_driver::policy::PolicyBook;
use staffetta_handler::{HandlerError, Identity, Outlet, Signal, Source};

/// A pod or a policy is to be looked at.
#[derive(Clone, Debug)]
pub struct Moved(Identity);

impl Moved {
    pub(super) fn of<K: Resource<DynamicType = ()> + 'static>(owner: Owner) -> Self {
        Self(Identity::of::<K>(Some(owner.namespace), owner.name, owner.uid.to_string()))
    }
}

impl Signal for Moved {
    fn identity(&self) -> &Identity {
        &self.0
    }
}

/// Tells what is due.
pub(super) struct WhatIsDue(pub(super) Arc<PolicyBook>);

impl Source for WhatIsDue {
    async fn run(&self, outlet: Outlet) -> Result<(), HandlerError> {
        loop {
            self.0.changed().await;
            let due = self.0.take_due();
            for policy in due.policies {
                outlet.signal(Moved::of::<NetworkPolicy>(policy));
            }
            for pod in due.pods {
                outlet.signal(Moved::of::<Pod>(pod));
            }
        }
    }
}
