//! The program `staffetta-simulated-network`: it serves a simulated cloud over HTTP. It prints its URL, and stops with SIGTERM or SIGINT.

mod arguments;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use staffetta_memory::http::Server;
use tokio::signal::unix::{SignalKind, signal};

use crate::arguments::Arguments;

fn main() -> ExitCode {
    let options = match Arguments::parse().options() {
        Ok(options) => options,
        Err(error) => {
            report(&error);
            return ExitCode::from(2);
        }
    };
    let served = Server::start(&options).and_then(|server| serve_until_signalled(server.url()));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            ExitCode::FAILURE
        }
    }
}

/// Prints the URL, and waits for a signal. The signals are handled before the URL is printed, so that a program that reads it may send
/// one at once.
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

/// Prints an error to stderr.
fn report(error: &dyn std::error::Error) {
    // A closed stderr is no failure.
    let _ = writeln!(io::stderr(), "staffetta-simulated-network: {error}");
}
