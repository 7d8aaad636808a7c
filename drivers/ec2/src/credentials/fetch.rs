//! Obtains access keys from their source.

use std::path::Path;
use std::time::{Duration, SystemTime};

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Client, RequestBuilder};
use staffetta_driver::{DriverError, Reason};

use super::resolve::{AssumedRole, ResolvedProfile, resolve};
use super::{CredentialSource, DirectSource, STEP, malformed, process};
use crate::access_keys::AccessKeys;
use crate::body::read_body;
use crate::environment::service_url;
use crate::responses::{AssumeRole, Ec2ErrorResponse};
use crate::signature::{SigningScope, signature};

/// The time limit of a request to the metadata service or a credentials agent, which are on the same host or link.
const METADATA_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit of a request to STS.
const STS_TIMEOUT: Duration = Duration::from_secs(20);
/// The version of the STS API, which each request names.
const STS_VERSION: &str = "2011-06-15";
/// The lifetime of a session of the metadata service, in seconds. A new session is opened each time the keys are read.
const METADATA_SESSION: HeaderValue = HeaderValue::from_static("300");
/// The header with the lifetime that a session of the metadata service shall have (EC2 User Guide, "Use `IMDSv2`").
const METADATA_TTL: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token-ttl-seconds");
/// The header with the token of a session of the metadata service.
const METADATA_TOKEN: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token");

/// Obtains access keys from a [`CredentialSource`]. It follows no redirects, because they would send secrets
/// to another host.
pub(super) struct CredentialFetch {
    region: String,
    /// The HTTP client for hosts of the Internet.
    client: Client,
    /// The HTTP client for addresses on this host or its link, which uses no proxy.
    local: Client,
}

impl CredentialFetch {
    /// Creates the fetcher, with the HTTP clients for the Internet and for this host. `region` is that of the
    /// default STS endpoint.
    pub(super) fn new(region: &str, (client, local): (Client, Client)) -> Self {
        Self { region: region.to_owned(), client, local }
    }

    /// Obtains access keys from `source`, and assumes the roles of a profile with them. Errors contain no secret.
    pub(super) async fn keys(&self, source: &CredentialSource) -> Result<AccessKeys, DriverError> {
        let files = match source {
            CredentialSource::Profile(files) => files,
            CredentialSource::Direct(source) => return self.of_source(source).await,
        };
        let profile = resolve(files);
        let ResolvedProfile { source, roles, .. } =
            profile.map_err(|error| DriverError::new(Reason::Refused, STEP).because(error))?;
        let none = || refused(format!("the AWS profile `{}` has no credentials", files.name));
        let mut keys = self.of_source(&source.ok_or_else(none)?).await?;
        for role in &roles {
            keys = self.assume_role(role, &keys).await?;
        }
        Ok(keys)
    }

    /// Obtains access keys from `source`, without assuming the roles of a profile.
    async fn of_source(&self, source: &DirectSource) -> Result<AccessKeys, DriverError> {
        match source {
            DirectSource::Fixed(keys) => Ok(keys.clone()),
            DirectSource::WebIdentity { role, token_file, session, endpoint } => {
                let endpoint = endpoint.clone().unwrap_or_else(|| service_url("sts", &self.region));
                self.assume_role_of_token(&endpoint, role, session, &read_token(token_file)?).await
            }
            DirectSource::Container { url, token_file } => {
                let mut request = self.local.get(url);
                if let Some(file) = token_file {
                    request = request.header(AUTHORIZATION, sensitive(&read_token(file)?)?);
                }
                agent_keys(&text(request, METADATA_TIMEOUT).await?)
            }
            DirectSource::Instance { endpoint } => self.of_instance(endpoint).await,
            DirectSource::Process(command) => process::keys(command).await,
        }
    }

    /// Exchanges the keys of a user or a role for those of another role (AWS STS API Reference, `AssumeRole`).
    async fn assume_role(&self, role: &AssumedRole, keys: &AccessKeys) -> Result<AccessKeys, DriverError> {
        let (body, endpoint) = (role.form(), role.endpoint.clone());
        let endpoint = endpoint.unwrap_or_else(|| service_url("sts", &self.region));
        let scope = SigningScope { region: &self.region, service: "sts" };
        let headers = signature(keys, scope, &endpoint, &body, SystemTime::now());
        let headers = headers.map_err(|error| DriverError::new(Reason::Refused, STEP).because(error))?;
        role_keys(&text(self.client.post(endpoint).headers(headers).body(body), STS_TIMEOUT).await?)
    }

    /// Exchanges the token of a service account for the keys of a role. The request is not signed (AWS STS API Reference,
    /// `AssumeRoleWithWebIdentity`).
    async fn assume_role_of_token(
        &self,
        endpoint: &str,
        role: &str,
        session: &str,
        token: &str,
    ) -> Result<AccessKeys, DriverError> {
        let body = form_urlencoded::Serializer::new(String::new())
            .append_pair("Action", "AssumeRoleWithWebIdentity")
            .append_pair("Version", STS_VERSION)
            .append_pair("RoleArn", role)
            .append_pair("RoleSessionName", session)
            .append_pair("WebIdentityToken", token)
            .finish();
        let request = self.client.post(endpoint).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        role_keys(&text(request.body(body), STS_TIMEOUT).await?)
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

impl AssumedRole {
    /// Returns the URL-encoded form of the STS request that assumes this role.
    fn form(&self) -> String {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("Action", "AssumeRole").append_pair("Version", STS_VERSION);
        form.append_pair("RoleArn", &self.arn).append_pair("RoleSessionName", &self.session);
        if let Some(id) = &self.external_id {
            form.append_pair("ExternalId", id);
        }
        if let Some(seconds) = self.duration {
            form.append_pair("DurationSeconds", &seconds.to_string());
        }
        form.finish()
    }
}

/// Sends a request with the time limit `limit`, and returns the body of a successful response; any other HTTP status is an error.
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

/// Parses the access keys of a role in a response of STS.
fn role_keys(body: &str) -> Result<AccessKeys, DriverError> {
    let response: AssumeRole = quick_xml::de::from_str(body).map_err(|_| malformed())?;
    temporary(response.result.credentials)
}

/// Parses the access keys in the response of the metadata service or of a credentials agent.
fn agent_keys(body: &str) -> Result<AccessKeys, DriverError> {
    temporary(serde_json::from_str(body).map_err(|_| malformed())?)
}

/// Returns the keys if they have a session token and an expiry, as all keys of roles and agents have; otherwise an error.
fn temporary(keys: AccessKeys) -> Result<AccessKeys, DriverError> {
    if keys.token.is_some() && keys.expires.is_some() { Ok(keys) } else { Err(malformed()) }
}

/// Reads the token of a service account from its file. The kubelet replaces that token from time to time.
fn read_token(path: &Path) -> Result<String, DriverError> {
    let token = std::fs::read_to_string(path).map_err(|error| {
        DriverError::new(Reason::Unavailable, STEP)
            .detail(format!("cannot read {}", path.display()))
            .because(error)
    })?;
    Ok(token.trim().to_owned())
}

/// Returns a token as the value of a header that is never logged.
fn sensitive(token: &str) -> Result<HeaderValue, DriverError> {
    let mut value = HeaderValue::from_str(token).map_err(|_| malformed())?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns a permanent error, without retries: the credentials cannot be obtained because of `detail`.
fn refused(detail: impl Into<String>) -> DriverError {
    DriverError::new(Reason::Refused, STEP).detail(detail)
}
