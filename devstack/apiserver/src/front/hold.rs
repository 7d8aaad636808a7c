//! Requests that are held until the test releases them.

use tokio::sync::watch;

/// Holds back requests.
#[derive(Default)]
pub(super) struct Hold(watch::Sender<State>);

#[derive(Default)]
struct State {
    waiting: usize,
    /// Counts how often all were let go.
    rounds: u64,
}

impl Hold {
    /// Ends when those that wait are let go.
    pub(super) async fn wait(&self) {
        let mut state = self.0.subscribe();
        let mut round = 0;
        self.0.send_modify(|state| {
            state.waiting += 1;
            round = state.rounds;
        });
        // It ends only with its sender, and this holds that.
        let _ = state.wait_for(|state| state.rounds != round).await;
    }

    /// Lets all go that wait.
    pub(super) fn let_go(&self) {
        self.0.send_modify(|state| *state = State { waiting: 0, rounds: state.rounds + 1 });
    }

    /// Ends when so many have come to wait since the last ones were let go.
    pub(super) async fn until_held(&self, count: usize) {
        let mut state = self.0.subscribe();
        let _ = state.wait_for(|state| state.waiting >= count).await;
    }
}
