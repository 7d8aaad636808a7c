//! Discovery of the API root (RFC 8040, section 3.1).

use reqwest::header::ACCEPT;
use reqwest::{StatusCode, Url};
use staffetta_driver::{DriverError, Reason};
use tracing::debug;

use super::Restconf;
use super::error_response::ErrorResponse;
use crate::model::quote::quoted;

/// The discovery of the API root, as errors name it.
const STEP: &str = "find the API of the device";

/// The API root of devices without a `/.well-known/host-meta` document.
const DEFAULT_ROOT: &str = "/restconf";

impl Restconf {
    /// Returns the path of the API root without a slash at the end: the one in the host-meta document of the device, or `/restconf` if
    /// there is no document. Returns an error if the device does not answer or answers with an error, if the document has no link, or
    /// if the link has another scheme, host or port: the password must not be sent there.
    pub(super) async fn discover(&self) -> Result<String, DriverError> {
        let url_of_host_meta = self.base.join("/.well-known/host-meta").expect("it is a path");
        let request = self.http.get(url_of_host_meta).header(ACCEPT, "application/xrd+xml");
        let (status, body) = self.send(request, STEP, false).await?;
        match status {
            StatusCode::NOT_FOUND => Ok(DEFAULT_ROOT.to_owned()),
            status if status.is_success() => self.root_in(&String::from_utf8_lossy(&body)),
            status => Err(ErrorResponse::read(status, &body).fault(STEP, false).into()),
        }
    }

    /// Returns the path of the API root that the host-meta document `document` links to. Returns an error if there is no such link, or if
    /// it has another scheme, host or port than the device.
    fn root_in(&self, document: &str) -> Result<String, DriverError> {
        let unknown = |detail: &str| DriverError::new(Reason::Unavailable, STEP).detail(detail);
        let link =
            link(document).ok_or_else(|| unknown("it names no link `restconf` in /.well-known/host-meta"))?;
        // The password goes to the device that was described, and to no other.
        let url = self.base.join(&link).ok().filter(|url| origin(url) == origin(&self.base));
        let url = url.ok_or_else(|| {
            debug!(link = quoted(&link), "the device names an unusable link to its API");
            unknown("its link `restconf` in /.well-known/host-meta has another scheme, host or port")
        })?;
        Ok(url.path().trim_end_matches('/').to_owned())
    }
}

/// Returns the parts of a URL that identify its server: scheme, host and port.
fn origin(url: &Url) -> (&str, Option<&str>, Option<u16>) {
    (url.scheme(), url.host_str(), url.port_or_known_default())
}

/// Returns the target of the link `restconf` in an XRD document (XML), with any order and quotes of its attributes; `None` if there is
/// none.
fn link(document: &str) -> Option<String> {
    let elements = document.split('<').filter_map(|element| {
        let element = element.split('>').next()?.trim_end_matches('/');
        let rest =
            element.strip_prefix("Link").or_else(|| element.split_once(":Link").map(|(_, rest)| rest))?;
        rest.starts_with(char::is_whitespace).then_some(rest)
    });
    let mut links = elements.filter(|attributes| attribute(attributes, "rel") == Some("restconf"));
    links.find_map(|attributes| attribute(attributes, "href")).map(str::to_owned)
}

/// Returns the value of an attribute in the attributes of an XML element; `None` if there is none.
fn attribute<'a>(attributes: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = attributes;
    loop {
        let (key, after) = rest.split_once('=')?;
        let after = after.trim_start();
        let quote = after.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
        let (value, next) = after[1..].split_once(quote)?;
        if key.trim() == name {
            return Some(value.trim());
        }
        rest = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_is_found_in_every_way_of_writing_it() {
        for document in [
            "<?xml version='1.0'?><XRD xmlns='http://docs.oasis-open.org/ns/xri/xrd-1.0'>\n<Link rel='restconf' href='/api'/></XRD>",
            r#"<XRD><Link rel="other" href="/no"/><Link href="/api" rel="restconf" /></XRD>"#,
            "<x:XRD><x:Link\n  rel = \"restconf\"\n  href = \"/api\"></x:Link></x:XRD>",
        ] {
            assert_eq!(link(document).as_deref(), Some("/api"), "{document}");
        }
        for document in [
            "",
            "<XRD/>",
            "<Link>",
            "<Link rel=restconf>",
            "<Links rel='restconf' href='/a'/>",
            "<Link rel='restconf'/>",
        ] {
            assert_eq!(link(document), None, "{document}");
        }
    }
}
