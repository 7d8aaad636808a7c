//! The program `staffetta-simulated-network`: it serves a simulated cloud over HTTP. It prints its URL, and stops with SIGTERM or SIGINT.

use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;
use staffetta_memory::MemoryOptions;
use staffetta_memory::http::{Server, ServerOptions};
use tokio::signal::unix::{SignalKind, signal};

/// A simulated cloud over HTTP: ports, load balancers and public addresses.
#[derive(Debug, Parser)]
#[command(name = "staffetta-simulated-network", version)]
struct Arguments {
    /// The address on which the server listens, which is printed; port 0 selects a free port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9697")]
    listen: SocketAddr,
    /// A TOML file with options of the section `[memory]` of staffetta, without a section header.
    #[arg(long, value_name = "FILE", value_parser = read)]
    options: Option<MemoryOptions>,
}

/// Reads a TOML file with options of the simulated cloud.
fn read(path: &str) -> Result<MemoryOptions, Box<dyn Error + Send + Sync>> {
    Ok(toml::from_str(&std::fs::read_to_string(path)?)?)
}

fn main() -> ExitCode {
    let Arguments { listen, options } = Arguments::parse();
    let options = ServerOptions { listen, memory: options.unwrap_or_default() };
    let served = Server::start(&options).and_then(|server| serve_until_signalled(server.url()));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A closed stderr is no failure.
            let _ = writeln!(io::stderr(), "staffetta-simulated-network: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the URL of the server, and waits for SIGTERM or SIGINT. The signals are handled before the URL is printed, so that a program that
/// reads it may send one at once.
fn serve_until_signalled(url: &str) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        writeln!(io::stdout(), "{url}")?;
        io::stdout().flush()?;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok(())
    })
}
