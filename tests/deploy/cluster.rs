//! Tests that the objects of the chart work on a real cluster, with no more rights than needed.

use std::time::Instant;

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition};
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, ObjectList, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use staffetta_apiserver::testing::real_kubeconfig;
use tokio::sync::Mutex;

use crate::container::Container;
use crate::kubectl::Kubectl;
use crate::process::eventually;
use crate::rights::{self, Rights, at_home, granted, is_granted, of_handlers, rules};
use crate::site::{Site, simulated};

/// A controller is for the whole cluster: two of them would take each other's pods.
pub(crate) static CLUSTER: Mutex<()> = Mutex::const_new(());

const DEFAULT: [&str; 3] = ["vif", "lbaasspec", "lb"];

/// NODE stands for a name that nobody else has.
const WORKLOAD: &str = r"
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {nodeName: NODE, containers: [{name: web, image: 'web:1'}]}
---
apiVersion: v1
kind: Pod
metadata: {name: poison, annotations: {openstack.org/kuryr-vif: '{'}}
spec: {nodeName: NODE, containers: [{name: web, image: 'web:1'}]}
---
apiVersion: v1
kind: Node
metadata: {name: NODE}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: LoadBalancer, ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.10.0.9], conditions: {ready: true}}]
";

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn it_works_with_its_own_token_and_may_nothing_beyond_on_a_real_server() {
    let _exclusive = CLUSTER.lock().await;
    let site = Site::apply("rights", &simulated(&DEFAULT)).await;
    let account = site.account().await;
    let token = site.token(&account, "token").await;
    site.put(&token);
    let mut leader = site.run("first").await;
    leader.ready().await;
    let mut standby = site.run("second").await;
    standby.ready().await;
    let work = Work::begin(&site).await;
    work.is_done().await;

    let expected = of_handlers(&DEFAULT);
    let client = site.client_of(&token).await;
    may_only(&site, &client, &work.namespace, &expected, &at_home(&[])).await;

    let (code, report) = leader.post("/debug/check").await;
    let report: Value = serde_json::from_str(&report).unwrap();
    let of_rights = |check: &&Value| check["category"] == "rights" && check["result"] == "ok";
    assert_eq!(
        (code, report["checks"].as_array().unwrap().iter().filter(of_rights).count()),
        (200, 6),
        "{report}"
    );

    site.outlasts_its_watches(&account, &expected).await;
    assert!(leader.terminate().await.success());
    let ended = Instant::now();
    work.pod("after").await;
    work.has_vif("after").await;
    eprintln!("a VIF from the other one {:?} after the leader ended", ended.elapsed());
    work.end().await;
    assert!(standby.terminate().await.success());

    let all = expected.union(&at_home(&[])).cloned().collect();
    let account = format!("system:serviceaccount:{}:{account}", site.namespace);
    let used = rights::used(&site.kubeconfig, &account, &all);
    site.remove().await;
    // An Event that stands is brought up to date, but not before a minute has passed.
    let superfluous: Vec<_> = all.difference(&used).filter(|right| *right != "patch events").collect();
    assert!(superfluous.is_empty(), "rights that nobody used: {superfluous:?}");
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn who_handles_only_pods_has_only_rights_for_pods_on_a_real_server() {
    let _exclusive = CLUSTER.lock().await;
    let site = Site::apply("pods", &simulated(&["vif"])).await;
    let account = site.account().await;
    let token = site.token(&account, "token").await;
    site.put(&token);
    let mut process = site.run("only").await;
    process.ready().await;
    let work = Work::begin(&site).await;
    work.has_vif("web").await;
    let client = site.client_of(&token).await;
    may_only(&site, &client, &work.namespace, &of_handlers(&["vif"]), &at_home(&[])).await;
    site.outlasts_its_watches(&account, &of_handlers(&["vif"])).await;
    work.end().await;
    assert!(process.terminate().await.success());
    site.remove().await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn devices_take_the_rights_of_their_component_and_no_more_on_a_real_server() {
    let _exclusive = CLUSTER.lock().await;
    let open = format!("{}-open", Site::namespace("devices"));
    let admin = Kubectl::find(&real_kubeconfig(), "");
    admin.run(&["create", "namespace", &open]).await;
    let site = Site::apply("devices", &devices_alone(&open)).await;
    let account = site.account().await;
    let token = site.token(&account, "token").await;
    site.put(&token);
    site.kubectl
        .run(&["wait", "--for=condition=Established", "crd/ciscodevices.cisco.vk", "--timeout=60s"])
        .await;
    let mut process = site.run("only").await;
    process.ready().await;
    let device = Device { site: &site };
    device.comes().await;
    device.gets_secrets_of(&open, "closed").await;

    let expected = of_handlers(&["app_hosting"]);
    let client = site.client_of(&token).await;
    let home = at_home(&["app_hosting"]);
    may_only(&site, &client, "default", &expected, &home).await;
    let of_leases = ["create", "patch"].map(|verb| format!("{verb} leases.coordination.k8s.io"));
    let with_leases: Rights = expected.iter().cloned().chain(of_leases.clone()).collect();
    assert_eq!(rules(&client, "kube-node-lease").await.intersection(&with_leases).count(), with_leases.len());

    site.outlasts_its_watches(&account, &expected).await;
    let account = format!("system:serviceaccount:{}:{account}", site.namespace);
    device.costs_nothing_but_its_lease(&account).await;
    device.goes(&account).await;
    assert!(process.terminate().await.success());
    let all = expected.union(&home).cloned().chain(of_leases).collect();
    let used = rights::used(&site.kubeconfig, &account, &all);
    site.remove().await;
    // Who stands by watches the lease, and here nobody does. Nor does anybody use a kubelet API.
    let reviews = of_handlers(&["app_hosting"]).into_iter().filter(|right| right.contains("reviews."));
    let unasked: Rights = reviews
        .chain(["patch events", "watch leases.coordination.k8s.io staffetta"].map(str::to_owned))
        .collect();
    let superfluous: Vec<_> = all.difference(&used).filter(|right| !unasked.contains(*right)).collect();
    assert!(superfluous.is_empty(), "rights that nobody used: {superfluous:?}");
}

/// Values for simulated devices, whose pods may use the Secrets of the namespace `open`.
fn devices_alone(open: &str) -> Value {
    json!({ "config": {
        "kubernetes": { "enabled_handlers": ["app_hosting"], "app_hosting_driver": "FAKE" },
        "app_hosting": {
            "poll_interval_ms": 200,
            "kubelet": false,
            "allowed_addresses": ["192.0.2.0/24"],
            "allowed_label_prefixes": ["rack"],
            "secret_namespaces": [open],
        },
    } })
}

/// A device, in the namespace of the site. SITE stands for a name that nobody else has.
const DEVICE: &str = r"
apiVersion: v1
kind: Secret
metadata: {name: account, labels: {staffetta.dev/device-credentials: 'true'}}
stringData: {username: admin, password: hunter2}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: red}
---
apiVersion: cisco.vk/v1alpha1
kind: CiscoDevice
metadata: {name: SITE}
spec: {driver: FAKE, address: 192.0.2.1, credentialSecretRef: {name: account}, labels: {rack: '7'}}
";

/// A pod there, whose name NAME stands for.
const POD_THERE: &str = r"
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  nodeName: SITE
  tolerations: [{operator: Exists}]
  automountServiceAccountToken: false
  securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: web
    image: 'flash:/web.tar'
    env: [{name: COLOUR, valueFrom: {configMapKeyRef: {name: settings, key: colour}}}]
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
";

/// A device and what runs there.
struct Device<'a> {
    site: &'a Site,
}

impl Device<'_> {
    fn named(&self, kind: &str) -> String {
        format!("{kind}/{}", self.site.namespace)
    }

    async fn kubectl(&self, arguments: &[&str]) {
        self.site.kubectl.run(&[arguments, &["--timeout=60s"]].concat()).await;
    }

    /// Ends when its node is ready and two pods run there, and what was changed of it is so.
    async fn comes(&self) {
        let pods = ["web", "torn"].map(|name| POD_THERE.replace("NAME", name));
        for manifest in [DEVICE, &pods[0], &pods[1]] {
            self.site.kubectl.apply(&manifest.replace("SITE", &self.site.namespace)).await;
        }
        let (device, node) = (self.named("ciscodevice"), self.named("node"));
        for object in [&device, &node, "pod/web", "pod/torn"] {
            self.kubectl(&["wait", "--for=condition=Ready", object]).await;
        }
        let change = r#"{"spec":{"labels":{"rack":"9"},"maxPods":3}}"#;
        self.site.kubectl.run(&["patch", &device, "--type=merge", "--patch", change]).await;
        for what in ["{.metadata.labels.rack}=9", "{.status.capacity.pods}=3"] {
            self.kubectl(&["wait", &format!("--for=jsonpath={what}"), &node]).await;
        }
    }

    /// Ends when a pod of the namespace `open` runs with its Secret, and one of `closed` is refused its own.
    async fn gets_secrets_of(&self, open: &str, closed: &str) {
        let site = &self.site.namespace;
        let closed = format!("{site}-{closed}");
        let secret = "valueFrom: {secretKeyRef: {name: login, key: password}}";
        let of_map = "valueFrom: {configMapKeyRef: {name: settings, key: colour}}";
        assert!(POD_THERE.contains(of_map));
        let pod = POD_THERE.replace(of_map, secret).replace("NAME", "web").replace("SITE", site);
        for namespace in [open, &closed] {
            let kubectl = Kubectl::find(&self.site.kubeconfig, namespace);
            if namespace != open {
                kubectl.run(&["create", "namespace", namespace]).await;
            }
            kubectl.exists("serviceaccount/default").await;
            kubectl.run(&["create", "secret", "generic", "login", "--from-literal=password=hunter2"]).await;
            kubectl.apply(&pod).await;
            if namespace == open {
                kubectl.run(&["wait", "--for=condition=Ready", "pod/web", "--timeout=60s"]).await;
            } else {
                eventually("the pod is refused the Secret", async || {
                    let events = ["get", "events.events.k8s.io", "--output", "jsonpath={.items[*].reason}"];
                    kubectl.run(&events).await.contains("SecretForbidden")
                })
                .await;
            }
            kubectl.run(&["delete", "pod/web", "--timeout=60s"]).await;
            kubectl.run(&["delete", "namespace", namespace, "--wait=false"]).await;
        }
    }

    /// Ends when its lease was renewed twice; nothing else was written for it meanwhile, not even what changes nothing.
    async fn costs_nothing_but_its_lease(&self, account: &str) {
        let writes = |right: &str| {
            ["nodes", "nodes/status", "pods/status"].iter().any(|of| right == format!("patch {of}"))
        };
        let asked = || rights::asked(&self.site.kubeconfig, account);
        let renewals = |asked: &[(String, String)]| {
            let of_node = |(right, name): &&(String, String)| {
                right == "patch leases.coordination.k8s.io" && *name == self.site.namespace
            };
            asked.iter().filter(of_node).count()
        };
        let before = asked();
        // What was under way ends with the first renewal.
        let mut settled = None;
        eventually("the lease is renewed three times", async || {
            let now = asked();
            let renewed = renewals(&now) - renewals(&before);
            if renewed >= 1 && settled.is_none() {
                settled = Some(now.len());
            }
            renewed >= 3
        })
        .await;
        let written: Vec<_> = asked().drain(settled.unwrap()..).filter(|(right, _)| writes(right)).collect();
        assert_eq!(written, []);
    }

    /// The pods go, one of them before its machine is rid of it, then the device, and its node with it.
    async fn goes(&self, account: &str) {
        self.kubectl(&["delete", "pod/web"]).await;
        self.kubectl(&["delete", "pod/torn", "--force", "--grace-period=0"]).await;
        eventually("it is asked whether the pod is really no more", async || {
            let asked = rights::asked(&self.site.kubeconfig, account);
            let of_pod = |(right, name): &(String, String)| right == "get pods" && name == "torn";
            asked.iter().any(of_pod)
        })
        .await;
        self.kubectl(&["delete", &self.named("ciscodevice")]).await;
        self.kubectl(&["wait", "--for=delete", &self.named("node")]).await;
    }
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn in_its_pod_the_program_finds_its_service_account_by_itself_on_a_real_server() {
    let _exclusive = CLUSTER.lock().await;
    let site = Site::apply("image", &simulated(&["vif"])).await;
    site.put(&site.token(&site.account().await, "token").await);
    let container = Container::new();
    let mut process = site.run_in_pod(&container).await;
    process.ready().await;
    let work = Work::begin(&site).await;
    work.has_vif("web").await;
    work.end().await;
    assert!(process.terminate().await.success());
    site.remove().await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn a_handler_without_its_rights_says_what_it_lacks_on_a_real_server() {
    let _exclusive = CLUSTER.lock().await;
    let site = Site::apply("without", &simulated(&DEFAULT)).await;
    let without_pods = r#"[{"op":"remove","path":"/rules/3"}]"#;
    site.kubectl.run(&["patch", "clusterrole/staffetta", "--type=json", "--patch", without_pods]).await;
    site.put(&site.token(&site.account().await, "token").await);
    let mut process = site.run("only").await;
    process.says("pods is forbidden").await;
    eventually("it says so at /readyz", async || {
        let (code, reasons) = process.get("/readyz?verbose").await;
        code == 503 && reasons.contains("pods is forbidden")
    })
    .await;
    assert_eq!(process.get("/livez").await.0, 200);
    assert!(process.terminate().await.success());
    site.remove().await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn a_token_that_is_replaced_while_it_runs_is_no_failure_on_a_real_server() {
    let _exclusive = CLUSTER.lock().await;
    let site = Site::apply("tokens", &simulated(&DEFAULT)).await;
    let account = site.account().await;
    let old = site.token(&account, "old").await;
    site.put(&old);
    let mut process = site.run("only").await;
    process.ready().await;
    let work = Work::begin(&site).await;
    work.has_vif("web").await;

    site.put(&site.token(&account, "new").await);
    site.void("old").await;
    let refused = site.client_of(&old).await;
    eventually("the old token is refused", async || {
        matches!(refused.apiserver_version().await, Err(kube::Error::Api(status)) if status.code == 401)
    })
    .await;
    let voided = Instant::now();
    work.pod("after").await;
    work.has_vif("after").await;
    eprintln!("a VIF {:?} after the old token was refused", voided.elapsed());
    assert_eq!(process.get("/readyz").await.0, 200);

    work.end().await;
    assert!(process.terminate().await.success());
    let lines = process.says("all queues are drained").await;
    // The reason that the server gives with each 401; the digits alone are in many a time and uid.
    let refused = lines.iter().filter(|line| line.contains("Unauthorized"));
    assert_eq!(refused.collect::<Vec<_>>(), Vec::<&String>::new());
    site.remove().await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn its_pods_are_admitted_as_its_namespace_says_on_a_real_server() {
    let _exclusive = CLUSTER.lock().await;
    for (name, restricted) in [("restricted", true), ("privileged", false)] {
        let mut values = simulated(&DEFAULT);
        values["hostNetwork"] = json!(!restricted);
        let site = Site::apply(name, &values).await;
        let pods = Api::<Pod>::namespaced(site.client.clone(), &site.namespace);
        let sets = Api::<ReplicaSet>::namespaced(site.client.clone(), &site.namespace);
        eventually("both pods are made", async || {
            let sets = sets.list(&ListParams::default()).await.unwrap();
            let failures = sets.iter().filter_map(|set| set.status.as_ref()?.conditions.as_ref());
            assert_eq!(failures.flatten().collect::<Vec<_>>(), Vec::<&ReplicaSetCondition>::new());
            pods.list(&ListParams::default()).await.unwrap().items.len() == 2
        })
        .await;
        let careless = json!({ "metadata": { "name": "careless" },
            "spec": { "containers": [{ "name": "c", "image": "i" }] } });
        let careless = serde_json::from_value(careless).unwrap();
        let refused = pods.create(&PostParams { dry_run: true, ..PostParams::default() }, &careless).await;
        let refused = refused.map_err(|error| error.to_string());
        let violates = |error: &String| error.contains("violates PodSecurity \"restricted:latest\"");
        assert_eq!(refused.as_ref().is_err_and(violates), restricted, "{refused:?}");
        site.remove().await;
    }
}

/// Asserts that whoever the client is has the `expected` rights in all namespaces, those `of_home` in the namespace of the site too,
/// and nothing else that not everybody has.
pub(crate) async fn may_only(
    site: &Site,
    client: &Client,
    elsewhere: &str,
    expected: &Rights,
    of_home: &Rights,
) {
    let nobody = site.client_of(&site.token("default", "nobody").await).await;
    let home = site.namespace.as_str();
    let of_everybody = rules(&nobody, home).await;
    let beyond = |rights: Rights| rights.difference(&of_everybody).cloned().collect::<Rights>();

    let everywhere_and_home: Rights = expected.union(of_home).cloned().collect();
    assert_eq!(beyond(rules(client, elsewhere).await), *expected, "the rules elsewhere");
    assert_eq!(beyond(rules(client, home).await), everywhere_and_home, "the rules at home");

    let unnamed = |rights: &Rights| {
        let is_named = |right: &str| {
            right.contains(" staffetta-webhook")
                || [" staffetta", " kube-system", " amazon-vpc-cni"].iter().any(|name| right.ends_with(name))
        };
        rights.iter().filter(|right| !is_named(right)).cloned().collect::<Rights>()
    };
    assert_eq!(beyond(granted(client, None).await), unnamed(expected), "granted in all namespaces");
    assert_eq!(beyond(granted(client, Some(home)).await), unnamed(&everywhere_and_home), "granted at home");

    for (namespace, name, granted) in
        [(home, "staffetta", true), (home, "other", false), (elsewhere, "staffetta", false)]
    {
        let asked = ResourceAttributes {
            group: Some("coordination.k8s.io".into()),
            resource: Some("leases".into()),
            namespace: Some(namespace.into()),
            name: Some(name.into()),
            verb: Some("patch".into()),
            ..ResourceAttributes::default()
        };
        assert_eq!(is_granted(client, asked).await, granted, "the lease {namespace}/{name}");
    }
}

/// Something to do for a controller, in a namespace of its own.
pub(crate) struct Work {
    namespace: String,
    kubectl: Kubectl,
    client: Client,
}

impl Work {
    pub(crate) async fn begin(site: &Site) -> Self {
        let namespace = format!("{}-work", site.namespace);
        let kubectl = Kubectl::find(&site.kubeconfig, &namespace);
        kubectl.run(&["create", "namespace", &namespace]).await;
        let this = Self { namespace, kubectl, client: site.client.clone() };
        this.kubectl.exists("serviceaccount/default").await;
        this.kubectl.apply(&WORKLOAD.replace("NODE", &this.namespace)).await;
        this
    }

    /// The namespace.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A pod more.
    async fn pod(&self, name: &str) {
        let pod = WORKLOAD.split("---").next().unwrap().replace("name: web}\n", &format!("name: {name}}}\n"));
        self.kubectl.apply(&pod.replace("NODE", &self.namespace)).await;
    }

    /// Ends when everything is as it must be: the pod has a VIF, the service a load balancer with an address, what failed an
    /// Event.
    async fn is_done(&self) {
        self.has_vif("web").await;
        let services = Api::<Service>::namespaced(self.client.clone(), &self.namespace);
        eventually("the service has a public address", async || {
            let service = services.get("web").await.unwrap();
            let described = service.annotations().contains_key("openstack.org/kuryr-lbaas-state");
            let ingress = service.status.and_then(|status| status.load_balancer?.ingress);
            described && ingress.is_some_and(|ingress| ingress.iter().any(|ingress| ingress.ip.is_some()))
        })
        .await;
        self.is_reported().await;
    }

    /// Ends when an Event tells of what failed.
    pub(crate) async fn is_reported(&self) {
        let events = Api::<Event>::namespaced(self.client.clone(), &self.namespace);
        eventually("an Event tells of the poison", async || {
            let events: ObjectList<Event> = events.list(&ListParams::default()).await.unwrap();
            let of_us = |event: &&Event| {
                event.reporting_controller.as_deref().is_some_and(|name| name.contains("staffetta"))
            };
            events.iter().filter(of_us).any(|event| {
                event.regarding.as_ref().is_some_and(|object| object.name.as_deref() == Some("poison"))
            })
        })
        .await;
    }

    pub(crate) async fn has_vif(&self, name: &str) {
        let pods = Api::<Pod>::namespaced(self.client.clone(), &self.namespace);
        eventually("the pod has an active VIF", async || {
            let pod = pods.get(name).await.unwrap();
            pod.annotations()
                .get("openstack.org/kuryr-vif")
                .is_some_and(|vif| vif.contains(r#""active":true"#))
        })
        .await;
    }

    /// Takes all of it away; what was made for it is released meanwhile.
    pub(crate) async fn end(self) {
        self.kubectl.run(&["delete", "pods", "--all", "--grace-period=0", "--force"]).await;
        self.kubectl.run(&["delete", "service/web", &format!("node/{}", self.namespace)]).await;
        self.kubectl.run(&["delete", "namespace", &self.namespace, "--wait=false"]).await;
    }
}
