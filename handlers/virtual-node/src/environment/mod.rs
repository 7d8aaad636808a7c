//! The environment of containers: what a kubelet would put in, read when a pod is brought to its machine.
//!
//! A `ConfigMap` or Secret is read by a GET of that one object, so that the handler needs no right to list them, and kept for about
//! a minute, because a pod is brought to its machine in several steps. Service links are not made: a machine outside of the
//! cluster's network cannot reach what they name. The `binaryData` of a `ConfigMap` is in no environment, as on any node.

mod expand;
mod field;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvFromSource, EnvVar, EnvVarSource, Pod, Secret};
use kube::{Api, Client};
use staffetta_driver::virtual_node::EnvironmentVariable;
use staffetta_handler::Failure;
use tokio::time::Instant;

use self::expand::expand;
use self::field::field;
use crate::pod::form;

/// How long what was read is used.
const KEPT: Duration = Duration::from_secs(60);

/// How long to wait for what does not exist yet, or is not as it must be.
const ABSENT: Duration = Duration::from_secs(15);

/// How many bytes the environments of one pod may hold, each variable with its name, its value and [`BESIDE`]: as many as a `ConfigMap`,
/// and half of what Linux usually starts one program with.
const MOST: usize = 1 << 20;

/// What a variable takes beside its name and its value, as Linux counts: `=`, an end, and a pointer.
const BESIDE: usize = 10;

/// How many bytes of `ConfigMap`s and Secrets are held while the environments of one pod are made; each may have 1 MiB.
const MOST_READ: usize = 16 << 20;

/// Why an environment could not be made. It never holds a value.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// An object that is not optional does not exist, or lacks a key.
    #[error("{path}: there is no {what}")]
    Missing {
        /// The path of the field in the pod.
        path: String,
        /// What does not exist.
        what: String,
    },
    /// A value holds bytes that are no text, which no variable can hold.
    #[error("{path}: the {what} is not text")]
    NotText {
        /// The path of the field in the pod.
        path: String,
        /// Which value.
        what: String,
    },
    /// A field asks for what is not known of a pod on a machine.
    #[error("{path}: {detail}")]
    Unsupported {
        /// The path of the field in the pod.
        path: String,
        /// What is wrong.
        detail: String,
    },
    /// With this field the pod asks for more than it may.
    #[error("{path}: {what}")]
    TooLarge {
        /// The path of the field in the pod.
        path: String,
        /// What is too large, and how large it may be.
        what: &'static str,
    },
    /// An object could not be read.
    #[error("{path}: read the {what}")]
    Read {
        /// The path of the field in the pod.
        path: String,
        /// What was to be read.
        what: String,
        /// Why not.
        #[source]
        source: Box<kube::Error>,
    },
}

impl Failure for EnvironmentError {
    fn transient(&self) -> bool {
        match self {
            Self::Missing { .. } | Self::NotText { .. } => true,
            Self::Unsupported { .. } | Self::TooLarge { .. } => false,
            Self::Read { source, .. } => source.transient(),
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Missing { .. } | Self::NotText { .. } => Some(ABSENT),
            Self::Unsupported { .. } | Self::TooLarge { .. } => None,
            Self::Read { source, .. } => source.retry_after(),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "EnvironmentMissing",
            Self::NotText { .. } | Self::Unsupported { .. } | Self::TooLarge { .. } => "FieldNotSupported",
            Self::Read { source, .. } => source.reason(),
        }
    }
}

/// The environment of each container of a pod, by name.
type Environment = BTreeMap<String, Vec<EnvironmentVariable>>;

/// Makes environments.
pub(crate) struct Environments {
    client: Client,
    kept: DashMap<String, Kept>,
}

struct Kept {
    form: u64,
    until: Instant,
    environment: Environment,
}

/// The data of an object, where a value that is not text is none; none when the object does not exist.
type Data = Option<Arc<BTreeMap<String, Option<String>>>>;

/// One of the two kinds of objects that hold values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Holder {
    ConfigMap,
    Secret,
}

impl Holder {
    fn name(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }
}

impl Environments {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, kept: DashMap::new() }
    }

    /// The environment of each container of `pod`.
    pub(crate) async fn of(&self, pod: &Pod) -> Result<Environment, EnvironmentError> {
        let (uid, form, now) = (pod.metadata.uid.clone().unwrap_or_default(), form(pod), Instant::now());
        let kept = self.kept.get(&uid).filter(|kept| kept.form == form && kept.until > now);
        if let Some(environment) = kept.map(|kept| kept.environment.clone()) {
            return Ok(environment);
        }
        let mut reading =
            Reading { client: &self.client, pod, objects: HashMap::new(), left: MOST, readable: MOST_READ };
        let mut environment = Environment::new();
        for (place, container) in pod.spec.iter().flat_map(|spec| &spec.containers).enumerate() {
            environment.insert(container.name.clone(), reading.container(place, container).await?);
        }
        if !reading.objects.is_empty() {
            self.kept.insert(uid, Kept { form, until: now + KEPT, environment: environment.clone() });
        }
        Ok(environment)
    }

    /// Nothing of the pod is kept any more.
    pub(crate) fn forget(&self, uid: &str) {
        self.kept.remove(uid);
    }

    /// What is too old to be used is kept no longer.
    pub(crate) fn expire(&self) {
        let now = Instant::now();
        self.kept.retain(|_, kept| kept.until > now);
    }

    #[cfg(test)]
    pub(crate) fn keep(&self, uid: &str) {
        let kept = Kept { form: 0, until: Instant::now() + KEPT, environment: Environment::new() };
        self.kept.insert(uid.to_owned(), kept);
    }

    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        self.kept.len()
    }
}

/// What is read for one pod, each object once.
struct Reading<'a> {
    client: &'a Client,
    pod: &'a Pod,
    objects: HashMap<(Holder, String), Data>,
    /// How many bytes its variables may still take; one that is set anew takes them once more.
    left: usize,
    /// How many bytes of objects may still be held.
    readable: usize,
}

impl Reading<'_> {
    async fn container(
        &mut self,
        place: usize,
        container: &Container,
    ) -> Result<Vec<EnvironmentVariable>, EnvironmentError> {
        let mut variables = Variables::default();
        for (number, from) in container.env_from.iter().flatten().enumerate() {
            let path = format!("spec.containers[{place}].envFrom[{number}]");
            self.all_of(&path, from, &mut variables).await?;
        }
        for (number, variable) in container.env.iter().flatten().enumerate() {
            let path = format!("spec.containers[{place}].env[{number}]");
            if let Some(value) = self.value(&path, variable, &variables).await? {
                self.set(&path, variable.name.clone(), value, &mut variables)?;
            }
        }
        Ok(variables.in_order())
    }

    /// Sets a variable, if the pod may have that much.
    fn set(
        &mut self,
        path: &str,
        name: String,
        value: String,
        variables: &mut Variables,
    ) -> Result<(), EnvironmentError> {
        let left = self.left.checked_sub(name.len() + value.len() + BESIDE);
        self.left = left.ok_or_else(|| too_many_variables(path))?;
        variables.set(name, value);
        Ok(())
    }

    async fn all_of(
        &mut self,
        path: &str,
        from: &EnvFromSource,
        variables: &mut Variables,
    ) -> Result<(), EnvironmentError> {
        let (holder, name, optional) = match (&from.config_map_ref, &from.secret_ref) {
            (Some(map), _) => (Holder::ConfigMap, &map.name, map.optional),
            (None, Some(secret)) => (Holder::Secret, &secret.name, secret.optional),
            (None, None) => return Ok(()),
        };
        let data = self.object(path, holder, name).await?;
        let Some(data) = data else {
            if optional == Some(true) {
                return Ok(());
            }
            let what = format!("{} {name}", holder.name());
            return Err(EnvironmentError::Missing { path: path.to_owned(), what });
        };
        let prefix = from.prefix.as_deref().unwrap_or_default();
        for (key, value) in &*data {
            match value {
                Some(value) => self.set(path, format!("{prefix}{key}"), value.clone(), variables)?,
                None if holder == Holder::ConfigMap => {}
                None => return Err(not_text(path, holder, name, key)),
            }
        }
        Ok(())
    }

    /// The value of a variable; none where it is optional and does not exist.
    async fn value(
        &mut self,
        path: &str,
        variable: &EnvVar,
        before: &Variables,
    ) -> Result<Option<String>, EnvironmentError> {
        let Some(from) = &variable.value_from else {
            let text = variable.value.as_deref().unwrap_or_default();
            let expanded = expand(text, self.left, |name| before.get(name));
            return expanded.map(Some).ok_or_else(|| too_many_variables(path));
        };
        let path = format!("{path}.valueFrom");
        match from {
            EnvVarSource { config_map_key_ref: Some(key), .. } => {
                self.key(&path, Holder::ConfigMap, &key.name, &key.key, key.optional).await
            }
            EnvVarSource { secret_key_ref: Some(key), .. } => {
                self.key(&path, Holder::Secret, &key.name, &key.key, key.optional).await
            }
            EnvVarSource { field_ref: Some(reference), .. } => {
                let value = field(self.pod, &reference.field_path);
                let unknown = || EnvironmentError::Unsupported {
                    path: format!("{path}.fieldRef"),
                    detail: format!("`{}` is not known before the pod runs", reference.field_path),
                };
                value.map(Some).ok_or_else(unknown)
            }
            _ => {
                let detail = "only ConfigMaps, Secrets and fields of the pod can be put in".to_owned();
                Err(EnvironmentError::Unsupported { path, detail })
            }
        }
    }

    async fn key(
        &mut self,
        path: &str,
        holder: Holder,
        name: &str,
        key: &str,
        optional: Option<bool>,
    ) -> Result<Option<String>, EnvironmentError> {
        let data = self.object(path, holder, name).await?;
        let missing = |what| EnvironmentError::Missing { path: path.to_owned(), what };
        let error = match data.as_ref().map(|data| data.get(key)) {
            Some(Some(Some(value))) => return Ok(Some(value.clone())),
            Some(Some(None)) => return Err(not_text(path, holder, name, key)),
            Some(None) => missing(format!("key `{key}` in the {} {name}", holder.name())),
            None => missing(format!("{} {name}", holder.name())),
        };
        if optional == Some(true) { Ok(None) } else { Err(error) }
    }

    async fn object(&mut self, path: &str, holder: Holder, name: &str) -> Result<Data, EnvironmentError> {
        if let Some(data) = self.objects.get(&(holder, name.to_owned())) {
            return Ok(data.clone());
        }
        let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
        let read = match holder {
            Holder::ConfigMap => {
                let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
                maps.get_opt(name).await.map(|map| map.map(of_map))
            }
            Holder::Secret => {
                let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
                secrets.get_opt(name).await.map(|secret| secret.map(of_secret))
            }
        };
        let data = read.map_err(|source| EnvironmentError::Read {
            path: path.to_owned(),
            what: format!("{} {name}", holder.name()),
            source: Box::new(source),
        })?;
        let size =
            data.iter().flatten().map(|(key, value)| key.len() + value.as_ref().map_or(0, String::len)).sum();
        self.readable = self.readable.checked_sub(size).ok_or_else(|| EnvironmentError::TooLarge {
            path: path.to_owned(),
            what: "the ConfigMaps and Secrets of all its environment may have at most 16 MiB",
        })?;
        let data = data.map(Arc::new);
        self.objects.insert((holder, name.to_owned()), data.clone());
        Ok(data)
    }
}

fn of_map(map: ConfigMap) -> BTreeMap<String, Option<String>> {
    let binary = map.binary_data.unwrap_or_default().into_keys().map(|key| (key, None));
    let text = map.data.unwrap_or_default().into_iter().map(|(key, value)| (key, Some(value)));
    binary.chain(text).collect()
}

fn of_secret(secret: Secret) -> BTreeMap<String, Option<String>> {
    let data = secret.data.unwrap_or_default();
    data.into_iter().map(|(key, value)| (key, String::from_utf8(value.0).ok())).collect()
}

fn not_text(path: &str, holder: Holder, name: &str, key: &str) -> EnvironmentError {
    let what = format!("key `{key}` in the {} {name}", holder.name());
    EnvironmentError::NotText { path: path.to_owned(), what }
}

fn too_many_variables(path: &str) -> EnvironmentError {
    EnvironmentError::TooLarge {
        path: path.to_owned(),
        what: "the names and values of all variables of a pod may have at most 1 MiB",
    }
}

/// Variables, each with its place in the order in which they were first set; the last value holds.
#[derive(Default)]
struct Variables(HashMap<String, (usize, String)>);

impl Variables {
    fn set(&mut self, name: String, value: String) {
        let place = self.0.len();
        self.0.entry(name).or_insert_with(|| (place, String::new())).1 = value;
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|(_, value)| value.as_str())
    }

    fn in_order(self) -> Vec<EnvironmentVariable> {
        let mut variables: Vec<_> = self.0.into_iter().collect();
        variables.sort_unstable_by_key(|(_, (place, _))| *place);
        variables.into_iter().map(|(name, (_, value))| EnvironmentVariable::new(name, value)).collect()
    }
}

#[cfg(test)]
mod tests;
