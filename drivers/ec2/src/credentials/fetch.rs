//! Obtains access keys from their source.

use std::path::Path;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Client, RequestBuilder};
use secrecy::SecretString;
use serde::Deserialize;
use staffetta_driver::{DriverError, Reason};

use super::{AccessKeys, CredentialSource, read_profile};
use crate::body::read_body;
use crate::environment::url_of;
use crate::responses::{AssumeRole, Ec2ErrorResponse, RoleCredentials};

const STEP: &str = "obtain the AWS credentials";
/// The time limit of a request to the metadata service, which is on the same host.
const METADATA_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit of a request to STS.
const STS_TIMEOUT: Duration = Duration::from_secs(20);
/// The lifetime of a session of the metadata service, in seconds.
const METADATA_SESSION: HeaderValue = HeaderValue::from_static("300");
const METADATA_TTL: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token-ttl-seconds");
const METADATA_TOKEN: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token");

/// Obtains access keys. It follows no redirects.
pub(super) struct CredentialFetch {
    region: String,
    /// The client for hosts of the Internet.
    client: Client,
    /// The client for this host, without a proxy.
    local: Client,
}

/// The keys in the form of the metadata service and of the agents of containers.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AgentCredentials {
    access_key_id: String,
    secret_access_key: String,
    token: String,
    expiration: String,
}

impl CredentialFetch {
    pub(super) fn new(region: &str, (client, local): (Client, Client)) -> Self {
        Self { region: region.to_owned(), client, local }
    }

    /// Obtains the keys. Errors contain no secret.
    pub(super) async fn keys(&self, source: &CredentialSource) -> Result<AccessKeys, DriverError> {
        match source {
            CredentialSource::Fixed(keys) => Ok(keys.clone()),
            CredentialSource::Profile(files) => {
                let profile = read_profile(files).map_err(|error| refused(error.to_string()))?;
                profile
                    .keys
                    .ok_or_else(|| refused(format!("the AWS profile `{}` has no access key", files.name)))
            }
            CredentialSource::WebIdentity { role, token_file, session, endpoint } => {
                let endpoint = endpoint.clone().unwrap_or_else(|| url_of("sts", &self.region));
                self.assume_role(&endpoint, role, session, &read_token(token_file)?).await
            }
            CredentialSource::Container { url, token_file } => {
                let mut request = self.local.get(url);
                if let Some(file) = token_file {
                    request = request.header(AUTHORIZATION, sensitive(&read_token(file)?)?);
                }
                agent_keys(&text(request, METADATA_TIMEOUT).await?)
            }
            CredentialSource::Instance { endpoint } => self.of_instance(endpoint).await,
        }
    }

    /// Exchanges the token of a service account for the keys of a role. The request is not signed (AWS STS API Reference,
    /// `AssumeRoleWithWebIdentity`).
    async fn assume_role(
        &self,
        endpoint: &str,
        role: &str,
        session: &str,
        token: &str,
    ) -> Result<AccessKeys, DriverError> {
        let body = form_urlencoded::Serializer::new(String::new())
            .append_pair("Action", "AssumeRoleWithWebIdentity")
            .append_pair("Version", "2011-06-15")
            .append_pair("RoleArn", role)
            .append_pair("RoleSessionName", session)
            .append_pair("WebIdentityToken", token)
            .finish();
        let request = self.client.post(endpoint).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let response = text(request.body(body), STS_TIMEOUT).await?;
        let response: AssumeRole = quick_xml::de::from_str(&response).map_err(|_| malformed())?;
        let RoleCredentials { access_key_id: id, secret_access_key, session_token, expiration } =
            response.assume_role_with_web_identity_result.credentials;
        Ok(AccessKeys {
            id,
            secret: secret_access_key.into(),
            token: Some(session_token.into()),
            expires: Some(time(&expiration)?),
        })
    }

    /// Reads the keys of the instance's role with a session, as version 2 of the metadata service requires.
    async fn of_instance(&self, endpoint: &str) -> Result<AccessKeys, DriverError> {
        const ROLES: &str = "latest/meta-data/iam/security-credentials/";
        let request =
            self.local.put(format!("{endpoint}/latest/api/token")).header(METADATA_TTL, METADATA_SESSION);
        let session = sensitive(text(request, METADATA_TIMEOUT).await?.trim())?;
        let get = |path: &str| {
            let request =
                self.local.get(format!("{endpoint}/{path}")).header(METADATA_TOKEN, session.clone());
            text(request, METADATA_TIMEOUT)
        };
        let roles = get(ROLES).await?;
        let role = roles.lines().next().map(str::trim).filter(|role| !role.is_empty());
        let role =
            role.ok_or_else(|| refused("the instance has no role; give it one, or configure access keys"))?;
        agent_keys(&get(&format!("{ROLES}{role}")).await?)
    }
}

/// Sends a request and returns the body of a successful response.
async fn text(request: RequestBuilder, limit: Duration) -> Result<String, DriverError> {
    let unavailable = |error: reqwest::Error| {
        // The URL of a request to STS or an agent contains no secret, but a proxy's may.
        DriverError::new(Reason::Unavailable, STEP).because(error.without_url())
    };
    let response = request.timeout(limit).send().await.map_err(unavailable)?;
    let status = response.status();
    let body = read_body(response)
        .await
        .map_err(|error| DriverError::new(Reason::Unavailable, STEP).detail(error))?;
    if status.is_success() {
        return Ok(body);
    }
    let reason = if status.is_server_error() || status.as_u16() == 429 {
        Reason::Unavailable
    } else {
        Reason::Refused
    };
    let Ec2ErrorResponse { code, message, .. } = Ec2ErrorResponse::parse(&body);
    let detail = if code.is_empty() { String::new() } else { format!(": {code}: {message}") };
    Err(DriverError::new(reason, STEP).detail(format!("HTTP status {}{detail}", status.as_u16())))
}

fn agent_keys(body: &str) -> Result<AccessKeys, DriverError> {
    // An error of serde_json names the place, and quotes no value of a string field.
    let keys: AgentCredentials = serde_json::from_str(body).map_err(|_| malformed())?;
    Ok(AccessKeys {
        id: keys.access_key_id,
        secret: keys.secret_access_key.into(),
        token: Some(SecretString::from(keys.token)),
        expires: Some(time(&keys.expiration)?),
    })
}

fn time(text: &str) -> Result<SystemTime, DriverError> {
    text.parse::<Timestamp>().map(SystemTime::from).map_err(|_| malformed())
}

/// Reads a token, which is replaced from time to time.
fn read_token(path: &Path) -> Result<String, DriverError> {
    let token = std::fs::read_to_string(path).map_err(|error| {
        DriverError::new(Reason::Unavailable, STEP)
            .detail(format!("cannot read {}", path.display()))
            .because(error)
    })?;
    Ok(token.trim().to_owned())
}

fn sensitive(token: &str) -> Result<HeaderValue, DriverError> {
    let mut value = HeaderValue::from_str(token).map_err(|_| malformed())?;
    value.set_sensitive(true);
    Ok(value)
}

fn refused(detail: impl Into<String>) -> DriverError {
    DriverError::new(Reason::Refused, STEP).detail(detail)
}

fn malformed() -> DriverError {
    DriverError::new(Reason::Unavailable, STEP).detail("the response does not contain credentials")
}
