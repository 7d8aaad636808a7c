//! The ownership mark of an application: labels in its run options that name the cluster, pod and container.
//!
//! The labels are written with the keys of the first versions of Cisco's provider, and four further keys
//! `staffetta.dev/...`. The keys of later versions of that provider are read too.

use std::collections::HashMap;

use staffetta_driver::{ClusterId, Owner};

use super::digest::digest;
use super::run_options::Options;
use crate::model::config::RunOptions;

/// The label keys of the pod's name: the one that is written, and the one that later versions of Cisco's provider write.
const POD_NAME: [&str; 2] = ["cisco.vk/pod-name", "io.kubernetes.pod.name"];
/// The label keys of the pod's namespace: the one that is written, and the one that later versions of Cisco's provider write.
const POD_NAMESPACE: [&str; 2] = ["cisco.vk/pod-namespace", "io.kubernetes.pod.namespace"];
/// The label keys of the pod's UID: the one that is written, and the one that later versions of Cisco's provider write.
const POD_UID: [&str; 2] = ["cisco.vk/pod-uid", "io.kubernetes.pod.uid"];
/// The label keys of the container's name: the one that is written, and the one that later versions of Cisco's provider write.
const CONTAINER_NAME: [&str; 2] = ["cisco.vk/container-name", "io.kubernetes.container.name"];
/// The label key of the cluster that created the application.
const CLUSTER: &str = "staffetta.dev/cluster";
/// The label key of the digest of the container's mutable fields.
const DIGEST_KEY: &str = "staffetta.dev/form";
/// The label key of the index of the container in its pod.
const POSITION: &str = "staffetta.dev/position";
/// The label key of the location of the package. Only applications that are installed from a copy on the flash have this label.
const PACKAGE: &str = "staffetta.dev/package";

/// The value of [`PACKAGE`] if the package is installed from a copy on the flash.
const FLASH: &str = "flash";

/// The maximum length of a label value that is not truncated, in characters. With it, `--label` and the longest key still fit into a line
/// of 235.
const MAX_COMPLETE: usize = 200;

/// The number of characters that remain of a truncated value, before the digest.
const TRUNCATED_LENGTH: usize = 160;

/// The separator before the digest of a truncated value. It does not occur in names of Kubernetes.
const DIGEST_SEPARATOR: char = '~';

/// The ownership mark of an application: the labels in its run options, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AppMark {
    /// The pod. A name or namespace that is too long for a line is truncated, and ends with a digest of the complete
    /// text.
    pub(crate) owner: Owner,
    /// The name of the container.
    pub(crate) container: String,
    /// The cluster, as [`AppMark::cluster`] encodes it; `None` if another controller without such a label created the
    /// application.
    pub(crate) cluster: Option<String>,
    /// A digest of the mutable fields of the container (image and resources); `None` if another controller created the
    /// application.
    pub(crate) form: Option<String>,
    /// The index of the container in its pod; `None` if the label is missing or malformed.
    pub(crate) position: Option<usize>,
    /// `true` if the package is installed from a copy on the flash.
    pub(crate) copied: bool,
}

impl AppMark {
    /// Returns the cluster id as a label value: unchanged if it fits and needs no quoting, otherwise a digest.
    pub(crate) fn cluster(cluster: &ClusterId) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let name = cluster.as_str();
        let fits = !name.is_empty() && name.len() <= MAX_COMPLETE && name.chars().all(plain);
        if fits { name.to_owned() } else { format!("{DIGEST_SEPARATOR}{}", digest(name, 16)) }
    }

    /// Adds the labels to the run options, one label per line. Returns an error if a value contains a character that is
    /// not allowed, or there is no room.
    pub(super) fn write(&self, options: &mut Options) -> Result<(), String> {
        let position = self.position.map(|position| position.to_string());
        let labels = [
            (POD_NAME[0], Some(self.owner.name.as_str())),
            (POD_NAMESPACE[0], Some(self.owner.namespace.as_str())),
            (POD_UID[0], Some(self.owner.uid.as_str())),
            (CONTAINER_NAME[0], Some(self.container.as_str())),
            (CLUSTER, self.cluster.as_deref()),
            (DIGEST_KEY, self.form.as_deref()),
            (POSITION, position.as_deref()),
        ];
        for (key, value) in labels {
            let Some(value) = value else { continue };
            options.line("--label", &format!("{key}={}", truncated(value)))?;
        }
        // It comes later than the others, which keep their lines.
        if self.copied { options.joined("--label", &format!("{PACKAGE}={FLASH}")) } else { Ok(()) }
    }

    /// Decodes the labels in the run options. `None` if there is no UID, pod name or container name: the application
    /// belongs to no pod.
    pub(crate) fn read(options: &RunOptions) -> Option<Self> {
        let labels = labels(options);
        let one =
            |keys: [&str; 2]| keys.iter().find_map(|key| labels.get(key)).map(|value| (*value).to_owned());
        Some(Self {
            owner: Owner {
                namespace: one(POD_NAMESPACE).unwrap_or_default(),
                name: one(POD_NAME)?,
                uid: one(POD_UID).filter(|uid| !uid.is_empty())?.into(),
            },
            container: one(CONTAINER_NAME)?,
            cluster: labels.get(CLUSTER).map(|cluster| (*cluster).to_owned()),
            form: labels.get(DIGEST_KEY).map(|form| (*form).to_owned()),
            position: labels.get(POSITION).and_then(|position| position.parse().ok()),
            copied: labels.get(PACKAGE).is_some_and(|package| *package == FLASH),
        })
    }
}

/// Returns the labels in the run options. A value ends at a blank. Of several labels with the same key, the first is
/// used.
fn labels(options: &RunOptions) -> HashMap<&str, &str> {
    let mut labels = HashMap::new();
    for line in &options.run_opts {
        let mut words = line.line_run_opts.split_whitespace();
        while let Some(word) = words.next() {
            let label = match word {
                "--label" | "-l" => words.next(),
                _ => word.strip_prefix("--label="),
            };
            if let Some((key, value)) = label.and_then(|label| label.split_once('=')) {
                labels.entry(key).or_insert(value);
            }
        }
    }
    labels
}

/// Returns a text that fits into a line of run options: the text itself or, if it is too long, its beginning with a digest.
fn truncated(text: &str) -> String {
    if text.len() <= MAX_COMPLETE {
        return text.to_owned();
    }
    let part: String = text.chars().take(TRUNCATED_LENGTH).collect();
    format!("{part}{DIGEST_SEPARATOR}{}", digest(text, 16))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::config::Line;

    fn mark(name: &str) -> AppMark {
        AppMark {
            owner: Owner { namespace: "shop".into(), name: name.into(), uid: "u-1".into() },
            container: "app".into(),
            cluster: Some("east".into()),
            form: Some("0123".into()),
            position: Some(2),
            copied: false,
        }
    }

    fn written(mark: &AppMark) -> RunOptions {
        let mut options = Options::default();
        mark.write(&mut options).unwrap();
        options.finish()
    }

    fn lines(lines: &[&str]) -> RunOptions {
        let line = |line: &&str| Line { line_index: 1, line_run_opts: (*line).into() };
        RunOptions { run_opts: lines.iter().map(line).collect() }
    }

    #[test]
    fn the_marks_of_other_agents_are_read() {
        let seed =
            "--label cisco.vk/pod-name=web --label cisco.vk/pod-namespace=shop --label=cisco.vk/pod-uid=u-1";
        let later =
            "-l io.kubernetes.pod.name=web -l io.kubernetes.pod.namespace=shop -l io.kubernetes.pod.uid=u-1";
        for options in [
            lines(&[seed, "-e A=1 --label cisco.vk/container-name=app"]),
            lines(&[later, "--label io.kubernetes.container.name=app"]),
        ] {
            let expected = AppMark { cluster: None, form: None, position: None, ..mark("web") };
            assert_eq!(AppMark::read(&options), Some(expected));
        }
    }

    #[test]
    fn what_lacks_a_part_of_the_mark_is_nobodys() {
        for options in [
            lines(&[]),
            lines(&["--label cisco.vk/pod-uid=u-1 --label cisco.vk/pod-name=web"]),
            lines(&[
                "--label cisco.vk/pod-uid= --label cisco.vk/pod-name=w --label cisco.vk/container-name=a",
            ]),
            lines(&["cisco.vk/pod-uid=u cisco.vk/pod-name=w cisco.vk/container-name=a"]),
            lines(&["--label"]),
        ] {
            assert_eq!(AppMark::read(&options), None, "{options:?}");
        }
    }

    #[test]
    fn a_cluster_that_is_no_plain_word_is_known_by_a_digest() {
        assert_eq!(AppMark::cluster(&"east.example_1-a".into()), "east.example_1-a");
        let odd = AppMark::cluster(&"the east".into());
        assert!(odd.starts_with('~') && odd != AppMark::cluster(&"the west".into()), "{odd}");
    }

    #[test]
    fn that_a_copy_is_on_the_flash_is_said_in_a_line_that_is_there_already() {
        let (plain, copied) = (mark("web"), AppMark { copied: true, ..mark("web") });
        let (before, after) = (written(&plain), written(&copied));
        assert_eq!(before.run_opts.len(), after.run_opts.len());
        let changed: Vec<_> = before.run_opts.iter().zip(&after.run_opts).filter(|(a, b)| a != b).collect();
        assert_eq!(changed.len(), 1);
        assert_eq!((AppMark::read(&before), AppMark::read(&after)), (Some(plain), Some(copied)));
    }

    proptest! {
        #[test]
        fn a_mark_of_legal_names_is_read_as_it_was_written(
            name in "[a-z0-9.-]{1,253}", container in "[a-z0-9-]{1,63}", namespace in "[a-z0-9-]{1,63}",
        ) {
            let mut mark = mark(&name);
            mark.container = container;
            mark.owner.namespace = namespace;
            let options = written(&mark);
            prop_assert!(options.run_opts.iter().all(|line| line.line_run_opts.len() <= 235));
            prop_assert_eq!(options.run_opts.len(), 7);
            let read = AppMark::read(&options).unwrap();
            if name.len() <= MAX_COMPLETE {
                prop_assert_eq!(read, mark);
            } else {
                prop_assert!(read.owner.name.starts_with(&name[..TRUNCATED_LENGTH]) && read.owner.name.contains(DIGEST_SEPARATOR));
                prop_assert_eq!(read.owner.uid, mark.owner.uid);
            }
        }
    }
}
