//! What a service can do: Neutron's extensions, Octavia's versions.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::Service;
use crate::error::OpenStackError;

/// How long it stays true what a service can do: until somebody installs another release.
pub(super) const FRESH: Duration = Duration::from_secs(600);

#[derive(Deserialize)]
struct Extension {
    alias: String,
}

#[derive(Deserialize)]
struct Versions {
    versions: Vec<Version>,
}

#[derive(Deserialize)]
struct Version {
    id: String,
}

impl Service {
    /// Whether Neutron has the extension of that alias. All are asked for at once, and the answer is kept for ten minutes.
    pub async fn has_extension(&self, alias: &str) -> Result<bool, OpenStackError> {
        let ask = || async {
            let listed = self.get("list the extensions", "extensions");
            let listed: Vec<Extension> = listed.answer_in("extensions").await?;
            let aliases: HashSet<_> = listed.into_iter().map(|extension| extension.alias).collect();
            Ok::<_, OpenStackError>(Arc::new(aliases))
        };
        Ok(self.state().extensions.get(&(), ask).await?.contains(alias))
    }

    /// The newest version that the service has, such as `(2, 30)`: with Octavia, it tells what there is. The answer is kept
    /// for ten minutes.
    pub async fn version(&self) -> Result<(u32, u32), OpenStackError> {
        const STEP: &str = "read the versions of a service";
        let ask = || async {
            let answer = self.get(STEP, "").send_to_root().await?;
            let versions: Versions = answer.read(STEP, false)?;
            newest(&versions).ok_or_else(|| answer.unreadable(STEP, false))
        };
        self.state().version.get(&(), ask).await
    }
}

fn newest(versions: &Versions) -> Option<(u32, u32)> {
    let number = |id: &str| {
        let (major, minor) = id.strip_prefix('v')?.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    versions.versions.iter().filter_map(|version| number(&version.id)).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_the_greatest_number() {
        let versions = ["v2.0", "v2.9", "v2.30", "beta"].map(|id| Version { id: id.to_owned() });
        assert_eq!(newest(&Versions { versions: versions.into() }), Some((2, 30)));
        assert_eq!(newest(&Versions { versions: Vec::new() }), None);
    }
}
