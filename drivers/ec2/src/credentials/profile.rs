//! Profiles in the files `~/.aws/credentials` and `~/.aws/config` (AWS SDKs and Tools Reference Guide, "Shared config and credentials
//! files").

use std::collections::HashMap;
use std::path::PathBuf;
use std::{fs, io};

use secrecy::SecretString;

use super::AccessKeys;
use crate::environment::AwsEnvironment;

/// The options that obtain the keys in a way that the driver does not support.
const UNSUPPORTED: [&str; 5] =
    ["role_arn", "credential_process", "sso_session", "sso_start_url", "web_identity_token_file"];

/// The name of a profile, and the files that may contain it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProfileFiles {
    pub(crate) name: String,
    /// The file in which a section is called `[name]`.
    credentials: Option<PathBuf>,
    /// The file in which a section is called `[profile name]`, or `[default]`.
    config: Option<PathBuf>,
}

/// The contents of a profile.
pub(crate) struct Profile {
    pub(crate) region: Option<String>,
    pub(crate) keys: Option<AccessKeys>,
}

/// A profile that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// A file cannot be read.
    #[error("cannot read the AWS profiles in {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// No file has the profile.
    #[error("there is no AWS profile `{0}` in ~/.aws/credentials or ~/.aws/config")]
    Missing(String),
    /// The profile has no keys of its own.
    #[error(
        "the AWS profile `{name}` uses `{option}`, which is not supported; give it an access key, or use a web identity or a role of the instance"
    )]
    Unsupported {
        /// The name of the profile.
        name: String,
        /// The option.
        option: &'static str,
    },
    /// The profile has no keys, or only one half of them.
    #[error("the AWS profile `{0}` lacks `aws_access_key_id` or `aws_secret_access_key`")]
    NoKeys(String),
}

impl ProfileFiles {
    pub(crate) fn new(name: &str, environment: &AwsEnvironment) -> Self {
        Self {
            name: name.to_owned(),
            credentials: environment.file("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
            config: environment.file("AWS_CONFIG_FILE", "config"),
        }
    }
}

/// Reads a profile. Where both files have an option, that of the credentials file counts.
pub(crate) fn read_profile(files: &ProfileFiles) -> Result<Profile, ProfileError> {
    let name = &files.name;
    let section = if name == "default" { name.clone() } else { format!("profile {name}") };
    let mut options = read(files.config.as_ref(), &section)?;
    let of_credentials = read(files.credentials.as_ref(), name)?;
    if options.is_none() && of_credentials.is_none() {
        return Err(ProfileError::Missing(name.clone()));
    }
    options.get_or_insert_default().extend(of_credentials.unwrap_or_default());
    let mut options = options.unwrap_or_default();
    let region = options.remove("region");
    let keys = match (options.remove("aws_access_key_id"), options.remove("aws_secret_access_key")) {
        (Some(id), Some(secret)) => {
            let token = options.remove("aws_session_token").map(SecretString::from);
            Some(AccessKeys { id, secret: secret.into(), token, expires: None })
        }
        (None, None) => {
            if let Some(option) = UNSUPPORTED.into_iter().find(|option| options.contains_key(*option)) {
                return Err(ProfileError::Unsupported { name: name.clone(), option });
            }
            None
        }
        _ => return Err(ProfileError::NoKeys(name.clone())),
    };
    Ok(Profile { region, keys })
}

/// Returns the options of a section of a file; `None` without the file or the section.
fn read(path: Option<&PathBuf>, section: &str) -> Result<Option<HashMap<String, String>>, ProfileError> {
    let Some(path) = path else { return Ok(None) };
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(ProfileError::Unreadable { path: path.clone(), source }),
    };
    let (mut found, mut is_here) = (None::<HashMap<_, _>>, false);
    for line in text.lines() {
        // Lines with a space at their start belong to the option before, such as `s3 =`.
        let trimmed = line.trim_end();
        if let Some(name) = trimmed.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            is_here = name.0.split_whitespace().eq(section.split_whitespace());
            if is_here {
                found.get_or_insert_default();
            }
        } else if let (true, Some((key, value))) = (is_here, trimmed.split_once('='))
            && !line.starts_with(['#', ';', ' ', '\t'])
        {
            found.get_or_insert_default().insert(key.trim().to_lowercase(), value.trim().to_owned());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    const CREDENTIALS: &str = "# keys\n[default]\naws_access_key_id = AKIA1\naws_secret_access_key=one=1\n[other]\naws_access_key_id = A\n";
    const CONFIG: &str = "[default]\nregion = eu-west-1\ns3 =\n  region = none\n[profile full]\nregion=us-east-1\n\
        aws_access_key_id=AKIA2\naws_secret_access_key=two\naws_session_token = t\n[profile role]\nrole_arn = arn\n[full]\nregion=wrong\n";

    fn profile(name: &str) -> Result<Profile, String> {
        let folder = tempfile::tempdir().unwrap();
        let files = ProfileFiles {
            name: name.to_owned(),
            credentials: Some(folder.path().join("credentials")),
            config: Some(folder.path().join("config")),
        };
        fs::write(files.credentials.as_ref().unwrap(), CREDENTIALS).unwrap();
        fs::write(files.config.as_ref().unwrap(), CONFIG).unwrap();
        read_profile(&files).map_err(|error| error.to_string())
    }

    #[test]
    fn keys_and_region_are_found_in_both_files() {
        let default = profile("default").unwrap();
        assert_eq!(default.region.as_deref(), Some("eu-west-1"));
        let keys = default.keys.unwrap();
        assert_eq!((keys.id.as_str(), keys.secret.expose_secret()), ("AKIA1", "one=1"));
        let full = profile("full").unwrap();
        assert_eq!(full.region.as_deref(), Some("us-east-1"));
        assert!(full.keys.unwrap().token.is_some());
    }

    #[test]
    fn a_profile_without_usable_keys_is_named_with_the_reason() {
        assert!(profile("none").err().unwrap().contains("there is no AWS profile `none`"));
        assert!(profile("other").err().unwrap().contains("`other` lacks"));
        assert!(profile("role").err().unwrap().contains("`role` uses `role_arn`, which is not supported"));
    }
}
