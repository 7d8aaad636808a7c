//! Reconciles the former service of a slice that belongs to another service now.

use std::sync::Arc;

use async_trait::async_trait;
use staffetta_handler::{
    HandlerError, Identity, OrderingKey, Source, Trigger, TriggerHandler, TriggerSender,
};

use super::LbHandler;
use super::endpoints::ServiceKey;
use super::error::LbError;
use super::index::{EndpointIndex, ServiceIndex};

/// A trigger for a service that lost endpoints to another service.
#[derive(Clone, Debug)]
pub struct EndpointsMoved(Identity);

impl Trigger for EndpointsMoved {
    fn identity(&self) -> &Identity {
        &self.0
    }
}

/// The source of a trigger for each service that lost endpoints to another service.
pub(super) struct MovedEndpoints {
    /// The index that notices the moves.
    pub(super) endpoints: Arc<EndpointIndex>,
    /// The index that knows the identities of the services.
    pub(super) services: Arc<ServiceIndex>,
}

#[async_trait]
impl Source for MovedEndpoints {
    async fn run(&self, sender: TriggerSender) -> Result<(), HandlerError> {
        loop {
            for service in self.endpoints.moved().await {
                if let Some(service) = self.services.get(&service) {
                    sender.send(EndpointsMoved(Identity::of_object(&*service)));
                }
            }
        }
    }
}

impl TriggerHandler<EndpointsMoved> for LbHandler {
    type Error = LbError;

    fn key(&self, EndpointsMoved(service): &EndpointsMoved) -> OrderingKey {
        ServiceKey::new(service.namespace.as_deref(), &service.name).ordering()
    }

    async fn on_trigger(&self, EndpointsMoved(service): &EndpointsMoved) -> Result<(), LbError> {
        match self.reconcile(&ServiceKey::new(service.namespace.as_deref(), &service.name)).await {
            Err(error) if error.awaits_event() => Ok(()),
            reconciled => reconciled,
        }
    }
}
