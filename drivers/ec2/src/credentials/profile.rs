//! Profiles in the files `~/.aws/credentials` and `~/.aws/config` (AWS SDKs and Tools Reference Guide, "Shared config and credentials
//! files").

use std::collections::HashMap;
use std::path::PathBuf;
use std::{fs, io};

use super::CredentialError;
use crate::environment::AwsEnvironment;

/// The options of a profile, by name in lower case.
pub(super) type ProfileOptions = HashMap<String, String>;

/// The name of a profile, and the files that may contain it and the profiles that it refers to.
#[derive(Clone, Debug)]
pub(crate) struct ProfileFiles {
    /// The name of the profile.
    pub(crate) name: String,
    /// The credentials file, with sections `[name]`.
    credentials: Option<PathBuf>,
    /// The config file, with sections `[profile name]` and `[default]`.
    config: Option<PathBuf>,
    /// The environment, to which profiles may refer.
    pub(super) environment: AwsEnvironment,
}

/// The reason why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// A file with profiles cannot be read.
    #[error("cannot read the AWS profiles in {}", path.display())]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// Neither file of the AWS configuration has the profile with this name.
    #[error("there is no AWS profile `{0}` in ~/.aws/credentials or ~/.aws/config")]
    Missing(String),
    /// The profile has an option that the driver does not support, such as a login in a browser.
    #[error(
        "the AWS profile `{name}` uses `{option}`, which is not supported; use a profile with `credential_process = aws configure export-credentials --profile {name}`, or a role of the instance or the service account"
    )]
    Unsupported {
        /// The name of the profile.
        name: String,
        /// The name of the option that is not supported.
        option: &'static str,
    },
    /// The profile has no access key, or only one of its id and its secret.
    #[error("the AWS profile `{0}` lacks `aws_access_key_id` or `aws_secret_access_key`")]
    NoKeys(String),
    /// The profile assumes a role, but names no source of the keys to do it with, or two sources.
    #[error(
        "the AWS profile `{0}` has a `role_arn`; it needs a `source_profile` or a `credential_source`, and not both"
    )]
    NoSource(String),
    /// The value of `credential_source` is not one of those that AWS defines, or that source has no credentials.
    #[error(
        "the AWS profile `{name}` has the `credential_source` `{value}`; it must be `Environment`, `Ec2InstanceMetadata` or `EcsContainer`, and there must be such credentials"
    )]
    CredentialSource {
        /// The name of the profile.
        name: String,
        /// The value of the option `credential_source`.
        value: String,
    },
    /// Profiles name each other in a circle as their `source_profile`. The text is the name of one of them.
    #[error("the AWS profile `{0}` is its own source, through `source_profile` of others")]
    Loop(String),
    /// The value of `duration_seconds` is not a number from 900 to 43200. The text is the name of the profile.
    #[error("`duration_seconds` of the AWS profile `{0}` is not a number from 900 to 43200")]
    Duration(String),
    /// The profile refers to credentials in the environment variables, which cannot be used.
    #[error(transparent)]
    Environment(Box<CredentialError>),
}

impl ProfileFiles {
    /// Creates a reference to the profile `name` in the files that the environment variables name, or else in those in `~/.aws`. Reads no
    /// file.
    pub(crate) fn new(name: &str, environment: &AwsEnvironment) -> Self {
        Self {
            name: name.to_owned(),
            credentials: environment.file("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
            config: environment.file("AWS_CONFIG_FILE", "config"),
            environment: environment.clone(),
        }
    }

    /// Reads the options of a profile. Where both files have an option, that of the credentials file counts.
    pub(super) fn read(&self, name: &str) -> Result<ProfileOptions, ProfileError> {
        let section = if name == "default" { name.to_owned() } else { format!("profile {name}") };
        let of_config = read(self.config.as_ref(), &section)?;
        let of_credentials = read(self.credentials.as_ref(), name)?;
        if of_config.is_none() && of_credentials.is_none() {
            return Err(ProfileError::Missing(name.to_owned()));
        }
        let mut options = of_config.unwrap_or_default();
        options.extend(of_credentials.unwrap_or_default());
        Ok(options)
    }
}

/// Reads the options in the section `section` of a file; `None` without the file or the section.
fn read(path: Option<&PathBuf>, section: &str) -> Result<Option<ProfileOptions>, ProfileError> {
    let Some(path) = path else { return Ok(None) };
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(source) => return Err(ProfileError::Unreadable { path: path.clone(), source }),
    };
    let (mut found, mut is_here) = (None::<ProfileOptions>, false);
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
