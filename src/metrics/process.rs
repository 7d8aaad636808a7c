//! What the operating system says of this process.

use std::fmt;

use procfs::ProcResult;
use procfs::process::{LimitValue, Process};
use prometheus_client::encoding::DescriptorEncoder;
use tracing::debug;

use super::exposition::write;
use super::names;

/// The figures of this process at one moment.
struct Figures {
    cpu_seconds: f64,
    resident_bytes: u64,
    virtual_bytes: u64,
    open_fds: usize,
    max_fds: u64,
    threads: i64,
    start_seconds: f64,
}

/// Reads and writes them; nothing where the system does not tell them (it is not Linux, or `/proc` is not mounted).
pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let figures = match read() {
        Ok(figures) => figures,
        Err(error) => {
            debug!(%error, "/proc cannot be read");
            return Ok(());
        }
    };
    write(encoder, &names::PROCESS_CPU, |series| series.counter(&[], figures.cpu_seconds))?;
    write(encoder, &names::PROCESS_RESIDENT, |series| series.gauge(&[], figures.resident_bytes))?;
    write(encoder, &names::PROCESS_VIRTUAL, |series| series.gauge(&[], figures.virtual_bytes))?;
    write(encoder, &names::PROCESS_OPEN_FDS, |series| series.gauge(&[], figures.open_fds))?;
    write(encoder, &names::PROCESS_MAX_FDS, |series| series.gauge(&[], figures.max_fds))?;
    write(encoder, &names::PROCESS_THREADS, |series| series.gauge(&[], figures.threads))?;
    write(encoder, &names::PROCESS_START_TIME, |series| series.gauge(&[], figures.start_seconds))
}

#[expect(clippy::cast_precision_loss, reason = "ticks and seconds are far from 2^52")]
fn read() -> ProcResult<Figures> {
    let process = Process::myself()?;
    let stat = process.stat()?;
    let ticks = procfs::ticks_per_second() as f64;
    Ok(Figures {
        cpu_seconds: (stat.utime + stat.stime) as f64 / ticks,
        resident_bytes: stat.rss * procfs::page_size(),
        virtual_bytes: stat.vsize,
        open_fds: process.fd_count()?,
        max_fds: match process.limits()?.max_open_files.soft_limit {
            LimitValue::Value(limit) => limit,
            LimitValue::Unlimited => u64::MAX,
        },
        threads: stat.num_threads,
        start_seconds: procfs::boot_time_secs()? as f64 + stat.starttime as f64 / ticks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_started_before_now_and_takes_memory() {
        let figures = read().unwrap();
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
        assert!((now - 86_400.0..=now + 1.0).contains(&figures.start_seconds), "{}", figures.start_seconds);
        assert!(figures.resident_bytes > 1 << 20 && figures.virtual_bytes >= figures.resident_bytes);
        assert!(figures.open_fds >= 3 && figures.max_fds >= figures.open_fds as u64);
        assert!(figures.threads >= 1 && figures.cpu_seconds >= 0.0);
    }
}
