//! Network policies become security groups of a real Neutron, which are assigned to ports.

use std::collections::BTreeMap;

use http::Method;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use staffetta_real_openstack::Match;

use crate::world::World;

const POLICIES: &str = r#"
[kubernetes]
enabled_handlers = ["vif", "policy"]
pod_security_groups_driver = "policy"
network_policy_driver = "default"
"#;

/// The names of the common groups.
pub(crate) const COMMON: [&str; 3] = ["nodes", "open-egress", "open-ingress"];

/// Policies in a world, and pods with labels.
pub(crate) struct Guarded<'a> {
    world: &'a World,
    policies: Api<NetworkPolicy>,
}

/// A group of the cluster, as Neutron tells of it.
pub(crate) struct Group {
    /// The kind in the group's mark: `nodes`, `policy`, `peers`.
    pub(crate) kind: String,
    rules: usize,
}

impl<'a> Guarded<'a> {
    pub(crate) fn new(world: &'a World) -> Self {
        Self { world, policies: Api::default_namespaced(world.client.clone()) }
    }

    /// Creates a policy, or gives it another spec.
    pub(crate) async fn policy(&self, name: &str, spec: Value) {
        let policy = json!({ "metadata": { "name": name }, "spec": spec });
        if self.policies.get_opt(name).await.unwrap().is_some() {
            self.policies.patch(name, &PatchParams::default(), &Patch::Merge(policy)).await.unwrap();
        } else {
            let policy = serde_json::from_value(policy).unwrap();
            self.policies.create(&PostParams::default(), &policy).await.unwrap();
        }
    }

    pub(crate) async fn no_policy(&self, name: &str) {
        self.policies.delete(name, &DeleteParams::default()).await.unwrap();
    }

    async fn pod(&self, name: &str, app: &str) {
        let pod = json!({ "metadata": { "name": name, "labels": { "app": app } },
            "spec": { "nodeName": self.world.node, "automountServiceAccountToken": false,
                "containers": [{ "name": "c", "image": "i", "ports": [{ "name": "sql", "containerPort": 5432 }] }] } });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        self.world.pods().create(&PostParams::default(), &pod).await.unwrap();
    }

    async fn label(&self, name: &str, app: &str) {
        let patch = Patch::Merge(json!({ "metadata": { "labels": { "app": app } } }));
        self.world.pods().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// The groups with a mark, by their ids.
    pub(crate) async fn groups(&self) -> BTreeMap<String, Group> {
        let all = self.world.tenant.things("security-groups").await;
        let marked = all.into_iter().filter_map(|group| {
            let mut words = group["description"].as_str()?.split(' ');
            let name = words.find_map(|word| word.strip_prefix("staffetta:group="))?.to_owned();
            let kind = if COMMON.contains(&&*name) { name } else { name.split('-').next()?.to_owned() };
            let rules = group["security_group_rules"].as_array()?.len();
            Some((group["id"].as_str()?.to_owned(), Group { kind, rules }))
        });
        marked.collect()
    }

    /// The kinds of the groups in front of the port of a pod; that of the configuration is `configured`.
    async fn kinds(&self, pod: &str) -> Vec<String> {
        let Some(vif) = self.world.vifs(pod).await.into_iter().next() else { return Vec::new() };
        let Some(port) = self.world.tenant.port(&vif.id).await else { return Vec::new() };
        let groups = self.groups().await;
        let kind = |id: &String| match groups.get(id) {
            Some(group) => group.kind.clone(),
            None if *id == self.world.group => "configured".to_owned(),
            None => id.clone(),
        };
        let mut kinds: Vec<_> = port.security_groups.iter().map(kind).collect();
        kinds.sort();
        kinds
    }

    async fn until_kinds(&self, pod: &str, wanted: &[&str]) {
        let what = format!("{pod} bears {wanted:?}");
        self.world.until(&what, async || self.kinds(pod).await == wanted).await;
    }

    /// Waits until nothing of policies is left.
    pub(crate) async fn until_none(&self) {
        self.world
            .until("nothing of policies is left", async || {
                self.groups().await.values().all(|group| COMMON.contains(&&*group.kind))
            })
            .await;
    }

    /// Waits until the group of the one policy has so many rules.
    async fn until_rules(&self, count: usize) {
        self.world
            .until(&format!("the group of the policy has {count} rules"), async || {
                self.groups().await.values().any(|group| group.kind == "policy" && group.rules == count)
            })
            .await;
    }

    /// The rules of the policies' own groups in words. Another group is called by its kind.
    async fn rules(&self) -> Vec<String> {
        let groups = self.groups().await;
        let kind = |id: &Value| Some(groups.get(id.as_str()?)?.kind.as_str());
        let words = |rule: &Value| {
            let of = |field: &str| rule[field].as_str().unwrap_or_default().to_owned();
            let remote = kind(&rule["remote_group_id"]).map_or_else(|| of("remote_ip_prefix"), str::to_owned);
            let (first, last) = (&rule["port_range_min"], &rule["port_range_max"]);
            format!("{} {} {} {first}-{last} {remote}", of("direction"), of("ethertype"), of("protocol"))
        };
        let all = self.world.tenant.things("security-group-rules").await;
        let own = all.iter().filter(|rule| kind(&rule["security_group_id"]) == Some("policy"));
        let mut rules: Vec<_> = own.map(words).collect();
        rules.sort();
        rules
    }

    /// The number of calls so far that changed a group, a rule or a port.
    fn changes(&self) -> usize {
        let count =
            |method: Method, path: &str| self.world.gate.count(&Match::any().method(method).path(path));
        let changed = [Method::POST, Method::PUT, Method::DELETE];
        let groups = changed.into_iter().map(|method| count(method, "/network/v2.0/security-group"));
        groups.sum::<usize>() + count(Method::PUT, "/network/v2.0/ports")
    }
}

/// Lets pods of an application in to these ports, where `app: db` is.
pub(crate) fn admits(app: &str, ports: &[u16]) -> Value {
    let ports: Vec<_> = ports.iter().map(|port| json!({ "port": port })).collect();
    json!({ "podSelector": { "matchLabels": { "app": "db" } },
        "ingress": [{ "from": [{ "podSelector": { "matchLabels": { "app": app } } }], "ports": ports }] })
}

/// The groups of a pod whose ingress a policy isolates.
const ISOLATED: [&str; 3] = ["nodes", "open-egress", "policy"];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn policies_guard_ports_follow_labels_and_leave_nothing_on_a_real_openstack() {
    let world = World::start().await;
    let guarded = Guarded::new(&world);
    let controller = world.controller(POLICIES).await;
    guarded.pod("early", "db").await;
    guarded.until_kinds("early", &["configured"]).await;
    guarded.policy("p", admits("web", &[5432])).await;
    guarded.until_kinds("early", &ISOLATED).await;
    guarded.until_rules(2).await;
    // From its first moment: nothing of the port is changed after it was made.
    guarded.pod("late", "db").await;
    world.until_annotated("late").await;
    assert_eq!(guarded.kinds("late").await, ISOLATED);
    guarded.pod("web", "web").await;
    guarded.until_kinds("web", &["configured", "peers"]).await;
    guarded.label("web", "db").await;
    guarded.until_kinds("web", &ISOLATED).await;
    guarded.label("web", "web").await;
    guarded.until_kinds("web", &["configured", "peers"]).await;
    guarded.no_policy("p").await;
    for pod in ["early", "late", "web"] {
        guarded.until_kinds(pod, &["configured"]).await;
    }
    guarded.until_none().await;
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_policy_of_every_form_becomes_the_rules_that_it_means_and_namespaces_move_pods_on_a_real_openstack()
{
    let world = World::start().await;
    let guarded = Guarded::new(&world);
    let controller = world.controller(POLICIES).await;
    for (name, app) in [("db", "db"), ("web", "web")] {
        guarded.pod(name, app).await;
    }
    let peers = json!({ "namespaceSelector": { "matchLabels": { "team": "shop" } },
        "podSelector": { "matchLabels": { "app": "web" } } });
    let block = json!({ "ipBlock": { "cidr": "198.51.100.0/24", "except": ["198.51.100.0/25"] } });
    let spec = json!({ "podSelector": { "matchLabels": { "app": "db" } }, "policyTypes": ["Ingress", "Egress"],
        "ingress": [{ "from": [peers], "ports": [{ "port": "sql" }] },
            { "from": [block], "ports": [{ "protocol": "UDP", "port": 9000, "endPort": 9010 }] }],
        "egress": [{ "to": [{ "ipBlock": { "cidr": "192.0.2.0/24" } }], "ports": [{ "protocol": "SCTP", "port": 3868 }] }] });
    guarded.policy("p", spec).await;
    guarded.until_kinds("db", &["nodes", "policy"]).await;
    guarded.until_rules(4).await;
    let wanted = [
        "egress IPv4 sctp 3868-3868 192.0.2.0/24",
        "ingress IPv4 tcp 5432-5432 peers",
        "ingress IPv4 udp 9000-9010 198.51.100.128/25",
        "ingress IPv6 tcp 5432-5432 peers",
    ];
    assert_eq!(guarded.rules().await, wanted);
    guarded.until_kinds("web", &["configured"]).await;
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    for (team, kinds) in [(json!("shop"), ["configured", "peers"].as_slice()), (Value::Null, &["configured"])]
    {
        let labels = Patch::Merge(json!({ "metadata": { "labels": { "team": team } } }));
        namespaces.patch("default", &PatchParams::default(), &labels).await.unwrap();
        guarded.until_kinds("web", kinds).await;
    }
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_controller_that_starts_again_sends_no_rule_and_no_port_anything_on_a_real_openstack() {
    let world = World::start().await;
    let guarded = Guarded::new(&world);
    let controller = world.controller(POLICIES).await;
    guarded.policy("p", admits("web", &[80])).await;
    for (name, app) in [("db", "db"), ("web", "web")] {
        guarded.pod(name, app).await;
        world.until_active(&[name]).await;
    }
    guarded.until_kinds("db", &ISOLATED).await;
    guarded.until_rules(2).await;
    controller.stop().await.unwrap();
    let before = guarded.changes();
    let controller = world.controller(POLICIES).await;
    // Behind all that the start brings about comes one change, which costs one call.
    guarded.policy("p", admits("web", &[80, 443])).await;
    guarded.until_rules(4).await;
    assert_eq!(guarded.changes() - before, 1, "{:?}", world.gate.seen());
    assert_eq!(guarded.kinds("db").await, ISOLATED);
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_quota_of_rules_is_reported_at_the_policy_and_its_raising_lets_it_go_on_on_a_real_openstack() {
    let world = World::start().await;
    let guarded = Guarded::new(&world);
    let options = format!("{POLICIES}[network_policy]\nmax_rules_per_namespace = 1000\n");
    let controller = world.controller(&options).await;
    guarded.policy("p", admits("web", &[80])).await;
    guarded.until_rules(2).await;
    let rules = world.tenant.things("security-group-rules").await.len();
    world.tenant.quota("security_group_rule", i64::try_from(rules).unwrap() + 1).await;
    guarded.policy("p", admits("web", &[80, 81, 82])).await;
    let said = world.until_reported("p", "QuotaExceeded").await;
    assert!(said.contains("security_group_rule"), "{said}");
    world.tenant.quota("security_group_rule", -1).await;
    guarded.until_rules(6).await;
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn what_somebody_changed_of_a_group_or_a_port_comes_back_on_a_real_openstack() {
    let world = World::start().await;
    let guarded = Guarded::new(&world);
    let controller = world.controller(POLICIES).await;
    guarded.policy("p", admits("web", &[80])).await;
    guarded.pod("db", "db").await;
    guarded.until_kinds("db", &ISOLATED).await;
    guarded.until_rules(2).await;
    let port = world.vifs("db").await.remove(0).id;
    world.tenant.update("port", &port, json!({ "security_groups": [world.group] })).await;
    guarded.until_kinds("db", &ISOLATED).await;
    let all = world.tenant.things("security-group-rules").await;
    let groups = guarded.groups().await;
    let of_policy = |rule: &&Value| {
        let group = rule["security_group_id"].as_str().and_then(|id| groups.get(id));
        group.is_some_and(|group| group.kind == "policy")
    };
    let rule = all.iter().find(of_policy).unwrap()["id"].as_str().unwrap();
    world.tenant.delete("security_group_rule", rule).await;
    guarded.until_rules(1).await;
    guarded.until_rules(2).await;
    controller.stop().await.unwrap();
}
