//! The files of the client certificate and its key, which kube reads only once.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use kube::config::AuthInfo;
use tracing::warn;

/// The interval at which the files of the client certificate are checked for changes.
const INTERVAL: Duration = Duration::from_secs(10);

/// The paths of the client certificate and its key, with a hash of the content of each file at the time of the connection.
#[derive(Clone, Debug, Default)]
pub struct KeyFiles(Vec<(PathBuf, u64)>);

impl KeyFiles {
    /// Reads the files that `auth` names. The result is empty if `auth` contains the certificate and the key itself.
    pub(super) fn of(auth: &AuthInfo) -> io::Result<Self> {
        let certificate = auth.client_certificate.as_ref().filter(|_| auth.client_certificate_data.is_none());
        let key = auth.client_key.as_ref().filter(|_| auth.client_key_data.is_none());
        let files = certificate.into_iter().chain(key).map(PathBuf::from);
        files.map(|path| Ok((path.clone(), content_hash(&path)?))).collect::<io::Result<_>>().map(Self)
    }

    /// Completes with the path of a file whose content has changed; never if there are no files. A file that cannot be read, or is
    /// empty, counts as unchanged.
    pub async fn replaced(&self) -> &Path {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(INTERVAL).await;
            for (path, before) in &self.0 {
                match content_hash(path) {
                    Ok(now) if now != *before => return path,
                    Ok(_) => {}
                    Err(error) => {
                        warn!(path = %path.display(), %error, "cannot read the client certificate or key again");
                    }
                }
            }
        }
    }
}

/// Returns a hash of the content of a file. Fails if the file is empty.
fn content_hash(path: &Path) -> io::Result<u64> {
    let bytes = fs::read(path)?;
    if bytes.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is empty"));
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
    async fn a_replaced_certificate_is_noticed_and_a_missing_one_is_not() {
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
    async fn data_in_the_kubeconfig_is_in_no_file() {
        let carried =
            "client-certificate: /no\nclient-certificate-data: eA==\nclient-key: /no\nclient-key-data: eA==";
        for yaml in ["{}", carried] {
            let files = KeyFiles::of(&auth(yaml)).unwrap();
            assert!(timeout(Duration::from_secs(3600), files.replaced()).await.is_err(), "{yaml}");
        }
        assert!(KeyFiles::of(&auth("client-key: /no")).is_err());
    }
}
