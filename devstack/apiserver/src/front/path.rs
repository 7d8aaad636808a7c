//! Parses the path of a request.

/// The parts of a path below a group version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: Option<String>,
    pub(crate) plural: String,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

/// A path that is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// Objects.
    Objects(Target),
    /// An existing path.
    Fixed(Fixed),
}

/// A path that shows what there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fixed {
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
}

/// Reads a path whose percent-encoding was resolved.
pub(super) fn parse(path: &str) -> Option<Path> {
    let steps: Vec<_> = path.split('/').filter(|step| !step.is_empty()).collect();
    let fixed = match steps.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => Fixed::Health,
        ["version"] => Fixed::Version,
        ["api"] => Fixed::CoreVersions,
        ["apis"] => Fixed::Groups,
        ["apis", group] => Fixed::Group((*group).into()),
        ["api", version] => Fixed::Resources(String::new(), (*version).into()),
        ["apis", group, version] => Fixed::Resources((*group).into(), (*version).into()),
        ["openapi", "v3"] => Fixed::OpenApiIndex,
        ["openapi", "v3", rest @ ..] => Fixed::OpenApi(rest.join("/")),
        ["api", version, rest @ ..] => return target("", version, rest).map(Path::Objects),
        ["apis", group, version, rest @ ..] => return target(group, version, rest).map(Path::Objects),
        _ => return None,
    };
    Some(Path::Fixed(fixed))
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
            Some(Path::Objects(target)) => (target.plural, target.namespace, target.name, target.subresource),
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
        assert_eq!(
            parse("/openapi/v3/apis/apps/v1"),
            Some(Path::Fixed(Fixed::OpenApi("apis/apps/v1".into())))
        );
    }
}
