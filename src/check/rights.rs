//! The rights of the controller's account, compared with those in the chart.

use std::collections::BTreeMap;

use kube::Client;
use serde::Deserialize;
use staffetta_handler::{Finding, HandlerError};

use super::access::{Right, granted};

/// The file of the chart with the rights of each handler.
const RIGHTS: &str = include_str!("../../etc/deploy/chart/files/rights.yaml");

const REMEDY: &str = "install the version of the chart that belongs to this version of the program, with these handlers in its values";

#[derive(Deserialize)]
struct RightsFile {
    handlers: BTreeMap<String, Vec<Rule>>,
    /// The verbs for Leases in the namespace kube-node-lease.
    node_leases: BTreeMap<String, Vec<String>>,
}

/// A rule of a cluster role.
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

/// Checks that the client has the rights of the leader election (with the Lease `lease`, if there is one), of the reports, and of `handlers`.
pub(crate) async fn rights_of(
    client: &Client,
    handlers: &[String],
    lease: Option<(&str, &str)>,
) -> Result<Vec<Finding>, HandlerError> {
    let file: RightsFile =
        serde_saphyr::from_str(RIGHTS).expect("the file is part of the program, and tested");
    let mut findings = Vec::new();
    if let Some((namespace, name)) = lease {
        let group = "coordination.k8s.io";
        let lease =
            |verb| Right { verb, group, resource: "leases", namespace: Some(namespace), name: Some(name) };
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
        let (group, namespace) = ("coordination.k8s.io", Some("kube-node-lease"));
        let of_leases = file.node_leases.get(handler).into_iter().flatten();
        rights.extend(of_leases.map(|verb| Right { verb, group, resource: "leases", namespace, name: None }));
        findings.push(finding(client, &format!("the handler {handler} has its rights"), &rights).await?);
    }
    Ok(findings)
}

/// Asks for each of `rights`.
async fn finding(client: &Client, check: &str, rights: &[Right<'_>]) -> Result<Finding, HandlerError> {
    let granted = granted(client, rights).await?;
    let missing = rights.iter().zip(granted).filter(|(_, granted)| !granted);
    let missing: Vec<_> =
        missing.map(|(right, _)| format!("{} {}", right.verb, right.resource_name())).collect();
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
        let findings = rights_of(&server(), &handlers, Some(("relay", "staffetta"))).await.unwrap();
        let told =
            findings.iter().map(|finding| (finding.check.as_str(), finding.result, finding.detail.as_str()));
        let expected = [
            (
                "the leader election has its rights",
                CheckResult::Failed,
                "it may not patch leases.coordination.k8s.io",
            ),
            ("Events can be written", CheckResult::Failed, "it may not patch events"),
            ("the handler vif has its rights", CheckResult::Failed, "it may not patch pods"),
            ("the handler policy has its rights", CheckResult::Ok, ""),
        ];
        assert_eq!(told.collect::<Vec<_>>(), expected);
        assert_eq!(findings[0].remedy, REMEDY);
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
