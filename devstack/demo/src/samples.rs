//! The sample workloads of the demo.

use kube::api::{DynamicObject, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client, ResourceExt};

pub(crate) const SHOP: &str = include_str!("../samples/shop.yaml");
pub(crate) const EDGE: &str = include_str!("../samples/edge.yaml");
pub(crate) const BRANCH: &str = include_str!("../samples/branch.yaml");
pub(crate) const WINDOWS: &str = include_str!("../samples/windows.yaml");
pub(crate) const MODULES: &str = include_str!("../samples/modules.yaml");

/// Makes the objects of a file of YAML documents, one after the other.
pub(crate) async fn apply(client: &Client, yaml: &str) -> kube::Result<()> {
    for object in parse(yaml) {
        api(client, &object).create(&PostParams::default(), &object).await?;
    }
    Ok(())
}

fn parse(yaml: &str) -> Vec<DynamicObject> {
    serde_saphyr::from_multiple(yaml).expect("a test reads the samples")
}

fn api(client: &Client, object: &DynamicObject) -> Api<DynamicObject> {
    let types = object.types.clone().unwrap_or_default();
    let kind = (&types).try_into().expect("a test reads the samples");
    let resource = ApiResource::from_gvk(&kind);
    match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::GroupVersionKind;

    use super::*;

    #[test]
    fn the_samples_can_be_read_and_are_of_the_size_that_is_promised() {
        let objects: Vec<_> =
            [SHOP, EDGE, BRANCH, WINDOWS, MODULES].iter().flat_map(|yaml| parse(yaml)).collect();
        let of_kind = |kind: &str| {
            let kind = kind.to_owned();
            objects.iter().filter(move |object| object.types.as_ref().unwrap().kind == kind)
        };
        assert!(
            objects.iter().all(|object| GroupVersionKind::try_from(object.types.as_ref().unwrap()).is_ok())
        );
        let pods: i64 = of_kind("Deployment").map(|one| one.data["spec"]["replicas"].as_i64().unwrap()).sum();
        assert!(pods >= 20 && of_kind("Service").count() >= 3 && of_kind("Namespace").count() == 5);
    }
}
