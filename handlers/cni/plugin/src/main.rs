//! The program `staffetta-cni`: a CNI plugin, and with the argument `install` its own installation.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use serde_json::json;
use staffetta_cni::conflist::{self, conflist, install};
use staffetta_cni::error::CniError;
use staffetta_cni::message::DEFAULT_SOCKET;
use staffetta_cni::{VERSIONS, command};

/// The usage of the program outside of a container runtime.
const USAGE: &str = "staffetta-cni is a CNI plugin, which a container runtime starts.\n\
    Usage: staffetta-cni install --bin FOLDER [--conf FOLDER] [--daemon ADDRESS]\n\
    Copies the plugin to the one folder, and the configuration list to the other.";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if !arguments.is_empty() || env::var_os("CNI_COMMAND").is_none() {
        return match install_from(&arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(message) => {
                eprintln!("{message}");
                ExitCode::from(2)
            }
        };
    }
    let (text, code) = match command::run(|name| env::var(name).ok(), io::stdin().lock()) {
        Ok(text) => (text, ExitCode::SUCCESS),
        Err(error) => {
            // Without the version of a configuration, the answer has the newest one that every runtime knows.
            let version = error.cni_version.clone().unwrap_or_else(|| VERSIONS[2].to_owned());
            (json!(CniError { cni_version: Some(version), ..error }).to_string(), ExitCode::FAILURE)
        }
    };
    // A runtime that is gone does not read the answer.
    let _ = io::stdout().write_all(text.as_bytes());
    code
}

/// Executes `staffetta-cni install`: copies this program to a folder, and writes the configuration list if a folder for it is named.
fn install_from(arguments: &[String]) -> Result<(), String> {
    let (mut bin, mut conf, mut daemon) = (None, None, DEFAULT_SOCKET.to_owned());
    let [first, rest @ ..] = arguments else { return Err(USAGE.to_owned()) };
    let (pairs, odd) = rest.as_chunks::<2>();
    if first != "install" || !odd.is_empty() {
        return Err(USAGE.to_owned());
    }
    for [option, value] in pairs {
        match option.as_str() {
            "--bin" => bin = Some(PathBuf::from(value)),
            "--conf" => conf = Some(PathBuf::from(value)),
            "--daemon" => daemon.clone_from(value),
            _ => return Err(USAGE.to_owned()),
        }
    }
    let bin = bin.ok_or_else(|| USAGE.to_owned())?;
    let failed = |path: &Path, error: io::Error| format!("cannot install {}: {error}", path.display());
    let plugin = bin.join(conflist::PLUGIN);
    let itself = env::current_exe().and_then(fs::read).map_err(|error| failed(&plugin, error))?;
    install(&plugin, &itself, 0o755).map_err(|error| failed(&plugin, error))?;
    let Some(conf) = conf else { return Ok(()) };
    let list = conf.join(conflist::FILE);
    install(&list, conflist(&daemon, &[]).as_bytes(), 0o644).map_err(|error| failed(&list, error))
}
