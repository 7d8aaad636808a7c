//! From options, whoever gave them, to an [`Access`]: what fits by itself must fit together.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use reqwest::Url;

use super::mistakes::Mistakes;
use super::{
    Access, AccessError, Auth, Credential, Domain, Interface, NeutronOptions, Scope, Secret, Tls, Urls, User,
};

/// How long a call may take when nobody says.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How many seconds it may be, whoever says.
const TIMEOUTS: RangeInclusive<u64> = 1..=3600;

/// The domain of who names none, as it is in every cloud that was not told otherwise.
const DEFAULT_DOMAIN: &str = "default";

/// Where options stand, for people.
pub(super) struct Places {
    /// What stands before the name of an option that is missing.
    pub(super) home: String,
    /// Where each option was given that was.
    pub(super) given: HashMap<&'static str, String>,
}

impl Places {
    /// The section `[neutron]`.
    pub(super) fn section() -> Self {
        Self { home: Self::in_section(""), given: HashMap::new() }
    }

    /// An option of the section.
    pub(super) fn in_section(option: &str) -> String {
        format!("neutron.{option}")
    }

    fn of(&self, option: &'static str) -> String {
        self.given.get(option).cloned().unwrap_or_else(|| format!("{}{option}", self.home))
    }

    fn wrong(&self, option: &'static str, what: impl Into<String>) -> AccessError {
        AccessError::new(self.of(option), what)
    }
}

/// Puts the options together.
pub(super) fn resolve(options: &NeutronOptions, places: &Places) -> Result<Access, AccessError> {
    let mut wrong = Mistakes::default();
    let mut url = |option, text: Option<&String>| {
        wrong.note(text.map(|text| http_url(text).map_err(|what| places.wrong(option, what))).transpose())
    };
    let network = url("endpoint_override", options.endpoint_override.as_ref());
    let load_balancer =
        url("load_balancer_endpoint_override", options.load_balancer_endpoint_override.as_ref());
    let interface = wrong.note(interface(options, places));
    if options.keyfile.is_some() && options.certfile.is_none() {
        wrong.add(places.wrong("certfile", "is missing, and there is a key"));
    }
    if options.timeout.is_some_and(|seconds| !TIMEOUTS.contains(&seconds)) {
        let (least, most) = TIMEOUTS.into_inner();
        wrong.add(places.wrong("timeout", format!("is not between {least} and {most} seconds")));
    }
    let auth = wrong.note(auth(options, places));
    if matches!(auth, Some(Auth::None)) && options.endpoint_override.is_none() {
        wrong.add(places.wrong("endpoint_override", "is missing: without a login there is no catalogue"));
    }
    let (Some(network), Some(load_balancer), Some(interface), Some(auth), true) =
        (network, load_balancer, interface, auth, wrong.are_none())
    else {
        return Err(wrong.into());
    };
    Ok(Access {
        auth,
        region: options.region_name.clone(),
        interface,
        urls: Urls { network, load_balancer },
        tls: Tls {
            insecure: options.insecure.unwrap_or(false),
            ca_file: options.cafile.clone(),
            certificate_file: options.certfile.clone(),
            key_file: options.keyfile.clone(),
        },
        timeout: options.timeout.map_or(TIMEOUT, Duration::from_secs),
        max_concurrency: options.max_concurrency,
    })
}

fn interface(options: &NeutronOptions, places: &Places) -> Result<Interface, AccessError> {
    let Some(name) = &options.endpoint_type else { return Ok(Interface::default()) };
    Interface::from_name(name).ok_or_else(|| {
        let what = format!("there is no interface {name:?}; known are public, internal and admin");
        places.wrong("endpoint_type", what)
    })
}

fn auth(options: &NeutronOptions, places: &Places) -> Result<Auth, AccessError> {
    let credential_given =
        options.application_credential_id.is_some() || options.application_credential_name.is_some();
    match options.auth_type.as_deref() {
        Some("none" | "noauth") => Ok(Auth::None),
        Some("v3applicationcredential") => credential(options, places),
        None if credential_given => credential(options, places),
        None | Some("password" | "v3password") => password(options, places),
        Some(other) => {
            let what = format!(
                "there is no way to log in by {other:?} here; known are password, v3password, \
                 v3applicationcredential and none"
            );
            Err(places.wrong("auth_type", what))
        }
    }
}

fn password(options: &NeutronOptions, places: &Places) -> Result<Auth, AccessError> {
    let mut wrong = Mistakes::default();
    let scope = wrong.note(scope(options, places));
    let url = wrong.note(keystone(options, places));
    let user = wrong.note(user(options, places));
    let password = wrong.note(secret(
        places,
        ("password", options.password.as_ref()),
        ("password_file", options.password_file.as_ref()),
    ));
    match (url, user, password, scope) {
        (Some(url), Some(user), Some(password), Some(scope)) => {
            Ok(Auth::Password { url, user, password, scope })
        }
        _ => Err(wrong.into()),
    }
}

fn credential(options: &NeutronOptions, places: &Places) -> Result<Auth, AccessError> {
    let mut wrong = Mistakes::default();
    let credential = match (&options.application_credential_id, &options.application_credential_name) {
        (Some(id), _) => Ok(Credential::Id(id.clone())),
        (None, Some(name)) => user(options, places).map(|user| Credential::Name(name.clone(), user)),
        (None, None) => Err(places.wrong("application_credential_id", "is missing")),
    };
    let credential = wrong.note(credential);
    let url = wrong.note(keystone(options, places));
    let secret = wrong.note(secret(
        places,
        ("application_credential_secret", options.application_credential_secret.as_ref()),
        ("application_credential_secret_file", options.application_credential_secret_file.as_ref()),
    ));
    match (url, credential, secret) {
        (Some(url), Some(credential), Some(secret)) => {
            Ok(Auth::ApplicationCredential { url, credential, secret })
        }
        _ => Err(wrong.into()),
    }
}

fn keystone(options: &NeutronOptions, places: &Places) -> Result<Url, AccessError> {
    let text = options.auth_url.as_ref().ok_or_else(|| places.wrong("auth_url", "is missing"))?;
    http_url(text).map_err(|what| places.wrong("auth_url", what))
}

fn scope(options: &NeutronOptions, places: &Places) -> Result<Scope, AccessError> {
    match (&options.project_id, &options.project_name) {
        (Some(id), _) => Ok(Scope::Id(id.clone())),
        (None, Some(name)) => Ok(Scope::Name(
            name.clone(),
            domain(options.project_domain_id.as_ref(), options.project_domain_name.as_ref()),
        )),
        (None, None) => {
            Err(places.wrong("project_name", "is missing: a login without a project leads nowhere"))
        }
    }
}

fn user(options: &NeutronOptions, places: &Places) -> Result<User, AccessError> {
    match (&options.user_id, &options.username) {
        (Some(id), _) => Ok(User::Id(id.clone())),
        (None, Some(name)) => Ok(User::Name(
            name.clone(),
            domain(options.user_domain_id.as_ref(), options.user_domain_name.as_ref()),
        )),
        (None, None) => Err(places.wrong("username", "is missing")),
    }
}

fn domain(id: Option<&String>, name: Option<&String>) -> Domain {
    match (id, name) {
        (Some(id), _) => Domain::Id(id.clone()),
        (None, Some(name)) => Domain::Name(name.clone()),
        (None, None) => Domain::Id(DEFAULT_DOMAIN.into()),
    }
}

fn secret(
    places: &Places,
    (name, text): (&'static str, Option<&Secret>),
    (file_name, file): (&'static str, Option<&std::path::PathBuf>),
) -> Result<Secret, AccessError> {
    match (text, file) {
        (Some(_), Some(_)) => {
            Err(places.wrong(file_name, format!("only one of this and {} may be given", places.of(name))))
        }
        (Some(secret), None) => Ok(secret.clone()),
        (None, Some(file)) => Ok(Secret::in_file(file)),
        (None, None) => Err(places.wrong(name, "is missing")),
    }
}

/// The URL in `text`. Who puts a password there would find it in a log.
fn http_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let url = url.ok_or("is not a URL of the form https://HOST:PORT/PATH")?;
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err("has a user or a query, and may have a host, a port and a path only".to_owned());
    }
    Ok(url)
}
