//! Resolves a profile: the access keys at its source, and the roles that are assumed with them (AWS SDKs and Tools Reference Guide,
//! "Assume role credential provider").

use std::path::PathBuf;

use super::profile::{ProfileError, ProfileFiles, ProfileOptions};
use super::{CredentialError, DirectSource, SESSION, container, environment_keys, instance, sts_endpoint};
use crate::access_keys::AccessKeys;

/// The profile options of a login in a browser, which the driver does not support.
const SSO: [&str; 2] = ["sso_session", "sso_start_url"];
/// The profile option of a one-time code that a person types, which the driver does not support.
const MFA: &str = "mfa_serial";

/// A role that is assumed with the keys of a user or another role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AssumedRole {
    /// The Amazon Resource Name of the role.
    pub(super) arn: String,
    /// The name of the role's session, which AWS logs.
    pub(super) session: String,
    /// The external id (`ExternalId` of STS) that the trust policy of the role may require.
    pub(super) external_id: Option<String>,
    /// The duration of the session in seconds; `None` for an hour.
    pub(super) duration: Option<u32>,
    /// The URL of STS; `None` for that of the region.
    pub(super) endpoint: Option<String>,
}

/// A profile, after following the profiles that it names as its sources.
#[derive(Debug)]
pub(crate) struct ResolvedProfile {
    /// The region that the profile names; `None` if it names none.
    pub(crate) region: Option<String>,
    /// The source of the first access keys; `None` if the profile has no credentials.
    pub(super) source: Option<DirectSource>,
    /// The roles that are assumed one after the other, beginning with the keys of `source`.
    pub(super) roles: Vec<AssumedRole>,
}

/// Reads a profile and the profiles that it refers to, and returns its region, the source of its keys and the roles to assume.
pub(crate) fn resolve(files: &ProfileFiles) -> Result<ResolvedProfile, ProfileError> {
    let (mut name, mut roles, mut seen) = (files.name.clone(), Vec::new(), Vec::<String>::new());
    let mut options = files.read(&name)?;
    let region = options.remove("region");
    let source = loop {
        let Some(arn) = options.remove("role_arn") else {
            break keys(&name, &mut options)?;
        };
        if options.contains_key(MFA) {
            return Err(ProfileError::Unsupported { name, option: MFA });
        }
        let session = options.remove("role_session_name").unwrap_or_else(|| SESSION.to_owned());
        let endpoint = sts_endpoint(&files.environment);
        if let Some(token_file) = options.remove("web_identity_token_file") {
            let token_file = PathBuf::from(token_file);
            break Some(DirectSource::WebIdentity { role: arn, token_file, session, endpoint });
        }
        let duration = options.remove("duration_seconds").map(|text| text.parse());
        let duration =
            duration.transpose().ok().filter(|number| number.is_none_or(|n| (900..=43200).contains(&n)));
        let duration = duration.ok_or_else(|| ProfileError::Duration(name.clone()))?;
        let external_id = options.remove("external_id");
        roles.insert(0, AssumedRole { arn, session, external_id, duration, endpoint });
        match (options.remove("source_profile"), options.remove("credential_source")) {
            // A profile that is its own source has keys of its own.
            (Some(next), None) if next == name => break keys(&name, &mut options)?,
            (Some(next), None) => {
                seen.push(std::mem::replace(&mut name, next));
                if seen.contains(&name) {
                    return Err(ProfileError::Loop(name));
                }
                options = files.read(&name)?;
            }
            (None, Some(value)) => break Some(named(files, &name, value)?),
            _ => return Err(ProfileError::NoSource(name)),
        }
    };
    if source.is_none() && !roles.is_empty() {
        return Err(ProfileError::NoKeys(name));
    }
    Ok(ResolvedProfile { region, source, roles })
}

/// Returns the source of keys in the options of a profile: the keys themselves, or the program that prints
/// them; `None` if it has neither.
fn keys(name: &str, options: &mut ProfileOptions) -> Result<Option<DirectSource>, ProfileError> {
    match (options.remove("aws_access_key_id"), options.remove("aws_secret_access_key")) {
        (Some(id), Some(secret)) => {
            let token = options.remove("aws_session_token").map(Into::into);
            Ok(Some(DirectSource::Fixed(AccessKeys { id, secret: secret.into(), token, expires: None })))
        }
        (None, None) => match options.remove("credential_process") {
            Some(command) => Ok(Some(DirectSource::Process(command))),
            None => match SSO.into_iter().find(|option| options.contains_key(*option)) {
                Some(option) => Err(ProfileError::Unsupported { name: name.to_owned(), option }),
                None => Ok(None),
            },
        },
        _ => Err(ProfileError::NoKeys(name.to_owned())),
    }
}

/// Returns the source of keys that `value` means: the option `credential_source` of the profile `name`.
fn named(files: &ProfileFiles, name: &str, value: String) -> Result<DirectSource, ProfileError> {
    let environment = &files.environment;
    let wrong = |error: CredentialError| ProfileError::Environment(Box::new(error));
    let source = match value.as_str() {
        "Environment" => {
            environment_keys(environment).map_err(|error| wrong(error.into()))?.map(DirectSource::Fixed)
        }
        "Ec2InstanceMetadata" => Some(instance(environment)),
        "EcsContainer" => container(environment).map_err(wrong)?,
        _ => None,
    };
    source.ok_or_else(|| ProfileError::CredentialSource { name: name.to_owned(), value })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use secrecy::ExposeSecret;

    use super::*;
    use crate::environment::AwsEnvironment;

    const CREDENTIALS: &str = "# keys\n[default]\naws_access_key_id = AKIA1\naws_secret_access_key=one=1\n[other]\naws_access_key_id = A\n";
    const CONFIG: &str = "[default]\nregion = eu-west-1\ns3 =\n  region = none\n[profile full]\nregion=us-east-1\n\
        aws_access_key_id=AKIA2\naws_secret_access_key=two\naws_session_token = t\n[full]\nregion=wrong\n\
        [profile inner]\nrole_arn = arn:inner\nsource_profile = full\nexternal_id = x\nduration_seconds = 900\n\
        [profile outer]\nrole_arn = arn:outer\nsource_profile = inner\nrole_session_name = s\nregion = eu-north-1\n\
        [profile own]\nrole_arn = arn:own\nsource_profile = own\naws_access_key_id = AKIA3\naws_secret_access_key = three\n\
        [profile a]\nrole_arn = arn:a\nsource_profile = b\n[profile b]\nrole_arn = arn:b\nsource_profile = a\n\
        [profile alone]\nrole_arn = arn:c\n[profile long]\nrole_arn = arn:d\nsource_profile = full\nduration_seconds = 1\n\
        [profile sso]\nsso_session = mine\n[profile mfa]\nrole_arn = arn:e\nsource_profile = full\nmfa_serial = m\n\
        [profile variables]\nrole_arn = arn:f\ncredential_source = Environment\n\
        [profile machine]\nrole_arn = arn:g\ncredential_source = Ec2InstanceMetadata\n\
        [profile task]\nrole_arn = arn:h\ncredential_source = EcsContainer\n\
        [profile token]\nrole_arn = arn:i\nweb_identity_token_file = /t\n[profile program]\ncredential_process = p --q\n";

    fn profile(name: &str) -> Result<ResolvedProfile, String> {
        let folder = tempfile::tempdir().unwrap();
        let [credentials, config] = ["credentials", "config"].map(|name| folder.path().join(name));
        fs::write(&credentials, CREDENTIALS).unwrap();
        fs::write(&config, CONFIG).unwrap();
        let path = |path: PathBuf| path.to_str().unwrap().to_owned();
        let variables = [
            ("AWS_SHARED_CREDENTIALS_FILE", path(credentials)),
            ("AWS_CONFIG_FILE", path(config)),
            ("AWS_ACCESS_KEY_ID", "AKIA4".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "hunter2".to_owned()),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value));
        let files = ProfileFiles::new(name, &AwsEnvironment(variables.into()));
        assert!(!format!("{files:?}").contains("hunter2"), "no secret is shown");
        resolve(&files).map_err(|error| error.to_string())
    }

    /// The id of the first keys, and the roles.
    fn chain(name: &str) -> (String, Vec<String>) {
        let ResolvedProfile { source, roles, .. } = profile(name).unwrap();
        let Some(DirectSource::Fixed(keys)) = source else { panic!("{name} has no keys: {source:?}") };
        (keys.id, roles.into_iter().map(|role| role.arn).collect())
    }

    #[test]
    fn keys_and_region_are_found_in_both_files() {
        let default = profile("default").unwrap();
        assert_eq!(default.region.as_deref(), Some("eu-west-1"));
        let Some(DirectSource::Fixed(keys)) = default.source else { panic!("it has keys") };
        assert_eq!((keys.id.as_str(), keys.secret.expose_secret()), ("AKIA1", "one=1"));
        assert_eq!(profile("full").unwrap().region.as_deref(), Some("us-east-1"));
        assert_eq!(chain("full"), ("AKIA2".to_owned(), Vec::new()));
    }

    #[test]
    fn roles_are_assumed_from_the_source_outwards() {
        assert_eq!(
            chain("outer"),
            ("AKIA2".to_owned(), vec!["arn:inner".to_owned(), "arn:outer".to_owned()])
        );
        let outer = profile("outer").unwrap();
        assert_eq!(outer.region.as_deref(), Some("eu-north-1"), "the region is that of the profile itself");
        let [inner, outer] = &outer.roles[..] else { panic!("two roles: {outer:?}") };
        assert_eq!(
            (inner.external_id.as_deref(), inner.duration, inner.session.as_str()),
            (Some("x"), Some(900), SESSION)
        );
        assert_eq!((outer.external_id.as_deref(), outer.duration, outer.session.as_str()), (None, None, "s"));
        assert_eq!(chain("own"), ("AKIA3".to_owned(), vec!["arn:own".to_owned()]));
        assert_eq!(chain("variables"), ("AKIA4".to_owned(), vec!["arn:f".to_owned()]));
    }

    #[test]
    fn a_profile_may_name_the_instance_a_token_or_a_program() {
        let source = |name: &str| profile(name).unwrap().source;
        assert!(matches!(source("machine"), Some(DirectSource::Instance { .. })));
        assert!(matches!(source("token"), Some(DirectSource::WebIdentity { role, .. }) if role == "arn:i"));
        assert!(matches!(source("program"), Some(DirectSource::Process(command)) if command == "p --q"));
    }

    #[test]
    fn a_profile_without_usable_keys_is_named_with_the_reason() {
        for (name, reason) in [
            ("none", "there is no AWS profile `none`"),
            ("other", "`other` lacks"),
            ("a", "`a` is its own source"),
            ("alone", "`alone` has a `role_arn`; it needs a `source_profile`"),
            ("long", "`duration_seconds` of the AWS profile `long`"),
            ("sso", "`credential_process = aws configure export-credentials --profile sso`"),
            ("mfa", "`mfa` uses `mfa_serial`, which is not supported"),
            ("task", "`credential_source` `EcsContainer`"),
        ] {
            let error = profile(name).err().unwrap();
            assert!(error.contains(reason), "{name}: {error}");
        }
    }
}
