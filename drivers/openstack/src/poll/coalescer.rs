//! Coalesces calls: those that arrive while a request is in flight share the next request.

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

/// A coalescer of calls: at most one request is in flight, and all calls that arrive during it share the next one. Each call has a question
/// of the type `Q` and gets an answer of the type `A`. Before a request starts, other tasks that can run get a turn, so that their calls
/// share it.
#[derive(Debug)]
pub(crate) struct Coalescer<Q, A> {
    /// The questions of the next request, each with the channel that takes its result.
    waiting: Mutex<Vec<(Q, oneshot::Sender<A>)>>,
    /// Locked while a request is in flight.
    in_flight: tokio::sync::Mutex<()>,
}

impl<Q, A> Default for Coalescer<Q, A> {
    fn default() -> Self {
        Self { waiting: Mutex::default(), in_flight: tokio::sync::Mutex::default() }
    }
}

impl<Q: Clone, A> Coalescer<Q, A> {
    /// Returns the result for `question`. `request` gets the questions of all calls that share it, and returns their results in the same
    /// order. It runs in the future of one of these callers; if that future is dropped, another caller starts it again.
    pub(crate) async fn call<F>(&self, question: Q, request: impl Fn(Vec<Q>) -> F) -> A
    where
        F: Future<Output = Vec<A>>,
    {
        loop {
            let (sender, mut answer) = oneshot::channel();
            self.waiting.lock().push((question.clone(), sender));
            let _in_flight = tokio::select! {
                biased;
                answer = &mut answer => match answer {
                    Ok(answer) => return answer,
                    Err(_) => continue,
                },
                guard = self.in_flight.lock() => guard,
            };
            match answer.try_recv() {
                Ok(answer) => return answer,
                Err(TryRecvError::Closed) => continue,
                Err(TryRecvError::Empty) => {}
            }
            tokio::task::yield_now().await;
            let all = std::mem::take(&mut *self.waiting.lock());
            let (questions, senders): (Vec<_>, Vec<_>) =
                all.into_iter().filter(|(_, sender)| !sender.is_closed()).unzip();
            for (sender, answer) in senders.into_iter().zip(request(questions).await) {
                // The receiver of a cancelled call is gone.
                drop(sender.send(answer));
            }
            if let Ok(answer) = answer.try_recv() {
                return answer;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;

    type Doubling = Arc<(Coalescer<u32, u32>, Mutex<Vec<Vec<u32>>>)>;

    async fn double(doubling: &Doubling, number: u32) -> u32 {
        let request = |numbers: Vec<u32>| async {
            doubling.1.lock().push(numbers.clone());
            sleep(Duration::from_millis(100)).await;
            numbers.into_iter().map(|number| 2 * number).collect()
        };
        doubling.0.call(number, request).await
    }

    #[tokio::test(start_paused = true)]
    async fn calls_of_one_moment_and_those_that_arrive_during_a_request_share_one() {
        let doubling = Doubling::default();
        let calls: Vec<_> = (0..50)
            .map(|number| {
                let doubling = Arc::clone(&doubling);
                tokio::spawn(async move { double(&doubling, number).await })
            })
            .collect();
        for (number, call) in (0..).zip(calls) {
            assert_eq!(call.await.unwrap(), 2 * number);
        }
        let requests: Vec<usize> = doubling.1.lock().iter().map(Vec::len).collect();
        assert_eq!(requests, [50]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_request_is_started_again_by_another_caller() {
        let doubling = Doubling::default();
        let first = tokio::spawn({
            let doubling = Arc::clone(&doubling);
            async move { double(&doubling, 1).await }
        });
        sleep(Duration::from_millis(1)).await;
        let (mut second, third) = (Box::pin(double(&doubling, 2)), double(&doubling, 3));
        tokio::select! {
            _ = &mut second => panic!("the request of the first is in flight"),
            () = sleep(Duration::from_millis(1)) => {}
        }
        first.abort();
        // The second caller runs the request now, with the question of the third.
        let third = async {
            tokio::join!(third, async { drop(tokio::time::timeout(Duration::from_millis(50), second).await) })
        };
        let (answer, ()) = tokio::time::timeout(Duration::from_secs(1), third).await.unwrap();
        assert_eq!(answer, 6);
    }
}
