//! Calls that come while one is under way are done together by the next one.

use std::future::Future;
use std::sync::{Mutex, PoisonError};

use tokio::sync::oneshot;

/// Does calls together: one request at a time is under way, and whoever calls meanwhile is in the next one. Nobody waits
/// for others when he is alone, and however many call at a time, two requests do.
#[derive(Debug)]
pub(crate) struct Together<Q, A> {
    /// Those who are in the next request.
    waiting: Mutex<Vec<(Q, oneshot::Sender<A>)>>,
    /// Whose turn it is to make a request.
    turn: tokio::sync::Mutex<()>,
}

impl<Q, A> Default for Together<Q, A> {
    fn default() -> Self {
        Self { waiting: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }
}

impl<Q: Clone, A> Together<Q, A> {
    /// The answer to `question`. `work` answers several questions, in their order; it is that of one of the callers, and
    /// when that one gives up in the middle, another one begins anew.
    pub(crate) async fn call<F>(&self, question: Q, work: impl Fn(Vec<Q>) -> F) -> A
    where
        F: Future<Output = Vec<A>>,
    {
        loop {
            let (answer, mut mine) = oneshot::channel();
            self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push((question.clone(), answer));
            let _turn = tokio::select! {
                biased;
                answer = &mut mine => match answer {
                    Ok(answer) => return answer,
                    Err(_) => continue,
                },
                turn = self.turn.lock() => turn,
            };
            match mine.try_recv() {
                Ok(answer) => return answer,
                Err(oneshot::error::TryRecvError::Closed) => continue,
                Err(oneshot::error::TryRecvError::Empty) => {}
            }
            let all = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            let (questions, callers): (Vec<_>, Vec<_>) =
                all.into_iter().filter(|(_, caller)| !caller.is_closed()).unzip();
            for (caller, answer) in callers.into_iter().zip(work(questions).await) {
                // One who gave up meanwhile is owed nothing.
                drop(caller.send(answer));
            }
            if let Ok(answer) = mine.try_recv() {
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

    type Doubling = Arc<(Together<u32, u32>, Mutex<Vec<Vec<u32>>>)>;

    async fn double(doubling: &Doubling, number: u32) -> u32 {
        let work = |numbers: Vec<u32>| async {
            doubling.1.lock().unwrap().push(numbers.clone());
            sleep(Duration::from_millis(100)).await;
            numbers.into_iter().map(|number| 2 * number).collect()
        };
        doubling.0.call(number, work).await
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_come_while_one_is_at_work_are_done_together_after_it() {
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
        let lots: Vec<usize> = doubling.1.lock().unwrap().iter().map(Vec::len).collect();
        assert_eq!(lots, [1, 49]);
    }

    #[tokio::test(start_paused = true)]
    async fn one_who_gives_up_in_the_middle_holds_up_nobody() {
        let doubling = Doubling::default();
        let first = tokio::spawn({
            let doubling = Arc::clone(&doubling);
            async move { double(&doubling, 1).await }
        });
        sleep(Duration::from_millis(1)).await;
        let (mut second, third) = (Box::pin(double(&doubling, 2)), double(&doubling, 3));
        tokio::select! {
            _ = &mut second => panic!("the first is at work"),
            () = sleep(Duration::from_millis(1)) => {}
        }
        first.abort();
        // The second has the turn now, and 3 is in its lot.
        let third = async {
            tokio::join!(third, async { drop(tokio::time::timeout(Duration::from_millis(50), second).await) })
        };
        let (answer, ()) = tokio::time::timeout(Duration::from_secs(1), third).await.unwrap();
        assert_eq!(answer, 6);
    }
}
