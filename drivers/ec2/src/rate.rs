//! Limits the rate of requests to EC2, and pauses them when EC2 throttles.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep};

/// The longest time for which a request waits for its permit. If the wait would be longer, the request fails with that delay.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// The pause of all requests after EC2 throttled one. It doubles if EC2 throttles again after the pause.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause after throttling.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A token bucket that all requests of one sort (reads, or changes) share.
pub(crate) struct RateLimit(Mutex<RequestBucket>);

impl RateLimit {
    /// Creates a limit of `per_second` requests, with bursts of twice as many.
    pub(crate) fn new(per_second: u32) -> Self {
        let interval = Duration::from_secs(1) / per_second.max(1);
        Self(Mutex::new(RequestBucket {
            interval,
            burst: per_second.max(1) * 2,
            last: None,
            throttled: None,
        }))
    }

    /// Waits until a request may be sent. During a pause, or if the wait would exceed [`MAX_WAIT`], fails at once; the error is the delay
    /// before the next call.
    pub(crate) async fn permit(&self) -> Result<(), Duration> {
        let wait = self.bucket().take(Instant::now())?;
        sleep(wait).await;
        Ok(())
    }

    /// Records that EC2 throttled a request. Returns the pause until the next request.
    pub(crate) fn throttled(&self) -> Duration {
        self.bucket().throttle(Instant::now())
    }

    /// Records that EC2 accepted a request: the next pause is the shortest one again. A pause that runs is not ended by a request that was
    /// sent before it.
    pub(crate) fn accepted(&self) {
        self.bucket().throttled.take_if(|(until, _)| *until <= Instant::now());
    }

    fn bucket(&self) -> MutexGuard<'_, RequestBucket> {
        self.0.lock()
    }
}

/// The state of a [`RateLimit`]: its token bucket, and the last pause after throttling.
struct RequestBucket {
    /// The time in which one token, for one request, is added.
    interval: Duration,
    /// The number of tokens in a full bucket: the requests that may be sent at once after a pause.
    burst: u32,
    /// The time at which the last token that was taken became available; `None` if none was taken yet.
    last: Option<Instant>,
    /// The end and the length of the last pause; `None` before the first pause, and once EC2 has accepted a request after it.
    throttled: Option<(Instant, Duration)>,
}

impl RequestBucket {
    /// Takes a token and returns the delay until it is available. During a pause, or if the delay exceeds [`MAX_WAIT`], takes none; the
    /// error is the remaining pause or the delay.
    fn take(&mut self, now: Instant) -> Result<Duration, Duration> {
        let pause = self.throttled.map_or(Duration::ZERO, |(until, _)| until.saturating_duration_since(now));
        if !pause.is_zero() {
            return Err(pause);
        }
        // No more than `burst` tokens collect.
        let full = now.checked_sub(self.interval * self.burst);
        let due = self.last.max(full).unwrap_or(now) + self.interval;
        let wait = due.saturating_duration_since(now);
        if wait > MAX_WAIT {
            return Err(wait);
        }
        self.last = Some(due);
        Ok(wait)
    }

    /// Begins a pause, twice as long as the one before, up to [`LONGEST_PAUSE`], and returns its length. During a pause, only returns the
    /// length of that pause.
    fn throttle(&mut self, now: Instant) -> Duration {
        let pause = match self.throttled {
            // Requests that were sent together are throttled together.
            Some((until, pause)) if until > now => return pause,
            Some((_, pause)) => (pause * 2).min(LONGEST_PAUSE),
            None => PAUSE,
        };
        self.throttled = Some((now + pause, pause));
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn after_a_burst_of_twice_the_rate_requests_are_sent_at_the_rate() {
        tokio::time::advance(Duration::from_secs(60)).await;
        let (limit, start) = (RateLimit::new(5), Instant::now());
        for _ in 0..10 {
            limit.permit().await.unwrap();
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        for _ in 0..10 {
            limit.permit().await.unwrap();
        }
        assert!((start.elapsed().as_secs_f64() - 2.0).abs() < 0.1, "{:?}", start.elapsed());
        tokio::time::advance(Duration::from_secs(60)).await;
        let again = Instant::now();
        for _ in 0..10 {
            limit.permit().await.unwrap();
        }
        assert_eq!(again.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_would_wait_for_long_takes_no_permit() {
        let limit = RateLimit::new(1);
        let waits: Vec<_> = (0..100).map(|_| limit.bucket().take(Instant::now())).collect();
        let refused = waits.iter().filter(|wait| wait.is_err()).count();
        assert!((85..=92).contains(&refused), "{refused}");
        assert!(waits.last().unwrap().is_err_and(|wait| wait <= MAX_WAIT + Duration::from_secs(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn throttling_pauses_all_requests_for_longer_each_time_until_one_is_accepted() {
        let limit = RateLimit::new(5);
        assert_eq!(limit.throttled(), Duration::from_secs(1));
        assert_eq!(limit.throttled(), Duration::from_secs(1), "it was sent before the pause");
        limit.accepted();
        assert_eq!(limit.permit().await, Err(Duration::from_secs(1)));
        for seconds in [2, 4, 8, 16, 30, 30] {
            tokio::time::advance(LONGEST_PAUSE).await;
            assert_eq!(limit.throttled(), Duration::from_secs(seconds));
        }
        tokio::time::advance(LONGEST_PAUSE).await;
        limit.permit().await.unwrap();
        limit.accepted();
        assert_eq!(limit.throttled(), Duration::from_secs(1));
    }
}
