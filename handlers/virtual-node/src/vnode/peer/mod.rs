//! Peer deployment: a Deployment that is marked for it keeps one module on each base that its pods match, and bases start with the
//! modules of such Deployments.
//!
//! | module | content |
//! |---|---|
//! | `node` | a base as the scheduler sees it |
//! | `scheduling` | the choice of nodes for a pod, with the semantics of Kubernetes |
//! | `decide` | the replicas and containers that Deployments ask for |
//! | [`PeerIndex`] | the Deployments and bases of one environment, and the baselines of the bases |
//! | [`PeerBaselines`] | keeps the index of a handler that answers baseline queries |
//! | [`PeerDeployments`] | the handler that scales the Deployments |

mod baselines;
mod decide;
mod handler;
mod index;
mod node;
mod scheduling;

use k8s_openapi::api::apps::v1::Deployment;
use staffetta_handler::Registration;

pub use self::baselines::PeerBaselines;
#[cfg(test)]
pub(super) use self::decide::tests::deployment;
pub use self::handler::{PEER_HANDLER, PeerDeployments, PeerError};
pub use self::index::PeerIndex;
use super::marks::{COMPONENT, COMPONENT_DEPLOYMENT, ENVIRONMENT};

/// Restricts the watch of Deployments in `registration` to those whose pods are modules of this environment.
fn module_deployments<H: Send + Sync + 'static>(
    registration: Registration<H>,
    environment: &str,
) -> Registration<H> {
    let selector = format!("{COMPONENT}={COMPONENT_DEPLOYMENT},{ENVIRONMENT}={environment}");
    registration.select::<Deployment>(|kind| kind.label_selector = Some(selector.clone()))
}
