//! What a file says of a cloud, and the options that would say the same.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::{Said, place};
use crate::access::mistakes::Mistakes;
use crate::access::resolve::Places;
use crate::access::{AccessError, Interface, NeutronOptions, Secret};

/// A file, or none of it where it says nothing of the cloud.
#[derive(Deserialize)]
pub(super) struct File {
    #[serde(default)]
    pub(super) clouds: BTreeMap<String, Option<Spanned<Entry>>>,
    #[serde(default, rename = "public-clouds")]
    pub(super) public: BTreeMap<String, Option<Spanned<Entry>>>,
}

type Text = Option<Spanned<String>>;

/// What a file says of a cloud, as far as it concerns us.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Entry {
    auth: Option<AuthEntry>,
    auth_type: Text,
    region_name: Text,
    regions: Option<Vec<Region>>,
    interface: Text,
    endpoint_type: Text,
    verify: Option<Spanned<bool>>,
    insecure: Option<Spanned<bool>>,
    cacert: Text,
    cert: Text,
    key: Text,
    api_timeout: Option<Spanned<u64>>,
    pub(super) profile: Text,
    network_endpoint_override: Text,
    network_interface: Text,
    network_region_name: Text,
    load_balancer_interface: Text,
    load_balancer_region_name: Text,
    load_balancer_endpoint_override: Text,
    default_domain: Text,
    user_domain_id: Text,
    user_domain_name: Text,
    project_domain_id: Text,
    project_domain_name: Text,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct AuthEntry {
    auth_url: Text,
    username: Text,
    user_id: Text,
    password: Option<Spanned<Secret>>,
    #[serde(alias = "tenant_name")]
    project_name: Text,
    #[serde(alias = "tenant_id")]
    project_id: Text,
    user_domain_id: Text,
    user_domain_name: Text,
    project_domain_id: Text,
    project_domain_name: Text,
    default_domain: Text,
    default_domain_id: Text,
    default_domain_name: Text,
    application_credential_id: Text,
    application_credential_name: Text,
    application_credential_secret: Option<Spanned<Secret>>,
    endpoint: Text,
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Region {
    Name(String),
    Full { name: String },
}

/// A domain, by id or by name.
type DomainGiven = (Option<String>, Option<String>);

/// Refuses what is said of one service alone: all are reached in one region and by one interface.
pub(super) fn same_for_all(options: &NeutronOptions, layers: &[Said]) -> Result<(), AccessError> {
    let mut wrong = Mistakes::default();
    let interface =
        |name: &str| Interface::from_name(name).map_or(name.to_owned(), |known| known.as_str().to_owned());
    let general =
        options.endpoint_type.as_deref().map_or_else(|| Interface::default().as_str().to_owned(), interface);
    let mut hold = |get: fn(&Entry) -> &Text, option: &str, same: &dyn Fn(&str) -> bool| {
        for said in layers {
            if let Some(other) = get(&said.entry).as_ref().filter(|other| !same(&other.value)) {
                let what =
                    format!("{:?} is for one service alone; here one `{option}` is for all", other.value);
                wrong.add(AccessError::new(place(&said.path, other), what));
            }
        }
    };
    for get in
        [(|entry| &entry.network_interface) as fn(&Entry) -> &Text, |entry| &entry.load_balancer_interface]
    {
        hold(get, "interface", &|name| interface(name) == general);
    }
    for get in [(|entry| &entry.network_region_name) as fn(&Entry) -> &Text, |entry| {
        &entry.load_balancer_region_name
    }] {
        hold(get, "region_name", &|name| options.region_name.as_deref() == Some(name));
    }
    if wrong.are_none() { Ok(()) } else { Err(wrong.into()) }
}

/// The layers put together, the first one uppermost. `home` is the folder that `~` means.
pub(super) fn options(name: &str, layers: &[Said], home_folder: Option<&Path>) -> (NeutronOptions, Places) {
    let file = |text: String| match (text.strip_prefix("~/"), home_folder) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(text),
    };

    let main = layers.iter().find(|layer| layer.line > 0).or(layers.last());
    let home = main.map(|said| format!("{}:{}:{}: ", said.path.display(), said.line, said.column));
    let home = format!("{}clouds.{name}: ", home.unwrap_or_default());
    let mut given = Given { layers, places: Places { home, given: HashMap::new() } };
    let default = (
        given.in_auth("user_domain_id", |auth| &auth.default_domain_id).or_else(|| {
            given.anywhere("user_domain_id", |auth| &auth.default_domain, |entry| &entry.default_domain)
        }),
        given.in_auth("user_domain_name", |auth| &auth.default_domain_name),
    );
    let user_domain = (
        given.anywhere("user_domain_id", |auth| &auth.user_domain_id, |entry| &entry.user_domain_id),
        given.anywhere("user_domain_name", |auth| &auth.user_domain_name, |entry| &entry.user_domain_name),
    );
    let project_domain = (
        given.anywhere("project_domain_id", |auth| &auth.project_domain_id, |entry| &entry.project_domain_id),
        given.anywhere(
            "project_domain_name",
            |auth| &auth.project_domain_name,
            |entry| &entry.project_domain_name,
        ),
    );
    let (user_domain_id, user_domain_name) = or_default(user_domain, &default);
    let (project_domain_id, project_domain_name) = or_default(project_domain, &default);
    let options = NeutronOptions {
        auth_type: given.beside("auth_type", |entry| &entry.auth_type),
        auth_url: given.in_auth("auth_url", |auth| &auth.auth_url),
        username: given.in_auth("username", |auth| &auth.username),
        user_id: given.in_auth("user_id", |auth| &auth.user_id),
        password: given.value("password", |entry| entry.auth.as_ref()?.password.clone()),
        project_name: given.in_auth("project_name", |auth| &auth.project_name),
        project_id: given.in_auth("project_id", |auth| &auth.project_id),
        user_domain_id,
        user_domain_name,
        project_domain_id,
        project_domain_name,
        application_credential_id: given
            .in_auth("application_credential_id", |auth| &auth.application_credential_id),
        application_credential_name: given
            .in_auth("application_credential_name", |auth| &auth.application_credential_name),
        application_credential_secret: given.value("application_credential_secret", |entry| {
            entry.auth.as_ref()?.application_credential_secret.clone()
        }),
        region_name: given
            .beside("region_name", |entry| &entry.region_name)
            .or_else(|| Some(layers.iter().find_map(|said| said.entry.regions.as_ref()?.first())?.name())),
        endpoint_type: given
            .beside("endpoint_type", |entry| &entry.interface)
            .or_else(|| given.beside("endpoint_type", |entry| &entry.endpoint_type)),
        endpoint_override: given
            .beside("endpoint_override", |entry| &entry.network_endpoint_override)
            .or_else(|| given.in_auth("endpoint_override", |auth| &auth.endpoint)),
        load_balancer_endpoint_override: given
            .beside("load_balancer_endpoint_override", |entry| &entry.load_balancer_endpoint_override),
        cafile: given.beside("cafile", |entry| &entry.cacert).map(file),
        certfile: given.beside("certfile", |entry| &entry.cert).map(file),
        keyfile: given.beside("keyfile", |entry| &entry.key).map(file),
        insecure: given
            .value("insecure", |entry| entry.verify.clone())
            .map(|verify| !verify)
            .or_else(|| given.value("insecure", |entry| entry.insecure.clone())),
        timeout: given.value("timeout", |entry| entry.api_timeout.clone()),
        ..NeutronOptions::default()
    };
    (options, given.places)
}

fn or_default(domain: DomainGiven, default: &DomainGiven) -> DomainGiven {
    if domain == (None, None) { default.clone() } else { domain }
}

impl Region {
    fn name(&self) -> String {
        match self {
            Self::Name(name) | Self::Full { name } => name.clone(),
        }
    }
}

/// Takes values from the uppermost layer that has them, and notes where they stand.
struct Given<'a> {
    layers: &'a [Said],
    places: Places,
}

impl Given<'_> {
    fn value<T>(&mut self, option: &'static str, get: impl Fn(&Entry) -> Option<Spanned<T>>) -> Option<T> {
        let found = self.layers.iter().find_map(|said| get(&said.entry).map(|value| (said, value)));
        let (said, value) = found?;
        self.places.given.insert(option, place(&said.path, &value));
        Some(value.value)
    }

    /// A value beside `auth`.
    fn beside(&mut self, option: &'static str, get: fn(&Entry) -> &Text) -> Option<String> {
        self.value(option, |entry| get(entry).clone())
    }

    /// A value within `auth`.
    fn in_auth(&mut self, option: &'static str, get: fn(&AuthEntry) -> &Text) -> Option<String> {
        self.value(option, |entry| get(entry.auth.as_ref()?).clone())
    }

    /// A value within `auth` or beside it.
    fn anywhere(
        &mut self,
        option: &'static str,
        in_auth: fn(&AuthEntry) -> &Text,
        beside: fn(&Entry) -> &Text,
    ) -> Option<String> {
        self.value(option, |entry| {
            let within = entry.auth.as_ref().and_then(|auth| in_auth(auth).clone());
            within.or_else(|| beside(entry).clone())
        })
    }
}
