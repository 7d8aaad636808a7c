//! Paths: what a request is about.

/// The parts of a path below a group version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) namespace: Option<String>,
    pub(super) plural: String,
    pub(super) name: Option<String>,
    pub(super) subresource: Option<String>,
}

/// A path that is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// `/healthz`, `/livez`, `/readyz` and what lies below.
    Health,
    /// `/version`.
    Version,
    /// `/api`.
    CoreVersions,
    /// `/apis`.
    Groups,
    /// `/apis/GROUP`.
    Group(String),
    /// `/api/v1` or `/apis/GROUP/VERSION`: its group and version.
    Resources(String, String),
    /// `/openapi/v3`.
    OpenApiIndex,
    /// `/openapi/v3/` and a group version.
    OpenApi(String),
    /// Objects.
    Target(Target),
}

/// Reads a path whose percent-encoding was resolved.
pub(super) fn parse(path: &str) -> Option<Path> {
    let steps: Vec<_> = path.split('/').filter(|step| !step.is_empty()).collect();
    match steps.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => Some(Path::Health),
        ["version"] => Some(Path::Version),
        ["api"] => Some(Path::CoreVersions),
        ["apis"] => Some(Path::Groups),
        ["apis", group] => Some(Path::Group((*group).into())),
        ["api", version] => Some(Path::Resources(String::new(), (*version).into())),
        ["apis", group, version] => Some(Path::Resources((*group).into(), (*version).into())),
        ["openapi", "v3"] => Some(Path::OpenApiIndex),
        ["openapi", "v3", rest @ ..] => Some(Path::OpenApi(rest.join("/"))),
        ["api", version, rest @ ..] => target("", version, rest).map(Path::Target),
        ["apis", group, version, rest @ ..] => target(group, version, rest).map(Path::Target),
        _ => None,
    }
}

fn target(group: &str, version: &str, steps: &[&str]) -> Option<Target> {
    let (namespace, steps) = match steps {
        // `namespaces/NAME` and its subresources are about the namespace itself.
        ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => (None, steps),
        ["namespaces", namespace, rest @ ..] => (Some((*namespace).to_owned()), rest),
        _ => (None, steps),
    };
    let (plural, name, subresource) = match steps {
        [plural] => (plural, None, None),
        [plural, name] => (plural, Some(*name), None),
        [plural, name, subresource] => (plural, Some(*name), Some(*subresource)),
        _ => return None,
    };
    Some(Target {
        group: group.into(),
        version: version.into(),
        namespace,
        plural: (*plural).into(),
        name: name.map(Into::into),
        subresource: subresource.map(Into::into),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(path: &str) -> (String, Option<String>, Option<String>, Option<String>) {
        match parse(path) {
            Some(Path::Target(target)) => (target.plural, target.namespace, target.name, target.subresource),
            other => panic!("{path} is {other:?}"),
        }
    }

    #[test]
    fn a_namespace_is_a_place_and_an_object() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(parts("/api/v1/namespaces"), ("namespaces".into(), None, None, None));
        assert_eq!(parts("/api/v1/namespaces/a"), ("namespaces".into(), None, some("a"), None));
        assert_eq!(
            parts("/api/v1/namespaces/a/status"),
            ("namespaces".into(), None, some("a"), some("status"))
        );
        assert_eq!(parts("/api/v1/namespaces/a/pods"), ("pods".into(), some("a"), None, None));
        assert_eq!(
            parts("/apis/apps/v1/namespaces/a/deployments/b/scale"),
            ("deployments".into(), some("a"), some("b"), some("scale"))
        );
    }

    #[test]
    fn what_leads_nowhere_is_no_path() {
        assert_eq!(parse("/nothing"), None);
        assert_eq!(parse("/api/v1/a/b/c/d"), None);
        assert_eq!(parse("/openapi/v3/apis/apps/v1"), Some(Path::OpenApi("apis/apps/v1".into())));
    }
}
