//! The command line of the program `staffetta-simulated-network`.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::Parser;
use staffetta_memory::MemoryOptions;
use staffetta_memory::http::ServerOptions;
use toml::{Table, Value};

/// A simulated cloud over HTTP: ports, load balancers and public addresses.
#[derive(Debug, Parser)]
#[command(name = "staffetta-simulated-network", version)]
pub(crate) struct Arguments {
    /// The address on which the server listens, which is printed; port 0 selects a free port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9697")]
    listen: SocketAddr,
    /// A TOML file with options of the section `[memory]` of staffetta, without a section header.
    #[arg(long, value_name = "FILE")]
    options: Option<PathBuf>,
    /// An option that overrides the file, such as `port_quota=500` or `pod_subnets=["10.0.0.0/24"]`.
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// The number of effects that the log holds.
    #[arg(long, value_name = "NUMBER", default_value_t = ServerOptions::default().log_capacity)]
    log_capacity: NonZeroUsize,
}

/// The error of command-line options that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArgumentsError {
    /// The file with the options cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// The file with the options is not TOML.
    #[error("{} is not TOML: {source}", path.display())]
    File { path: PathBuf, source: toml::de::Error },
    /// An option `--set` does not have the form `key=value`.
    #[error("--set {text}: it is not of the form NAME=VALUE, with a value as in TOML")]
    Set { text: String },
    /// An option has an unknown name or an invalid value.
    #[error("the options of the network: {0}")]
    Options(toml::de::Error),
}

impl Arguments {
    /// Returns the options of the server: the file, overridden by the options `--set`. A file that cannot be read or parsed, or an invalid
    /// option, is an error.
    pub(crate) fn options(&self) -> Result<ServerOptions, ArgumentsError> {
        let mut table = self.options.as_deref().map_or_else(|| Ok(Table::new()), read)?;
        for text in &self.set {
            let (name, value) = setting(text).ok_or_else(|| ArgumentsError::Set { text: text.clone() })?;
            table.insert(name, value);
        }
        let memory: MemoryOptions = table.try_into().map_err(ArgumentsError::Options)?;
        Ok(ServerOptions { listen: self.listen, log_capacity: self.log_capacity, memory })
    }
}

/// Reads and parses a TOML file.
fn read(path: &Path) -> Result<Table, ArgumentsError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ArgumentsError::Read { path: path.to_owned(), source })?;
    text.parse().map_err(|source| ArgumentsError::File { path: path.to_owned(), source })
}

/// Parses the argument `NAME=VALUE` of an option `--set`; `None` if it does not have this form.
fn setting(text: &str) -> Option<(String, Value)> {
    let (name, _) = text.split_once('=')?;
    let table: Table = text.parse().ok()?;
    let mut settings = table.into_iter();
    let setting = settings.next()?;
    (setting.0 == name.trim() && settings.next().is_none()).then_some(setting)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &[&str]) -> Result<ServerOptions, String> {
        let arguments = ["staffetta-simulated-network"].iter().chain(arguments);
        Arguments::try_parse_from(arguments).unwrap().options().map_err(|error| error.to_string())
    }

    #[test]
    fn a_setting_goes_before_the_file_and_the_file_before_the_default() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "port_quota = 5\ncool_down_ms = 1\n").unwrap();
        let path = file.path().to_str().unwrap();
        let read = options(&["--options", path, "--set", "port_quota=7", "--set", "mtu = 9000"]).unwrap();
        let expected =
            MemoryOptions { port_quota: Some(7), cool_down_ms: 1, mtu: 9000, ..MemoryOptions::default() };
        assert_eq!(read.memory, expected);
        assert_eq!(options(&[]).unwrap().memory, MemoryOptions::default());
    }

    #[test]
    fn what_is_no_option_is_refused_by_name() {
        let refused = |arguments: &[&str]| options(arguments).unwrap_err();
        assert!(refused(&["--set", "port_qouta=7"]).contains("port_qouta"));
        assert!(refused(&["--set", "port_quota='many'"]).contains("port_quota"));
        let forms = ["port_quota", "port_quota=", "=7", "a.b=7", "mtu=1\nport_quota=2"];
        for text in forms {
            assert_eq!(
                refused(&["--set", text]),
                format!("--set {text}: it is not of the form NAME=VALUE, with a value as in TOML")
            );
        }
        assert!(refused(&["--options", "/nowhere"]).starts_with("cannot read /nowhere: "));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "port_quota = ").unwrap();
        assert!(refused(&["--options", file.path().to_str().unwrap()]).contains("is not TOML"));
    }
}
