//! The admission webhook of etc/deploy: the manifests, and a real API server that calls it.

use std::net::TcpListener;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, from_value, json};
use staffetta::config::WebhookOptions;

use crate::cluster::{CLUSTER, may_only};
use crate::folder;
use crate::manifests::{document, documents};
use crate::process::eventually;
use crate::rights::{self, Rights, at_home, of_handlers};
use crate::site::Site;

const ADDRESS: &str = "vpc.amazonaws.com/PrivateIPv4Address";

#[test]
fn the_manifests_of_the_webhook_and_the_options_of_the_program_name_the_same_things() {
    let of_program = WebhookOptions::default();
    let configuration = document("webhook/configuration.yaml");
    let webhook = &configuration["webhooks"][0];
    let (service, secret) = (document("webhook/service.yaml"), document("webhook/secret.yaml"));
    assert_eq!(configuration["metadata"]["name"], json!(of_program.configuration_name));
    assert_eq!(secret["metadata"]["name"], json!(of_program.secret_name));
    assert_eq!(secret.get("data"), None, "applying it again must not change its content");
    let target = &webhook["clientConfig"]["service"];
    assert_eq!(target["name"], service["metadata"]["name"]);
    assert_eq!(target["namespace"], document("base/namespace.yaml")["metadata"]["name"]);
    assert_eq!(
        (&target["path"], &target["port"]),
        (&json!("/mutate-v1-pod"), &service["spec"]["ports"][0]["port"])
    );
    let deployment = document("webhook/deployment.yaml");
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let port = &container["ports"][0];
    assert_eq!(service["spec"]["ports"][0]["targetPort"], port["name"]);
    assert_eq!(container["env"][0]["name"], "STAFFETTA_WEBHOOK__LISTEN");
    assert_eq!(container["env"][0]["value"], format!("0.0.0.0:{}", port["containerPort"]));
    let policy = document("webhook/network-policy.yaml");
    assert_eq!(policy["spec"]["ingress"][0]["ports"][0]["port"], port["containerPort"]);
    assert_eq!(webhook["failurePolicy"], "Ignore", "an outage of the webhook must block no pod");
    for role in
        documents(&folder().join("webhook/rbac.yaml")).iter().filter(|role| role.get("rules").is_some())
    {
        for rule in role["rules"].as_array().unwrap() {
            assert_eq!(rule["resourceNames"], json!(["staffetta-webhook"]), "{role}");
        }
    }
}

/// A pod with this part of its spec, which the pod security standard admits.
fn pod(name: &str, spec: &Value) -> Pod {
    let mut whole = json!({
        "automountServiceAccountToken": false,
        "tolerations": [{ "operator": "Exists" }],
        "securityContext": { "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": { "type": "RuntimeDefault" } },
        "containers": [{ "name": "web", "image": "web:1", "resources": { "limits": { "cpu": "1" } },
            "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } } }],
    });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    from_value(json!({ "metadata": { "name": name }, "spec": whole })).unwrap()
}

/// The number of addresses that the first container requests, and its limit.
fn requested(pod: &Pod) -> [Option<String>; 2] {
    let resources = pod.spec.as_ref().unwrap().containers[0].resources.clone().unwrap();
    [resources.requests, resources.limits].map(|part| Some(part?.get(ADDRESS)?.0.clone()))
}

fn required(os: &[&str]) -> Value {
    let term = json!({ "matchExpressions": [{ "key": "kubernetes.io/os", "operator": "In", "values": os }] });
    let required = json!({ "nodeSelectorTerms": [term] });
    json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": required } } })
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn a_pod_of_windows_nodes_gets_the_resource_and_an_outage_of_the_webhook_blocks_none_on_a_real_server()
{
    let _turn = CLUSTER.lock().await;
    let site = Site::apply("webhook", "base", &["handlers/prefix_ip", "webhook"]).await;
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let hook = format!("staffetta-webhook-{}", site.namespace);
    // No network leads from the API server to a service, and other namespaces are none of this test's business.
    let home = json!({ "matchLabels": { "kubernetes.io/metadata.name": site.namespace } });
    let direct = json!([
        { "op": "replace", "path": "/webhooks/0/clientConfig", "value": { "url": format!("https://127.0.0.1:{port}/mutate-v1-pod") } },
        { "op": "add", "path": "/webhooks/0/namespaceSelector", "value": home },
    ]);
    let resource = format!("mutatingwebhookconfiguration/{hook}");
    site.kubectl.run(&["patch", &resource, "--type=json", "--patch", &direct.to_string()]).await;
    let maps = Api::<ConfigMap>::namespaced(site.client.clone(), "kube-system");
    let map = json!({ "metadata": { "name": "amazon-vpc-cni" }, "data": { "enable-windows-ipam": "true" } });
    maps.create(&PostParams::default(), &from_value(map).unwrap()).await.unwrap();

    let account = site.account().await;
    let token = site.token(&account, "token").await;
    site.put(&token);
    let with_webhook = |configuration: String| {
        let handlers = "enabled_handlers = [\"vif\", \"lb\", \"lbaasspec\"]";
        assert!(configuration.contains(handlers), "{configuration}");
        let prefixes = "enabled_handlers = [\"prefix_ip\"]\nprefix_provider_driver = \"memory\"";
        let webhook = format!(
            "[webhook]\nlisten = \"127.0.0.1:{port}\"\nconfiguration_name = \"{hook}\"\nsecret_name = \"{hook}\"\n"
        );
        configuration.replace(handlers, prefixes) + &webhook
    };
    let mut process = site.run_changed("only", with_webhook).await;
    process.ready().await;

    let pods = Api::<Pod>::namespaced(site.client.clone(), &site.namespace);
    let tried = PostParams { dry_run: true, ..PostParams::default() };
    let created = async |spec: &Value| pods.create(&tried, &pod("web", spec)).await.unwrap();
    let one = [Some("1".to_owned()), Some("1".to_owned())];
    let windows = json!({ "nodeSelector": { "kubernetes.io/os": "windows" } });
    eventually("the API server calls the webhook", async || requested(&created(&windows).await) == one).await;
    let in_spec = json!({ "os": { "name": "windows" }, "securityContext": { "runAsNonRoot": true } });
    for spec in [windows.clone(), required(&["windows"]), in_spec] {
        let mut pod = pod("web", &spec);
        if spec.get("os").is_some() {
            // Linux-only fields are forbidden there.
            pod.spec.as_mut().unwrap().containers[0].security_context = None;
        }
        let created = pods.create(&tried, &pod).await;
        match created {
            Ok(created) => assert_eq!(requested(&created), one, "{spec}"),
            Err(error) => panic!("{spec}: {error}"),
        }
    }
    for spec in [json!({}), json!({ "os": { "name": "linux" } }), required(&["windows", "linux"])] {
        assert_eq!(requested(&created(&spec).await), [None, None], "{spec}");
    }
    let real = pods.create(&PostParams::default(), &pod("real", &windows)).await.unwrap();
    assert_eq!(requested(&real), one);

    let (expected, home) =
        (of_webhook(&hook), at_home(&[]).union(&of_secret(&hook)).cloned().collect::<Rights>());
    let client = site.client_of(&token).await;
    may_only(&site, &client, "default", &expected, &home).await;

    site.kubectl
        .run(&[
            "-n",
            "kube-system",
            "patch",
            "configmap/amazon-vpc-cni",
            "--patch",
            r#"{"data":{"enable-windows-ipam":"false"}}"#,
        ])
        .await;
    eventually("the function is off", async || requested(&created(&windows).await) == [None, None]).await;
    assert!(process.terminate().await.success());
    assert_eq!(
        requested(&created(&windows).await),
        [None, None],
        "without the webhook, pods are created as they are"
    );

    let user = format!("system:serviceaccount:{}:{account}", site.namespace);
    let used =
        rights::used(&site.kubeconfig, &user, &of_webhook(&hook).union(&of_secret(&hook)).cloned().collect());
    let own: Rights = of_secret(&hook).into_iter().chain(of_configuration(&hook)).collect();
    assert!(own.is_subset(&used), "rights that nobody used: {:?}", own.difference(&used));
    pods.delete("real", &DeleteParams::default().grace_period(0)).await.unwrap();
    maps.delete("amazon-vpc-cni", &DeleteParams::default()).await.unwrap();
    site.remove().await;
}

/// The rights of the handler and of the webhook in all namespaces.
fn of_webhook(hook: &str) -> Rights {
    of_handlers(&["prefix_ip"]).into_iter().chain(of_configuration(hook)).collect()
}

fn of_configuration(hook: &str) -> Rights {
    let verbs = ["list", "watch", "patch"];
    verbs
        .map(|verb| format!("{verb} mutatingwebhookconfigurations.admissionregistration.k8s.io {hook}"))
        .into()
}

fn of_secret(hook: &str) -> Rights {
    ["list", "watch", "patch"].map(|verb| format!("{verb} secrets {hook}")).into()
}
