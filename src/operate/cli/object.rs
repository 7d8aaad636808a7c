//! Names of objects on the command line, in the forms of kubectl.

use super::CommandError;
use crate::observe::state::Query;

/// The kinds without a namespace, in lower case.
const CLUSTER_SCOPED: [&str; 3] = ["node", "namespace", "ciscodevice"];

/// The short names of kinds, as kubectl has them.
const SHORT_NAMES: [(&str, &str); 7] = [
    ("deploy", "deployment"),
    ("ep", "endpoints"),
    ("netpol", "networkpolicy"),
    ("no", "node"),
    ("ns", "namespace"),
    ("po", "pod"),
    ("svc", "service"),
];

/// The name of an object, and its kind if that is given.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ObjectName {
    /// The kind in lower case; `None` if the command line names none.
    pub(super) kind: Option<String>,
    pub(super) name: String,
}

impl ObjectName {
    /// Reads `TYPE/NAME`, `TYPE NAME` or `NAME`; returns `None` if there are no words, and fails for any other form.
    pub(super) fn of_words(words: &[String]) -> Result<Option<Self>, CommandError> {
        let (kind, name) = match words {
            [] => return Ok(None),
            [word] => match word.split_once('/') {
                Some((kind, name)) => (Some(kind), name),
                None => (None, word.as_str()),
            },
            [kind, name, ..] => (Some(kind.as_str()), name.as_str()),
        };
        let is_word = |word: &str| !word.is_empty() && !word.contains('/');
        if words.len() > 2 || !is_word(name) || !kind.is_none_or(is_word) {
            return Err(malformed(words));
        }
        Ok(Some(Self { kind: kind.map(kind_of), name: name.to_owned() }))
    }

    /// Adds the kind that the option `--kind` names; fails if the name has one already.
    pub(super) fn of_kind(self, kind: Option<String>) -> Result<Self, CommandError> {
        match (self.kind, kind) {
            (Some(kind), Some(_)) => Err(CommandError::Usage(format!(
                "`{kind}/{}` names the kind already; leave out --kind",
                self.name
            ))),
            (own, given) => Ok(Self { kind: own.or(given), name: self.name }),
        }
    }

    /// Returns the query that selects the object. Without `namespace`, the object is searched in the namespace `default` (in all if that is
    /// `None`, or if its kind has no namespace).
    pub(super) fn query(self, namespace: Option<String>, default: Option<&str>) -> Query {
        let is_namespaced = self.kind.as_deref().is_none_or(is_namespaced);
        let default = default.filter(|_| is_namespaced).map(str::to_owned);
        Query { name: Some(self.name), kind: self.kind, namespace: namespace.or(default), ..Query::default() }
    }
}

/// Returns the usage error for words of the command line that name no object.
pub(super) fn malformed(words: &[String]) -> CommandError {
    let words = words.join(" ");
    CommandError::Usage(format!("`{words}` is no object; write TYPE/NAME or TYPE NAME, such as pod/web-1"))
}

/// Returns `true` if the objects of `kind`, in lower case, have a namespace.
pub(super) fn is_namespaced(kind: &str) -> bool {
    !CLUSTER_SCOPED.contains(&kind)
}

/// Returns the kind that a type of kubectl names: `po`, `pods`, `Pod` and `pods.v1` are all `pod`.
pub(super) fn kind_of(type_name: &str) -> String {
    let word = type_name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    if let Some((_, kind)) = SHORT_NAMES.iter().find(|(short, _)| *short == word) {
        return (*kind).to_owned();
    }
    match word.strip_suffix("ies") {
        Some(stem) => format!("{stem}y"),
        None if word == "endpoints" => word,
        None => word.strip_suffix('s').filter(|stem| !stem.ends_with('s')).unwrap_or(&word).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Option<ObjectName>, String> {
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        ObjectName::of_words(&words).map_err(|error| error.to_string())
    }

    #[test]
    fn an_object_is_named_as_in_kubectl() {
        for (words, kind) in [
            (&["pod/web"][..], Some("pod")),
            (&["pods", "web"], Some("pod")),
            (&["po/web"], Some("pod")),
            (&["networkpolicies.networking.k8s.io/web"], Some("networkpolicy")),
            (&["Endpoints/web"], Some("endpoints")),
            (&["EndpointSlice", "web"], Some("endpointslice")),
            (&["Ingress/web"], Some("ingress")),
            (&["web"], None),
        ] {
            let expected = ObjectName { kind: kind.map(str::to_owned), name: "web".to_owned() };
            assert_eq!(read(words), Ok(Some(expected)), "{words:?}");
        }
        assert_eq!(read(&[]), Ok(None));
        for wrong in [&["pod/"][..], &["/web"], &["a/b/c"], &["pod/web", "x"], &["pod", "a/b"]] {
            assert!(read(wrong).unwrap_err().contains("TYPE/NAME"), "{wrong:?}");
        }
    }

    #[test]
    fn the_namespace_of_the_context_holds_for_objects_that_have_one() {
        let namespace = |words: &[&str], given: Option<&str>| {
            read(words).unwrap().unwrap().query(given.map(str::to_owned), Some("shop")).namespace
        };
        assert_eq!(namespace(&["pod/web"], None).as_deref(), Some("shop"));
        assert_eq!(namespace(&["pod/web"], Some("other")).as_deref(), Some("other"));
        assert_eq!(namespace(&["node/n1"], None), None);
    }

    #[test]
    fn the_option_kind_is_the_type_of_an_object_without_one() {
        let of_kind = |words: &[&str]| read(words).unwrap().unwrap().of_kind(Some(kind_of("nodes")));
        let query = of_kind(&["n1"]).unwrap().query(None, Some("shop"));
        assert_eq!((query.kind.as_deref(), query.namespace), (Some("node"), None));
        assert!(of_kind(&["pod/web"]).unwrap_err().to_string().contains("--kind"));
    }
}
