//! Reads a cloud from clouds.yaml, as OpenStack's own tools do.
//!
//! The file is `$OS_CLIENT_CONFIG_FILE`, or the first `clouds.yaml` or `clouds.yml` in the working directory, in `~/.config/openstack` and
//! in `/etc/openstack`. The entry of the same cloud in a `secure.yaml`, which is found in the same way, overrides the entry in clouds.yaml.
//! The entry of its `profile` in a `clouds-public.yaml` contains defaults. Keys of services other than Neutron and Octavia are ignored.

mod entry;

use std::path::{Path, PathBuf};
use std::{env, fs};

use serde_saphyr::Spanned;

use self::entry::{CloudEntry, CloudsFile, options, reject_per_service};
use super::resolve::Locations;
use super::{AccessError, NeutronOptions};

/// The parts of the process environment that select a cloud and its files.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// The name of the cloud, from `$OS_CLOUD`. `None`: the environment names no cloud.
    pub cloud: Option<String>,
    /// The path of clouds.yaml, from `$OS_CLIENT_CONFIG_FILE`. `None`: it is searched for.
    pub config_file: Option<PathBuf>,
    /// The path of secure.yaml, from `$OS_CLIENT_SECURE_FILE`. `None`: it is searched for.
    pub secure_file: Option<PathBuf>,
    /// The directories that are searched for the files, in this order.
    pub folders: Vec<PathBuf>,
    /// The home directory, which replaces `~` in file names. `None`: such names stay as they are.
    pub home: Option<PathBuf>,
}

impl Environment {
    /// Creates the value from the environment variables of this process. An empty variable counts as missing.
    pub fn from_process() -> Self {
        let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        let home = variable("HOME").map(PathBuf::from);
        let config = || home.as_ref().map(|home| home.join(".config"));
        let settings = variable("XDG_CONFIG_HOME").map(PathBuf::from).or_else(config);
        let folders = [Some(PathBuf::from(".")), settings.map(|path| path.join("openstack"))];
        Self {
            cloud: variable("OS_CLOUD").and_then(|name| name.into_string().ok()),
            config_file: variable("OS_CLIENT_CONFIG_FILE").map(PathBuf::from),
            secure_file: variable("OS_CLIENT_SECURE_FILE").map(PathBuf::from),
            folders: folders.into_iter().flatten().chain([PathBuf::from("/etc/openstack")]).collect(),
            home,
        }
    }

    /// Returns the path `named`, or an error if it does not exist. If `named` is `None`, returns the first file `<stem>.yaml` or
    /// `<stem>.yml` in the directories, or `None` if there is none.
    fn find(&self, named: Option<&PathBuf>, stem: &str) -> Result<Option<PathBuf>, AccessError> {
        if let Some(path) = named {
            let missing = || {
                AccessError::new(path.display().to_string(), "is named by the environment and does not exist")
            };
            return if path.exists() { Ok(Some(path.clone())) } else { Err(missing()) };
        }
        let names = ["yaml", "yml"].map(|extension| format!("{stem}.{extension}"));
        let mut paths = self.folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name)));
        Ok(paths.find(|path| path.exists()))
    }
}

/// The entry of a cloud or of a vendor profile in one file. An entry without a value counts as empty.
struct CloudFileEntry {
    entry: CloudEntry,
    path: PathBuf,
    /// The file, line and column at which the entry begins.
    location: String,
}

/// Reads the cloud `name` from clouds.yaml, secure.yaml and clouds-public.yaml. Returns the merged options, and the location of each in
/// these files. Fails if there is no clouds.yaml or it lacks the cloud, if a vendor profile is missing, or if a file is invalid or contains
/// an unsupported option.
pub(super) fn read_cloud(
    name: &str,
    environment: &Environment,
) -> Result<(NeutronOptions, Locations), AccessError> {
    let path = environment.find(environment.config_file.as_ref(), "clouds")?.ok_or_else(|| {
        let folders: Vec<_> = environment.folders.iter().map(|folder| folder.display().to_string()).collect();
        let message = format!("is needed for the cloud {name:?} and is not in {}", folders.join(", "));
        AccessError::new("clouds.yaml", message)
    })?;
    let file = parse(&path)?;
    let Some(entry) = file.clouds.get(name) else {
        let known: Vec<_> = file.clouds.keys().map(|known| format!("{known:?}")).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let message = format!("there is no cloud {name:?}; known are {known}");
        return Err(AccessError::new(path.display().to_string(), message));
    };
    let mut layers = vec![layer(&path, entry)];
    if let Some(path) = environment.find(environment.secure_file.as_ref(), "secure")?
        && let Some(entry) = parse(&path)?.clouds.get(name)
    {
        layers.insert(0, layer(&path, entry));
    }
    let profile = layers.iter().find_map(|layer| Some((&layer.path, layer.entry.profile.as_ref()?)));
    if let Some((path, profile)) = profile {
        layers.push(read_profile(environment, path, profile)?);
    }
    let (options, locations) = options(name, &layers, environment.home.as_deref());
    reject_per_service(&options, &layers)?;
    Ok((options, locations))
}

/// Reads the entry of the vendor profile `profile` in a clouds-public.yaml. `named_in` is the file that names
/// the profile. Fails if there is no such entry.
fn read_profile(
    environment: &Environment,
    named_in: &Path,
    profile: &Spanned<String>,
) -> Result<CloudFileEntry, AccessError> {
    if let Some(path) = environment.find(None, "clouds-public")?
        && let Some(entry) = parse(&path)?.public.get(&profile.value)
    {
        return Ok(layer(&path, entry));
    }
    let message = format!("there is no profile {:?} in a clouds-public.yaml", profile.value);
    Err(AccessError::new(location(named_in, profile), message))
}

/// Converts an entry of the file `path` to a [`CloudFileEntry`], with its location.
fn layer(path: &Path, entry: &Spanned<Option<CloudEntry>>) -> CloudFileEntry {
    let (entry, location) = (entry.value.clone().unwrap_or_default(), location(path, entry));
    CloudFileEntry { entry, path: path.to_owned(), location }
}

/// Parses a file with entries of clouds. The error names the line and column, but quotes nothing of the file,
/// which may contain a password.
fn parse(path: &Path) -> Result<CloudsFile, AccessError> {
    let text = fs::read_to_string(path)
        .map_err(|error| AccessError::new(path.display().to_string(), format!("cannot be read: {error}")))?;
    serde_saphyr::from_str(&text).map_err(|error| {
        let location = match error.location() {
            Some(location) => format!("{}:{}:{}", path.display(), location.line(), location.column()),
            None => path.display().to_string(),
        };
        // The long form of the error quotes the lines around it, which may contain a password.
        let message = error.without_snippet().to_string();
        let line = message.lines().next().unwrap_or_default();
        AccessError::new(location, line.strip_prefix("error: ").unwrap_or(line))
    })
}

/// Returns the file, line and column of a value, for error messages.
fn location<T>(path: &Path, value: &Spanned<T>) -> String {
    format!("{}:{}:{}", path.display(), value.referenced.line(), value.referenced.column())
}
