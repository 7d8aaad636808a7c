//! The rights of the controller's account, compared with those in the chart.

use std::collections::BTreeMap;

use kube::Client;
use serde::Deserialize;
use serde_json::Value;
use staffetta_handler::{Finding, HandlerError};

use super::access::{Right, granted};

/// The file of the chart with the rights of each handler.
const RIGHTS: &str = include_str!("../../../etc/deploy/chart/files/rights.yaml");

/// The remedy for a right that is missing: the chart grants all that the enabled handlers need.
const REMEDY: &str = "install the version of the chart that belongs to this version of the program, with these handlers in its values";

/// The API group of Leases.
const LEASES: &str = "coordination.k8s.io";

/// The rights in the file of the chart, from which its templates make the roles: those of handlers by name, and those of drivers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RightsFile {
    handlers: BTreeMap<String, Vec<Rule>>,
    /// The rights of some handlers in single namespaces.
    namespaced: BTreeMap<String, Vec<NamespacedRule>>,
    /// The rights that some drivers need in addition.
    drivers: DriverRights,
}

/// The rights that only some drivers and options need. The chart grants each list under a condition of its own.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DriverRights {
    /// The rights of the pools that keep VIFs ready.
    vif_pool: Vec<Rule>,
    /// The rights of the driver of additional networks.
    multi_vif: Vec<Rule>,
    /// The rights of the drivers and options that read namespaces.
    namespaces: Vec<Rule>,
}

impl DriverRights {
    /// Returns the rules that the configuration `options` needs, by the same conditions as in the chart.
    fn rules(&self, options: &Value) -> impl Iterator<Item = &Rule> {
        let option =
            |section: &str, name: &str| options[section][name].as_str().unwrap_or_default().to_owned();
        let driver = |name: &str| option("kubernetes", name);
        let namespaces = [
            "pod_project_driver",
            "service_project_driver",
            "namespace_project_driver",
            "pod_subnets_driver",
        ];
        let of_namespaces =
            namespaces.map(driver).iter().any(|name| ["annotation", "namespace"].contains(&name.as_str()));
        let of_namespaces = of_namespaces
            || option("octavia_defaults", "member_mode") == "L2"
            || !option("kubernetes", "namespace_labels").is_empty();
        let rules = [
            (!["", "noop"].contains(&driver("vif_pool_driver").as_str()), &self.vif_pool),
            (driver("multi_vif_driver") == "npwg_multiple_interfaces", &self.multi_vif),
            (of_namespaces, &self.namespaces),
        ];
        rules.into_iter().filter(|(needed, _)| *needed).flat_map(|(_, rules)| rules)
    }
}

/// An RBAC rule that the chart grants by roles in single namespaces.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamespacedRule {
    /// The names of the namespaces; an empty name stands for the namespace of the controller.
    namespaces: Vec<String>,
    /// The option that contains further namespaces, in the configuration section of the handler.
    option: Option<String>,
    rule: Rule,
}

impl NamespacedRule {
    /// Returns the rights of the rule in each of its namespaces. `section` contains the options of the handler that needs the rule, and
    /// `own` is the namespace of the controller.
    fn rights<'a>(&'a self, section: &'a Value, own: &'a str) -> impl Iterator<Item = Right<'a>> {
        let further =
            self.option.as_ref().and_then(|option| section[option].as_array()).into_iter().flatten();
        let names = self.namespaces.iter().map(String::as_str).chain(further.filter_map(Value::as_str));
        names.flat_map(move |name| {
            let namespace = Some(if name.is_empty() { own } else { name });
            self.rule.rights().map(move |right| Right { namespace, ..right })
        })
    }
}

/// An RBAC rule, in the form that it has in a `Role`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    api_groups: Vec<String>,
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
    verbs: Vec<String>,
}

impl Rule {
    /// Returns one right for each group, resource and verb of the rule. Of several resource names, only the first is used.
    fn rights(&self) -> impl Iterator<Item = Right<'_>> {
        let name = self.resource_names.first().map(String::as_str);
        self.api_groups.iter().flat_map(move |group| {
            self.resources.iter().flat_map(move |resource| {
                let right = move |verb| Right { verb, group, resource, namespace: None, name };
                self.verbs.iter().map(move |verb| right(verb.as_str()))
            })
        })
    }
}

/// Checks that the client has the rights for the leader election (with the Lease `lease`, if there is one), for Kubernetes Events, and for
/// `handlers`. `led_options` is the configuration if the handlers run in the leader; then the rights for the cluster id, the drivers and
/// the webhook are checked, too. `namespace` is that of the Lease.
pub(crate) async fn rights_of(
    client: &Client,
    handlers: &[String],
    namespace: &str,
    lease: Option<&str>,
    led_options: Option<&Value>,
) -> Result<Vec<Finding>, HandlerError> {
    let file: RightsFile =
        serde_saphyr::from_str(RIGHTS).expect("the file is part of the program, and tested");
    let mut findings = Vec::new();
    if let Some(name) = lease {
        let lease = |verb| Right {
            verb,
            group: LEASES,
            resource: "leases",
            namespace: Some(namespace),
            name: Some(name),
        };
        let create = Right { name: None, ..lease("create") };
        let election = [create, lease("get"), lease("watch"), lease("patch")];
        findings.push(finding(client, "the leader election has its rights", &election).await?);
    }
    let events = [("create", "events.k8s.io"), ("patch", "")];
    let events = events.map(|(verb, group)| Right { verb, group, resource: "events", ..Right::default() });
    findings.push(finding(client, "Events can be written", &events).await?);
    for handler in handlers {
        let Some(rules) = file.handlers.get(handler) else { continue };
        let mut rights: Vec<_> = rules.iter().flat_map(Rule::rights).collect();
        let section = led_options.map_or(&Value::Null, |options| &options[handler]);
        let namespaced = file.namespaced.get(handler).into_iter().flatten();
        rights.extend(namespaced.flat_map(|rule| rule.rights(section, client.default_namespace())));
        findings.push(finding(client, &format!("the handler {handler} has its rights"), &rights).await?);
    }
    if let Some(options) = led_options {
        if options["kubernetes"]["cluster_id"].is_null() {
            let get =
                Right { verb: "get", resource: "namespaces", name: Some("kube-system"), ..Right::default() };
            findings.push(finding(client, "the cluster id can be read", &[get]).await?);
        }
        let rights: Vec<_> = file.drivers.rules(options).flat_map(Rule::rights).collect();
        if !rights.is_empty() {
            findings.push(finding(client, "the drivers have their rights", &rights).await?);
        }
        let rights = webhook(&options["webhook"], namespace);
        if !rights.is_empty() {
            findings.push(finding(client, "the webhook has its rights", &rights).await?);
        }
    }
    Ok(findings)
}

/// Returns the rights with which the leader maintains the certificate of the webhook; none without a webhook, or if its certificate is in
/// files.
fn webhook<'a>(options: &'a Value, namespace: &'a str) -> Vec<Right<'a>> {
    if options["listen"].is_null() || !options["certificate_file"].is_null() {
        return Vec::new();
    }
    let configuration = Right {
        group: "admissionregistration.k8s.io",
        resource: "mutatingwebhookconfigurations",
        name: options["configuration_name"].as_str(),
        ..Right::default()
    };
    let secret = Right {
        resource: "secrets",
        namespace: Some(namespace),
        name: options["secret_name"].as_str(),
        ..Right::default()
    };
    let verbs = |right| ["list", "watch", "patch"].map(|verb| Right { verb, ..right });
    [configuration, secret].into_iter().flat_map(verbs).collect()
}

/// Asks the API server for each of `rights`. Returns the finding of the check `check`, which fails if a right is missing.
async fn finding(client: &Client, check: &str, rights: &[Right<'_>]) -> Result<Finding, HandlerError> {
    let granted = granted(client, rights).await?;
    let missing = rights.iter().zip(granted).filter(|(_, granted)| !granted);
    let text = |(right, _): (&Right<'_>, bool)| {
        let place = right.namespace.map(|namespace| format!(" in {namespace}")).unwrap_or_default();
        format!("{} {}{place}", right.verb, right.resource_name())
    };
    let missing: Vec<_> = missing.map(text).collect();
    Ok(match missing.as_slice() {
        [] => Finding::ok(check, ""),
        missing => Finding::failed(check, format!("it may not {}", missing.join(", ")), REMEDY),
    })
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use http_body_util::BodyExt;
    use kube::client::Body;
    use serde_json::{Value, json};
    use staffetta_handler::CheckResult;

    use super::*;

    /// An API server that grants every right except to patch something.
    fn server() -> Client {
        let answer = async |request: Request<Body>| {
            let review = request.into_body().collect().await.unwrap().to_bytes();
            let mut review: Value = serde_json::from_slice(&review).unwrap();
            review["status"] = json!({ "allowed": review["spec"]["resourceAttributes"]["verb"] != "patch" });
            Ok::<_, std::convert::Infallible>(Response::new(Body::from(review.to_string().into_bytes())))
        };
        Client::new(tower::service_fn(move |request| Box::pin(answer(request))), "default")
    }

    #[tokio::test]
    async fn the_rights_that_are_missing_are_named_with_the_remedy() {
        let handlers = ["vif", "policy", "a handler of somebody else"].map(str::to_owned);
        let findings = rights_of(&server(), &handlers, "relay", Some("staffetta"), None).await.unwrap();
        let reported =
            findings.iter().map(|finding| (finding.check.as_str(), finding.result, finding.detail.as_str()));
        let expected = [
            (
                "the leader election has its rights",
                CheckResult::Failed,
                "it may not patch leases.coordination.k8s.io in relay",
            ),
            ("Events can be written", CheckResult::Failed, "it may not patch events"),
            ("the handler vif has its rights", CheckResult::Failed, "it may not patch pods"),
            ("the handler policy has its rights", CheckResult::Ok, ""),
        ];
        assert_eq!(reported.collect::<Vec<_>>(), expected);
        assert_eq!(findings[0].remedy, REMEDY);
    }

    #[tokio::test]
    async fn the_leader_asks_for_the_rights_of_its_drivers_and_of_its_webhook() {
        let found = async |options: Value| {
            let findings = rights_of(&server(), &[], "relay", None, Some(&options)).await.unwrap();
            findings[1..]
                .iter()
                .map(|finding| (finding.check.clone(), finding.detail.clone()))
                .collect::<Vec<_>>()
        };
        let webhook = json!({ "listen": "[::]:9443", "configuration_name": "hook", "secret_name": "hook" });
        let of_webhook = "it may not patch mutatingwebhookconfigurations.admissionregistration.k8s.io, patch secrets in relay";
        let expected = [("the drivers have their rights", ""), ("the webhook has its rights", of_webhook)];
        let options = json!({ "kubernetes": { "cluster_id": "east", "vif_pool_driver": "neutron" }, "webhook": webhook });
        assert_eq!(
            found(options).await,
            expected.map(|(check, detail)| (check.to_owned(), detail.to_owned()))
        );
        assert_eq!(
            found(
                json!({ "kubernetes": { "cluster_id": "east", "vif_pool_driver": "noop" }, "webhook": {} })
            )
            .await,
            []
        );
    }

    #[tokio::test]
    async fn the_accounts_of_devices_are_read_where_the_options_say() {
        let server = tower::service_fn(|request: Request<Body>| {
            Box::pin(async move {
                let review = request.into_body().collect().await.unwrap().to_bytes();
                let mut review: Value = serde_json::from_slice(&review).unwrap();
                review["status"] =
                    json!({ "allowed": review["spec"]["resourceAttributes"]["resource"] != "secrets" });
                Ok::<_, std::convert::Infallible>(Response::new(Body::from(review.to_string().into_bytes())))
            })
        });
        let options = json!({ "app_hosting": { "secret_namespaces": ["tenant"] } });
        let handlers = ["app_hosting".to_owned()];
        let client = Client::new(server, "default");
        let findings = rights_of(&client, &handlers, "relay", None, Some(&options)).await.unwrap();
        let reported = findings[1..].iter().map(|finding| (finding.check.as_str(), finding.detail.as_str()));
        let expected = [
            (
                "the handler app_hosting has its rights",
                "it may not get secrets in default, get secrets in tenant",
            ),
            ("the cluster id can be read", ""),
        ];
        assert_eq!(reported.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn drivers_need_the_rights_that_the_chart_gives_them() {
        let file: RightsFile = serde_saphyr::from_str(RIGHTS).unwrap();
        let resources = |section: &str, name: &str, value: &str| {
            let options = json!({ section: { name: value } });
            file.drivers.rules(&options).flat_map(Rule::rights).map(|right| right.resource_name()).next()
        };
        let namespaces = Some("namespaces".to_owned());
        assert_eq!(resources("kubernetes", "vif_pool_driver", "nested"), Some("nodes".to_owned()));
        let networks = "network-attachment-definitions.k8s.cni.cncf.io".to_owned();
        assert_eq!(resources("kubernetes", "multi_vif_driver", "npwg_multiple_interfaces"), Some(networks));
        assert_eq!(resources("kubernetes", "pod_subnets_driver", "namespace"), namespaces);
        assert_eq!(resources("kubernetes", "service_project_driver", "annotation"), namespaces);
        assert_eq!(resources("octavia_defaults", "member_mode", "L2"), namespaces);
        assert_eq!(resources("kubernetes", "namespace_labels", "team=net"), namespaces);
        assert_eq!(resources("octavia_defaults", "member_mode", "L3"), None);
        assert_eq!(resources("kubernetes", "pod_project_driver", "default"), None);
    }

    #[test]
    fn the_rights_of_the_chart_can_be_read() {
        let file: RightsFile = serde_saphyr::from_str(RIGHTS).unwrap();
        let rights: Vec<_> = file.handlers["vif"].iter().flat_map(Rule::rights).collect();
        let right = |verb| Right { verb, resource: "pods", ..Right::default() };
        assert_eq!(rights, ["list", "watch", "patch"].map(right));
        let named = file.handlers["prefix_ip"].iter().flat_map(Rule::rights).last().unwrap();
        assert_eq!((named.resource, named.name), ("configmaps", Some("amazon-vpc-cni")));
        let scale = file.handlers["peer_deployment"].iter().flat_map(Rule::rights).last().unwrap();
        assert_eq!(scale.resource_name(), "deployments.apps/scale");
    }
}
