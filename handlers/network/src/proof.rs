//! The proof that the controller has accepted the VIFs in the annotation of a pod. It is in another annotation, for the daemons of nodes:
//! whoever may change a pod may write both, but not compute the proof.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

use ring::hmac::{self, HMAC_SHA256};

use crate::os_vif::PodState;

/// The key of the annotation with the proof.
pub const VIF_PROOF: &str = "staffetta.dev/vif-proof";

/// The minimum length of a key, in bytes: that of the digest.
const MIN_KEY: usize = 32;

/// The key by which the controller makes proofs, and daemons check them.
#[derive(Clone, Debug)]
pub struct ProofKey(hmac::Key);

/// The error of a file that does not contain a key.
#[derive(Debug, thiserror::Error)]
pub enum ProofKeyError {
    /// The file cannot be read.
    #[error("cannot read the key in {} (`kubernetes.vif_proof_key_file`): {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The content is shorter than a key must be.
    #[error("the key in {} (`kubernetes.vif_proof_key_file`) is shorter than {MIN_KEY} bytes", .0.display())]
    Short(PathBuf),
}

impl ProofKey {
    /// Reads the key from a file: all bytes except for white space at both ends.
    pub fn read(path: &Path) -> Result<Self, ProofKeyError> {
        let content = fs::read(path);
        let content =
            content.map_err(|source| ProofKeyError::Unreadable { path: path.to_owned(), source })?;
        let key = content.trim_ascii();
        if key.len() < MIN_KEY {
            return Err(ProofKeyError::Short(path.to_owned()));
        }
        Ok(Self(hmac::Key::new(HMAC_SHA256, key)))
    }

    /// Returns the proof that the pod with this UID has these VIFs: an HMAC-SHA256 in hexadecimal digits.
    pub fn prove(&self, uid: &str, state: &PodState) -> String {
        let tag = hmac::sign(&self.0, &message(uid, state));
        tag.as_ref().iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// Returns `true` if `proof` proves that the pod with this UID has these VIFs.
    pub fn proves(&self, uid: &str, state: &PodState, proof: &str) -> bool {
        let digits = proof.as_bytes().chunks(2);
        let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
        let tag: Option<Vec<u8>> = digits.map(byte).collect();
        tag.is_some_and(|tag| hmac::verify(&self.0, &message(uid, state), &tag).is_ok())
    }
}

/// Returns what is proven: the UID of the pod, and everything about its VIFs except whether they are active, which changes later.
fn message(uid: &str, state: &PodState) -> Vec<u8> {
    let mut state = state.clone();
    for vif in state.vifs_mut() {
        vif.active = false;
    }
    format!("{uid}\n{}", state.write()).into_bytes()
}

#[cfg(test)]
mod tests {
    use staffetta_driver::Vif;

    use super::*;

    /// Returns what a file with this content gives.
    fn read(content: &[u8]) -> Result<ProofKey, ProofKeyError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), content).unwrap();
        ProofKey::read(file.path())
    }

    fn vif(id: &str) -> Vif {
        let state = PodState::read(include_str!("os_vif/kuryr-vif.json")).unwrap();
        Vif { id: id.into(), ..state.default_vif }
    }

    #[test]
    fn a_proof_is_of_one_pod_its_vifs_and_one_key() {
        let (key, other_key) = (read(&[b'a'; 32]).unwrap(), read(&[b'b'; 32]).unwrap());
        let state = PodState::new(vif("p1"));
        let proof = key.prove("u1", &state);
        assert_eq!(proof.len(), 64);
        let read = PodState::read(&state.write()).unwrap();
        let active = PodState::new(Vif { active: true, ..vif("p1") });
        assert!(key.proves("u1", &state, &proof) && key.proves("u1", &read, &proof));
        assert!(key.proves("u1", &active, &proof), "its activity is not proven");
        let mut vlan = vif("p1");
        vlan.plugin = "noop".to_owned();
        for (uid, other) in [("u2", &state), ("u1", &PodState::new(vif("p2"))), ("u1", &PodState::new(vlan))]
        {
            assert!(!key.proves(uid, other, &proof));
        }
        assert!(!other_key.proves("u1", &state, &proof));
        for forged in ["", "0", &proof[..62], &format!("{proof}00"), "ä", &"0".repeat(64)] {
            assert!(!key.proves("u1", &state, forged), "{forged}");
        }
    }

    #[test]
    fn a_key_is_long_enough_and_its_file_can_be_read() {
        assert!(read(b" 01234567890123456789012345678901\n").is_ok());
        let error = read(b"\n0123456789012345678901234567890\n\n").unwrap_err().to_string();
        assert!(error.ends_with("is shorter than 32 bytes"), "{error}");
        let error = ProofKey::read(Path::new("/nonexistent")).unwrap_err().to_string();
        assert!(error.contains("`kubernetes.vif_proof_key_file`"), "{error}");
    }
}
