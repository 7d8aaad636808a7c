//! The lease at the API server: read, written, listened to.

use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, TryFutureExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use staffetta_handler::{HandlerError, bounded};

use super::election::Outcome;
use super::lease::{Draft, Sighting};

/// One lease at the API server.
pub(super) struct LeaseServer {
    pub(super) leases: Api<Lease>,
    pub(super) name: String,
    /// How long one answer may take.
    pub(super) limit: Duration,
}

/// What the server tells of the lease by itself.
pub(super) type Changes = BoxStream<'static, kube::Result<WatchEvent<Lease>>>;

impl LeaseServer {
    /// Reads the lease; none when there is none.
    pub(super) async fn read(&self) -> Result<Option<Sighting>, HandlerError> {
        let read = self.leases.get_opt(&self.name).map_err(HandlerError::from);
        Ok(bounded(self.limit, read).await?.map(Sighting::of))
    }

    /// Listens to what happens to the lease after `version`. The request is part of the stream.
    pub(super) fn changes_since(&self, version: &str) -> Changes {
        let only = WatchParams::default().fields(&format!("metadata.name={}", self.name));
        let (leases, version) = (self.leases.clone(), version.to_owned());
        async move { leases.watch(&only, &version).await }.into_stream().try_flatten().boxed()
    }

    /// Writes the lease, with at most this time for the answer if it is less than the usual.
    pub(super) async fn write(&self, draft: &Draft, at_most: Duration) -> Result<Outcome, HandlerError> {
        bounded(self.limit.min(at_most), self.send(draft)).await
    }

    async fn send(&self, draft: &Draft) -> Result<Outcome, HandlerError> {
        let now = Timestamp::now();
        let written = match &draft.version {
            Some(version) => {
                let patch = Patch::Merge(draft.patch(version, now));
                self.leases.patch(&self.name, &PatchParams::default(), &patch).await
            }
            None => self.leases.create(&PostParams::default(), &draft.lease(&self.name, now)).await,
        };
        match written {
            Ok(lease) => Ok(Outcome::Written(Sighting::of(lease))),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Outcome::Conflict),
            Err(kube::Error::Api(status)) if status.code == 404 && draft.version.is_some() => {
                Ok(Outcome::Missing)
            }
            Err(error) => Err(error.into()),
        }
    }
}
