//! Asks the API server about the rights of the client, with `SelfSubjectAccessReview`s.

use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client, Error};

/// The maximum number of concurrent `SelfSubjectAccessReview`s.
const CONCURRENCY: usize = 8;

/// Asks the API server for each of `rights` if the client has it. Returns one value for each right, in the same order: `true` if the client
/// has the right.
pub(super) async fn granted(client: &Client, rights: &[Right<'_>]) -> Result<Vec<bool>, Error> {
    let api = Api::<SelfSubjectAccessReview>::all(client.clone());
    let reviews: Vec<_> = rights.iter().map(Right::review).collect();
    let answers = stream::iter(reviews).map(move |review| {
        let api = api.clone();
        async move { api.create(&PostParams::default(), &review).await }
    });
    let reviews: Vec<_> = answers.buffered(CONCURRENCY).try_collect().await?;
    Ok(reviews.into_iter().map(|review| review.status.is_some_and(|status| status.allowed)).collect())
}

/// One right in RBAC: a verb and a resource, and perhaps a namespace and a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Right<'a> {
    pub(super) verb: &'a str,
    pub(super) group: &'a str,
    /// The resource, perhaps with a subresource: `pods/status`.
    pub(super) resource: &'a str,
    /// The namespace; `None` for all, and for cluster-scoped resources.
    pub(super) namespace: Option<&'a str>,
    pub(super) name: Option<&'a str>,
}

impl Right<'_> {
    /// Returns the request that asks the API server if the client has the right.
    fn review(&self) -> SelfSubjectAccessReview {
        let (resource, subresource) = match self.resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
            None => (self.resource, None),
        };
        let attributes = ResourceAttributes {
            verb: Some(self.verb.to_owned()),
            group: Some(self.group.to_owned()),
            resource: Some(resource.to_owned()),
            subresource,
            namespace: self.namespace.map(str::to_owned),
            name: self.name.map(str::to_owned),
            ..ResourceAttributes::default()
        };
        let spec =
            SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
        SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() }
    }

    /// Returns the resource as kubectl names it: `deployments.apps`.
    pub(super) fn resource_name(&self) -> String {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((self.resource, ""));
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        let subresource = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
        format!("{resource}{group}{subresource}")
    }
}
