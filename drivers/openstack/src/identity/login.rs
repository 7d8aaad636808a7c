//! The login to Keystone: `POST /v3/auth/tokens`.

use std::path::Path;
use std::time::Duration;

use reqwest::{Method, Url};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::secret::SecretReader;
use super::token::{Token, TokenBody};
use crate::access::{Auth, Credential, DomainResource, Secret};
use crate::error::{OpenStackError, Result};
use crate::http::{HttpClient, HttpRequest};

const STEP: &str = "log in to Keystone";

/// Requests a token from Keystone. Without a login method ([`Auth::None`]), returns the empty token.
pub(super) async fn login(
    http: &HttpClient,
    auth: &Auth,
    timeout: Duration,
    secrets: &mut SecretReader,
) -> Result<Token> {
    let (url, body) = match auth {
        Auth::None => return Ok(Token::none()),
        Auth::Password { url, user, password, scope } => {
            (url, by_password(user, &reveal(password, secrets).await?, scope))
        }
        Auth::ApplicationCredential { url, credential, secret } => {
            (url, by_credential(credential, &reveal(secret, secrets).await?))
        }
    };
    let request = HttpRequest {
        service: "identity",
        step: STEP,
        method: &Method::POST,
        url: tokens_url(url),
        headers: Vec::new(),
        body: Some(body.to_string().into_bytes()),
        timeout,
        repeatable: true,
    };
    let sent = Instant::now();
    let response = http.send(&request).await?;
    if !response.is_success() {
        return Err(response.into_error(STEP, true));
    }
    let body: TokenBody = response.json(STEP, false)?;
    let value = response.headers.get("x-subject-token").cloned();
    Ok(Token::new(value.ok_or_else(|| response.unreadable(STEP, false))?, body, sent))
}

/// Returns the URL of the request for a token. The URL of Keystone may end with the version `v3` or `v2.0`, which is replaced.
fn tokens_url(keystone: &Url) -> Url {
    let path = keystone.path().trim_end_matches('/');
    let path = ["/v3", "/v2.0"].into_iter().find_map(|version| path.strip_suffix(version)).unwrap_or(path);
    let path = format!("{path}/v3/auth/tokens");
    let mut url = keystone.clone();
    url.set_path(&path);
    url
}

/// Returns the text of the secret of a login. If the secret is in a file that cannot be read, the error names the file.
async fn reveal(secret: &Secret, secrets: &mut SecretReader) -> Result<String> {
    secrets.reveal(secret).await.map_err(|error| {
        let text = format!("cannot read the secret in {}", secret.file().unwrap_or(Path::new("")).display());
        OpenStackError::unavailable(STEP, text).because(error)
    })
}

/// Returns the body of a login by password, for the scope of one project.
fn by_password(user: &DomainResource, password: &str, project: &DomainResource) -> Value {
    let mut user = json!(user);
    user["password"] = password.into();
    json!({ "auth": {
        "identity": { "methods": ["password"], "password": { "user": user } },
        "scope": { "project": project },
    } })
}

/// Returns the body of a login by application credential. It contains no scope, because the credential implies one and Keystone rejects any
/// other.
fn by_credential(credential: &Credential, secret: &str) -> Value {
    let mut value = json!(credential);
    value["secret"] = secret.into();
    json!({ "auth": { "identity": { "methods": ["application_credential"], "application_credential": value } } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::IdOrName;

    #[test]
    fn keystone_may_be_named_with_or_without_its_version() {
        for (named, expected) in [
            ("http://k:5000", "http://k:5000/v3/auth/tokens"),
            ("http://k:5000/v3/", "http://k:5000/v3/auth/tokens"),
            ("http://k/identity/v3", "http://k/identity/v3/auth/tokens"),
            ("http://k/identity/v2.0", "http://k/identity/v3/auth/tokens"),
        ] {
            assert_eq!(tokens_url(&Url::parse(named).unwrap()).as_str(), expected);
        }
    }

    #[test]
    fn a_password_is_scoped_to_its_project_and_a_credential_to_nothing() {
        let named = |name: &str, domain| {
            let (key, domain) = (IdOrName::Name(name.into()), Some(domain));
            DomainResource { key, domain }
        };
        let user = named("kuryr", IdOrName::Id("default".into()));
        let scope = named("k8s", IdOrName::Name("Default".into()));
        let expected = json!({ "auth": {
            "identity": { "methods": ["password"], "password": { "user":
                { "name": "kuryr", "domain": { "id": "default" }, "password": "p" } } },
            "scope": { "project": { "name": "k8s", "domain": { "name": "Default" } } } } });
        assert_eq!(by_password(&user, "p", &scope), expected);
        let expected = json!({ "auth": { "identity": { "methods": ["application_credential"],
            "application_credential": { "id": "c1", "secret": "s" } } } });
        assert_eq!(by_credential(&Credential { key: IdOrName::Id("c1".into()), user: None }, "s"), expected);
        let user = Some(DomainResource { key: IdOrName::Id("u1".into()), domain: None });
        let named = by_credential(&Credential { key: IdOrName::Name("c".into()), user }, "s");
        let about = &named["auth"]["identity"]["application_credential"];
        assert_eq!(*about, json!({ "name": "c", "user": { "id": "u1" }, "secret": "s" }));
    }
}
