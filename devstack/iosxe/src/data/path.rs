//! Data resource identifiers (RFC 8040, section 3.5.3), checked against the schema.

use crate::schema::{Node, child};

/// A node of a tree: the way to it, and what it is.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// From below the module's top container; empty for that container itself.
    pub(crate) steps: Vec<Step>,
    pub(crate) node: &'static Node,
}

/// One step down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) name: String,
    /// The leaves of the key and their values, in the order of the module: an entry of a list, where they are given.
    pub(crate) keys: Option<Vec<(&'static str, String)>>,
}

/// Reasons why a path is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Astray {
    /// The module has no such node.
    Unknown,
    /// The keys of a list are missing or too many.
    Keys,
}

impl Place {
    /// Follows `segments` from the top container `root` of `module`.
    pub(crate) fn find<'a>(
        root: &'static Node,
        module: &str,
        segments: impl Iterator<Item = &'a str>,
    ) -> Result<Self, Astray> {
        let mut place = Self { steps: Vec::new(), node: root };
        for segment in segments {
            // Below a whole list there is nothing to name.
            if matches!(place.node, Node::List { .. })
                && place.steps.last().is_some_and(|step| step.keys.is_none())
            {
                return Err(Astray::Keys);
            }
            let (Node::Container(fields) | Node::List { fields, .. }) = place.node else {
                return Err(Astray::Unknown);
            };
            let (name, values) = match segment.split_once('=') {
                Some((name, values)) => (name, Some(values.split(',').map(percent_decoded))),
                None => (segment, None),
            };
            let name = name.strip_prefix(module).and_then(|rest| rest.strip_prefix(':')).unwrap_or(name);
            place.node = child(fields, name).ok_or(Astray::Unknown)?;
            let names = match place.node {
                Node::List { keys, .. } => *keys,
                _ => &[],
            };
            let values = values.map(Iterator::collect::<Vec<_>>);
            if values.as_ref().is_some_and(|values| values.len() != names.len()) {
                return Err(Astray::Keys);
            }
            let keys = values.map(|values| names.iter().copied().zip(values).collect());
            place.steps.push(Step { name: name.to_owned(), keys });
        }
        Ok(place)
    }

    /// Returns `true` if the path denotes one entry of a list.
    pub(crate) fn is_entry(&self) -> bool {
        self.steps.last().is_some_and(|step| step.keys.is_some())
    }
}

/// Text out of its percent encoding; what is not encoded well stays as it is.
pub(crate) fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let octet = match tail {
            [high, low, ..] if *first == b'%' => {
                std::str::from_utf8(&[*high, *low]).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok())
            }
            _ => None,
        };
        bytes.push(octet.unwrap_or(*first));
        rest = if octet.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::app_hosting_cfg::{MODULE, ROOT};

    fn find(path: &str) -> Result<Place, Astray> {
        Place::find(&ROOT, MODULE, path.split('/').filter(|segment| !segment.is_empty()))
    }

    #[test]
    fn a_path_names_a_container_a_list_an_entry_or_a_leaf() {
        assert!(find("").unwrap().steps.is_empty());
        assert!(!find("apps/app").unwrap().is_entry());
        let entry = find("apps/Cisco-IOS-XE-app-hosting-cfg:app=a%2Cb_1").unwrap();
        assert!(entry.is_entry());
        assert_eq!(
            entry.steps[1],
            Step { name: "app".into(), keys: Some(vec![("application-name", "a,b_1".into())]) }
        );
        assert!(matches!(find("apps/app=a/run-optss/run-opts=3/line-run-opts").unwrap().node, Node::Leaf(_)));
    }

    #[test]
    fn a_path_that_the_module_does_not_know_leads_nowhere() {
        assert_eq!(find("apps/application").unwrap_err(), Astray::Unknown);
        assert_eq!(find("apps/app=a/start/now").unwrap_err(), Astray::Unknown);
        assert_eq!(find("apps/app/start").unwrap_err(), Astray::Keys);
        assert_eq!(find("apps/app=a,b").unwrap_err(), Astray::Keys);
        assert_eq!(find("apps=a").unwrap_err(), Astray::Keys);
    }

    #[test]
    fn what_is_not_encoded_well_stays_as_it_is() {
        assert_eq!(percent_decoded("a%20b%zz%2"), "a b%zz%2");
    }
}
