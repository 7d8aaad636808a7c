//! Signs requests (AWS Signature Version 4).

use std::time::SystemTime;

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4::SigningParams;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::ExposeSecret;

use crate::access_keys::AccessKeys;

const FORM_URLENCODED: &str = "application/x-www-form-urlencoded; charset=utf-8";

/// The reason why a request cannot be signed.
#[derive(Debug, thiserror::Error)]
#[error("sign a request: {0}")]
pub(crate) struct SignError(String);

/// The region and the service for which a signature is valid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SigningScope<'a> {
    /// The region of the service.
    pub(crate) region: &'a str,
    /// The name of the service in signatures: `ec2` or `sts`.
    pub(crate) service: &'a str,
}

/// Returns the headers that sign a `POST` of the form `body` to `url` (AWS General Reference, "Signature Version 4").
pub(crate) fn signature(
    keys: &AccessKeys,
    scope: SigningScope<'_>,
    url: &str,
    body: &str,
    now: SystemTime,
) -> Result<HeaderMap, SignError> {
    let wrong = |error: &dyn std::fmt::Display| SignError(error.to_string());
    let token = keys.token.as_ref().map(|token| token.expose_secret().to_owned());
    let secret = keys.secret.expose_secret();
    let identity = Credentials::new(&keys.id, secret, token, keys.expires, "staffetta").into();
    let parameters = SigningParams::builder().identity(&identity).region(scope.region).name(scope.service);
    let parameters =
        parameters.time(now).settings(SigningSettings::default()).build().map_err(|error| wrong(&error))?;
    let headers = [(CONTENT_TYPE.as_str(), FORM_URLENCODED)].into_iter();
    let request = SignableRequest::new("POST", url, headers, SignableBody::Bytes(body.as_bytes()));
    let signed = sign(request.map_err(|error| wrong(&error))?, &parameters.into());
    let (instructions, _) = signed.map_err(|error| wrong(&error))?.into_parts();
    let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(FORM_URLENCODED))]);
    for (name, value) in instructions.headers() {
        let name = HeaderName::try_from(name).map_err(|error| wrong(&error))?;
        let mut value = HeaderValue::try_from(value).map_err(|error| wrong(&error))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SCOPE: SigningScope<'_> = SigningScope { region: "us-east-1", service: "ec2" };

    /// The access key of the examples in the AWS documentation.
    fn keys(token: Option<&str>) -> AccessKeys {
        AccessKeys {
            id: "AKIDEXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
            token: token.map(Into::into),
            expires: None,
        }
    }

    #[test]
    fn a_request_is_signed_with_the_key_the_region_and_the_service() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_440_938_160);
        let headers =
            signature(&keys(Some("session")), SCOPE, "https://ec2.us-east-1.amazonaws.com", "Action=A", now)
                .unwrap();
        let text = |name: &str| headers[name].to_str().unwrap();
        assert_eq!(text("x-amz-date"), "20150830T123600Z");
        assert_eq!(text("x-amz-security-token"), "session");
        assert!(text("authorization").starts_with(
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/ec2/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, Signature="
        ));
        assert!(!format!("{headers:?}").contains("session"), "secrets are not shown");
        let other =
            signature(&keys(Some("session")), SCOPE, "https://ec2.us-east-1.amazonaws.com", "Action=B", now)
                .unwrap();
        assert_ne!(headers["authorization"], other["authorization"]);
    }
}
