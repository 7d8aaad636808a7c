//! The entry of a cloud in a file such as clouds.yaml, and its conversion to options.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::{CloudFileEntry, location};
use crate::access::resolve::Locations;
use crate::access::{AccessError, AccessProblem, EndpointInterface, NeutronOptions, Secret};
use crate::text::or_default;

/// The content of clouds.yaml, secure.yaml or clouds-public.yaml. Empty entries are `None`.
#[derive(Deserialize)]
pub(super) struct CloudsFile {
    /// The entries of clouds.yaml or secure.yaml, by the name of the cloud.
    #[serde(default)]
    pub(super) clouds: BTreeMap<String, Spanned<Option<CloudEntry>>>,
    /// The vendor profiles of clouds-public.yaml (`public-clouds`).
    #[serde(default, rename = "public-clouds")]
    pub(super) public: BTreeMap<String, Spanned<Option<CloudEntry>>>,
}

/// An optional string with its position in the file.
type Text = Option<Spanned<String>>;

/// The keys of a cloud's entry that this client uses.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct CloudEntry {
    #[serde(deserialize_with = "or_default")]
    auth: AuthEntry,
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
    /// The name of the vendor profile whose entry in clouds-public.yaml contains defaults of this cloud; `None` without a profile.
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

/// The section `auth` of an entry: the login of the cloud.
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

/// The region of a cloud, in one of the forms that clouds.yaml allows.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Region {
    /// The name alone: `RegionOne`.
    Name(String),
    /// The name with other values of the region, which are ignored.
    Full { name: String },
}

/// Returns an error if one of `layers`, the entries of a cloud in several files, sets an interface or a region for a single service that
/// differs from that of all services: this client uses one interface and one region.
pub(super) fn reject_per_service(
    options: &NeutronOptions,
    layers: &[CloudFileEntry],
) -> Result<(), AccessError> {
    let general = EndpointInterface::from_name(options.endpoint_type.as_deref().unwrap_or("public"));
    let mut problems = Vec::new();
    for CloudFileEntry { entry, path, .. } in layers {
        let interfaces = [&entry.network_interface, &entry.load_balancer_interface].into_iter().flatten();
        let interfaces = interfaces.filter(|name| EndpointInterface::from_name(&name.value) != general);
        let regions = [&entry.network_region_name, &entry.load_balancer_region_name].into_iter().flatten();
        let regions = regions.filter(|name| options.region_name.as_ref() != Some(&name.value));
        for (option, other) in
            interfaces.map(|name| ("interface", name)).chain(regions.map(|name| ("region_name", name)))
        {
            let message = format!("{:?} is for one service only; one `{option}` is for all", other.value);
            problems.push(AccessProblem { location: location(path, other), message });
        }
    }
    AccessError::check(problems)
}

/// Converts the layers of the cloud `name`, which are its entries in several files (at least one), to options with their locations. The
/// first layer overrides the others. `home` replaces `~` in file names.
pub(super) fn options(
    name: &str,
    layers: &[CloudFileEntry],
    home: Option<&Path>,
) -> (NeutronOptions, Locations) {
    let file = |text: String| match (text.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(text),
    };
    let prefix = format!("{}: clouds.{name}: ", layers[0].location);
    let mut reader = LayerReader { layers, locations: Locations { prefix, given: HashMap::new() } };
    macro_rules! read {
        ($option:ident: $($($key:ident).+),+) => {
            reader.read(stringify!($option), |entry| None$(.or(entry.$($key).+.as_ref()))+)
        };
    }
    let default_domain_id = read!(user_domain_id: auth.default_domain_id)
        .or_else(|| read!(user_domain_id: auth.default_domain, default_domain));
    let default_domain = (default_domain_id, read!(user_domain_name: auth.default_domain_name));
    let or_default = |domain: (Option<String>, Option<String>)| {
        if domain == (None, None) { default_domain.clone() } else { domain }
    };
    let (user_domain_id, user_domain_name) = or_default((
        read!(user_domain_id: auth.user_domain_id, user_domain_id),
        read!(user_domain_name: auth.user_domain_name, user_domain_name),
    ));
    let (project_domain_id, project_domain_name) = or_default((
        read!(project_domain_id: auth.project_domain_id, project_domain_id),
        read!(project_domain_name: auth.project_domain_name, project_domain_name),
    ));
    let first_region = || layers.iter().find_map(|layer| layer.entry.regions.as_ref()?.first());
    let options = NeutronOptions {
        auth_type: read!(auth_type: auth_type),
        auth_url: read!(auth_url: auth.auth_url),
        username: read!(username: auth.username),
        user_id: read!(user_id: auth.user_id),
        password: read!(password: auth.password),
        project_name: read!(project_name: auth.project_name),
        project_id: read!(project_id: auth.project_id),
        user_domain_id,
        user_domain_name,
        project_domain_id,
        project_domain_name,
        application_credential_id: read!(application_credential_id: auth.application_credential_id),
        application_credential_name: read!(application_credential_name: auth.application_credential_name),
        application_credential_secret: read!(application_credential_secret: auth.application_credential_secret),
        region_name: read!(region_name: region_name).or_else(|| first_region().map(Region::name)),
        endpoint_type: read!(endpoint_type: interface).or_else(|| read!(endpoint_type: endpoint_type)),
        endpoint_override: read!(endpoint_override: network_endpoint_override)
            .or_else(|| read!(endpoint_override: auth.endpoint)),
        load_balancer_endpoint_override: read!(load_balancer_endpoint_override: load_balancer_endpoint_override),
        cafile: read!(cafile: cacert).map(file),
        certfile: read!(certfile: cert).map(file),
        keyfile: read!(keyfile: key).map(file),
        insecure: read!(insecure: verify).map(|verify: bool| !verify).or_else(|| read!(insecure: insecure)),
        timeout: read!(timeout: api_timeout),
        ..NeutronOptions::default()
    };
    (options, reader.locations)
}

impl Region {
    /// Returns the name of the region.
    fn name(&self) -> String {
        match self {
            Self::Name(name) | Self::Full { name } => name.clone(),
        }
    }
}

/// Reads the values of a cloud from the first of its entries (layers) that contains them, and records the place of each in the files.
struct LayerReader<'a> {
    layers: &'a [CloudFileEntry],
    locations: Locations,
}

impl LayerReader<'_> {
    /// Returns the value that `get` finds in the first layer that has one, and records its location as that of `option`. Returns `None` if
    /// no layer has one.
    fn read<T: Clone>(
        &mut self,
        option: &str,
        get: impl Fn(&CloudEntry) -> Option<&Spanned<T>>,
    ) -> Option<T> {
        let (layer, value) = self.layers.iter().find_map(|layer| Some((layer, get(&layer.entry)?)))?;
        self.locations.given.insert(option.to_owned(), location(&layer.path, value));
        Some(value.value.clone())
    }
}
