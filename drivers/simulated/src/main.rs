//! The simulated network as a program. It prints its address, and serves until SIGTERM or SIGINT.

mod arguments;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use staffetta_simulated::Server;
use tokio::signal::unix::{SignalKind, signal};

use crate::arguments::Arguments;

fn main() -> ExitCode {
    let options = match Arguments::parse().options() {
        Ok(options) => options,
        Err(error) => {
            complain(&error);
            return ExitCode::from(2);
        }
    };
    let served = Server::start(&options).and_then(|server| {
        writeln!(io::stdout(), "{}", server.url())?;
        io::stdout().flush()?;
        until_signalled()
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

fn until_signalled() -> io::Result<()> {
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

fn complain(error: &dyn std::error::Error) {
    // Where nobody listens, there is nobody to tell.
    let _ = writeln!(io::stderr(), "staffetta-simulated-network: {error}");
}
