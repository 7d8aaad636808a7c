//! The leader of the replicas: found by its Lease, and reached by a port-forward to the loopback address of its pod, with the rights of
//! the user's kubeconfig. The other replicas are found by the label of their pods.

use std::path::PathBuf;

use clap::{Args, value_parser};
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Portforwarder};
use kube::{Api, Client, ResourceExt};
use tokio::time::timeout;

use super::exchange;
use super::leader_error::{FIND_TIMEOUT, LeaderError, PODS, Renewal};
use crate::base::connect;
use crate::control::run::install_tls_provider;

/// The options that find the leader of the controller and its admin server.
#[derive(Clone, Debug, Args)]
pub(in crate::operate::cli) struct LeaderArguments {
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

/// A client of the admin server of the leading replica. Each request looks up the leader in the Lease and opens a port-forward to its pod.
pub(in crate::operate::cli) struct Leader {
    /// The client of the Kubernetes API, with the rights of the user's kubeconfig.
    pub(in crate::operate::cli) client: Client,
    /// The namespace of the controller.
    pub(in crate::operate::cli) namespace: String,
    lease: String,
    port: u16,
}

/// The replica that holds the Lease of the leader.
pub(in crate::operate::cli) struct Holder {
    /// The name of the holder's pod or, if the variable `POD_NAME` is not set there, its host name.
    pub(in crate::operate::cli) host: String,
    pub(in crate::operate::cli) renewal: Renewal,
}

impl Leader {
    /// Builds the client of the user's kubeconfig. No request is sent.
    pub(in crate::operate::cli) async fn new(arguments: LeaderArguments) -> Result<Self, LeaderError> {
        install_tls_provider();
        let LeaderArguments { kubeconfig, context, controller_namespace, lease_name, admin_port } = arguments;
        let client = connect::client(kubeconfig.as_deref(), context.as_deref()).await?;
        Ok(Self { client, namespace: controller_namespace, lease: lease_name, port: admin_port })
    }

    /// Sends one request to the leader, and returns the status code and the body of the response.
    pub(super) async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes), LeaderError> {
        let (pod, renewal, forward) = in_time(self.connect()).await?;
        self.through(forward, pod, format!("its Lease was {renewal}"), request).await
    }

    /// Sends one request to the replica in the pod `pod`, and returns the status code and the body of the response.
    pub(super) async fn send_to(
        &self,
        pod: &str,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes), LeaderError> {
        let forward = in_time(self.forward(pod)).await?;
        self.through(forward, pod.to_owned(), "it may hold Leases of virtual nodes".to_owned(), request).await
    }

    /// Returns the names of the running pods of all replicas except the leader, whose identity is `leader`.
    pub(super) async fn others(&self, leader: &str) -> Result<Vec<String>, LeaderError> {
        let leader = host(leader);
        let running = in_time(self.running_pods()).await?;
        Ok(running.iter().filter(|pod| !is_at(pod, leader)).map(ResourceExt::name_any).collect())
    }

    /// Sends one request through `forward` to the pod `pod`, closes `forward`, and returns the status code and the body of the response.
    /// `note` about the pod ends the message of an error.
    async fn through(
        &self,
        mut forward: Portforwarder,
        pod: String,
        note: String,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes), LeaderError> {
        let (namespace, port) = (self.namespace.clone(), self.port);
        let stream = forward.take_stream(port).expect("the port is forwarded");
        let failed = forward.take_error(port).expect("the port is forwarded");
        let result = tokio::select! {
            biased;
            Some(message) = failed => {
                let message = message.trim().to_owned();
                Err(LeaderError::Port { namespace, pod, port, message, note })
            }
            response = exchange(stream, request) =>
                response.map_err(|source| LeaderError::NoResponse { namespace, pod, note, source }),
        };
        forward.abort();
        result
    }

    /// Opens a port-forward to the pod of the leader. Returns the name of the pod, the last renewal of the leader's Lease, and the
    /// port-forward.
    async fn connect(&self) -> Result<(String, Renewal, Portforwarder), LeaderError> {
        let Holder { host, renewal } = self.holder().await?;
        match self.forward(&host).await {
            Err(LeaderError::Api { source, .. }) if connect::is_missing(&source) => {
                let running = self.running_pods().await?;
                let Some(pod) = running.iter().find(|pod| is_at(pod, &host)).map(ResourceExt::name_any)
                else {
                    return Err(LeaderError::NoPod { namespace: self.namespace.clone(), pod: host, renewal });
                };
                let forward = self.forward(&pod).await?;
                Ok((pod, renewal, forward))
            }
            forward => Ok((host, renewal, forward?)),
        }
    }

    /// Opens a port-forward to the admin server in a pod.
    async fn forward(&self, pod: &str) -> Result<Portforwarder, LeaderError> {
        let forward = self.pods().portforward(pod, &[self.port]).await;
        forward.map_err(|error| self.error("port-forward to pods", error))
    }

    /// Reads the Lease of the leader, and returns its holder. Fails if there is no Lease, or if it has no holder.
    pub(in crate::operate::cli) async fn holder(&self) -> Result<Holder, LeaderError> {
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

    /// Lists the running pods of all replicas.
    async fn running_pods(&self) -> Result<Vec<Pod>, LeaderError> {
        let running = ListParams::default().labels(PODS).fields("status.phase=Running");
        let listed = self.pods().list(&running).await;
        Ok(listed.map_err(|error| self.error("list pods", error))?.items)
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Wraps an error of the API server; 401 and 403 become `Forbidden`. `action` names the failed request, such as `list pods`.
    fn error(&self, action: &'static str, error: kube::Error) -> LeaderError {
        let is_forbidden = matches!(&error, kube::Error::Api(status) if matches!(status.code, 401 | 403));
        let (namespace, source) = (self.namespace.clone(), Box::new(error));
        if is_forbidden {
            LeaderError::Forbidden { action, namespace, source }
        } else {
            LeaderError::Api { action, namespace, source }
        }
    }
}

/// Runs `work` with the time limit for finding a replica and opening a port-forward.
async fn in_time<T>(work: impl Future<Output = Result<T, LeaderError>>) -> Result<T, LeaderError> {
    timeout(FIND_TIMEOUT, work).await.unwrap_or(Err(LeaderError::Timeout))
}

/// Returns `true` if `host` is the name of the pod or, as for a pod on the network of its node, that of its node.
fn is_at(pod: &Pod, host: &str) -> bool {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    pod.metadata.name.as_deref() == Some(host) || node == Some(host)
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
}
