//! Limits of what a `CiscoDevice` may specify. Devices in the configuration and in files have no such limits: administrators write those.

use std::net::IpAddr;
use std::path::{Component, Path};

use ipnet::IpNet;

use super::device::DeviceDescription;
use super::options::AppHostingOptions;
use crate::node::is_subdomain;

impl AppHostingOptions {
    /// Returns a message about the first field of a `CiscoDevice` that is not allowed, with its path and the option that forbids it; `None`
    /// if all are allowed. A password is never allowed, and neither is a label in a domain of Kubernetes.
    pub(super) fn forbidden(&self, spec: &DeviceDescription) -> Option<String> {
        if spec.password.is_some() {
            return Some(
                "password: everyone who reads the object would see it; put it into a Secret that `credentialSecretRef` names"
                    .to_owned(),
            );
        }
        let address = spec.address.trim_matches(['[', ']']);
        if !self.allowed_addresses.iter().any(|allowed| covers(allowed, address)) {
            return Some(format!("address: `{address}` is not in `app_hosting.allowed_addresses`"));
        }
        let is_allowed = |key: &str| {
            !is_reserved(key)
                && self.allowed_label_prefixes.iter().any(|prefix| key.starts_with(prefix.as_str()))
        };
        if let Some(key) = spec.labels.keys().find(|key| !is_allowed(key)) {
            return Some(format!("labels: `{key}` is not allowed by `app_hosting.allowed_label_prefixes`"));
        }
        let tls = &spec.tls;
        let files = [("caFile", &tls.ca_file), ("certFile", &tls.cert_file), ("keyFile", &tls.key_file)];
        let is_outside = |file: &Path| {
            !self.certificate_folder.as_ref().is_some_and(|folder| file.starts_with(folder))
                || file.components().any(|part| part == Component::ParentDir)
        };
        let (key, _) = files.into_iter().find(|(_, file)| file.as_deref().is_some_and(is_outside))?;
        Some(format!("tls.{key}: the file is not in `app_hosting.certificate_folder`"))
    }

    /// Returns a message about the first invalid entry of `allowed_addresses` or `allowed_label_prefixes`; `None` if there is none.
    pub(super) fn invalid_entry(&self) -> Option<String> {
        let is_invalid = |entry: &&String| {
            network(entry).is_none() && !is_subdomain(entry.strip_prefix('.').unwrap_or(entry))
        };
        if let Some(entry) = self.allowed_addresses.iter().find(is_invalid) {
            return Some(format!(
                "`app_hosting.allowed_addresses`: `{entry}` is not an address, a network such as `192.0.2.0/24`, a host name, or a domain such as `.example.com`"
            ));
        }
        let entry = self.allowed_label_prefixes.iter().find(|prefix| is_reserved(prefix))?;
        Some(format!("`app_hosting.allowed_label_prefixes`: `{entry}` is reserved to the cluster; remove it"))
    }
}

/// Returns `true` if `entry`, a network, an address, a host name or a domain with a leading dot, contains `address`.
fn covers(entry: &str, address: &str) -> bool {
    match (network(entry), address.parse::<IpAddr>()) {
        (Some(network), Ok(address)) => network.contains(&address.to_canonical()),
        (None, Err(_)) => {
            let name = address.to_ascii_lowercase();
            is_subdomain(&name) && (name == entry || entry.starts_with('.') && name.ends_with(entry))
        }
        _ => false,
    }
}

/// Parses an IP network, or an IP address as a network that contains only this address; `None` for any other text.
fn network(entry: &str) -> Option<IpNet> {
    entry.parse().ok().or_else(|| Some(entry.parse::<IpAddr>().ok()?.into()))
}

/// Returns `true` if the domain of a label key is one of Kubernetes, such as `node-role.kubernetes.io`.
fn is_reserved(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    ["kubernetes.io", "k8s.io"]
        .iter()
        .any(|own| domain.strip_suffix(own).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn options() -> AppHostingOptions {
        serde_json::from_value(json!({
            "allowed_addresses": ["192.0.2.0/24", "2001:db8::1", "r1.example.org", ".example.com"],
            "allowed_label_prefixes": ["rack", "node"],
            "certificate_folder": "/run/devices",
        }))
        .unwrap()
    }

    fn forbidden(options: &AppHostingOptions, spec: Value) -> Option<String> {
        options.forbidden(&serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn a_custom_resource_may_name_the_listed_addresses_only() {
        for address in ["192.0.2.7", "::ffff:192.0.2.7", "[2001:db8::1]", "R1.example.org", "a.b.example.com"]
        {
            assert_eq!(forbidden(&options(), json!({ "address": address })), None, "{address}");
        }
        for address in [
            "",
            "192.0.3.7",
            "127.0.0.1",
            "::1",
            "2001:db8::2",
            "example.com",
            "r1.example.org.evil.net",
            "evilexample.com",
            "evil.net/.example.com",
            "evil.net#.example.com",
            "a@evil.net?.example.com",
            "3221225991",
            "192.0.2.7.",
        ] {
            let message = forbidden(&options(), json!({ "address": address })).unwrap();
            assert!(
                message.contains("address: ") && message.contains("app_hosting.allowed_addresses"),
                "{message}"
            );
        }
        let none = AppHostingOptions::default();
        assert!(forbidden(&none, json!({ "address": "192.0.2.7" })).is_some(), "none is allowed by default");
    }

    #[test]
    fn a_custom_resource_contains_no_password() {
        let message =
            forbidden(&options(), json!({ "address": "192.0.2.7", "password": "hunter2" })).unwrap();
        assert!(message.starts_with("password: ") && message.contains("credentialSecretRef"), "{message}");
        assert!(!message.contains("hunter2"), "{message}");
    }

    #[test]
    fn a_custom_resource_may_set_the_listed_labels_but_none_of_kubernetes() {
        let labelled = |key: &str| json!({ "address": "192.0.2.7", "labels": { key: "x" } });
        assert_eq!(forbidden(&options(), labelled("rack")), None);
        assert_eq!(forbidden(&options(), labelled("node.example.com/row")), None);
        for key in [
            "row",
            "node-role.kubernetes.io/control-plane",
            "node-restriction.kubernetes.io/tenant",
            "node.kubernetes.io/x",
        ] {
            let message = forbidden(&options(), labelled(key)).unwrap();
            assert!(message.starts_with(&format!("labels: `{key}` is not allowed")), "{message}");
        }
        assert!(forbidden(&AppHostingOptions::default(), labelled("rack")).is_some());
    }

    #[test]
    fn a_custom_resource_names_files_of_the_folder_of_certificates_only() {
        let with = |key: &str, file: &str| json!({ "address": "192.0.2.7", "tls": { key: file } });
        assert_eq!(forbidden(&options(), with("caFile", "/run/devices/ca.crt")), None);
        for (key, file) in [
            ("caFile", "/etc/shadow"),
            ("certFile", "/run/devices/../x"),
            ("keyFile", "ca.crt"),
            ("caFile", "/run/devices-2/ca.crt"),
        ] {
            let message = forbidden(&options(), with(key, file)).unwrap();
            assert_eq!(message, format!("tls.{key}: the file is not in `app_hosting.certificate_folder`"));
        }
        let no_folder = AppHostingOptions { certificate_folder: None, ..options() };
        assert!(forbidden(&no_folder, with("caFile", "/run/devices/ca.crt")).is_some());
    }

    #[test]
    fn an_entry_of_a_list_that_allows_nothing_or_too_much_is_named() {
        assert_eq!(options().invalid_entry(), None);
        for (list, entry) in [
            ("allowed_addresses", "192.0.2.0/33"),
            ("allowed_addresses", "*.example.com"),
            ("allowed_addresses", ""),
            ("allowed_label_prefixes", "node-role.kubernetes.io/"),
            ("allowed_label_prefixes", "kubernetes.io/"),
        ] {
            let options: AppHostingOptions = serde_json::from_value(json!({ list: [entry] })).unwrap();
            let message = options.invalid_entry().unwrap();
            assert!(message.contains(list) && message.contains(&format!("`{entry}`")), "{message}");
        }
    }
}
