//! Metrics of this process, as the operating system reports them.

use parking_lot::Mutex;
use procfs::ProcResult;
use procfs::process::{LimitValue, Process, Stat};
use tracing::debug;

use super::family::MetricsPage;
use super::names;

/// The CPU time, memory and open files of this process, as they were last read; `None` before the first successful reading. The last values
/// are kept because reading `/proc` takes file descriptors, and the metrics must not vanish when none is free.
#[derive(Default)]
pub(super) struct ProcessMetrics(Mutex<Option<ProcValues>>);

/// The values that were read from `/proc` at one moment.
struct ProcValues {
    stat: Stat,
    open: usize,
    max_open: u64,
    boot_time: u64,
}

impl ProcessMetrics {
    /// Adds the metrics of the process to `page`, unless `/proc` could never be read.
    #[expect(clippy::cast_precision_loss, reason = "ticks and seconds are far below 2^52")]
    pub(super) fn show(&self, page: &mut MetricsPage) {
        let mut last = self.0.lock();
        match ProcValues::now() {
            Ok(reading) => *last = Some(reading),
            Err(error) => debug!(%error, "cannot read /proc"),
        }
        let Some(ProcValues { stat, open, max_open, boot_time }) = &*last else { return };
        let seconds = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
        page.values(&names::PROCESS_CPU, [([], seconds(stat.utime + stat.stime))]);
        page.counts(&names::PROCESS_RESIDENT, [([], stat.rss * procfs::page_size())]);
        page.counts(&names::PROCESS_VIRTUAL, [([], stat.vsize)]);
        page.counts(&names::PROCESS_OPEN_FDS, [([], *open)]);
        page.counts(&names::PROCESS_MAX_FDS, [([], *max_open)]);
        page.counts(&names::PROCESS_THREADS, [([], stat.num_threads)]);
        page.values(&names::PROCESS_START_TIME, [([], *boot_time as f64 + seconds(stat.starttime))]);
    }
}

impl ProcValues {
    /// Reads the current values from `/proc`.
    fn now() -> ProcResult<Self> {
        let process = Process::myself()?;
        let max_open = match process.limits()?.max_open_files.soft_limit {
            LimitValue::Value(limit) => limit,
            LimitValue::Unlimited => u64::MAX,
        };
        let (stat, open) = (process.stat()?, process.fd_count()?);
        Ok(Self { stat, open, max_open, boot_time: procfs::boot_time_secs()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_started_before_now_and_uses_memory() {
        let mut page = MetricsPage::default();
        ProcessMetrics::default().show(&mut page);
        let page = page.encode().unwrap();
        let value = |name: &str| -> f64 {
            let mut lines = page.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            lines.next().unwrap_or_else(|| panic!("no {name} in {page}")).parse().unwrap()
        };
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
        let start = value("process_start_time_seconds");
        assert!((now - 86_400.0..=now + 1.0).contains(&start), "{start}");
        let (resident, virtual_memory) =
            (value("process_resident_memory_bytes"), value("process_virtual_memory_bytes"));
        assert!(resident > f64::from(1 << 20) && virtual_memory >= resident);
        let (open, max) = (value("process_open_fds"), value("process_max_fds"));
        assert!(open >= 3.0 && max >= open);
        assert!(value("process_threads") >= 1.0 && value("process_cpu_seconds_total") >= 0.0);
    }
}
