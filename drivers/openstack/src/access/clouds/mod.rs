//! clouds.yaml, as OpenStack's own tools read it.
//!
//! The file is the one of `$OS_CLIENT_CONFIG_FILE`, or the first `clouds.yaml` (`.yml`) of the working directory, of
//! `~/.config/openstack` and of `/etc/openstack`. What `secure.yaml` says of the same cloud, found in the same way, stands
//! above it, and what `clouds-public.yaml` says of a `profile` that it names, below. Keys that concern other services are
//! left alone.

mod entry;

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use serde::de::DeserializeOwned;
use serde_saphyr::Spanned;

use self::entry::{Entry, File, options, same_for_all};
use super::resolve::Places;
use super::{AccessError, NeutronOptions};

/// What of the process's surroundings says how a cloud is reached.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// The cloud of `$OS_CLOUD`.
    pub cloud: Option<String>,
    /// The file of `$OS_CLIENT_CONFIG_FILE`.
    pub config_file: Option<PathBuf>,
    /// The file of `$OS_CLIENT_SECURE_FILE`.
    pub secure_file: Option<PathBuf>,
    /// The folders in which files are looked for, in this order.
    pub folders: Vec<PathBuf>,
    /// The folder that `~` means in the names of files.
    pub home: Option<PathBuf>,
}

impl Environment {
    /// That of this process.
    pub fn of_the_process() -> Self {
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
}

/// What is said of one cloud, with the file that says it.
struct Said {
    entry: Entry,
    path: PathBuf,
    line: u64,
    column: u64,
}

/// Reads what is said of the cloud `name`: as the options that would say the same, and where each of them stands.
pub(super) fn read_cloud(
    name: &str,
    environment: &Environment,
) -> Result<(NeutronOptions, Places), AccessError> {
    let path = find(environment, environment.config_file.as_ref(), "clouds")?.ok_or_else(|| {
        let folders: Vec<_> = environment.folders.iter().map(|folder| folder.display().to_string()).collect();
        let what =
            format!("the cloud {name:?} is wanted, and there is no such file in {}", folders.join(", "));
        AccessError::new("clouds.yaml", what)
    })?;
    let file: File = parse(&path)?;
    let known: Vec<_> = file.clouds.keys().map(|known| format!("{known:?}")).collect();
    let Some(entry) = file.clouds.get(name) else {
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let what = format!("there is no cloud {name:?}; known are {known}");
        return Err(AccessError::new(path.display().to_string(), what));
    };
    let mut layers = vec![said(&path, entry.as_ref())];
    if let Some(path) = find(environment, environment.secure_file.as_ref(), "secure")? {
        let file: File = parse(&path)?;
        if let Some(entry) = file.clouds.get(name) {
            layers.insert(0, said(&path, entry.as_ref()));
        }
    }
    let profile = layers.iter().find_map(|layer| layer.entry.profile.as_ref().map(|text| (layer, text)));
    if let Some((layer, profile)) = profile {
        layers.push(read_profile(environment, layer, profile)?);
    }
    let (options, places) = options(name, &layers, environment.home.as_deref());
    same_for_all(&options, &layers)?;
    Ok((options, places))
}

fn read_profile(
    environment: &Environment,
    layer: &Said,
    profile: &Spanned<String>,
) -> Result<Said, AccessError> {
    if let Some(path) = find(environment, None, "clouds-public")? {
        let file: File = parse(&path)?;
        if let Some(entry) = file.public.get(&profile.value) {
            return Ok(said(&path, entry.as_ref()));
        }
    }
    let what = format!("there is no profile {:?} in a clouds-public.yaml", profile.value);
    Err(AccessError::new(place(&layer.path, profile), what))
}

fn said(path: &Path, entry: Option<&Spanned<Entry>>) -> Said {
    let location = entry.map(|entry| (entry.referenced.line(), entry.referenced.column()));
    let (line, column) = location.unwrap_or_default();
    Said {
        entry: entry.map(|entry| entry.value.clone()).unwrap_or_default(),
        path: path.to_owned(),
        line,
        column,
    }
}

/// The file that is named, which must exist, or the first that is found.
fn find(
    environment: &Environment,
    named: Option<&PathBuf>,
    stem: &str,
) -> Result<Option<PathBuf>, AccessError> {
    if let Some(path) = named {
        return if path.exists() {
            Ok(Some(path.clone()))
        } else {
            Err(AccessError::new(
                path.display().to_string(),
                "is named by the environment and does not exist",
            ))
        };
    }
    let names = ["yaml", "yml"].map(|extension| format!("{stem}.{extension}"));
    let paths = environment.folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name)));
    Ok(paths.into_iter().find(|path| path.exists()))
}

fn parse<T: DeserializeOwned>(path: &Path) -> Result<T, AccessError> {
    let unreadable =
        |error: io::Error| AccessError::new(path.display().to_string(), format!("cannot be read: {error}"));
    let text = fs::read_to_string(path).map_err(unreadable)?;
    serde_saphyr::from_str(&text).map_err(|error| {
        let location = error.location();
        let place = match location {
            Some(location) => format!("{}:{}:{}", path.display(), location.line(), location.column()),
            None => path.display().to_string(),
        };
        // The long form of the error quotes the lines around the place, and a password may stand there.
        AccessError::new(place, mistake(&error))
    })
}

/// What is wrong, in one line, without a quotation of the file.
fn mistake(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

fn place<T>(path: &Path, value: &Spanned<T>) -> String {
    format!("{}:{}:{}", path.display(), value.referenced.line(), value.referenced.column())
}
