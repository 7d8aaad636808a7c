//! The section `[ec2]` of the configuration, and the access to EC2 that it gives.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::credentials::{CredentialError, CredentialSource, resolve};
use crate::environment::{AwsEnvironment, service_url};

/// The driver `ec2`, which assigns prefixes to the network interfaces of EC2 instances.
///
/// It finds its credentials as the AWS SDKs do: in the profile `profile`; in the environment variables `AWS_ACCESS_KEY_ID` and
/// `AWS_SECRET_ACCESS_KEY`; in the profile `AWS_PROFILE`; as a web identity (`AWS_WEB_IDENTITY_TOKEN_FILE` and `AWS_ROLE_ARN`, which EKS
/// sets for a service account with a role); from a pod identity or a task of ECS (`AWS_CONTAINER_CREDENTIALS_FULL_URI` or
/// `AWS_CONTAINER_CREDENTIALS_RELATIVE_URI`); in the default profile; from the instance on which it runs (version 2 of the metadata
/// service).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Ec2Options {
    /// The region. If not set: `AWS_REGION`, `AWS_DEFAULT_REGION`, or that of the profile.
    #[schemars(length(min = 1, max = 64), example = &"eu-west-1")]
    pub region: Option<String>,
    /// The profile in `~/.aws/credentials` or `~/.aws/config`. It has access keys, assumes a role with those of another profile, or
    /// names a program that prints keys. If not set: the first of the other sources that is configured.
    #[schemars(length(min = 1), example = &"production")]
    pub profile: Option<String>,
    /// The URL of EC2, for private endpoints. If not set: `AWS_ENDPOINT_URL_EC2`, or the public one of the region.
    #[schemars(length(min = 1), example = &"https://vpce-0abc.ec2.eu-west-1.vpce.amazonaws.com")]
    pub endpoint: Option<String>,
    /// The maximum number of read requests per second. Twice as many may be sent at once after a pause.
    pub reads_per_second: NonZeroU32,
    /// The maximum number of changes per second: assignments and removals, each of any number of blocks of one interface. Twice as
    /// many may be sent at once after a pause.
    pub changes_per_second: NonZeroU32,
}

impl Default for Ec2Options {
    fn default() -> Self {
        let per_second = |number| NonZeroU32::new(number).expect("it is not zero");
        Self {
            region: None,
            profile: None,
            endpoint: None,
            reads_per_second: per_second(10),
            changes_per_second: per_second(5),
        }
    }
}

/// The reason why the options and the environment give no access to EC2.
#[derive(Debug, thiserror::Error)]
pub enum Ec2OptionsError {
    /// Neither the options, nor the environment, nor the profile names a region.
    #[error("`ec2.region` is missing; set it, or the variable AWS_REGION")]
    NoRegion,
    /// The region contains other characters than letters, digits and hyphens.
    #[error("`ec2.region` is not the name of a region, such as `eu-west-1`: {0}")]
    Region(String),
    /// No usable source of credentials can be found.
    #[error(transparent)]
    Credentials(#[from] CredentialError),
}

/// The resolved access to EC2: the region, the URL, the source of the credentials and the rate limits.
#[derive(Clone, Debug)]
pub struct Ec2Access {
    /// The AWS region, such as `eu-central-1`.
    pub(crate) region: String,
    /// The URL of EC2.
    pub(crate) endpoint: String,
    /// The source of the access keys.
    pub(crate) source: CredentialSource,
    /// The maximum number of read requests per second.
    pub(crate) reads_per_second: u32,
    /// The maximum number of requests per second that change something.
    pub(crate) changes_per_second: u32,
}

impl Ec2Options {
    /// Combines the options with the environment. Reads profiles only if the source or the region depends on them. Connects to nothing.
    pub fn access(&self, environment: &AwsEnvironment) -> Result<Ec2Access, Ec2OptionsError> {
        let source = CredentialSource::choose(self.profile.as_deref(), environment)?;
        let of_profile = || match &source {
            CredentialSource::Profile(profile) => Ok(resolve(profile).map_err(CredentialError::from)?.region),
            CredentialSource::Direct(_) => Ok::<_, Ec2OptionsError>(None),
        };
        let named = ["AWS_REGION", "AWS_DEFAULT_REGION"].into_iter().find_map(|name| environment.get(name));
        let region = match self.region.clone().or_else(|| named.map(str::to_owned)) {
            Some(region) => region,
            None => of_profile()?.ok_or(Ec2OptionsError::NoRegion)?,
        };
        if !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return Err(Ec2OptionsError::Region(region));
        }
        let endpoint = self.endpoint.clone();
        let endpoint = endpoint.or_else(|| environment.get("AWS_ENDPOINT_URL_EC2").map(str::to_owned));
        Ok(Ec2Access {
            endpoint: endpoint.unwrap_or_else(|| service_url("ec2", &region)),
            region,
            source,
            reads_per_second: self.reads_per_second.get(),
            changes_per_second: self.changes_per_second.get(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> AwsEnvironment {
        AwsEnvironment(
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        )
    }

    #[test]
    fn the_region_and_the_endpoint_come_from_the_options_before_the_environment() {
        let none = Ec2Options::default();
        let access = none.access(&environment(&[("AWS_REGION", "eu-west-1")])).unwrap();
        assert_eq!(access.endpoint, "https://ec2.eu-west-1.amazonaws.com");
        assert_eq!(service_url("ec2", "cn-north-1"), "https://ec2.cn-north-1.amazonaws.com.cn");
        let options = Ec2Options {
            region: Some("us-east-1".to_owned()),
            endpoint: Some("http://127.0.0.1:1".to_owned()),
            ..none.clone()
        };
        let access = options.access(&environment(&[("AWS_REGION", "eu-west-1")])).unwrap();
        assert_eq!((access.region.as_str(), access.endpoint.as_str()), ("us-east-1", "http://127.0.0.1:1"));
        let error = none.access(&environment(&[])).unwrap_err().to_string();
        assert!(error.contains("`ec2.region` is missing"), "{error}");
        let error = none.access(&environment(&[("AWS_REGION", "a.evil/")])).unwrap_err();
        assert!(matches!(error, Ec2OptionsError::Region(_)));
    }
}
