//! The rights that some options need in addition to those of the handlers.

use std::collections::BTreeSet;
use std::fs;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use staffetta_apiserver::{ApiServer, Options};

use crate::PROGRAM;
use crate::cluster::{CLUSTER, Work, may_only};
use crate::process::{Process, SIMULATED, eventually};
use crate::rendered::{rendered, yaml};
use crate::rights::{self, Rights, at_home, of_handlers};
use crate::site::{Site, simulated};

/// The rights of an option in the chart, and the option.
struct Component {
    name: &'static str,
    /// Of the section `[kubernetes]`.
    option: &'static str,
    rights: [&'static str; 2],
}

const COMPONENTS: [Component; 4] = [
    Component {
        name: "vif_pool",
        option: "vif_pool_driver = \"memory\"",
        rights: ["list nodes", "watch nodes"],
    },
    Component {
        name: "multi_vif",
        option: "multi_vif_driver = \"npwg_multiple_interfaces\"",
        rights: [
            "list network-attachment-definitions.k8s.cni.cncf.io",
            "watch network-attachment-definitions.k8s.cni.cncf.io",
        ],
    },
    Component {
        name: "namespaces",
        option: "pod_project_driver = \"annotation\"",
        rights: ["list namespaces", "watch namespaces"],
    },
    Component {
        name: "namespaces",
        option: "namespace_labels = \"!of.no/namespace\"",
        rights: ["list namespaces", "watch namespaces"],
    },
];

/// As little of it as the program needs.
fn networks() -> CustomResourceDefinition {
    let definition = json!({
        "metadata": { "name": "network-attachment-definitions.k8s.cni.cncf.io" },
        "spec": {
            "group": "k8s.cni.cncf.io", "scope": "Namespaced",
            "names": { "kind": "NetworkAttachmentDefinition", "plural": "network-attachment-definitions" },
            "versions": [{ "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }],
        },
    });
    serde_json::from_value(definition).unwrap()
}

async fn define_networks(client: &Client) {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    match definitions.create(&PostParams::default(), &networks()).await {
        Ok(_) => {}
        // A test that failed left it there.
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => panic!("{error}"),
    }
    eventually("the definition is served", async || {
        client.list_api_group_resources("k8s.cni.cncf.io/v1").await.is_ok()
    })
    .await;
}

#[test]
fn the_chart_grants_what_each_option_takes_and_no_more() {
    let rights = yaml("chart/files/rights.yaml");
    let of_chart = rights["drivers"].as_object().unwrap();
    let names: BTreeSet<_> = COMPONENTS.iter().map(|component| component.name).collect();
    assert_eq!(of_chart.keys().map(String::as_str).collect::<BTreeSet<_>>(), names);
    for Component { name, rights, .. } in COMPONENTS {
        let expected: Rights = rights.into_iter().map(str::to_owned).collect();
        assert_eq!(rights::of_rules(&of_chart[name]), expected, "{name}");
    }
}

/// The rights used by the program's lists and watches with this option, once all expected ones were used.
async fn read_with(option: &str, expected: &Rights) -> Rights {
    let (server, home) = (ApiServer::start(Options::default()).await.unwrap(), tempfile::tempdir().unwrap());
    let kubeconfig = home.path().join("administrator");
    fs::write(&kubeconfig, server.kubeconfig()).unwrap();
    define_networks(&staffetta::connect::client(Some(&kubeconfig), None).await.unwrap()).await;
    server.clear_requests();
    let option_name = option.split(" = ").next().unwrap();
    let simulated = SIMULATED.lines().filter(|line| option.is_empty() || !line.starts_with(option_name));
    let configuration = format!(
        "{}\ncluster_id = \"deploy\"\nenabled_handlers = [\"vif\"]\n{option}\n\
         [neutron_defaults]\nproject = \"p\"\n[leader_election]\nenabled = false\n",
        simulated.collect::<Vec<_>>().join("\n"),
    );
    let mut process =
        Process::start(PROGRAM.as_ref(), home.path(), &configuration, &server.kubeconfig()).await;
    process.ready().await;
    let read = || -> Rights {
        let requests = server.requests().into_iter();
        let read = requests.filter(|request| ["list", "watch"].contains(&&*request.verb));
        read.map(|request| format!("{} {}", request.verb, request.resource)).collect()
    };
    eventually("it reads what it needs", async || read().is_superset(expected)).await;
    assert!(process.terminate().await.success());
    read()
}

#[tokio::test]
async fn an_option_makes_the_program_read_what_the_chart_grants() {
    let of_the_handler: Rights = ["list pods", "watch pods"].map(str::to_owned).into();
    assert_eq!(read_with("", &of_the_handler).await, of_the_handler);
    for Component { name, option, rights } in COMPONENTS {
        // The server notes no group.
        let rights = rights.map(|right| right.split('.').next().unwrap_or_default().to_owned());
        let expected: Rights = of_the_handler.iter().cloned().chain(rights).collect();
        assert_eq!(read_with(option, &expected).await, expected, "{name}");
    }
}

#[test]
#[ignore = "needs helm: devstack/real/test"]
fn a_label_selector_of_namespaces_gives_the_controller_the_right_to_watch_them_with_helm() {
    let watched: Rights = ["list namespaces", "watch namespaces"].map(str::to_owned).into();
    // The daemon binds what the controller has selected.
    for (preset, name, wanted) in
        [("openstack", "staffetta", watched), ("cni", "staffetta-cni", Rights::default())]
    {
        let rights = |options: serde_json::Value| {
            let objects = rendered("staffetta", preset, &json!({ "config": { "kubernetes": options } }));
            let is_role = |object: &&serde_json::Value| {
                object["kind"] == "ClusterRole" && object["metadata"]["name"] == name
            };
            rights::of_rules(&objects.iter().find(is_role).unwrap()["rules"])
        };
        let (without, with) = (rights(json!({})), rights(json!({ "namespace_labels": "team=net" })));
        assert_eq!(with.difference(&without).cloned().collect::<Rights>(), wanted, "{preset}");
    }
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn with_the_rights_of_its_options_it_works_and_may_nothing_beyond_on_a_real_server() {
    let _exclusive = CLUSTER.lock().await;
    let mut values = simulated(&["vif"]);
    values["config"]["neutron_defaults"] = json!({ "project": "p" });
    for component in COMPONENTS {
        let (option, driver) = component.option.split_once(" = ").unwrap();
        values["config"]["kubernetes"][option] = json!(driver.trim_matches('"'));
    }
    let site = Site::apply("drivers", &values).await;
    define_networks(&site.client).await;
    let account = site.account().await;
    let token = site.token(&account, "token").await;
    site.put(&token);
    let mut process = site.run("only").await;
    process.ready().await;
    let work = Work::begin(&site).await;
    work.has_vif("web").await;
    work.is_reported().await;

    let taken = COMPONENTS.iter().flat_map(|component| component.rights).map(str::to_owned);
    let expected: Rights = of_handlers(&["vif"]).into_iter().chain(taken).collect();
    may_only(&site, &site.client_of(&token).await, work.namespace(), &expected, &at_home(&[])).await;
    work.end().await;
    assert!(process.terminate().await.success());

    let account = format!("system:serviceaccount:{}:{account}", site.namespace);
    let used = rights::used(&site.kubeconfig, &account, &expected);
    let definitions = Api::<CustomResourceDefinition>::all(site.client.clone());
    definitions.delete(networks().metadata.name.as_deref().unwrap(), &DeleteParams::default()).await.unwrap();
    site.remove().await;
    let superfluous: Vec<_> = expected.difference(&used).filter(|right| *right != "patch events").collect();
    assert!(superfluous.is_empty(), "rights that nobody used: {superfluous:?}");
}
