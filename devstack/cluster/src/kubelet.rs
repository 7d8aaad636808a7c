//! A stand-in for the kubelets of the nodes: pods run without containers.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::call::Call;
use crate::interface_address::interface_address;
use crate::options::PodStart;
use crate::pods::{is_finished, node, phase};
use crate::shell::Plan;
use crate::vif::active_addresses;

/// The kubelets of all nodes.
pub(crate) struct Kubelet {
    /// The addresses of the nodes, by name.
    nodes: BTreeMap<String, IpAddr>,
    pod_start: PodStart,
    stop_time: Duration,
    /// The time since which each pod is known to be terminating, by UID.
    stopping: BTreeMap<String, Timestamp>,
    /// The number of invented addresses.
    made_up: u16,
}

impl Kubelet {
    pub(crate) fn new(nodes: BTreeMap<String, IpAddr>, pod_start: PodStart, stop_time: Duration) -> Self {
        Self { nodes, pod_start, stop_time, stopping: BTreeMap::new(), made_up: 0 }
    }

    /// Returns the calls that are due for the pods of the nodes.
    pub(crate) fn plan(&mut self, pods: &[Arc<Pod>], now: Timestamp) -> Plan {
        let stopping = std::mem::take(&mut self.stopping);
        let mut plan = Plan::default();
        for pod in pods {
            let Some(host) = node(pod).and_then(|node| self.nodes.get(node)).copied() else { continue };
            if pod.metadata.deletion_timestamp.is_some() {
                let uid = pod.uid().unwrap_or_default();
                let since = stopping.get(&uid).copied().unwrap_or(now);
                self.stopping.insert(uid, since);
                self.stop(pod, since, now, &mut plan);
            } else if phase(pod) == "Pending" {
                let addresses = self.addresses(pod, host, pods);
                if !addresses.is_empty() {
                    plan.calls.push(Call::status(&**pod, running(pod, host, &addresses, now)));
                }
            }
        }
        plan
    }

    /// Says, once its time is over, that nothing of the pod runs any more; from then on its finalizers decide.
    fn stop(&self, pod: &Pod, since: Timestamp, now: Timestamp, plan: &mut Plan) {
        let left = self.stop_time.saturating_sub(now.duration_since(since).unsigned_abs());
        if pod.metadata.deletion_grace_period_seconds == Some(0) {
            // It was said already.
        } else if left.is_zero() || is_finished(pod) {
            plan.calls.push(Call::delete(pod, Some(0)));
        } else {
            plan.wake_after(left);
        }
    }

    /// The addresses with which the pod can start; none as long as it cannot.
    fn addresses(&mut self, pod: &Pod, host: IpAddr, pods: &[Arc<Pod>]) -> Vec<IpAddr> {
        if pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or(false) {
            return vec![host];
        }
        match self.pod_start {
            PodStart::WithVif => active_addresses(pod),
            PodStart::WithInterfaceAddress => interface_address(pod).into_iter().collect(),
            PodStart::AtOnce => vec![self.make_up(pods)],
        }
    }

    fn make_up(&mut self, pods: &[Arc<Pod>]) -> IpAddr {
        let used = |address: IpAddr| {
            let ip = Some(address.to_string());
            pods.iter().any(|pod| pod.status.as_ref().is_some_and(|status| status.pod_ip == ip))
        };
        loop {
            self.made_up = self.made_up.wrapping_add(1);
            let [high, low] = self.made_up.to_be_bytes();
            let address = Ipv4Addr::new(10, 244, high, low).into();
            if !used(address) {
                return address;
            }
        }
    }
}

/// The status of a pod all of whose containers run.
fn running(pod: &Pod, host: IpAddr, addresses: &[IpAddr], now: Timestamp) -> Value {
    let uid = pod.uid().unwrap_or_default();
    let condition = |type_| json!({ "type": type_, "status": "True", "lastTransitionTime": time(now) });
    let conditions = ["Initialized", "Ready", "ContainersReady", "PodScheduled"].map(condition);
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers).map(|container| {
        let image = container.image.clone().unwrap_or_default();
        json!({
            "name": container.name, "image": image, "imageID": image, "ready": true, "started": true, "restartCount": 0,
            "containerID": format!("none://{uid}/{}", container.name), "state": { "running": { "startedAt": time(now) } },
        })
    });
    json!({
        "phase": "Running",
        "conditions": conditions,
        "hostIP": host,
        "podIP": addresses.first(),
        "podIPs": addresses.iter().map(|ip| json!({ "ip": ip })).collect::<Vec<_>>(),
        "startTime": time(now),
        "containerStatuses": containers.collect::<Vec<_>>(),
    })
}

/// The time in whole seconds, as the API has it.
pub(crate) fn time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Verb;
    use crate::testing::{shared, vif};

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;
    const STOP: Duration = Duration::from_millis(100);

    fn kubelet(pod_start: PodStart) -> Kubelet {
        Kubelet::new([("n1".to_owned(), IpAddr::from([192, 0, 2, 1]))].into(), pod_start, STOP)
    }

    fn pod_with(metadata: &Value, spec: &Value) -> Arc<Pod> {
        let mut pod = json!({
            "metadata": { "namespace": "shop", "name": "web", "uid": "u" },
            "spec": { "nodeName": "n1", "containers": [{ "name": "web", "image": "web:1" }] },
        });
        pod["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        shared(pod)
    }

    fn annotated(active: bool) -> Arc<Pod> {
        let annotation = vif(active, &["10.1.0.5", "fd00::5"]);
        pod_with(&json!({ "annotations": { "openstack.org/kuryr-vif": annotation } }), &json!({}))
    }

    fn status_of(plan: &Plan) -> &Value {
        let [Call { verb: Verb::Patch { subresource: Some("status"), body }, .. }] = &plan.calls[..] else {
            panic!("{plan:?}")
        };
        &body["status"]
    }

    #[test]
    fn a_pod_runs_only_when_its_vif_is_active_and_with_the_addresses_of_that() {
        let mut kubelet = kubelet(PodStart::WithVif);
        let bare = pod_with(&json!({}), &json!({}));
        assert_eq!(kubelet.plan(&[bare, annotated(false)], NOW), Plan::default());
        let plan = kubelet.plan(&[annotated(true)], NOW);
        let status = status_of(&plan);
        assert_eq!((&status["phase"], &status["podIP"]), (&json!("Running"), &json!("10.1.0.5")));
        assert_eq!(status["podIPs"], json!([{ "ip": "10.1.0.5" }, { "ip": "fd00::5" }]));
        assert_eq!(status["containerStatuses"][0]["ready"], true);
    }

    #[test]
    fn a_pod_in_its_nodes_network_has_the_nodes_address() {
        let pod = pod_with(&json!({}), &json!({ "hostNetwork": true }));
        let plan = kubelet(PodStart::WithVif).plan(&[pod], NOW);
        assert_eq!(status_of(&plan)["podIP"], "192.0.2.1");
    }

    #[test]
    fn without_vifs_each_pod_gets_an_address_of_its_own() {
        let mut kubelet = kubelet(PodStart::AtOnce);
        let pod = pod_with(&json!({}), &json!({}));
        let plan = kubelet.plan(&[Arc::clone(&pod), Arc::clone(&pod)], NOW);
        let ips = plan.calls.iter().map(|call| match &call.verb {
            Verb::Patch { body, .. } => body["status"]["podIP"].as_str().unwrap(),
            other => panic!("{other:?}"),
        });
        assert_eq!(ips.collect::<Vec<_>>(), ["10.244.0.1", "10.244.0.2"]);
    }

    #[test]
    fn a_pod_that_is_to_go_runs_on_for_a_while_and_is_then_let_go() {
        let mut kubelet = kubelet(PodStart::WithVif);
        let going = |grace: i64| {
            let meta =
                json!({ "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace });
            pod_with(&meta, &json!({}))
        };
        assert_eq!(kubelet.plan(&[going(30)], NOW), Plan { calls: Vec::new(), wake: Some(STOP) });
        let plan = kubelet.plan(&[going(30)], NOW + STOP);
        assert_eq!(plan.calls[0].verb, Verb::Delete { uid: "u".into(), grace_period_seconds: Some(0) });
        assert_eq!(kubelet.plan(&[going(0)], NOW + STOP), Plan::default());
        assert_eq!(kubelet.plan(&[], NOW + STOP), Plan::default());
        assert!(kubelet.stopping.is_empty(), "it is forgotten with its object");
    }

    #[test]
    fn pods_of_other_nodes_are_left_alone() {
        let pod = pod_with(&json!({}), &json!({ "nodeName": "elsewhere", "hostNetwork": true }));
        assert_eq!(kubelet(PodStart::AtOnce).plan(&[pod], NOW), Plan::default());
    }
}
