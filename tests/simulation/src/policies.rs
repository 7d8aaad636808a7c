//! The world of network policies: the security groups of ports allow what the policies of the cluster allow, whatever happens meanwhile.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use staffetta_driver::{Direction, IpFamily, Remote, SecurityGroupId, SecurityRule};
use staffetta_memory::MemoryPort;
use tokio::time::sleep;

use crate::pods;
use crate::replica::Options;
use crate::storm::{self, Scene};
use crate::views::PodView;
use crate::world::World;

const POLICIES: &str = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
/// The number of values of the label `app`, and of ports.
const APPS: usize = 3;

/// An operation on a pod or on a policy.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Happening {
    Pod(pods::Happening),
    /// The pod gets another label.
    Label(usize),
    /// The policy is created or changed; the number chooses what it admits.
    SetPolicy(usize),
    DeletePolicy,
    /// An administrator removes a rule of a security group.
    RemoveRule,
    /// No further security group may be created for this time.
    Quota(Duration),
}

/// Runs the world of one seed, without the steps whose numbers are in `without`. Returns the number of steps.
pub(crate) async fn run(world: &Arc<World>, without: &[usize]) -> usize {
    let mut draw = world.choices.at("plan");
    let replicas = 1 + draw.below(3);
    let options = Options { handlers: "[\"vif\", \"policy\"]", pool: draw.chance(500), groups: "policy" };
    let create = |draw: &mut crate::choices::Draw| {
        vec![
            Happening::Pod(pods::Happening::Create),
            Happening::Label(draw.below(APPS)),
            Happening::SetPolicy(draw.below(64)),
        ]
    };
    let steps = storm::steps(world, replicas, create, |draw| {
        Some(match draw.below(30) {
            0..3 => Happening::Pod(pods::Happening::Create),
            3..6 => Happening::Pod(pods::Happening::Delete),
            6..9 => Happening::Label(draw.below(APPS)),
            9..13 => Happening::SetPolicy(draw.below(64)),
            13..16 => Happening::DeletePolicy,
            16..18 => Happening::RemoveRule,
            18 => Happening::Quota(storm::some_time(draw)),
            _ => return None,
        })
    });
    pods::prepare(world).await;
    storm::run(world, &Policies, replicas, options, &steps, without).await;
    steps.len()
}

struct Policies;

impl Scene for Policies {
    type Happening = Happening;

    async fn happen(&self, world: &Arc<World>, object: usize, what: Happening) {
        let path = format!("{POLICIES}/np{object}");
        match what {
            Happening::Pod(what) => pods::Pods.happen(world, object, what).await,
            Happening::Label(app) => {
                let patch = json!({ "metadata": { "labels": { "app": format!("a{app}") } } });
                let pod = format!("{}/p{object}", pods::PODS);
                world.request("tenant", Method::PATCH, &pod, &patch).await;
            }
            Happening::SetPolicy(bits) => {
                let policy =
                    json!({ "metadata": { "name": format!("np{object}") }, "spec": spec(object, bits) });
                let (code, _) = world.request("tenant", Method::POST, POLICIES, &policy).await;
                if code == 409 {
                    let patch = json!({ "spec": policy["spec"] });
                    world.request("tenant", Method::PATCH, &path, &patch).await;
                }
            }
            Happening::DeletePolicy => {
                world.request("tenant", Method::DELETE, &path, &Value::Null).await;
            }
            Happening::RemoveRule => {
                let rules = world.network.security_groups().into_iter().flat_map(|group| group.rules);
                let rules: Vec<_> = rules.collect();
                if let Some(rule) = rules.get(object % rules.len().max(1)) {
                    world.note("admin", &format!("removes the rule {}", rule.id));
                    world.network.remove_security_rule(&rule.id);
                }
            }
            Happening::Quota(time) => {
                let network = Arc::clone(&world.network);
                network.set_security_group_quota(Some(network.security_groups().len()), None);
                tokio::spawn(async move {
                    sleep(time).await;
                    network.set_security_group_quota(None, None);
                });
            }
        }
    }

    async fn follow_events(&self, world: &Arc<World>) {
        pods::Pods.follow_events(world).await;
    }

    fn unsettled(&self, world: &World) -> Option<String> {
        if let Some(reason) = pods::Pods.unsettled(world) {
            return Some(reason);
        }
        let (policies, groups, ports) =
            (world.policies(), world.network.security_groups(), world.network.ports());
        let uids: BTreeSet<_> =
            policies.iter().filter_map(|policy| policy["metadata"]["uid"].as_str()).collect();
        // The groups of peers are shared, and outlive the policy for which they were created.
        let mut of_policy = groups.iter().filter_map(|group| group.name.as_str().strip_prefix("policy-"));
        if let Some(uid) = of_policy.find(|uid| !uids.contains(*uid)) {
            return Some(format!("the security group of the policy {uid} is left"));
        }
        let pods: Vec<_> = world.pods().into_values().filter(|pod| !pod.is_finished()).collect();
        let port_of = |pod: &PodView| {
            let vif = pod.vifs()?.default_vif.id;
            ports.iter().find(|port| port.vif.id == vif)
        };
        for (from, to) in pods.iter().flat_map(|from| pods.iter().map(move |to| (from, to))) {
            let (Some(source), Some(target)) = (port_of(from), port_of(to)) else { continue };
            for port in (80..).take(APPS) {
                let wanted = is_admitted(&policies, from, to, port);
                let rules = groups.iter().filter(|group| target.security_groups.contains(&group.id));
                let mut rules =
                    rules.flat_map(|group| group.rules.iter().filter_map(|rule| rule.rule.as_ref()));
                let is_default = target.security_groups.iter().any(|group| group.as_str() == "default");
                let is_open = is_default || rules.any(|rule| lets_in(rule, source, port));
                if wanted != is_open {
                    return Some(format!(
                        "from {} ({}) to {} ({}), port {port}: admitted {wanted}, open {is_open}",
                        from.name, from.app, to.name, to.app
                    ));
                }
            }
        }
        None
    }
}

/// Returns the specification of a policy for the pods of one app: it admits nobody, or the apps and the port that the bits choose.
fn spec(object: usize, bits: usize) -> Value {
    let admitted = (0..APPS).filter(|app| bits & 1 << app != 0);
    let from: Vec<_> = admitted.map(|app| json!({ "podSelector": select(app) })).collect();
    let ports = json!([{ "protocol": "TCP", "port": 80 + (bits >> 3) % APPS }]);
    let rules = if from.is_empty() { json!([]) } else { json!([{ "from": from, "ports": ports }]) };
    json!({ "podSelector": select(object % APPS), "policyTypes": ["Ingress"], "ingress": rules })
}

fn select(app: usize) -> Value {
    json!({ "matchLabels": { "app": format!("a{app}") } })
}

/// Returns `true` if the policies admit traffic from one pod to a port of another one, as the API reference of `NetworkPolicy` says.
fn is_admitted(policies: &[Value], from: &PodView, to: &PodView, port: u64) -> bool {
    let selects = |selector: &Value, pod: &PodView| selector["matchLabels"]["app"] == pod.app;
    let applies = |policy: &&Value| selects(&policy["spec"]["podSelector"], to);
    let applying: Vec<_> = policies.iter().filter(applies).collect();
    let mut rules =
        applying.iter().flat_map(|policy| policy["spec"]["ingress"].as_array().into_iter().flatten());
    applying.is_empty()
        || rules.any(|rule| {
            let mut peers = rule["from"].as_array().into_iter().flatten();
            rule["ports"][0]["port"] == port && peers.any(|peer| selects(&peer["podSelector"], from))
        })
}

/// Returns `true` if a rule lets traffic of this port in to a TCP port.
fn lets_in(rule: &SecurityRule<SecurityGroupId>, source: &MemoryPort, port: u64) -> bool {
    let range = rule.ports.as_ref().and_then(|ports| ports.range);
    rule.direction == Direction::Ingress
        && rule.family == IpFamily::V4
        && range.is_none_or(|(first, last)| (u64::from(first)..=u64::from(last)).contains(&port))
        && match &rule.remote {
            Remote::Any => true,
            Remote::Group(group) => source.security_groups.contains(group),
            Remote::Net(net) => source.vif.ips().any(|ip| net.contains(&ip)),
        }
}
