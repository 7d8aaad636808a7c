//! The `MutatingWebhookConfiguration` in the cluster: the hosts that API servers call, and the certificates
//! that they trust.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, WebhookClientConfig};
use serde_json::{Value, json};

/// Returns the host names by which API servers call the webhooks of `configuration`: those of services, and those in URLs.
pub(super) fn names(configuration: &MutatingWebhookConfiguration) -> BTreeSet<String> {
    let webhooks = configuration.webhooks.iter().flatten();
    webhooks.filter_map(|webhook| name(&webhook.client_config)).collect()
}

/// Returns the host name by which API servers call one webhook; `None` if its configuration has neither a service nor a valid URL.
fn name(client: &WebhookClientConfig) -> Option<String> {
    if let Some(service) = &client.service {
        return Some(format!("{}.{}.svc", service.name, service.namespace));
    }
    let url: http::Uri = client.url.as_ref()?.parse().ok()?;
    let host = url.host()?.trim_matches(['[', ']']);
    // An IP address in the form in which certificates are read, for a comparison.
    Some(host.parse::<IpAddr>().map_or_else(|_| host.to_owned(), |ip| ip.to_string()))
}

/// Returns the certificates that API servers trust, in PEM; `None` if there are none, or different ones for several webhooks.
pub(super) fn bundle(configuration: &MutatingWebhookConfiguration) -> Option<String> {
    let webhooks = configuration.webhooks.iter().flatten();
    let mut bundles = webhooks.map(|webhook| webhook.client_config.ca_bundle.as_ref());
    let first = bundles.next()??;
    if bundles.any(|bundle| bundle != Some(first)) {
        return None;
    }
    String::from_utf8(first.0.clone()).ok()
}

/// Returns the strategic merge patch that makes API servers trust `bundle`, unless the configuration was changed meanwhile.
pub(super) fn patch(configuration: &MutatingWebhookConfiguration, bundle: &str) -> Value {
    let bundle = ByteString(bundle.as_bytes().to_vec());
    let webhooks = configuration.webhooks.iter().flatten();
    let webhooks: Vec<_> = webhooks
        .map(|webhook| json!({ "name": webhook.name, "clientConfig": { "caBundle": bundle } }))
        .collect();
    let version = &configuration.metadata.resource_version;
    json!({ "metadata": { "resourceVersion": version }, "webhooks": webhooks })
}

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;

    fn configuration(clients: &Value) -> MutatingWebhookConfiguration {
        let webhooks = clients.as_array().unwrap().iter().enumerate().map(|(number, client)| {
            json!({ "name": format!("{number}.example"), "clientConfig": client,
                "admissionReviewVersions": ["v1"], "sideEffects": "None" })
        });
        let webhooks: Vec<_> = webhooks.collect();
        from_value(json!({ "metadata": { "name": "c", "resourceVersion": "3" }, "webhooks": webhooks }))
            .unwrap()
    }

    #[test]
    fn the_names_are_those_of_services_and_the_hosts_of_urls() {
        let clients = json!([
            { "service": { "name": "hook", "namespace": "ns" } },
            { "url": "https://127.0.0.1:9443/mutate" },
            { "url": "https://[0:0:0:0:0:0:0:1]:9443/mutate" },
            { "url": "https://hook.example/mutate" },
        ]);
        let expected = ["127.0.0.1", "::1", "hook.example", "hook.ns.svc"];
        assert!(names(&configuration(&clients)).iter().eq(expected), "{:?}", names(&configuration(&clients)));
        assert!(names(&configuration(&json!([]))).is_empty());
    }

    #[test]
    fn a_bundle_counts_if_all_webhooks_have_it() {
        let of = |clients: Value| bundle(&configuration(&clients));
        assert_eq!(of(json!([{ "url": "https://a/", "caBundle": "YQ==" }])).as_deref(), Some("a"));
        assert_eq!(of(json!([{ "url": "https://a/", "caBundle": "YQ==" }, { "url": "https://b/" }])), None);
        assert_eq!(of(json!([])), None);
        let patch = patch(&configuration(&json!([{ "url": "https://a/" }])), "a");
        let webhook = json!({ "name": "0.example", "clientConfig": { "caBundle": "YQ==" } });
        assert_eq!(patch, json!({ "metadata": { "resourceVersion": "3" }, "webhooks": [webhook] }));
    }
}
