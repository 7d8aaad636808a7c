//! Simulated IOS-XE devices as a program. It prints where its control API is, and serves until SIGTERM or SIGINT.

mod arguments;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use staffetta_iosxe_device::Site;
use tokio::signal::unix::{SignalKind, signal};

use crate::arguments::Arguments;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let served = Site::start().and_then(|site| {
        for options in arguments.devices() {
            site.device(options)?;
        }
        writeln!(io::stdout(), "http://{}", site.control(arguments.control)?)?;
        io::stdout().flush()?;
        until_signalled()
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Where nobody listens, there is nobody to tell.
            let _ = writeln!(io::stderr(), "staffetta-iosxe-devices: {error}");
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
