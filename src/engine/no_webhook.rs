//! In place of `webhook` in a program without that feature: there is no webhook.

use std::future::Ready;
use std::sync::Arc;

use kube::Client;
use tokio_util::task::AbortOnDropHandle;

use crate::base::config::Configuration;
use crate::base::health::Health;
use crate::base::metrics::WebhookMetrics;

/// The reason why the webhook cannot be served, of which there is none.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {}

/// The admission webhook, of which there is none.
#[derive(Clone)]
pub(crate) enum Webhook {}

impl Webhook {
    #[expect(clippy::unnecessary_wraps, reason = "as in the module that it replaces")]
    pub(crate) fn of(_configuration: &Configuration, _home: &str) -> Result<Option<Self>, WebhookError> {
        Ok(None)
    }

    pub(crate) async fn serve(
        &self,
        _client: &Client,
        _health: &Arc<Health>,
        _metrics: &Arc<WebhookMetrics>,
    ) -> Result<AbortOnDropHandle<()>, WebhookError> {
        match *self {}
    }

    pub(crate) fn maintain_certificate(&self, _client: &Client) -> Option<Ready<()>> {
        match *self {}
    }
}
