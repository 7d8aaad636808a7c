//! The simulated network as a program. It prints its address, and serves until SIGTERM or SIGINT.

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
    let served = Server::start(&options).and_then(|server| {
        writeln!(io::stdout(), "{}", server.url())?;
        io::stdout().flush()?;
        wait_for_signal()
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            ExitCode::FAILURE
        }
    }
}

fn wait_for_signal() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok(())
    })
}

fn report(error: &dyn std::error::Error) {
    // A closed stderr is no failure.
    let _ = writeln!(io::stderr(), "staffetta-simulated-network: {error}");
}
