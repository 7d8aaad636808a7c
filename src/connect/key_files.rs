//! The files with the client's certificate and its key, which a connection is made with once.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use kube::config::AuthInfo;
use tracing::warn;

/// How often the files are looked at.
const INTERVAL: Duration = Duration::from_secs(10);

/// The files with the certificate and the key with which this program shows who it is, and what was in them at the start.
#[derive(Clone, Debug, Default)]
pub struct KeyFiles(Vec<(PathBuf, u64)>);

impl KeyFiles {
    /// Those that `auth` names, as far as it does not carry what is in them itself.
    pub(super) fn of(auth: &AuthInfo) -> io::Result<Self> {
        let certificate = auth.client_certificate.as_ref().filter(|_| auth.client_certificate_data.is_none());
        let key = auth.client_key.as_ref().filter(|_| auth.client_key_data.is_none());
        let files = certificate.into_iter().chain(key).map(PathBuf::from);
        files.map(|path| Ok((path.clone(), content(&path)?))).collect::<io::Result<_>>().map(Self)
    }

    /// Ends when there is something else in one of them, with its path; never where there are none. Without a file, or with
    /// nothing in it, what was there is as good as there is.
    pub async fn replaced(&self) -> &Path {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(INTERVAL).await;
            for (path, before) in &self.0 {
                match content(path) {
                    Ok(now) if now != *before => return path,
                    Ok(_) => {}
                    Err(error) => warn!(path = %path.display(), %error, "the file cannot be read again"),
                }
            }
        }
    }
}

/// What tells one content of a file from another. The key itself is not kept.
fn content(path: &Path) -> io::Result<u64> {
    let bytes = fs::read(path)?;
    if bytes.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "there is nothing in it"));
    }
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    Ok(hasher.finish())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, timeout};

    use super::*;

    fn auth(yaml: &str) -> AuthInfo {
        serde_saphyr::from_str(yaml).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_certificate_that_was_replaced_is_noticed_and_one_that_is_gone_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let [certificate, key] = ["tls.crt", "tls.key"].map(|name| folder.path().join(name));
        for path in [&certificate, &key] {
            fs::write(path, "one").unwrap();
        }
        let (shown, hidden) = (certificate.display(), key.display());
        let files =
            KeyFiles::of(&auth(&format!("client-certificate: {shown}\nclient-key: {hidden}"))).unwrap();
        let hour = Duration::from_secs(3600);
        assert!(timeout(hour, files.replaced()).await.is_err());
        fs::write(&key, "").unwrap();
        assert!(timeout(hour, files.replaced()).await.is_err());
        fs::remove_file(&key).unwrap();
        assert!(timeout(hour, files.replaced()).await.is_err());
        fs::write(&key, "two").unwrap();
        let begun = Instant::now();
        assert_eq!(files.replaced().await, key);
        assert_eq!(begun.elapsed(), INTERVAL);
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_kubeconfig_carries_itself_is_in_no_file() {
        let carried =
            "client-certificate: /no\nclient-certificate-data: eA==\nclient-key: /no\nclient-key-data: eA==";
        for yaml in ["{}", carried] {
            let files = KeyFiles::of(&auth(yaml)).unwrap();
            assert!(timeout(Duration::from_secs(3600), files.replaced()).await.is_err(), "{yaml}");
        }
        assert!(KeyFiles::of(&auth("client-key: /no")).is_err());
    }
}
