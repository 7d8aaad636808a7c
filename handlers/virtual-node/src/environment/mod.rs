//! The environment variables of containers: those that a kubelet would set, determined when a pod is deployed on its
//! machine.
//!
//! Each `ConfigMap` or Secret is read by a GET of that object, so that the handler needs no permission to list them.
//! The result is cached for a minute, because the deployment of a pod takes several steps. Variables for Services
//! (`enableServiceLinks`) are not set: a machine outside the cluster network cannot reach Services. As on any node,
//! `binaryData` of a `ConfigMap` is not used for variables.

mod expand;
mod field;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvFromSource, EnvVarSource, Pod, Secret};
use kube::{Api, Client};
use staffetta_driver::virtual_node::EnvironmentVariable;
use staffetta_handler::Failure;
use tokio::time::Instant;

use self::expand::expand;
use self::field::field;
use crate::pod::form;

/// The time for which the environment of a pod is cached, if it contains data of `ConfigMap`s or Secrets.
const CACHE_TIME: Duration = Duration::from_secs(60);

/// The delay before the next read of a `ConfigMap` or Secret that is missing, lacks a key, or has a value that is not text.
const MISSING_RETRY: Duration = Duration::from_secs(15);

/// The maximum size of all environment variables of one pod in bytes, 1 MiB. A variable counts with its name, its value
/// and [`VARIABLE_OVERHEAD`]. 1 MiB is the maximum size of a `ConfigMap`, and half of the usual Linux limit for one program.
const MAX_VARIABLES: usize = 1 << 20;

/// The size of a variable in bytes in addition to its name and value, as Linux counts it: `=`, a terminator and a
/// pointer.
const VARIABLE_OVERHEAD: usize = 10;

/// The maximum size in bytes of all `ConfigMap`s and Secrets that are read for one pod, 16 MiB. One object has at most
/// 1 MiB.
const MAX_OBJECTS: usize = 16 << 20;

/// An error of determining the environment variables of a pod. The message starts with the path of the field in the
/// pod.
#[derive(Debug, thiserror::Error)]
#[error("{path}")]
pub struct EnvironmentError {
    /// The path of the field in the pod, such as `spec.containers[0].env[1].valueFrom`.
    path: String,
    #[source]
    problem: EnvironmentProblem,
}

/// The reason why an environment variable cannot be determined. It never contains the value of a variable.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentProblem {
    /// A `ConfigMap`, a Secret or a key in one does not exist and is not optional. The text names it.
    #[error("there is no {0}")]
    Missing(String),
    /// A value in a `ConfigMap` or Secret is not valid UTF-8. The text names the key.
    #[error("the {0} is not text")]
    NotText(String),
    /// The source of the value is not supported, or is not known before the pod runs.
    #[error("{0}")]
    Unsupported(String),
    /// The environment of the pod exceeds the limit in the message.
    #[error("{0}")]
    TooLarge(&'static str),
    /// The namespace of the pod is not one whose Secrets may be used. The text names the namespace.
    #[error(
        "pods of the namespace {0} may not use Secrets on this node; an administrator can allow it with the option `secret_namespaces`"
    )]
    Forbidden(String),
    /// The API server did not return a `ConfigMap` or Secret. The text names the object.
    #[error("read the {0}")]
    Read(String, #[source] Box<kube::Error>),
}

impl Failure for EnvironmentError {
    fn transient(&self) -> bool {
        match &self.problem {
            EnvironmentProblem::Missing(_) | EnvironmentProblem::NotText(_) => true,
            EnvironmentProblem::Unsupported(_)
            | EnvironmentProblem::TooLarge(_)
            | EnvironmentProblem::Forbidden(_) => false,
            EnvironmentProblem::Read(_, source) => source.transient(),
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match &self.problem {
            EnvironmentProblem::Read(_, source) => source.retry_after(),
            _ => self.transient().then_some(MISSING_RETRY),
        }
    }

    fn reason(&self) -> &'static str {
        match &self.problem {
            EnvironmentProblem::Missing(_) => "EnvironmentMissing",
            EnvironmentProblem::Forbidden(_) => "SecretForbidden",
            EnvironmentProblem::Read(_, source) => source.reason(),
            _ => "FieldNotSupported",
        }
    }
}

/// The environment variables of each container of a pod, by the name of the container.
type Environment = BTreeMap<String, Vec<EnvironmentVariable>>;

/// Determines the environment variables of pods, and caches them.
pub(crate) struct Environments {
    client: Client,
    /// The namespaces whose pods may use Secrets.
    secret_namespaces: Vec<String>,
    /// The cached environments, by the UID of the pod.
    kept: DashMap<String, Kept>,
}

/// The cached environment of a pod.
struct Kept {
    /// The digest (`pod::form`) of the pod for which the environment was determined.
    form: u64,
    /// The time until which the environment is used.
    until: Instant,
    environment: Environment,
}

/// The values of a `ConfigMap` or Secret by key, where a value that is not valid UTF-8 is `None`; `None` as a whole if
/// the object does not exist.
type Data = Option<Arc<BTreeMap<String, Option<String>>>>;

/// A kind of objects that contain values for environment variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Holder {
    /// A `ConfigMap`.
    ConfigMap,
    /// A Secret.
    Secret,
}

impl Environments {
    /// Creates an empty cache. `client` reads `ConfigMap`s, and Secrets of pods in `secret_namespaces`.
    pub(crate) fn new(client: Client, secret_namespaces: Vec<String>) -> Self {
        Self { client, secret_namespaces, kept: DashMap::new() }
    }

    /// Returns the environment variables of each container of `pod`, from the cache or by reading `ConfigMap`s and
    /// Secrets.
    pub(crate) async fn of(&self, pod: &Pod) -> Result<Environment, EnvironmentError> {
        let (uid, form, now) = (pod.metadata.uid.clone().unwrap_or_default(), form(pod), Instant::now());
        let kept = self.kept.get(&uid).filter(|kept| kept.form == form && kept.until > now);
        if let Some(environment) = kept.map(|kept| kept.environment.clone()) {
            return Ok(environment);
        }
        let (left, readable) = (MAX_VARIABLES, MAX_OBJECTS);
        let mut reading = Reading { sources: self, pod, objects: HashMap::new(), left, readable };
        let mut environment = Environment::new();
        for (place, container) in pod.spec.iter().flat_map(|spec| &spec.containers).enumerate() {
            environment.insert(container.name.clone(), reading.container(place, container).await?);
        }
        if !reading.objects.is_empty() {
            self.kept.insert(uid, Kept { form, until: now + CACHE_TIME, environment: environment.clone() });
        }
        Ok(environment)
    }

    /// Removes the environment of the pod with this UID from the cache.
    pub(crate) fn forget(&self, uid: &str) {
        self.kept.remove(uid);
    }

    /// Removes the expired environments of pods from the cache.
    pub(crate) fn expire(&self) {
        let now = Instant::now();
        self.kept.retain(|_, kept| kept.until > now);
    }
}

/// The determination of the environment variables of one pod. Each `ConfigMap` or Secret is read once.
struct Reading<'a> {
    sources: &'a Environments,
    pod: &'a Pod,
    /// The `ConfigMap`s and Secrets that were read, by kind and name.
    objects: HashMap<(Holder, String), Data>,
    /// The number of bytes left for variables. A variable that is set twice counts twice.
    left: usize,
    /// The number of bytes left for `ConfigMap`s and Secrets.
    readable: usize,
}

impl Reading<'_> {
    /// Returns the environment of the container with the index `place`, in the order of the kubelet: first `envFrom`, then `env`, whose
    /// values may refer to earlier variables as `$(NAME)`. The error names the field of the pod.
    async fn container(
        &mut self,
        place: usize,
        container: &Container,
    ) -> Result<Vec<EnvironmentVariable>, EnvironmentError> {
        let mut variables = Variables::default();
        let at = |field: String| {
            move |problem| EnvironmentError { path: format!("spec.containers[{place}].{field}"), problem }
        };
        for (number, from) in container.env_from.iter().flatten().enumerate() {
            self.all_of(from, &mut variables).await.map_err(at(format!("envFrom[{number}]")))?;
        }
        for (number, variable) in container.env.iter().flatten().enumerate() {
            let field = format!("env[{number}]");
            let value = match &variable.value_from {
                None => {
                    let text = variable.value.as_deref().unwrap_or_default();
                    let expanded = expand(text, self.left, |name| variables.get(name));
                    Some(expanded.ok_or_else(too_many_variables).map_err(at(field.clone()))?)
                }
                Some(EnvVarSource { field_ref: Some(reference), .. }) => {
                    let path = &reference.field_path;
                    let why = || format!("`{path}` is not known before the pod runs");
                    let value = self::field(self.pod, path).ok_or_else(why);
                    let value = value.map_err(EnvironmentProblem::Unsupported);
                    Some(value.map_err(at(format!("{field}.valueFrom.fieldRef")))?)
                }
                Some(from) => self.key(from).await.map_err(at(format!("{field}.valueFrom")))?,
            };
            if let Some(value) = value {
                self.set(variable.name.clone(), value, &mut variables).map_err(at(field))?;
            }
        }
        Ok(variables.in_order())
    }

    /// Sets a variable. Returns an error if the variables of the pod exceed their maximum size.
    fn set(
        &mut self,
        name: String,
        value: String,
        variables: &mut Variables,
    ) -> Result<(), EnvironmentProblem> {
        let left = self.left.checked_sub(name.len() + value.len() + VARIABLE_OVERHEAD);
        self.left = left.ok_or_else(too_many_variables)?;
        variables.set(name, value);
        Ok(())
    }

    /// Sets a variable for each key of a `ConfigMap` or Secret (`envFrom`). Does nothing if the object is optional and does not exist.
    async fn all_of(
        &mut self,
        from: &EnvFromSource,
        variables: &mut Variables,
    ) -> Result<(), EnvironmentProblem> {
        let (holder, name, optional) = match (&from.config_map_ref, &from.secret_ref) {
            (Some(map), _) => (Holder::ConfigMap, &map.name, map.optional),
            (None, Some(secret)) => (Holder::Secret, &secret.name, secret.optional),
            (None, None) => return Ok(()),
        };
        let prefix = from.prefix.as_deref().unwrap_or_default();
        let Some(data) = self.object(holder, name).await? else {
            return required(optional, format!("{holder:?} {name}")).map(drop);
        };
        for (key, value) in &*data {
            match value {
                Some(value) => self.set(format!("{prefix}{key}"), value.clone(), variables)?,
                None if holder == Holder::ConfigMap => {}
                None => return Err(not_text(holder, name, key)),
            }
        }
        Ok(())
    }

    /// Returns the value of a key of a `ConfigMap` or Secret; `None` if the key or object is optional and does not
    /// exist.
    async fn key(&mut self, from: &EnvVarSource) -> Result<Option<String>, EnvironmentProblem> {
        let (holder, name, key, optional) = match from {
            EnvVarSource { config_map_key_ref: Some(map), .. } => {
                (Holder::ConfigMap, &map.name, &map.key, map.optional)
            }
            EnvVarSource { secret_key_ref: Some(secret), .. } => {
                (Holder::Secret, &secret.name, &secret.key, secret.optional)
            }
            _ => {
                let why = "only ConfigMaps, Secrets and fields of the pod are supported";
                return Err(EnvironmentProblem::Unsupported(why.to_owned()));
            }
        };
        let data = self.object(holder, name).await?;
        match data.as_ref().map(|data| data.get(key)) {
            Some(Some(Some(value))) => Ok(Some(value.clone())),
            Some(Some(None)) => Err(not_text(holder, name, key)),
            Some(None) => required(optional, format!("key `{key}` in the {holder:?} {name}")),
            None => required(optional, format!("{holder:?} {name}")),
        }
    }

    /// Reads a ConfigMap or a Secret of the pod's namespace, once for all containers; `None` if it does not exist. Secrets are read only in
    /// the namespaces of the option `secret_namespaces`, and all objects of a pod together may have 16 MiB.
    async fn object(&mut self, holder: Holder, name: &str) -> Result<Data, EnvironmentProblem> {
        if let Some(data) = self.objects.get(&(holder, name.to_owned())) {
            return Ok(data.clone());
        }
        let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
        let read = match holder {
            Holder::ConfigMap => {
                let maps: Api<ConfigMap> = Api::namespaced(self.sources.client.clone(), namespace);
                maps.get_opt(name).await.map(|map| map.map(of_map))
            }
            Holder::Secret => {
                if !self.sources.secret_namespaces.iter().any(|allowed| allowed == namespace) {
                    return Err(EnvironmentProblem::Forbidden(namespace.to_owned()));
                }
                let secrets: Api<Secret> = Api::namespaced(self.sources.client.clone(), namespace);
                secrets.get_opt(name).await.map(|secret| secret.map(of_secret))
            }
        };
        let failed = |source| EnvironmentProblem::Read(format!("{holder:?} {name}"), Box::new(source));
        let data = read.map_err(failed)?;
        let size =
            data.iter().flatten().map(|(key, value)| key.len() + value.as_ref().map_or(0, String::len)).sum();
        let too_large = "the ConfigMaps and Secrets of all its environment may have at most 16 MiB";
        let readable = self.readable.checked_sub(size);
        self.readable = readable.ok_or(EnvironmentProblem::TooLarge(too_large))?;
        let data = data.map(Arc::new);
        self.objects.insert((holder, name.to_owned()), data.clone());
        Ok(data)
    }
}

/// Returns the values of a `ConfigMap` by key; `None` for those in `binaryData`.
fn of_map(map: ConfigMap) -> BTreeMap<String, Option<String>> {
    let binary = map.binary_data.unwrap_or_default().into_keys().map(|key| (key, None));
    let text = map.data.unwrap_or_default().into_iter().map(|(key, value)| (key, Some(value)));
    binary.chain(text).collect()
}

/// Returns the values of a Secret by key; `None` for those that are not valid UTF-8.
fn of_secret(secret: Secret) -> BTreeMap<String, Option<String>> {
    let data = secret.data.unwrap_or_default();
    data.into_iter().map(|(key, value)| (key, String::from_utf8(value.0).ok())).collect()
}

/// Returns `None` if `what`, a missing `ConfigMap` or Secret or a missing key in one, is optional, and an error otherwise.
fn required(optional: Option<bool>, what: String) -> Result<Option<String>, EnvironmentProblem> {
    if optional == Some(true) { Ok(None) } else { Err(EnvironmentProblem::Missing(what)) }
}

/// Builds the error about a value that is not valid UTF-8.
fn not_text(holder: Holder, name: &str, key: &str) -> EnvironmentProblem {
    EnvironmentProblem::NotText(format!("key `{key}` in the {holder:?} {name}"))
}

/// Builds the error about environment variables that exceed [`MAX_VARIABLES`].
fn too_many_variables() -> EnvironmentProblem {
    EnvironmentProblem::TooLarge("the names and values of all variables of a pod may have at most 1 MiB")
}

/// Environment variables by name, each with its position: the order in which the variables were first set. The last
/// value of a variable is used.
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
