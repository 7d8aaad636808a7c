//! The checks before an installation, with the rights of the user who installs.

use std::collections::BTreeSet;

use clap::ValueEnum;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::{Api, Client, Error, ResourceExt};
use staffetta_handler::{Finding, causes};

use super::CheckReport;
use super::access::{Right, granted};
use crate::base::connect::api_versions;

/// The oldest minor version of Kubernetes 1 that the program supports.
const OLDEST_MINOR: u32 = 30;

/// The custom resource definition of `CiscoDevice` that the chart installs, in YAML.
const DEFINITION: &str = include_str!("../../../etc/deploy/chart/files/ciscodevices.yaml");

const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";
/// The remedy for a user who may not create admission policies.
const NO_POLICY_REMEDY: &str = "let an administrator install; or set `admission.enabled=false`, and anybody may write the annotations of the controller";
/// The remedy for a user who may not create services.
const NO_SERVICE_REMEDY: &str = "let an administrator install, or give you this right; with the preset prefix you can set `webhook.enabled=false`";
/// The remedy for a user who may not create custom resource definitions.
const NO_DEFINITION_REMEDY: &str = "let an administrator apply etc/deploy/chart/files/ciscodevices.yaml, and set `crds.install=false`; only the \
     preset iosxe needs it (--preset)";
/// The remedy for a user who lacks a right that the installation needs, if there is no more specific remedy.
const NO_RIGHT_REMEDY: &str = "let an administrator install, or give you this right";
/// The remedy if the API server does not answer, or returns an error.
const NO_API_SERVER_REMEDY: &str = "see whether `kubectl version` works with this kubeconfig";

/// The presets of the chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    Openstack,
    Iosxe,
    Koupleless,
    Prefix,
    Cni,
}

/// All presets of the Helm chart.
const ALL: &[Preset] = &[Preset::Openstack, Preset::Iosxe, Preset::Koupleless, Preset::Prefix, Preset::Cni];

/// The presets of the Helm chart that install the controller, and not only the CNI daemon.
const CONTROLLER: &[Preset] = &[Preset::Openstack, Preset::Iosxe, Preset::Koupleless, Preset::Prefix];

/// A kind of object that the chart creates: its group, its resource, the presets that need it, and the remedy for a user who may not
/// create it.
type Object = (&'static str, &'static str, &'static [Preset], &'static str);

/// The kinds of objects that the chart creates in the namespace of the release. Helm keeps its releases in `Secrets` there, too.
const NAMESPACED: [Object; 11] = [
    ("", "serviceaccounts", ALL, NO_RIGHT_REMEDY),
    ("", "configmaps", ALL, NO_RIGHT_REMEDY),
    ("", "secrets", ALL, NO_RIGHT_REMEDY),
    ("apps", "deployments", CONTROLLER, NO_RIGHT_REMEDY),
    (
        "batch",
        "jobs",
        CONTROLLER,
        "set `uninstall.enabled=false`, and run `staffetta uninstall` before you remove the release",
    ),
    ("networking.k8s.io", "networkpolicies", CONTROLLER, "set `networkPolicy.enabled=false`"),
    ("policy", "poddisruptionbudgets", CONTROLLER, "set `podDisruptionBudget.enabled=false`"),
    (RBAC, "roles", CONTROLLER, NO_RIGHT_REMEDY),
    (RBAC, "rolebindings", CONTROLLER, NO_RIGHT_REMEDY),
    ("", "services", &[Preset::Koupleless, Preset::Prefix], NO_SERVICE_REMEDY),
    ("apps", "daemonsets", &[Preset::Cni], NO_RIGHT_REMEDY),
];

/// The kinds of cluster-scoped objects that the chart creates.
const CLUSTER_SCOPED: [Object; 6] = [
    (RBAC, "clusterroles", ALL, NO_RIGHT_REMEDY),
    (RBAC, "clusterrolebindings", ALL, NO_RIGHT_REMEDY),
    (ADMISSION, "validatingadmissionpolicies", CONTROLLER, NO_POLICY_REMEDY),
    (ADMISSION, "validatingadmissionpolicybindings", CONTROLLER, NO_POLICY_REMEDY),
    (ADMISSION, "mutatingwebhookconfigurations", &[Preset::Prefix], "set `webhook.enabled=false`"),
    ("apiextensions.k8s.io", "customresourcedefinitions", &[Preset::Iosxe], NO_DEFINITION_REMEDY),
];

/// The API groups whose version v1 the controller uses, in addition to those of the chart's objects.
const GROUPS: [&str; 4] =
    ["coordination.k8s.io", "discovery.k8s.io", "events.k8s.io", "authorization.k8s.io"];

/// Checks the cluster before an installation in `namespace`, for `preset` or else for all presets. Adds the findings to `report`.
pub(crate) async fn check_installation(
    client: &Client,
    namespace: &str,
    preset: Option<Preset>,
    report: &mut CheckReport,
) {
    let version = "the API server answers, and is Kubernetes 1.30 or newer";
    match client.apiserver_version().await {
        Ok(info) => {
            report.add("kubernetes", [version_finding(version, &info.major, &info.minor, info.git_version)]);
        }
        Err(error) => {
            return report
                .add("kubernetes", [Finding::failed(version, causes(&error), NO_API_SERVER_REMEDY)]);
        }
    }
    let needed = |presets: &[Preset]| preset.is_none_or(|preset| presets.contains(&preset));
    report.add("kubernetes", [checked(client, "the API versions in use are served", served).await]);
    report.add("rights", rights(client, namespace, needed).await);
    let other = async |client: &Client, check: &str| other_release(client, check, role_of(preset)).await;
    report.add("cluster", [checked(client, "no other release is installed", other).await]);
    if needed(&[Preset::Iosxe]) {
        let check = "the kind CiscoDevice can be installed";
        report.add("cluster", [checked(client, check, definition).await]);
    }
    report.add("cluster", [checked(client, "Kuryr's controller does not run", kuryr).await]);
}

/// Runs the check with the title `check`, and returns its finding, which also reports an error of the API server.
async fn checked(
    client: &Client,
    check: &str,
    run: impl AsyncFnOnce(&Client, &str) -> Result<Finding, Error>,
) -> Finding {
    run(client, check).await.unwrap_or_else(|error| unread(check, &error))
}

/// Returns the finding of the check `check` if the API server returns an error: a warning if the user may not read the objects (403),
/// otherwise a failure.
fn unread(check: &str, error: &Error) -> Finding {
    match error {
        Error::Api(status) if status.code == 403 => {
            let detail = format!("not known: {}", causes(error));
            Finding::warning(check, detail, "let an administrator run this check")
        }
        _ => Finding::failed(check, causes(error), NO_API_SERVER_REMEDY),
    }
}

/// Checks that the cluster is not older than Kubernetes 1.30. A version that cannot be read passes, because vendors add suffixes such as
/// `30+`.
fn version_finding(check: &str, major: &str, minor: &str, version: String) -> Finding {
    let digits =
        |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u32>();
    match (digits(major), digits(minor)) {
        (Ok(major), Ok(minor)) if (major, minor) < (1, OLDEST_MINOR) => {
            Finding::failed(check, format!("it is {version}"), "upgrade the cluster")
        }
        _ => Finding::ok(check, version),
    }
}

/// Checks that the API server serves each API version that the manifests and the controller use.
async fn served(client: &Client, check: &str) -> Result<Finding, Error> {
    let groups = NAMESPACED.iter().chain(&CLUSTER_SCOPED).map(|(group, ..)| *group).chain(GROUPS);
    let needed: BTreeSet<_> =
        groups.map(|group| format!("{group}/v1").trim_start_matches('/').to_owned()).collect();
    let served = api_versions(client).await?;
    let missing: Vec<_> = needed.into_iter().filter(|version| !served.contains(version)).collect();
    if missing.is_empty() {
        return Ok(Finding::ok(check, ""));
    }
    let remedy = "enable them at the API server (--runtime-config)";
    Ok(Finding::failed(check, format!("these are missing: {}", missing.join(", ")), remedy))
}

/// Checks that the user may create the objects of the chart, and grant the controller its rights. `needed` returns `true` for a list of
/// presets that contains one of those to check.
async fn rights(client: &Client, namespace: &str, needed: impl Fn(&[Preset]) -> bool) -> Vec<Finding> {
    let exists = Api::<Namespace>::all(client.clone()).get_opt(namespace).await;
    let create = |namespace| {
        move |&(group, resource, _, remedy): &Object| {
            (Right { verb: "create", group, resource, namespace, name: None }, remedy)
        }
    };
    let objects = NAMESPACED.iter().filter(|object| needed(object.2)).map(create(Some(namespace)));
    let mut asked: Vec<_> = objects.collect();
    asked.extend(CLUSTER_SCOPED.iter().filter(|object| needed(object.2)).map(create(None)));
    if matches!(exists, Ok(None)) {
        let remedy = "let an administrator create the namespace";
        asked.insert(0, create(None)(&("", "namespaces", ALL, remedy)));
    }
    let escalate = Right { verb: "escalate", group: RBAC, resource: "clusterroles", ..Right::default() };
    let rights: Vec<_> = asked.iter().map(|(right, _)| *right).chain([escalate]).collect();
    let granted = match granted(client, &rights).await {
        Ok(granted) => granted,
        Err(error) => return vec![unread("you may install the chart", &error)],
    };
    let finding = |((right, remedy), granted): (&(Right<'_>, &str), &bool)| {
        let check = format!("you may create {}", right.resource_name());
        if *granted {
            return Finding::ok(check, "");
        }
        let place = right.namespace.map(|namespace| format!(" in the namespace {namespace}"));
        Finding::failed(check, format!("you may not{}", place.unwrap_or_default()), *remedy)
    };
    let unknown = exists.err().map(|error| unread(&format!("the namespace {namespace} exists"), &error));
    let mut findings: Vec<_> = unknown.into_iter().chain(asked.iter().zip(&granted).map(finding)).collect();
    let check = "you may grant the controller its rights";
    findings.push(if granted.last() == Some(&true) {
        Finding::ok(check, "")
    } else {
        let detail = "you may not `escalate` ClusterRoles, so you can grant only those rights that you have";
        Finding::warning(check, detail, NO_RIGHT_REMEDY)
    });
    findings
}

/// Returns the release that Helm noted in the annotations of an object, as `namespace/name`; `None` if Helm did not install the object.
fn release(object: &impl ResourceExt) -> Option<String> {
    let annotation = |key| object.annotations().get(key);
    let name = annotation("meta.helm.sh/release-name")?;
    Some(format!("{}/{name}", annotation("meta.helm.sh/release-namespace")?))
}

/// Returns the name of the `ClusterRole` that a release with `preset` creates. The CNI daemon and the controller are separate releases.
fn role_of(preset: Option<Preset>) -> &'static str {
    if preset == Some(Preset::Cni) { "staffetta-cni" } else { "staffetta" }
}

/// Checks that no release of the chart is installed yet, otherwise warns. A release is found by its `ClusterRole`, whose name is `name`.
async fn other_release(client: &Client, check: &str, name: &str) -> Result<Finding, Error> {
    let role = Api::<ClusterRole>::all(client.clone()).get_opt(name).await?;
    Ok(role.map_or_else(
        || Finding::ok(check, ""),
        |role| {
            let owner = release(&role)
                .map_or_else(|| "not one of Helm".to_owned(), |release| format!("the release {release}"));
            let remedy = "upgrade it: a second one would handle the same objects";
            Finding::warning(check, format!("the ClusterRole `{name}` exists already ({owner})"), remedy)
        },
    ))
}

/// Compares the custom resource definition of `CiscoDevice` in the cluster, if there is one, with that of the chart.
async fn definition(client: &Client, check: &str) -> Result<Finding, Error> {
    let ours: CustomResourceDefinition =
        serde_saphyr::from_str(DEFINITION).expect("the file is part of the program, and tested");
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let Some(found) = definitions.get_opt(&ours.name_any()).await? else { return Ok(Finding::ok(check, "")) };
    Ok(definition_finding(check, &found, &ours))
}

/// Compares the custom resource definition `found` in the cluster with `ours`. Another scope or no common version fails; a definition that
/// Helm installed with other fields, or that Helm did not install, is a warning, because the installation can replace it.
fn definition_finding(
    check: &str,
    found: &CustomResourceDefinition,
    ours: &CustomResourceDefinition,
) -> Finding {
    let of_us = &ours.spec.versions[0];
    let version = found.spec.versions.iter().find(|version| version.name == of_us.name && version.served);
    let Some(version) = version.filter(|_| found.spec.scope == ours.spec.scope) else {
        let detail =
            format!("another definition of the kind exists: {}, not {}", found.spec.scope, ours.spec.scope);
        let remedy = "delete it with its objects, or do without the handler app_hosting";
        return Finding::failed(check, detail, remedy);
    };
    match release(found) {
        Some(_) if version.schema == of_us.schema => {
            Finding::ok(check, "it exists, with the fields of this version")
        }
        Some(release) => {
            let detail = format!("the release {release} installed it with other fields");
            Finding::warning(check, detail, "nothing is to be done: the installation replaces it")
        }
        None => Finding::warning(
            check,
            "it exists already, and Helm did not install it",
            "pass `--take-ownership` to `helm install`, which replaces it; or set `crds.install=false`",
        ),
    }
}

/// Checks that no Deployment `kuryr-controller` with replicas exists in any namespace: two controllers would both write Kuryr's annotations.
async fn kuryr(client: &Client, check: &str) -> Result<Finding, Error> {
    let params = ListParams::default().fields("metadata.name=kuryr-controller").limit(10);
    let deployments = Api::<Deployment>::all(client.clone()).list(&params).await?;
    let replicas =
        |deployment: &&Deployment| deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    Ok(match deployments.iter().find(|deployment| replicas(deployment) > 0) {
        None => Finding::ok(check, ""),
        Some(deployment) => {
            let detail = format!(
                "the Deployment {}/{} runs",
                deployment.namespace().unwrap_or_default(),
                deployment.name_any()
            );
            Finding::warning(check, detail, "stop it before the controller starts, and see docs/migration.md")
        }
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Method, Request, Response, StatusCode};
    use http_body_util::BodyExt;
    use kube::client::Body;
    use serde_json::{Value, json};
    use staffetta_handler::CheckResult;

    use super::*;

    fn ours() -> CustomResourceDefinition {
        serde_saphyr::from_str(DEFINITION).unwrap()
    }

    #[test]
    fn the_objects_are_those_that_the_chart_creates() {
        for &preset in ALL {
            let name = preset.to_possible_value().unwrap().get_name().to_owned();
            let file = format!("{}/etc/deploy/manifests/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
            let mut created = BTreeSet::new();
            for object in
                serde_saphyr::from_multiple::<Value>(&std::fs::read_to_string(file).unwrap()).unwrap()
            {
                let (version, kind) =
                    (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
                let group = version.split_once('/').map_or("", |(group, _)| group).to_owned();
                let plural = kind.to_lowercase();
                let plural =
                    plural.strip_suffix('y').map_or(format!("{plural}s"), |stem| format!("{stem}ies"));
                created.insert((group, plural));
            }
            // Those of the Prometheus operator are for who asks for them, and the namespace is created if it does not exist.
            created.retain(|(group, plural)| group != "monitoring.coreos.com" && plural != "namespaces");
            // Helm keeps its releases in Secrets, and the hook before the removal is not among the manifests.
            created.insert((String::new(), "secrets".to_owned()));
            if preset != Preset::Cni {
                created.insert(("batch".to_owned(), "jobs".to_owned()));
            }
            let asked = NAMESPACED.iter().chain(&CLUSTER_SCOPED).filter(|object| object.2.contains(&preset));
            let asked: BTreeSet<_> =
                asked.map(|(group, plural, ..)| ((*group).to_owned(), (*plural).to_owned())).collect();
            assert_eq!(asked, created, "{name}");
        }
        assert_eq!(Preset::value_variants(), ALL);
    }

    /// An API server that grants every right to create objects, and answers each read with `code`, or with a `ClusterRole` of a release at
    /// the path of `role`.
    fn server(code: StatusCode, role: &'static str) -> Client {
        let answer = move |request: Request<Body>| async move {
            let (parts, body) = request.into_parts();
            let (code, document) = if parts.method == Method::POST {
                let review = body.collect().await.unwrap().to_bytes();
                let mut review: Value = serde_json::from_slice(&review).unwrap();
                review["status"] = json!({ "allowed": true });
                (StatusCode::CREATED, review)
            } else if parts.uri.path().ends_with(&format!("/clusterroles/{role}")) {
                (StatusCode::OK, json!({ "metadata": { "name": role } }))
            } else {
                let reason = code.canonical_reason().unwrap().replace(' ', "");
                let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                    "message": "the server says no", "reason": reason, "code": code.as_u16() });
                (code, status)
            };
            let body = Body::from(document.to_string().into_bytes());
            Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
        };
        Client::new(tower::service_fn(move |request| Box::pin(answer(request))), "default")
    }

    #[tokio::test]
    async fn what_the_user_may_not_read_is_not_known_and_no_failure() {
        let forbidden = server(StatusCode::FORBIDDEN, "none");
        let findings = rights(&forbidden, "relay", |_| true).await;
        assert_eq!(
            (findings[0].check.as_str(), findings[0].result),
            ("the namespace relay exists", CheckResult::Warning)
        );
        assert!(findings[0].detail.starts_with("not known: "), "{}", findings[0].detail);
        assert!(findings[1..].iter().all(|finding| finding.result == CheckResult::Ok), "{findings:?}");
        assert!(findings.iter().all(|finding| finding.check != "you may create namespaces"), "{findings:?}");
        assert_eq!(checked(&forbidden, "", kuryr).await.result, CheckResult::Warning);
        let broken = server(StatusCode::INTERNAL_SERVER_ERROR, "none");
        assert_eq!(checked(&broken, "", kuryr).await.result, CheckResult::Failed);

        let findings = rights(&server(StatusCode::NOT_FOUND, "none"), "relay", |_| true).await;
        assert_eq!(findings[0].check, "you may create namespaces");
    }

    #[tokio::test]
    async fn a_release_of_the_controller_is_no_other_release_of_the_daemon() {
        let cluster = server(StatusCode::NOT_FOUND, "staffetta");
        for (preset, result) in [
            (None, CheckResult::Warning),
            (Some(Preset::Openstack), CheckResult::Warning),
            (Some(Preset::Cni), CheckResult::Ok),
        ] {
            assert_eq!(
                other_release(&cluster, "", role_of(preset)).await.unwrap().result,
                result,
                "{preset:?}"
            );
        }
    }

    #[test]
    fn an_older_kubernetes_is_refused() {
        let result = |major, minor| version_finding("", major, minor, String::new()).result;
        assert_eq!([result("1", "29"), result("1", "29+")], [CheckResult::Failed; 2]);
        assert_eq!([result("1", "30"), result("1", "36+"), result("2", "0")], [CheckResult::Ok; 3]);
    }

    /// Makes a definition that of a release.
    fn helm(found: &mut Value) {
        found["metadata"]["annotations"] =
            json!({ "meta.helm.sh/release-name": "relay", "meta.helm.sh/release-namespace": "net" });
    }

    #[test]
    fn a_definition_that_stands_there_is_compared_with_ours() {
        let judged = |change: fn(&mut Value)| {
            let mut found = json!(ours());
            change(&mut found);
            let finding = definition_finding("", &serde_json::from_value(found).unwrap(), &ours());
            (finding.result, finding.detail + &finding.remedy)
        };
        assert_eq!(judged(helm).0, CheckResult::Ok);
        let (result, text) = judged(|_| {});
        assert!(result == CheckResult::Warning && text.contains("--take-ownership"), "{text}");
        let (result, text) = judged(|found| {
            helm(found);
            found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
                .as_object_mut()
                .unwrap()
                .remove("maxPods");
        });
        assert!(
            result == CheckResult::Warning && text.contains("the release net/relay installed it"),
            "{text}"
        );
        let changes: [fn(&mut Value); 2] = [
            |found| found["spec"]["scope"] = json!("Namespaced"),
            |found| found["spec"]["versions"][0]["name"] = json!("v1"),
        ];
        for change in changes {
            let (result, text) = judged(change);
            assert!(result == CheckResult::Failed && text.contains("another definition"), "{text}");
        }
    }
}
