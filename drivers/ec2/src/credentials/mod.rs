//! The access keys of AWS: the choice of their source, and the ways to obtain them.

mod cache;
mod fetch;
mod process;
mod profile;
mod resolve;

use std::net::IpAddr;
use std::path::PathBuf;

use reqwest::Url;
use secrecy::SecretString;
use staffetta_driver::{DriverError, Reason};

use crate::access_keys::AccessKeys;
use crate::environment::{AwsEnvironment, IncompleteVariables};

pub(crate) use cache::CredentialCache;
pub use profile::ProfileError;
pub(crate) use profile::ProfileFiles;
pub(crate) use resolve::resolve;

/// The link-local address at which instances reach their metadata service (EC2 User Guide, "Instance metadata
/// service").
const METADATA: &str = "http://169.254.169.254";
/// The link-local address of the credentials agent of ECS, to which `AWS_CONTAINER_CREDENTIALS_RELATIVE_URI` is relative (AWS SDKs and
/// Tools Reference Guide, "Container credential provider").
const ECS_AGENT: &str = "http://169.254.170.2";

/// The reason why the environment and the options name no usable source of credentials.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// One of two environment variables that belong together is missing.
    #[error(transparent)]
    IncompleteVariables(#[from] IncompleteVariables),
    /// The URL of the container credentials is neither HTTPS nor local.
    #[error(
        "AWS_CONTAINER_CREDENTIALS_FULL_URI must use https, or an address of this host; \
         AWS_CONTAINER_CREDENTIALS_RELATIVE_URI must begin with `/`"
    )]
    ContainerUrl,
    /// A profile of the AWS configuration cannot be used.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

/// The source from which the access keys come.
#[derive(Clone, Debug)]
pub(crate) enum CredentialSource {
    /// A profile in the files of the AWS configuration, which may assume roles.
    Profile(ProfileFiles),
    /// A source that gives access keys itself, without a profile.
    Direct(DirectSource),
}

/// A source from which access keys are obtained directly: no other access keys are needed first to assume a role.
#[derive(Clone, Debug)]
pub(crate) enum DirectSource {
    /// Keys that are written in the environment or in a profile.
    Fixed(AccessKeys),
    /// STS, which exchanges the token of a service account for the keys of a role.
    WebIdentity {
        role: String,
        token_file: PathBuf,
        session: String,
        /// The URL of STS; `None` for that of the region.
        endpoint: Option<String>,
    },
    /// An agent on the node that provides credentials to containers, such as that of EKS Pod Identity.
    Container { url: String, token_file: Option<PathBuf> },
    /// The metadata service of the instance on which the program runs.
    Instance { endpoint: String },
    /// A program that prints access keys. The value is its command line.
    Process(String),
}

/// The name of the failed operation in errors about credentials, as an imperative.
const STEP: &str = "obtain the AWS credentials";

/// The default name of the session in which a role is assumed.
const SESSION: &str = "staffetta";

impl CredentialSource {
    /// Chooses the first source that is configured: the profile `profile`, access keys in the environment, the profile in `AWS_PROFILE`, a
    /// web identity, the credentials agent of a container, the default profile, the metadata service of the instance. An incomplete or
    /// invalid source is an error, but a profile that is named is not read yet.
    pub(crate) fn choose(
        profile: Option<&str>,
        environment: &AwsEnvironment,
    ) -> Result<Self, CredentialError> {
        let files = |name: &str| ProfileFiles::new(name, environment);
        if let Some(name) = profile {
            return Ok(Self::Profile(files(name)));
        }
        if let Some(keys) = environment_keys(environment)? {
            return Ok(Self::Direct(DirectSource::Fixed(keys)));
        }
        if let Some(name) = environment.get("AWS_PROFILE") {
            return Ok(Self::Profile(files(name)));
        }
        if let Some((token_file, role)) = environment.both("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN")? {
            return Ok(Self::Direct(DirectSource::WebIdentity {
                role: role.to_owned(),
                token_file: token_file.into(),
                session: environment.get("AWS_ROLE_SESSION_NAME").unwrap_or(SESSION).to_owned(),
                endpoint: sts_endpoint(environment),
            }));
        }
        if let Some(container) = container(environment)? {
            return Ok(Self::Direct(container));
        }
        let default = files("default");
        match resolve(&default) {
            Ok(profile) if profile.source.is_some() => Ok(Self::Profile(default)),
            Ok(_) | Err(ProfileError::Missing(_)) => Ok(Self::Direct(instance(environment))),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the access keys in `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`; `None` if neither is set.
fn environment_keys(environment: &AwsEnvironment) -> Result<Option<AccessKeys>, IncompleteVariables> {
    let both = environment.both("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")?;
    Ok(both.map(|(id, secret)| {
        let token = environment.get("AWS_SESSION_TOKEN").map(SecretString::from);
        AccessKeys { id: id.to_owned(), secret: secret.into(), token, expires: None }
    }))
}

/// Returns the credentials agent on the node that the environment names; `None` if it names none.
fn container(environment: &AwsEnvironment) -> Result<Option<DirectSource>, CredentialError> {
    let relative = environment.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    let of_ecs = relative.map(|path| format!("{ECS_AGENT}{path}"));
    let full = || environment.get("AWS_CONTAINER_CREDENTIALS_FULL_URI").map(str::to_owned);
    let Some(url) = of_ecs.or_else(full) else { return Ok(None) };
    if !is_local_or_https(&url) {
        return Err(CredentialError::ContainerUrl);
    }
    let token_file = environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE").map(PathBuf::from);
    Ok(Some(DirectSource::Container { url, token_file }))
}

/// Returns the metadata service of the instance as the source, at the URL in the environment or at the default one.
fn instance(environment: &AwsEnvironment) -> DirectSource {
    let endpoint = environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT").unwrap_or(METADATA);
    DirectSource::Instance { endpoint: endpoint.trim_end_matches('/').to_owned() }
}

/// Returns the URL of STS in `AWS_ENDPOINT_URL_STS`; `None` for the public one.
fn sts_endpoint(environment: &AwsEnvironment) -> Option<String> {
    environment.get("AWS_ENDPOINT_URL_STS").map(str::to_owned)
}

/// Returns the error for a response or an output that does not contain credentials.
fn malformed() -> DriverError {
    DriverError::new(Reason::Unavailable, STEP).detail("the response does not contain credentials")
}

/// Returns `true` for a URL to which the token of a container may be sent: HTTPS, loopback, or the addresses of the agents of ECS and EKS
/// (AWS SDKs and Tools Reference Guide, "Container credential provider").
fn is_local_or_https(url: &str) -> bool {
    const AGENTS: [&str; 3] = ["169.254.170.2", "169.254.170.23", "fd00:ec2::23"];
    let Ok(url) = Url::parse(url) else { return false };
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let is_agent =
        |address: IpAddr| address.is_loopback() || AGENTS.iter().any(|agent| agent.parse() == Ok(address));
    let is_local = host == "localhost" || host.parse().is_ok_and(is_agent);
    url.scheme() == "https" || (url.scheme() == "http" && is_local)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(profile: Option<&str>, variables: &[(&str, &str)]) -> Result<CredentialSource, String> {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        CredentialSource::choose(profile, &AwsEnvironment(variables.collect()))
            .map_err(|error| error.to_string())
    }

    const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "AKIA"), ("AWS_SECRET_ACCESS_KEY", "hunter2")];

    #[test]
    fn the_source_is_chosen_in_the_order_of_the_sdks() {
        let identity = [("AWS_WEB_IDENTITY_TOKEN_FILE", "/t"), ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r")];
        let all: Vec<_> = KEYS.into_iter().chain(identity).chain([("AWS_PROFILE", "p")]).collect();
        assert!(matches!(choose(Some("q"), &all), Ok(CredentialSource::Profile(files)) if files.name == "q"));
        assert!(
            matches!(choose(None, &all), Ok(CredentialSource::Direct(DirectSource::Fixed(keys))) if keys.id == "AKIA")
        );
        assert!(matches!(choose(None, &all[2..]), Ok(CredentialSource::Profile(files)) if files.name == "p"));
        assert!(matches!(
            choose(None, &identity),
            Ok(CredentialSource::Direct(DirectSource::WebIdentity { .. }))
        ));
        assert!(
            matches!(choose(None, &[]), Ok(CredentialSource::Direct(DirectSource::Instance { endpoint })) if endpoint == METADATA)
        );
    }

    #[test]
    fn half_of_a_pair_is_an_error_that_names_the_other_half() {
        let error = choose(None, &KEYS[..1]).unwrap_err();
        assert_eq!(
            error,
            "the variable AWS_ACCESS_KEY_ID is set, and AWS_SECRET_ACCESS_KEY is not; set both or none"
        );
    }

    #[test]
    fn a_token_is_sent_to_no_other_host_without_encryption() {
        const VARIABLE: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
        for url in [
            "http://169.254.170.23/v1",
            "http://[fd00:ec2::23]/v1",
            "http://127.0.0.1:1/",
            "https://example.com/",
        ] {
            assert!(
                matches!(
                    choose(None, &[(VARIABLE, url)]),
                    Ok(CredentialSource::Direct(DirectSource::Container { .. }))
                ),
                "{url}"
            );
        }
        let of_ecs = |path: &str| choose(None, &[("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", path)]);
        assert!(matches!(of_ecs("/v2/credentials/1"),
            Ok(CredentialSource::Direct(DirectSource::Container { url, .. })) if url == "http://169.254.170.2/v2/credentials/1"));
        assert!(of_ecs("@example.com/").is_err());
        for url in ["http://example.com/", "http://127.evil.example/", "ftp://127.0.0.1/", "?"] {
            assert!(choose(None, &[(VARIABLE, url)]).is_err(), "{url}");
        }
    }

    #[test]
    fn no_secret_is_shown() {
        let shown = format!("{:?}", choose(None, &KEYS).unwrap());
        assert!(shown.contains("AKIA") && !shown.contains("hunter2"), "{shown}");
    }
}
