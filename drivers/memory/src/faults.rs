//! Fault injection: faults that are planned for later calls of a driver.

use std::collections::{HashMap, VecDeque};
use std::future::pending;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use staffetta_driver::DriverError;
use staffetta_driver::milliseconds;

/// A fault to inject into one call of a driver. In JSON, the name of a variant in snake case (with `_ms` for a time), and its value if any.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The call does nothing and fails with this error.
    Fail(DriverError),
    /// The call does nothing and never returns.
    Hang,
    /// The call takes effect, and then fails with this error, marked as ambiguous, as if its response had been lost. If the call itself
    /// fails, it returns its own error.
    DoneThenFail(DriverError),
    /// The call takes effect and never returns. If the call itself fails, it returns its error.
    DoneThenHang,
    /// The call takes effect only after this time, unless the caller has cancelled it. In JSON, `delay_ms` in whole milliseconds.
    #[serde(rename = "delay_ms")]
    Delay(#[serde(with = "milliseconds")] Duration),
    /// The call takes effect, and returns its result after this time. In JSON, `done_then_delay_ms` in whole milliseconds.
    #[serde(rename = "done_then_delay_ms")]
    DoneThenDelay(#[serde(with = "milliseconds")] Duration),
}

/// The faults that are planned for the next calls of each method of a driver. `M` is the type of methods.
#[derive(Debug)]
pub struct Faults<M>(Mutex<HashMap<M, VecDeque<Fault>>>);

impl<M> Default for Faults<M> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<M: Copy + Eq + Hash> Faults<M> {
    /// Plans `fault` for the next `times` calls of `method` that have no planned fault yet.
    pub fn inject(&self, method: M, times: usize, fault: Fault) {
        let mut planned = self.0.lock();
        planned.entry(method).or_default().extend(std::iter::repeat_n(fault, times));
    }

    /// Cancels the planned faults that have not happened yet.
    pub fn clear(&self) {
        self.0.lock().clear();
    }

    /// Returns the number of planned faults that have not happened yet.
    pub fn planned(&self) -> usize {
        self.0.lock().values().map(VecDeque::len).sum()
    }

    /// Executes `work` as a call of `method`, with the next fault that is planned for it, if there is one.
    pub async fn call<T>(
        &self,
        method: M,
        work: impl FnOnce() -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        match self.next(method) {
            None => work(),
            Some(Fault::Fail(error)) => Err(error),
            Some(Fault::Hang) => pending().await,
            Some(Fault::DoneThenFail(error)) => {
                work()?;
                Err(error.maybe_applied())
            }
            Some(Fault::DoneThenHang) => {
                work()?;
                pending().await
            }
            Some(Fault::Delay(time)) => {
                sleep(time).await;
                work()
            }
            Some(Fault::DoneThenDelay(time)) => {
                let answer = work();
                sleep(time).await;
                answer
            }
        }
    }

    /// Removes and returns the next fault that is planned for a method; `None` if there is none.
    fn next(&self, method: M) -> Option<Fault> {
        self.0.lock().get_mut(&method)?.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use staffetta_driver::Reason;

    fn outage() -> DriverError {
        DriverError::new(Reason::Unavailable, "ask")
    }

    #[tokio::test]
    async fn a_fault_hits_only_its_method_and_only_so_often() {
        let faults = Faults::default();
        faults.inject("ask", 2, Fault::Fail(outage()));
        assert!(faults.call("tell", || Ok(())).await.is_ok());
        assert!(faults.call("ask", || Ok(())).await.is_err());
        assert_eq!(faults.planned(), 1);
        assert!(faults.call("ask", || Ok(())).await.is_err());
        assert_eq!(faults.planned(), 0);
        assert!(faults.call("ask", || Ok(())).await.is_ok());
    }

    #[tokio::test]
    async fn a_failed_call_does_nothing_and_a_lost_answer_everything() {
        let (faults, done) = (Faults::default(), Cell::new(0));
        let work = || {
            done.set(done.get() + 1);
            Ok(())
        };
        faults.inject("ask", 1, Fault::Fail(outage()));
        faults.inject("ask", 1, Fault::DoneThenFail(outage()));
        assert!(!faults.call("ask", work).await.unwrap_err().ambiguous());
        assert_eq!(done.get(), 0);
        assert!(faults.call("ask", work).await.unwrap_err().ambiguous());
        assert_eq!(done.get(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_delayed_call_does_its_work_late_and_a_delayed_answer_at_once() {
        let (faults, done, hour) = (Faults::default(), Cell::new(0), Duration::from_secs(3600));
        let work = || {
            done.set(done.get() + 1);
            Ok(())
        };
        faults.inject("ask", 2, Fault::Delay(hour));
        faults.inject("ask", 1, Fault::DoneThenDelay(hour));
        let begun = tokio::time::Instant::now();
        assert!(tokio::time::timeout(hour / 2, faults.call("ask", work)).await.is_err());
        assert_eq!(done.get(), 0, "nobody waits for it any more");
        faults.call("ask", work).await.unwrap();
        assert_eq!((done.get(), begun.elapsed()), (1, hour + hour / 2));
        assert!(tokio::time::timeout(hour / 2, faults.call("ask", work)).await.is_err());
        assert_eq!(done.get(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hanging_call_never_answers() {
        let faults = Faults::default();
        faults.inject("ask", 1, Fault::Hang);
        let answer = tokio::time::timeout(Duration::from_secs(3600), faults.call("ask", || Ok(()))).await;
        assert!(answer.is_err());
    }
}
