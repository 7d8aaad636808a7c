//! The environment variables that the AWS SDKs read too, and the public URLs of services.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// The environment variables of the process, by name. `Debug` shows the names only: some values are secrets.
#[derive(Clone, Default)]
pub struct AwsEnvironment(pub BTreeMap<String, String>);

impl fmt::Debug for AwsEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The error of two environment variables that belong together, of which only one is set.
#[derive(Debug, thiserror::Error)]
#[error("the variable {set} is set, and {missing} is not; set both or none")]
pub struct IncompleteVariables {
    /// The name of the variable that is set.
    pub set: &'static str,
    /// The name of the variable that is missing.
    pub missing: &'static str,
}

impl AwsEnvironment {
    /// Returns those variables of this process whose names begin with `AWS_`, and `HOME`.
    pub fn from_process() -> Self {
        let text = |name: std::ffi::OsString| name.into_string().ok();
        let variables = std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?)));
        Self(variables.filter(|(name, _)| name.starts_with("AWS_") || name == "HOME").collect())
    }

    /// Returns the value of a variable; `None` if it is not set or empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns the values of two variables that belong together; `None` if neither is set, and an error if only one is.
    pub(crate) fn both(
        &self,
        first: &'static str,
        second: &'static str,
    ) -> Result<Option<(&str, &str)>, IncompleteVariables> {
        match (self.get(first), self.get(second)) {
            (Some(a), Some(b)) => Ok(Some((a, b))),
            (None, None) => Ok(None),
            (Some(_), None) => Err(IncompleteVariables { set: first, missing: second }),
            (None, Some(_)) => Err(IncompleteVariables { set: second, missing: first }),
        }
    }

    /// Returns the path of a file of the AWS configuration: the value of `variable`, or else `name` in `~/.aws`; `None` without a home
    /// directory.
    pub(crate) fn file(&self, variable: &str, name: &str) -> Option<PathBuf> {
        let home = || self.get("HOME").map(|home| PathBuf::from(home).join(".aws").join(name));
        self.get(variable).map(PathBuf::from).or_else(home)
    }
}

/// Returns the public URL of a service in a region (AWS General Reference, "AWS service endpoints").
pub(crate) fn service_url(service: &str, region: &str) -> String {
    let suffix = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
    format!("https://{service}.{region}.{suffix}")
}
