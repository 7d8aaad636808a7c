//! Converts the merged options of the section `[neutron]` and of clouds.yaml to an [`Access`], and checks that they fit together.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;

use super::error::AccessProblems;
use super::{
    Access, AccessError, Auth, Credential, DomainResource, EndpointInterface, EndpointOverrides, IdOrName,
    NeutronOptions, Secret, TlsOptions,
};

/// The timeout of a call if the options contain none.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The valid range of timeouts, in seconds.
const TIMEOUTS: RangeInclusive<u64> = 1..=3600;

/// The id of the domain of users and projects for which no domain is given. Every cloud has this domain by default.
const DEFAULT_DOMAIN: &str = "default";

/// The places from which the options come, such as `neutron.auth_url` or a line of clouds.yaml, for error
/// messages.
pub(super) struct Locations {
    /// The prefix of the location of an option that is not given, such as `neutron.`.
    pub(super) prefix: String,
    /// The locations of the options that are given, by the name of the option.
    pub(super) given: HashMap<&'static str, String>,
}

impl Locations {
    /// Returns locations of the form `neutron.<option>`, for options that do not come from clouds.yaml.
    pub(super) fn for_neutron_section() -> Self {
        Self { prefix: Self::in_section(""), given: HashMap::new() }
    }

    /// Returns the location of an option in the section `[neutron]`.
    pub(super) fn in_section(option: &str) -> String {
        format!("neutron.{option}")
    }

    /// Returns the location of an option or, if it is not given, the place where it can be given.
    fn of(&self, option: &'static str) -> String {
        self.given.get(option).cloned().unwrap_or_else(|| format!("{}{option}", self.prefix))
    }

    /// Creates an error about an option, with the location of the option.
    fn error(&self, option: &'static str, message: impl Into<String>) -> AccessError {
        AccessError::new(self.of(option), message)
    }
}

/// Converts the options to an [`Access`]. The error contains all problems; `locations` contains the locations that it names.
pub(super) fn resolve(options: &NeutronOptions, locations: &Locations) -> Result<Access, AccessError> {
    let mut problems = AccessProblems::default();
    let mut url = |option, text: Option<&String>| {
        let url = text.map(|text| http_url(text).map_err(|message| locations.error(option, message)));
        problems.check(url.transpose())
    };
    let network = url("endpoint_override", options.endpoint_override.as_ref());
    let load_balancer =
        url("load_balancer_endpoint_override", options.load_balancer_endpoint_override.as_ref());
    let interface = problems.check(interface(options, locations));
    if options.keyfile.is_some() && options.certfile.is_none() {
        problems.add(locations.error("certfile", "is required, because `keyfile` is set"));
    }
    if options.timeout.is_some_and(|seconds| !TIMEOUTS.contains(&seconds)) {
        let (least, most) = TIMEOUTS.into_inner();
        problems.add(locations.error("timeout", format!("is not between {least} and {most} seconds")));
    }
    let auth = problems.check(auth(options, locations));
    if matches!(auth, Some(Auth::None)) && options.endpoint_override.is_none() {
        let message = "is required with `auth_type = \"none\"`, because there is no service catalogue";
        problems.add(locations.error("endpoint_override", message));
    }
    let access = || {
        Some(Access {
            auth: auth?,
            region: options.region_name.clone(),
            interface: interface?,
            urls: EndpointOverrides { network: network?, load_balancer: load_balancer? },
            tls: TlsOptions {
                insecure: options.insecure.unwrap_or(false),
                ca_file: options.cafile.clone(),
                certificate_file: options.certfile.clone(),
                key_file: options.keyfile.clone(),
            },
            timeout: options.timeout.map_or(TIMEOUT, Duration::from_secs),
            max_concurrency: options.max_concurrency,
        })
    };
    problems.finish(access())
}

/// Returns the interface of `endpoint_type`, or the public one if the option is not set.
fn interface(options: &NeutronOptions, locations: &Locations) -> Result<EndpointInterface, AccessError> {
    let Some(name) = &options.endpoint_type else { return Ok(EndpointInterface::default()) };
    EndpointInterface::from_name(name).ok_or_else(|| {
        let message = format!("there is no interface {name:?}; known are public, internal and admin");
        locations.error("endpoint_type", message)
    })
}

/// Returns the login that `auth_type` selects. Without that option, an application credential is used if one
/// is named, and otherwise a password.
fn auth(options: &NeutronOptions, locations: &Locations) -> Result<Auth, AccessError> {
    let has_credential =
        options.application_credential_id.is_some() || options.application_credential_name.is_some();
    match options.auth_type.as_deref() {
        Some("none" | "noauth") => Ok(Auth::None),
        Some("v3applicationcredential") => credential(options, locations),
        None if has_credential => credential(options, locations),
        None | Some("password" | "v3password") => password(options, locations),
        Some(other) => {
            let message = format!(
                "the login method {other:?} is not supported; known are password, v3password, \
                 v3applicationcredential and none"
            );
            Err(locations.error("auth_type", message))
        }
    }
}

/// Returns the login by a password, which needs a user and a project.
fn password(options: &NeutronOptions, locations: &Locations) -> Result<Auth, AccessError> {
    let mut problems = AccessProblems::default();
    let scope = problems.check(scope(options, locations));
    let url = problems.check(keystone(options, locations));
    let user = problems.check(user(options, locations));
    let password = problems.check(secret(
        locations,
        ("password", options.password.as_ref()),
        ("password_file", options.password_file.as_ref()),
    ));
    let auth = || Some(Auth::Password { url: url?, user: user?, password: password?, scope: scope? });
    problems.finish(auth())
}

/// Returns the login by an application credential. One that is given by its name needs its user too.
fn credential(options: &NeutronOptions, locations: &Locations) -> Result<Auth, AccessError> {
    let mut problems = AccessProblems::default();
    let credential = match id_or_name(
        options.application_credential_id.as_ref(),
        options.application_credential_name.as_ref(),
    ) {
        Some(key @ IdOrName::Id(_)) => Ok(Credential { key, user: None }),
        Some(key) => user(options, locations).map(|user| Credential { key, user: Some(user) }),
        None => Err(locations.error("application_credential_id", "is missing")),
    };
    let credential = problems.check(credential);
    let url = problems.check(keystone(options, locations));
    let secret = problems.check(secret(
        locations,
        ("application_credential_secret", options.application_credential_secret.as_ref()),
        ("application_credential_secret_file", options.application_credential_secret_file.as_ref()),
    ));
    let auth = || Some(Auth::ApplicationCredential { url: url?, credential: credential?, secret: secret? });
    problems.finish(auth())
}

/// Returns the URL of Keystone from `auth_url`.
fn keystone(options: &NeutronOptions, locations: &Locations) -> Result<Url, AccessError> {
    let text = options.auth_url.as_ref().ok_or_else(|| locations.error("auth_url", "is missing"))?;
    http_url(text).map_err(|message| locations.error("auth_url", message))
}

/// Returns the project for which the token is requested. Without a project, Keystone returns no service
/// catalogue.
fn scope(options: &NeutronOptions, locations: &Locations) -> Result<DomainResource, AccessError> {
    let domain = id_or_name(options.project_domain_id.as_ref(), options.project_domain_name.as_ref());
    let project = id_or_name(options.project_id.as_ref(), options.project_name.as_ref());
    project.map(|key| in_domain(key, domain)).ok_or_else(|| {
        locations.error("project_name", "is missing: a login without a project has no catalogue")
    })
}

/// Returns the user of the options.
fn user(options: &NeutronOptions, locations: &Locations) -> Result<DomainResource, AccessError> {
    let domain = id_or_name(options.user_domain_id.as_ref(), options.user_domain_name.as_ref());
    let user = id_or_name(options.user_id.as_ref(), options.username.as_ref());
    user.map(|key| in_domain(key, domain)).ok_or_else(|| locations.error("username", "is missing"))
}

/// Returns the id if there is one, otherwise the name.
fn id_or_name(id: Option<&String>, name: Option<&String>) -> Option<IdOrName> {
    id.cloned().map(IdOrName::Id).or_else(|| name.cloned().map(IdOrName::Name))
}

/// Returns a user or a project. If it is given by its name, its domain is `domain` or the default domain.
fn in_domain(key: IdOrName, domain: Option<IdOrName>) -> DomainResource {
    let by_default = || IdOrName::Id(DEFAULT_DOMAIN.to_owned());
    let domain = matches!(key, IdOrName::Name(_)).then(|| domain.unwrap_or_else(by_default));
    DomainResource { key, domain }
}

/// Returns the secret that one of two options contains: the text, or the file with the text. Fails if both or
/// neither are set.
fn secret(
    locations: &Locations,
    (name, text): (&'static str, Option<&Secret>),
    (file_name, file): (&'static str, Option<&PathBuf>),
) -> Result<Secret, AccessError> {
    match (text, file) {
        (Some(_), Some(_)) => {
            let message = format!("only one of this and {} may be given", locations.of(name));
            Err(locations.error(file_name, message))
        }
        (Some(secret), None) => Ok(secret.clone()),
        (None, Some(file)) => Ok(Secret::in_file(file)),
        (None, None) => Err(locations.error(name, "is missing")),
    }
}

/// Parses the URL of a service. A user, a password or a query is an error, because a password in a URL would end up in logs.
fn http_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let url = url.ok_or("is not a URL of the form https://HOST:PORT/PATH")?;
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err("must contain only a host, a port and a path, without user or query".to_owned());
    }
    Ok(url)
}
