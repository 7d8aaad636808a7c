//! The request to run a pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use secrecy::SecretString;

use crate::owner::Owner;

/// A pod that is to run on the machine.
#[derive(Clone, Debug)]
pub struct PodRequest {
    /// The pod, as it is in Kubernetes.
    pub pod: Arc<Pod>,
    /// The environment of each container, by its name, in order: `env` and `envFrom` with `ConfigMaps`, `Secrets` and fields
    /// put in, and `$(NAME)` expanded. A driver reads it here and never in the pod.
    pub environment: BTreeMap<String, Vec<EnvironmentVariable>>,
}

impl PodRequest {
    /// Returns the owner mark of the pod.
    pub fn owner(&self) -> Owner {
        Owner::of(&self.pod.metadata)
    }

    /// Returns the environment of a container, which may be empty.
    pub fn environment_of(&self, container: &str) -> &[EnvironmentVariable] {
        self.environment.get(container).map_or(&[], Vec::as_slice)
    }
}

/// A variable in the environment of a container. Its value may come from a Secret and is never shown.
#[derive(Clone, Debug)]
pub struct EnvironmentVariable {
    /// The name.
    pub name: String,
    /// The value.
    pub value: SecretString,
}

impl EnvironmentVariable {
    /// A variable.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), value: SecretString::from(value.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_not_shown() {
        let environment = [("app".to_owned(), vec![EnvironmentVariable::new("TOKEN", "hunter2")])].into();
        let request = PodRequest { pod: Arc::default(), environment };
        let shown = format!("{request:?}");
        assert!(shown.contains("TOKEN") && !shown.contains("hunter2"), "{shown}");
        assert_eq!((request.environment_of("app").len(), request.environment_of("other").len()), (1, 0));
    }
}
