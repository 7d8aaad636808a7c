//! The login itself: `POST /v3/auth/tokens`.

use std::time::Duration;

use reqwest::{Method, Url};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::secret::Reading;
use super::token::{Token, Told};
use crate::access::{Auth, Credential, Domain, Scope, Secret, User};
use crate::cloud::{Exchange, Http};
use crate::error::{OpenStackError, Problem};

const STEP: &str = "log in to Keystone";

/// Asks Keystone for a token. `reading` is that of the secret.
pub(super) async fn login(
    http: &Http,
    auth: &Auth,
    timeout: Duration,
    reading: &mut Reading,
) -> Result<Token, OpenStackError> {
    let (url, body) = match auth {
        Auth::None => return Ok(Token::none()),
        Auth::Password { url, user, password, scope } => {
            (url, by_password(user, &reveal(password, reading).await?, scope))
        }
        Auth::ApplicationCredential { url, credential, secret } => {
            (url, by_credential(credential, &reveal(secret, reading).await?))
        }
    };
    let exchange = Exchange {
        service: "identity",
        step: STEP,
        method: &Method::POST,
        url: tokens(url),
        headers: Vec::new(),
        body: Some(body.to_string().into_bytes()),
        timeout,
        repeatable: true,
    };
    let asked = Instant::now();
    let answer = http.exchange(&exchange).await?;
    if !answer.is_success() {
        return Err(answer.refused(STEP, true));
    }
    let told: Told = answer.read(STEP, false)?;
    let value = answer.headers.get("x-subject-token").cloned();
    Ok(Token::new(value.ok_or_else(|| answer.unreadable(STEP, false))?, told, asked))
}

/// Where tokens are made. The URL of Keystone may end with a version, and with an older one than we speak.
fn tokens(keystone: &Url) -> Url {
    let path = keystone.path().trim_end_matches('/');
    let path = ["/v3", "/v2.0"].into_iter().find_map(|version| path.strip_suffix(version)).unwrap_or(path);
    let path = format!("{path}/v3/auth/tokens");
    let mut url = keystone.clone();
    url.set_path(&path);
    url
}

async fn reveal(secret: &Secret, reading: &mut Reading) -> Result<String, OpenStackError> {
    reading.reveal(secret).await.map_err(|error| {
        let file = secret.file().map(|path| path.display().to_string()).unwrap_or_default();
        let text = format!("cannot read the secret in {file}");
        OpenStackError::new(STEP, Problem::Unreachable(text)).because(error)
    })
}

fn by_password(user: &User, password: &str, scope: &Scope) -> Value {
    let mut user = user_of(user);
    user["password"] = password.into();
    let project = match scope {
        Scope::Id(id) => json!({ "id": id }),
        Scope::Name(name, domain) => json!({ "name": name, "domain": domain_of(domain) }),
    };
    json!({ "auth": {
        "identity": { "methods": ["password"], "password": { "user": user } },
        "scope": { "project": project },
    } })
}

/// Without a scope: an application credential has one, and Keystone refuses another beside it.
fn by_credential(credential: &Credential, secret: &str) -> Value {
    let mut about = match credential {
        Credential::Id(id) => json!({ "id": id }),
        Credential::Name(name, user) => json!({ "name": name, "user": user_of(user) }),
    };
    about["secret"] = secret.into();
    json!({ "auth": { "identity": { "methods": ["application_credential"], "application_credential": about } } })
}

fn user_of(user: &User) -> Value {
    match user {
        User::Id(id) => json!({ "id": id }),
        User::Name(name, domain) => json!({ "name": name, "domain": domain_of(domain) }),
    }
}

fn domain_of(domain: &Domain) -> Value {
    match domain {
        Domain::Id(id) => json!({ "id": id }),
        Domain::Name(name) => json!({ "name": name }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keystone_may_be_named_with_or_without_its_version() {
        for (named, expected) in [
            ("http://k:5000", "http://k:5000/v3/auth/tokens"),
            ("http://k:5000/v3/", "http://k:5000/v3/auth/tokens"),
            ("http://k/identity/v3", "http://k/identity/v3/auth/tokens"),
            ("http://k/identity/v2.0", "http://k/identity/v3/auth/tokens"),
        ] {
            assert_eq!(tokens(&Url::parse(named).unwrap()).as_str(), expected);
        }
    }

    #[test]
    fn a_password_is_scoped_to_its_project_and_a_credential_to_nothing() {
        let user = User::Name("kuryr".into(), Domain::Id("default".into()));
        let scope = Scope::Name("k8s".into(), Domain::Name("Default".into()));
        let expected = json!({ "auth": {
            "identity": { "methods": ["password"], "password": { "user":
                { "name": "kuryr", "domain": { "id": "default" }, "password": "p" } } },
            "scope": { "project": { "name": "k8s", "domain": { "name": "Default" } } } } });
        assert_eq!(by_password(&user, "p", &scope), expected);
        let expected = json!({ "auth": { "identity": { "methods": ["application_credential"],
            "application_credential": { "id": "c1", "secret": "s" } } } });
        assert_eq!(by_credential(&Credential::Id("c1".into()), "s"), expected);
        let named = by_credential(&Credential::Name("c".into(), User::Id("u1".into())), "s");
        let about = &named["auth"]["identity"]["application_credential"];
        assert_eq!(*about, json!({ "name": "c", "user": { "id": "u1" }, "secret": "s" }));
    }
}
