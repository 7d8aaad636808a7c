//! Filters, fields and pages of lists.

use std::collections::BTreeMap;

use reqwest::Url;
use serde_json::{Map, Value, json};

use super::answer::Answer;

pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn read(text: &str) -> Self {
        let url = Url::parse(&format!("http://localhost/?{text}")).unwrap();
        Self(url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
    }

    /// Without the filters of this name.
    pub(crate) fn without(&self, name: &str) -> Self {
        Self(self.0.iter().filter(|(other, _)| other != name).cloned().collect())
    }

    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Returns `true` if the query has this name with this value.
    pub(crate) fn says(&self, name: &str, value: &str) -> bool {
        self.all(name).any(|said| said == value)
    }

    /// One page of the `things` that pass the filters, with the requested fields.
    pub(crate) fn list(
        &self,
        collection: &str,
        things: &BTreeMap<String, Value>,
        page: Option<usize>,
    ) -> Answer {
        let marker = self.all("marker").next().unwrap_or_default();
        let limit = self.all("limit").next().and_then(|limit| limit.parse().ok()).unwrap_or(usize::MAX);
        let limit: usize = page.unwrap_or(usize::MAX).min(limit);
        let mut passing = things.values().filter(|thing| self.passes(thing));
        let mut passing = passing
            .by_ref()
            .skip_while(|thing| !marker.is_empty() && thing["id"].as_str().unwrap() <= marker);
        let listed: Vec<&Value> = passing.by_ref().take(limit).collect();
        let more = passing.next().is_some();
        let mut answer =
            json!({ collection: listed.iter().map(|thing| self.fields(thing)).collect::<Vec<_>>() });
        if let (true, Some(last)) = (more, listed.last()) {
            let href = format!("http://elsewhere/v2.0/{collection}?marker={}", last["id"].as_str().unwrap());
            answer[format!("{collection}_links")] = json!([{ "rel": "next", "href": href }]);
        }
        Answer::json(200, answer)
    }

    pub(crate) fn fields(&self, thing: &Value) -> Value {
        let wanted: Vec<&str> = self.all("fields").collect();
        let Value::Object(fields) = thing else { unreachable!() };
        let kept = fields.iter().filter(|(name, _)| wanted.is_empty() || wanted.contains(&name.as_str()));
        Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>())
    }

    fn passes(&self, thing: &Value) -> bool {
        const CONTROLS: [&str; 4] = ["fields", "limit", "marker", "page_reverse"];
        let names = self.0.iter().map(|(name, _)| name.as_str()).filter(|name| !CONTROLS.contains(name));
        let tagged =
            |tag: &str| thing["tags"].as_array().is_some_and(|tags| tags.iter().any(|other| other == tag));
        names.into_iter().all(|name| match name {
            "tags" => self.all(name).flat_map(|tags| tags.split(',')).all(tagged),
            "tags-any" => self.all(name).flat_map(|tags| tags.split(',')).any(tagged),
            "not-tags" => !self.all(name).flat_map(|tags| tags.split(',')).all(tagged),
            "fixed_ips" => self.fixed_ips(thing),
            "loadbalancer_id" => self.all(name).any(|id| thing["loadbalancers"][0]["id"] == id),
            _ => self.all(name).any(|value| thing[name].as_str() == Some(value)),
        })
    }

    /// An address of the port is one of those that are named, in one of the subnets that are named.
    fn fixed_ips(&self, port: &Value) -> bool {
        let wanted = |part: &'static str| {
            let values =
                self.all("fixed_ips").filter_map(move |value| value.strip_prefix(part)?.strip_prefix('='));
            values.collect::<Vec<_>>()
        };
        let (ips, subnets) = (wanted("ip_address"), wanted("subnet_id"));
        port["fixed_ips"].as_array().unwrap().iter().any(|fixed| {
            let is = |wanted: &[&str], key: &str| {
                wanted.is_empty() || wanted.contains(&fixed[key].as_str().unwrap())
            };
            is(&ips, "ip_address") && is(&subnets, "subnet_id")
        })
    }
}
