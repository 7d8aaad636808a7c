//! The service catalogue of a cloud, which contains the endpoints of its services.

use reqwest::Url;
use serde::Deserialize;

use crate::access::EndpointInterface;

/// The maximum number of endpoints that an error message names.
const MAX_NAMED: usize = 20;

/// The service catalogue that Keystone returns with a token.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct Catalogue(Vec<CatalogueService>);

/// A service in the catalogue, with its endpoints.
#[derive(Clone, Debug, Deserialize)]
struct CatalogueService {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    endpoints: Vec<Endpoint>,
}

/// An endpoint of a service: one URL for one interface and region.
#[derive(Clone, Debug, Deserialize)]
struct Endpoint {
    interface: String,
    /// The id of the region. Older catalogues contain only `region`.
    region_id: Option<String>,
    region: Option<String>,
    url: String,
}

impl Endpoint {
    /// Returns the region of the endpoint, from the field of newer or of older catalogues; empty if it has none.
    fn region(&self) -> &str {
        self.region_id.as_deref().or(self.region.as_deref()).unwrap_or_default()
    }
}

impl Catalogue {
    /// Returns the URL of the first endpoint of the service type `kind` with this interface, in this region if one is given. Without such
    /// an endpoint, the error is a message that names up to 20 existing endpoints.
    pub(crate) fn url(
        &self,
        kind: &str,
        interface: EndpointInterface,
        region: Option<&str>,
    ) -> Result<Url, String> {
        let interface = interface.as_str();
        let services = self.0.iter().filter(|service| service.kind == kind);
        let found = services.flat_map(|service| &service.endpoints).find(|endpoint| {
            endpoint.interface == interface && region.is_none_or(|region| endpoint.region() == region)
        });
        let wanted = match region {
            Some(region) => format!("`{kind}` with the interface `{interface}` in the region `{region}`"),
            None => format!("`{kind}` with the interface `{interface}`"),
        };
        let Some(endpoint) = found else {
            return Err(format!("the catalogue of the cloud has no {wanted}; it has {}", self.endpoints()));
        };
        let http = |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host();
        let url = Url::parse(&endpoint.url).ok().filter(http);
        url.ok_or_else(|| format!("the catalogue of the cloud has no usable URL for {wanted}"))
    }

    /// Returns a text that names up to 20 endpoints by service type, interface and region, for an error message.
    fn endpoints(&self) -> String {
        let names = self.0.iter().flat_map(|service| {
            let name = |endpoint: &Endpoint| {
                format!("{} ({} in {})", service.kind, endpoint.interface, endpoint.region())
            };
            service.endpoints.iter().map(name)
        });
        let mut names: Vec<_> = names.collect();
        names.sort();
        names.dedup();
        let more = names.len().saturating_sub(MAX_NAMED);
        names.truncate(MAX_NAMED);
        match (names.is_empty(), more) {
            (true, _) => "no endpoints; is the user a member of the project?".to_owned(),
            (false, 0) => names.join(", "),
            (false, more) => format!("{} and {more} more", names.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn catalogue() -> Catalogue {
        let endpoint = |interface: &str, region: &str, url: &str| json!({ "interface": interface, "region": region, "region_id": region, "url": url, "id": "e" });
        serde_json::from_value(json!([
            { "type": "identity", "name": "keystone", "id": "s1", "endpoints": [
                endpoint("public", "One", "http://k"), endpoint("internal", "One", "http://k-in")] },
            { "type": "network", "name": "neutron", "id": "s2", "endpoints": [
                endpoint("internal", "One", "http://one-in"), endpoint("public", "One", "http://one"),
                endpoint("public", "Two", "http://two"), endpoint("admin", "Two", "nonsense")] },
            { "type": "metric", "name": "empty", "id": "s3" },
        ]))
        .unwrap()
    }

    fn url(interface: EndpointInterface, region: Option<&str>) -> Result<String, String> {
        catalogue().url("network", interface, region).map(|url| url.to_string())
    }

    #[test]
    fn a_url_is_found_by_type_interface_and_region() {
        assert_eq!(url(EndpointInterface::Public, None).as_deref(), Ok("http://one/"));
        assert_eq!(url(EndpointInterface::Public, Some("Two")).as_deref(), Ok("http://two/"));
        assert_eq!(url(EndpointInterface::Internal, Some("One")).as_deref(), Ok("http://one-in/"));
    }

    #[test]
    fn what_is_missing_is_reported_with_what_there_is() {
        let error = url(EndpointInterface::Internal, Some("Two")).unwrap_err();
        let expected = "the catalogue of the cloud has no `network` with the interface `internal` in the region `Two`; \
            it has identity (internal in One), identity (public in One), network (admin in Two), \
            network (internal in One), network (public in One), network (public in Two)";
        assert_eq!(error, expected);
        let error = catalogue().url("load-balancer", EndpointInterface::Public, None).unwrap_err();
        assert!(
            error.starts_with(
                "the catalogue of the cloud has no `load-balancer` with the interface `public`;"
            )
        );
        let error = url(EndpointInterface::Admin, Some("Two")).unwrap_err();
        assert!(error.contains("no usable URL"), "{error}");
        let nothing = Catalogue::default().url("network", EndpointInterface::Public, None).unwrap_err();
        assert!(nothing.contains("no endpoints"), "{nothing}");
    }
}
