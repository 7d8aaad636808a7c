//! The leader of the replicas: found by its Lease, and reached by a port-forward to the loopback address of its pod, with the rights of
//! the user's kubeconfig.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, value_parser};
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Portforwarder};
use kube::{Api, Client, ResourceExt};
use tokio::time::timeout;
use tower::BoxError;

use super::exchange;
use crate::connect::{self, ConnectError};
use crate::run::install_tls_provider;
use crate::state::duration;

/// The label of the pods of all replicas, which the manifests set.
const PODS: &str = "app.kubernetes.io/name=staffetta";

/// The cluster role in the manifests with the rights that are needed here.
const ROLE: &str = "staffetta-operator";

/// The time limit for finding the leader and opening the port-forward.
const FIND_TIMEOUT: Duration = Duration::from_secs(15);

/// The way to the leader.
#[derive(Debug, Args)]
pub(in crate::cli) struct LeaderArguments {
    /// The kubeconfig file. If not set: $KUBECONFIG, else ~/.kube/config.
    #[arg(long, value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig. If not set: its current context.
    #[arg(long, value_name = "NAME", global = true)]
    context: Option<String>,
    /// The namespace in which the controller runs.
    #[arg(long, value_name = "NAMESPACE", default_value = "staffetta", global = true)]
    controller_namespace: String,
    /// The name of the Lease of the controller (`leader_election.lease_name`).
    #[arg(long, value_name = "NAME", default_value = "staffetta", global = true)]
    lease_name: String,
    /// The port of the admin server (`admin.listen`) in the pod.
    #[arg(long, value_name = "PORT", default_value_t = 8082, value_parser = value_parser!(u16).range(1..), global = true)]
    admin_port: u16,
}

/// The reason why the leader cannot be found or reached.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum LeaderError {
    /// The kubeconfig cannot be used.
    #[error("cannot connect to the Kubernetes API")]
    Connect(#[from] ConnectError),
    /// The API server does not respond.
    #[error("the API server did not respond within {} s", FIND_TIMEOUT.as_secs())]
    Timeout,
    /// There is no Lease.
    #[error(
        "the namespace `{namespace}` has no Lease `{lease}`, so no controller has run there; pass --controller-namespace or --lease-name \
         if it runs elsewhere"
    )]
    NoLease { namespace: String, lease: String },
    /// The Lease has no holder.
    #[error(
        "no replica leads: the Lease {namespace}/{lease} has no holder; `kubectl -n {namespace} get pods -l {PODS}` shows whether the \
         replicas run"
    )]
    NoHolder { namespace: String, lease: String },
    /// The holder of the Lease is no pod of the namespace.
    #[error("the leader's pod {namespace}/{pod} does not exist; its Lease was {renewal}")]
    NoPod { namespace: String, pod: String, renewal: Renewal },
    /// The user may not do what is needed.
    #[error(
        "you may not {action} in the namespace `{namespace}`; ask for a RoleBinding there to the ClusterRole `{ROLE}`"
    )]
    Forbidden { action: &'static str, namespace: String, source: Box<kube::Error> },
    /// A request to the API server failed.
    #[error("cannot {action} in the namespace `{namespace}`")]
    Api { action: &'static str, namespace: String, source: Box<kube::Error> },
    /// The node cannot connect to the port in the pod.
    #[error(
        "the pod {namespace}/{pod} does not listen at port {port} of its loopback address ({message}); pass --admin-port if \
         `admin.listen` has another port; its Lease was {renewal}"
    )]
    Port { namespace: String, pod: String, port: u16, message: String, renewal: Renewal },
    /// The connection ended before the whole response was received.
    #[error("the leader's pod {namespace}/{pod} does not respond; its Lease was {renewal}")]
    NoResponse { namespace: String, pod: String, renewal: Renewal, source: BoxError },
}

impl LeaderError {
    /// Returns `true` if the same request will fail again until somebody changes something.
    pub(super) fn is_permanent(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::NoLease { .. } | Self::Forbidden { .. })
    }
}

/// The last renewal of a Lease, by the clock of this machine.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::cli) struct Renewal {
    /// The seconds since the renewal; `None` if the Lease does not contain its time.
    age: Option<f64>,
    /// The duration of the Lease in seconds.
    duration: i32,
}

impl Renewal {
    fn of(lease: &LeaseSpec, now: Timestamp) -> Self {
        let age = lease.renew_time.as_ref().map(|time| now.duration_since(time.0).as_secs_f64());
        Self { age, duration: lease.lease_duration_seconds.unwrap_or_default() }
    }
}

impl fmt::Display for Renewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { age, duration: limit } = *self;
        match age {
            None => f.write_str("never renewed"),
            Some(age) if age > f64::from(limit) => write!(
                f,
                "last renewed {} ago and has expired after {limit} s: no replica leads",
                duration(age)
            ),
            Some(age) => write!(
                f,
                "last renewed {} ago; another replica takes over within {limit} s, so try again",
                duration(age)
            ),
        }
    }
}

/// The way to the replica that leads. It is found anew for each request.
pub(in crate::cli) struct Leader {
    client: Client,
    namespace: String,
    lease: String,
    port: u16,
}

/// The holder of the Lease.
struct Holder {
    /// The name of its host: that of its pod or, on the network of the node, that of the node.
    host: String,
    renewal: Renewal,
}

impl Leader {
    /// Builds the client of the user's kubeconfig. No request is sent.
    pub(in crate::cli) async fn new(arguments: LeaderArguments) -> Result<Self, LeaderError> {
        install_tls_provider();
        let LeaderArguments { kubeconfig, context, controller_namespace, lease_name, admin_port } = arguments;
        let client = connect::client_of_context(kubeconfig.as_deref(), context.as_deref()).await?;
        Ok(Self { client, namespace: controller_namespace, lease: lease_name, port: admin_port })
    }

    /// Returns the namespace of the kubeconfig's context.
    pub(in crate::cli) fn default_namespace(&self) -> &str {
        self.client.default_namespace()
    }

    /// Sends one request to the leader, and returns the status code and the body of the response.
    pub(super) async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes), LeaderError> {
        let connect = timeout(FIND_TIMEOUT, self.connect()).await;
        let (pod, renewal, mut forward) = connect.unwrap_or(Err(LeaderError::Timeout))?;
        let (Some(stream), Some(error)) = (forward.take_stream(self.port), forward.take_error(self.port))
        else {
            unreachable!("the port is forwarded");
        };
        let failed = async {
            match error.await {
                Some(message) => message,
                None => std::future::pending().await,
            }
        };
        let namespace = self.namespace.clone();
        let result = tokio::select! {
            biased;
            message = failed => {
                let (port, message) = (self.port, message.trim().to_owned());
                Err(LeaderError::Port { namespace, pod, port, message, renewal })
            }
            response = exchange(stream, request) => {
                response.map_err(|source| LeaderError::NoResponse { namespace, pod, renewal, source })
            }
        };
        forward.abort();
        result
    }

    /// Opens the port-forward. Returns the name of the pod, too.
    async fn connect(&self) -> Result<(String, Renewal, Portforwarder), LeaderError> {
        let Holder { host, renewal } = self.holder().await?;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        match pods.portforward(&host, &[self.port]).await {
            Ok(forward) => Ok((host, renewal, forward)),
            Err(error) if code(&error) == Some(404) => {
                let Some(pod) = self.pod_on_node(&pods, &host).await? else {
                    return Err(LeaderError::NoPod { namespace: self.namespace.clone(), pod: host, renewal });
                };
                let forward = pods.portforward(&pod, &[self.port]).await;
                Ok((pod, renewal, forward.map_err(|error| self.error("port-forward to pods", error))?))
            }
            Err(error) => Err(self.error("port-forward to pods", error)),
        }
    }

    /// Reads the Lease.
    async fn holder(&self) -> Result<Holder, LeaderError> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let lease = leases.get_opt(&self.lease).await.map_err(|error| self.error("read the Lease", error))?;
        let (namespace, name) = (self.namespace.clone(), self.lease.clone());
        let Some(lease) = lease else { return Err(LeaderError::NoLease { namespace, lease: name }) };
        let spec = lease.spec.unwrap_or_default();
        let renewal = Renewal::of(&spec, Timestamp::now());
        match spec.holder_identity.as_deref().map(host) {
            None | Some("") => Err(LeaderError::NoHolder { namespace, lease: name }),
            Some(host) => Ok(Holder { host: host.to_owned(), renewal }),
        }
    }

    /// Returns the name of the pod of a replica that runs on the network of the node `node`.
    async fn pod_on_node(&self, pods: &Api<Pod>, node: &str) -> Result<Option<String>, LeaderError> {
        let fields = format!("spec.nodeName={node},status.phase=Running");
        let selected = pods.list(&ListParams::default().labels(PODS).fields(&fields)).await;
        let selected = selected.map_err(|error| self.error("list pods", error))?;
        Ok(selected.items.first().map(ResourceExt::name_any))
    }

    fn error(&self, action: &'static str, error: kube::Error) -> LeaderError {
        let (namespace, code) = (self.namespace.clone(), code(&error));
        let source = Box::new(error);
        match code {
            Some(401 | 403) => LeaderError::Forbidden { action, namespace, source },
            _ => LeaderError::Api { action, namespace, source },
        }
    }
}

/// Returns the status code of an error response.
fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// Returns the host in the identity of a replica, which is `HOST_NUMBER`, or `HOST_NUMBER-TERM`.
fn host(identity: &str) -> &str {
    identity.rsplit_once('_').map_or(identity, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pod_of_a_holder_is_the_part_before_the_number() {
        for (identity, expected) in [
            ("staffetta-7d9c-x2_0000000000000abc", "staffetta-7d9c-x2"),
            ("staffetta-7d9c-x2_0000000000000abc-2", "staffetta-7d9c-x2"),
            ("node_1_0000000000000abc", "node_1"),
            ("other", "other"),
        ] {
            assert_eq!(host(identity), expected);
        }
    }

    #[test]
    fn an_expired_lease_is_told_apart_from_one_that_is_held() {
        let told = |age| Renewal { age, duration: 15 }.to_string();
        assert!(told(Some(3.0)).starts_with("last renewed 3s ago; another replica takes over"));
        assert!(told(Some(300.0)).ends_with("has expired after 15 s: no replica leads"));
        assert_eq!(told(None), "never renewed");
    }
}
