//! Converts the merged options of the section `[neutron]` and of clouds.yaml to an [`Access`], and checks that they fit together.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;

use super::{
    Access, AccessError, AccessProblem, Auth, Credential, DomainResource, EndpointInterface,
    EndpointOverrides, IdOrName, NeutronOptions, Secret, TlsOptions,
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
    pub(super) given: HashMap<String, String>,
}

impl Locations {
    /// Returns the location of an option in the section `[neutron]`.
    pub(super) fn in_section(option: &str) -> String {
        format!("neutron.{option}")
    }

    /// Returns the location of an option or, if it is not given, the place where it can be given.
    fn of(&self, option: &str) -> String {
        self.given.get(option).cloned().unwrap_or_else(|| format!("{}{option}", self.prefix))
    }
}

/// Converts the options to an [`Access`]. The error contains all problems; `locations` contains the locations that it names.
pub(super) fn resolve(options: &NeutronOptions, locations: &Locations) -> Result<Access, AccessError> {
    let mut resolver = Resolver { options, locations, problems: Vec::new() };
    match resolver.access() {
        Some(access) if resolver.problems.is_empty() => Ok(access),
        _ => Err(AccessError { problems: resolver.problems }),
    }
}

/// Converts options, and collects their problems. A method that returns `None` for options that cannot be used has added a problem.
struct Resolver<'a> {
    options: &'a NeutronOptions,
    locations: &'a Locations,
    problems: Vec<AccessProblem>,
}

impl Resolver<'_> {
    /// Adds a problem of an option, and returns `None`.
    fn problem<T>(&mut self, option: &str, message: impl Into<String>) -> Option<T> {
        self.problems.push(AccessProblem { location: self.locations.of(option), message: message.into() });
        None
    }

    /// Converts all options to an [`Access`], and collects the problems of all of them. The result is valid only if there is no problem; it
    /// is `None` if the login or the interface has one.
    fn access(&mut self) -> Option<Access> {
        let options = self.options;
        let network = self.url("endpoint_override", options.endpoint_override.as_ref());
        let load_balancer =
            self.url("load_balancer_endpoint_override", options.load_balancer_endpoint_override.as_ref());
        let interface = options.endpoint_type.as_deref().unwrap_or("public");
        let interface = EndpointInterface::from_name(interface).or_else(|| {
            let message =
                format!("there is no interface {interface:?}; known are public, internal and admin");
            self.problem("endpoint_type", message)
        });
        if options.keyfile.is_some() && options.certfile.is_none() {
            self.problem::<()>("certfile", "is required, because `keyfile` is set");
        }
        if options.timeout.is_some_and(|seconds| !TIMEOUTS.contains(&seconds)) {
            let (least, most) = TIMEOUTS.into_inner();
            self.problem::<()>("timeout", format!("is not between {least} and {most} seconds"));
        }
        let auth = self.auth();
        if matches!(auth, Some(Auth::None)) && options.endpoint_override.is_none() {
            let message = "is required with `auth_type = \"none\"`, because there is no service catalogue";
            self.problem::<()>("endpoint_override", message);
        }
        Some(Access {
            auth: auth?,
            region: options.region_name.clone(),
            interface: interface?,
            urls: EndpointOverrides { network, load_balancer },
            tls: TlsOptions {
                insecure: options.insecure.unwrap_or(false),
                ca_file: options.cafile.clone(),
                certificate_file: options.certfile.clone(),
                key_file: options.keyfile.clone(),
            },
            timeout: options.timeout.map_or(TIMEOUT, Duration::from_secs),
            max_concurrency: options.max_concurrency,
        })
    }

    /// Returns the login that `auth_type` selects. Without that option, an application credential is used if one is named, and otherwise a
    /// password. If the login is incomplete, invalid or of an unknown method, adds the problems and returns `None`.
    fn auth(&mut self) -> Option<Auth> {
        let options = self.options;
        let has_credential =
            options.application_credential_id.is_some() || options.application_credential_name.is_some();
        match options.auth_type.as_deref() {
            Some("none" | "noauth") => Some(Auth::None),
            Some("v3applicationcredential") => self.credential(),
            None if has_credential => self.credential(),
            None | Some("password" | "v3password") => self.password(),
            Some(other) => {
                let message = format!(
                    "the login method {other:?} is not supported; known are password, v3password, \
                     v3applicationcredential and none"
                );
                self.problem("auth_type", message)
            }
        }
    }

    /// Returns the login by a password, which needs a user and a project. If parts are missing or invalid, adds a problem for each and
    /// returns `None`.
    fn password(&mut self) -> Option<Auth> {
        let options = self.options;
        let (scope, url, user) = (self.scope(), self.keystone(), self.user());
        let password = self.secret(
            ("password", options.password.as_ref()),
            ("password_file", options.password_file.as_ref()),
        );
        Some(Auth::Password { url: url?, user: user?, password: password?, scope: scope? })
    }

    /// Returns the login by an application credential. One that is given by its name needs its user too. If parts are missing or invalid,
    /// adds a problem for each and returns `None`.
    fn credential(&mut self) -> Option<Auth> {
        let options = self.options;
        let id = options.application_credential_id.as_ref();
        let credential = match id_or_name(id, options.application_credential_name.as_ref()) {
            Some(key @ IdOrName::Id(_)) => Some(Credential { key, user: None }),
            Some(key) => self.user().map(|user| Credential { key, user: Some(user) }),
            None => self.problem("application_credential_id", "is missing"),
        };
        let url = self.keystone();
        let secret = self.secret(
            ("application_credential_secret", options.application_credential_secret.as_ref()),
            ("application_credential_secret_file", options.application_credential_secret_file.as_ref()),
        );
        Some(Auth::ApplicationCredential { url: url?, credential: credential?, secret: secret? })
    }

    /// Returns the URL of Keystone from `auth_url`. If it is missing or invalid, adds a problem and returns `None`.
    fn keystone(&mut self) -> Option<Url> {
        let url = self.options.auth_url.as_ref();
        if url.is_none() { self.problem("auth_url", "is missing") } else { self.url("auth_url", url) }
    }

    /// Returns the user who logs in, by id or by name and domain. If the options name none, adds a problem and returns `None`.
    fn user(&mut self) -> Option<DomainResource> {
        let NeutronOptions { user_id, username, user_domain_id, user_domain_name, .. } = self.options;
        let domain = id_or_name(user_domain_id.as_ref(), user_domain_name.as_ref());
        let user = id_or_name(user_id.as_ref(), username.as_ref()).map(|key| in_domain(key, domain));
        user.or_else(|| self.problem("username", "is missing"))
    }

    /// Returns the project for which the token is requested. If the options name none, adds a problem and returns `None`, because without a
    /// project, Keystone returns no service catalogue.
    fn scope(&mut self) -> Option<DomainResource> {
        let NeutronOptions { project_id, project_name, project_domain_id, project_domain_name, .. } =
            self.options;
        let domain = id_or_name(project_domain_id.as_ref(), project_domain_name.as_ref());
        let project = id_or_name(project_id.as_ref(), project_name.as_ref());
        let missing = "is missing: a login without a project has no catalogue";
        project.map(|key| in_domain(key, domain)).or_else(|| self.problem("project_name", missing))
    }

    /// Returns the secret that one of two options contains: the text, or the file with the text. If both or neither are set, adds a problem
    /// and returns `None`.
    fn secret(
        &mut self,
        (name, text): (&str, Option<&Secret>),
        (file_name, file): (&str, Option<&PathBuf>),
    ) -> Option<Secret> {
        match (text, file) {
            (Some(_), Some(_)) => {
                let message = format!("only one of this and {} may be given", self.locations.of(name));
                self.problem(file_name, message)
            }
            (Some(secret), None) => Some(secret.clone()),
            (None, Some(file)) => Some(Secret::File(file.clone())),
            (None, None) => self.problem(name, "is missing"),
        }
    }

    /// Parses the URL of a service in an option; `None` without the option. If the URL is invalid, or contains a user, a password or a
    /// query, adds a problem and returns `None`: a password in a URL would end up in logs.
    fn url(&mut self, option: &str, text: Option<&String>) -> Option<Url> {
        let url =
            Url::parse(text?).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        match url {
            None => self.problem(option, "is not a URL of the form https://HOST:PORT/PATH"),
            Some(url) if url.username().is_empty() && url.password().is_none() && url.query().is_none() => {
                Some(url)
            }
            Some(_) => {
                self.problem(option, "must contain only a host, a port and a path, without user or query")
            }
        }
    }
}

/// Returns the id if there is one, otherwise the name; `None` without both.
fn id_or_name(id: Option<&String>, name: Option<&String>) -> Option<IdOrName> {
    id.cloned().map(IdOrName::Id).or_else(|| name.cloned().map(IdOrName::Name))
}

/// Returns a user or a project. If it is given by its name, its domain is `domain` or the default domain.
fn in_domain(key: IdOrName, domain: Option<IdOrName>) -> DomainResource {
    let by_default = || IdOrName::Id(DEFAULT_DOMAIN.to_owned());
    let domain = matches!(key, IdOrName::Name(_)).then(|| domain.unwrap_or_else(by_default));
    DomainResource { key, domain }
}
