//! The certificates in the Secret that the leader writes and every replica reads.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};

use super::certificate::{ServerCertificate, are_certificates};

/// The keys in the Secret for the certificate that replicas serve, and for its private key.
const SERVING: [&str; 2] = ["tls.crt", "tls.key"];
/// The keys in the Secret for the certificate that replicas will serve next, and for its private key.
const NEXT: [&str; 2] = ["next.crt", "next.key"];
/// The key in the Secret for the certificate that replicas served before.
const PREVIOUS: &str = "previous.crt";

/// The certificates in the Secret. One that cannot be used counts as missing.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct StoredCertificates {
    /// The certificate that replicas serve; `None` if there is none.
    pub(super) serving: Option<ServerCertificate>,
    /// The certificate that replicas will serve when API servers trust it; `None` if none is prepared.
    pub(super) next: Option<ServerCertificate>,
    /// The certificate, without its key, that replicas may still serve because they have not noticed its successor; `None` without one.
    pub(super) previous: Option<String>,
}

impl StoredCertificates {
    /// Reads the certificates from the Secret.
    pub(super) fn read(secret: &Secret) -> Self {
        let none = BTreeMap::new();
        let data = secret.data.as_ref().unwrap_or(&none);
        let text = |key: &str| data.get(key).and_then(|bytes| String::from_utf8(bytes.0.clone()).ok());
        let chain = |key: &str| text(key).filter(|pem| are_certificates(pem));
        let certificate = |[certificate, key]: [&str; 2]| {
            let (certificate, _) = ServerCertificate::read(chain(certificate)?, text(key)?).ok()?;
            Some(certificate)
        };
        Self { serving: certificate(SERVING), next: certificate(NEXT), previous: chain(PREVIOUS) }
    }

    /// Returns the merge patch that writes these certificates into the Secret, unless it was changed since `resource_version`; with `None`,
    /// in any case.
    pub(super) fn patch(&self, resource_version: Option<&str>) -> Value {
        let value = |text: Option<&String>| json!(text.map(|text| ByteString(text.clone().into_bytes())));
        let mut data = serde_json::Map::new();
        for ([chain, key], certificate) in [(SERVING, &self.serving), (NEXT, &self.next)] {
            let certificate = certificate.as_ref();
            data.insert(chain.to_owned(), value(certificate.map(|certificate| &certificate.chain)));
            data.insert(key.to_owned(), value(certificate.map(|certificate| &certificate.key)));
        }
        data.insert(PREVIOUS.to_owned(), value(self.previous.as_ref()));
        json!({ "metadata": { "resourceVersion": resource_version }, "data": data })
    }

    /// Returns the certificates that API servers must trust, in PEM: all that a replica may serve now or next. The result
    /// depends on the Secret alone, so every leader computes the same.
    pub(super) fn bundle(&self) -> String {
        let certificates = [&self.serving, &self.next].into_iter().flatten();
        let chains = certificates.map(|certificate| certificate.chain.as_str());
        chains.chain(self.previous.as_deref()).collect()
    }

    /// Returns the content of the Secret with which `new` is served at once, without a predecessor or a successor.
    pub(super) fn only(new: ServerCertificate) -> Self {
        Self { serving: Some(new), next: None, previous: None }
    }

    /// Returns the content of the Secret in which `new` is the next certificate, which is not served yet.
    pub(super) fn prepared(&self, new: ServerCertificate) -> Self {
        Self { next: Some(new), ..self.clone() }
    }

    /// Returns the content of the Secret with which the next certificate is served. The present one becomes the previous one, unless it
    /// has expired.
    pub(super) fn promoted(&self, now: Timestamp) -> Self {
        let present = self.serving.as_ref().filter(|certificate| now < certificate.expires);
        let previous = present.map(|certificate| certificate.chain.clone());
        Self { serving: self.next.clone(), next: None, previous }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::from_value;

    use super::*;

    fn certificate() -> ServerCertificate {
        let names = ["a.b.svc".to_owned()].into();
        ServerCertificate::generate(&names, Timestamp::now(), Duration::from_secs(3600)).unwrap()
    }

    fn secret(patch: &Value) -> Secret {
        let mut secret = json!({ "metadata": { "name": "s" }, "data": {} });
        json_patch(&mut secret["data"], &patch["data"]);
        from_value(secret).unwrap()
    }

    /// Merges as the API server does: null removes a key.
    fn json_patch(data: &mut Value, patch: &Value) {
        let data = data.as_object_mut().unwrap();
        for (key, value) in patch.as_object().unwrap() {
            drop(if value.is_null() { data.remove(key) } else { data.insert(key.clone(), value.clone()) });
        }
    }

    #[test]
    fn what_is_written_is_read_again_and_trusted() {
        let (first, second) = (certificate(), certificate());
        let mut stored = StoredCertificates::only(first.clone());
        assert!(StoredCertificates::read(&secret(&stored.patch(None))) == stored);
        assert_eq!(stored.bundle(), first.chain);
        stored = stored.prepared(second.clone());
        assert!(StoredCertificates::read(&secret(&stored.patch(Some("7")))) == stored);
        assert_eq!(stored.patch(Some("7"))["metadata"]["resourceVersion"], "7");
        stored = stored.promoted(Timestamp::now());
        assert!(StoredCertificates::read(&secret(&stored.patch(None))) == stored);
        assert_eq!(stored.bundle(), second.chain + &first.chain);
    }

    #[test]
    fn what_cannot_be_used_counts_as_missing() {
        assert!(StoredCertificates::read(&Secret::default()) == StoredCertificates::default());
        let (one, other) = (certificate(), certificate());
        let mixed = StoredCertificates::only(ServerCertificate { key: other.key, ..one });
        assert!(StoredCertificates::read(&secret(&mixed.patch(None))) == StoredCertificates::default());
        let block = "-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n";
        for previous in ["", "no certificate", block, &(other.chain.clone() + block)] {
            let stored = StoredCertificates { previous: Some(previous.to_owned()), ..Default::default() };
            assert!(StoredCertificates::read(&secret(&stored.patch(None))).previous.is_none(), "{previous}");
        }
    }
}
