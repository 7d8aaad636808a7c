//! The state of a base, which its tasks share.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Interval;

use crate::arklet::Arklet;
use crate::behaviour::{AnswerFault, Behaviour};
use crate::command::BaseCommand;
use crate::options::SimulatedBaseOptions;
use crate::response;

/// The state of a base, which its tasks share.
#[derive(Debug)]
pub(crate) struct BaseProcess {
    pub(crate) options: SimulatedBaseOptions,
    pub(crate) arklet: Mutex<Arklet>,
    pub(crate) behaviour: watch::Sender<Behaviour>,
    /// The number of starts of the base after the first one.
    pub(crate) restarts: watch::Sender<u64>,
    /// The baselines that the base got, each as its modules or the reason why it got none.
    pub(crate) baselines: Mutex<Vec<Result<Vec<Value>, String>>>,
}

/// An answer to a command.
#[derive(Clone, Debug)]
pub(crate) struct BaseAnswer {
    /// The HTTP status.
    pub(crate) status: u16,
    pub(crate) content: AnswerContent,
    /// The fault with which the answer is sent.
    pub(crate) fault: Option<AnswerFault>,
}

/// The content of an answer.
#[derive(Clone, Debug)]
pub(crate) enum AnswerContent {
    /// A response of Arklet.
    Response(Value),
    /// Any bytes.
    Bytes(Vec<u8>),
}

impl BaseProcess {
    pub(crate) fn new(options: SimulatedBaseOptions) -> Arc<Self> {
        let mut arklet = Arklet::default();
        arklet.start(&options, Timestamp::now());
        Arc::new(Self {
            options,
            arklet: Mutex::new(arklet),
            behaviour: watch::Sender::default(),
            restarts: watch::Sender::default(),
            baselines: Mutex::default(),
        })
    }

    /// Returns the id that the base claims to have.
    pub(crate) fn identity(&self) -> String {
        let behaviour = self.behaviour.borrow();
        behaviour.claims.clone().unwrap_or_else(|| self.options.identity.clone())
    }

    /// Ends this process and starts the next one.
    pub(crate) fn restart(&self) {
        self.arklet.lock().start(&self.options, Timestamp::now());
        self.restarts.send_modify(|restarts| *restarts += 1);
    }

    /// Waits until the base is restarted or cannot be reached. Its connections end then.
    pub(crate) async fn ended(&self) {
        let (mut restarts, mut behaviour) = (self.restarts.subscribe(), self.behaviour.subscribe());
        // The senders live as long as `self`.
        tokio::select! {
            _ = restarts.changed() => {}
            _ = behaviour.wait_for(|behaviour| !behaviour.reachable) => {}
        }
    }

    /// Waits until it is time for the next heartbeat: for `ticks`, or not at all in a [flood](Behaviour::flood).
    pub(crate) async fn next_beat(&self, ticks: &mut Interval) {
        let mut behaviour = self.behaviour.subscribe();
        let flooding = async {
            // The sender lives as long as `self`.
            drop(behaviour.wait_for(|behaviour| behaviour.flood).await);
            tokio::task::yield_now().await;
        };
        tokio::select! {
            _ = ticks.tick() => {}
            () = flooding => {}
        }
    }

    /// Executes a command and returns the answer; `None` if it gets lost. The command is executed also if the returned future is
    /// dropped, because a base does not notice that nobody waits for its answer.
    pub(crate) async fn execute(
        self: &Arc<Self>,
        command: BaseCommand,
        request: Value,
    ) -> Option<BaseAnswer> {
        self.arklet.lock().receive(command, &request, Timestamp::now());
        let (process, mut restarts) = (Arc::clone(self), self.restarts.subscribe());
        let executed = tokio::spawn(async move {
            tokio::select! {
                answer = process.answer(command, request) => answer,
                _ = restarts.changed() => None,
            }
        });
        executed.await.ok().flatten()
    }

    async fn answer(&self, command: BaseCommand, request: Value) -> Option<BaseAnswer> {
        let held = |behaviour: &Behaviour| behaviour.answers.get(&command) == Some(&AnswerFault::Hold);
        let mut watched = self.behaviour.subscribe();
        // The sender lives as long as `self`.
        let _ = watched.wait_for(|behaviour| !held(behaviour)).await;
        let (delay, fault) = {
            let behaviour = watched.borrow();
            (behaviour.delay, behaviour.answers.get(&command).cloned())
        };
        tokio::time::sleep(delay).await;
        if let Some(AnswerFault::Fixed { status, body }) = &fault {
            return Some(BaseAnswer { status: *status, content: AnswerContent::Bytes(body.clone()), fault });
        }
        let mut response = match command {
            BaseCommand::Health => self.health(),
            BaseCommand::QueryAllBiz => self.all_modules(),
            BaseCommand::InstallBiz | BaseCommand::UninstallBiz | BaseCommand::SwitchBiz => {
                self.change(command, &request).await
            }
        };
        response["baseIdentity"] = self.identity().into();
        if let Some(AnswerFault::Late(delay)) = &fault {
            tokio::time::sleep(*delay).await;
        }
        let answer = BaseAnswer { status: 200, content: AnswerContent::Response(response), fault };
        (answer.fault != Some(AnswerFault::Lose)).then_some(answer)
    }

    fn health(&self) -> Value {
        let used = self.arklet.lock().metaspace(&self.options);
        response::health(&self.options, &self.behaviour.borrow().state, used)
    }

    fn all_modules(&self) -> Value {
        let arklet = self.arklet.lock();
        response::success(&arklet.modules().values().map(response::biz_info).collect())
    }

    /// Loads, unloads or activates a module. A restart in the meantime loses it.
    pub(crate) async fn change(&self, command: BaseCommand, request: &Value) -> Value {
        let begun = self.arklet.lock().begin(command, request, &self.options);
        let key = match begun {
            Ok(key) => key,
            Err(response) => return response,
        };
        match command {
            BaseCommand::InstallBiz => {
                tokio::time::sleep(self.options.download_time).await;
                if let Err(response) =
                    self.arklet.lock().register(&key, request, &self.options, Timestamp::now())
                {
                    return response;
                }
                tokio::time::sleep(self.options.install_time).await;
            }
            BaseCommand::UninstallBiz => tokio::time::sleep(self.options.uninstall_time).await,
            _ => {}
        }
        self.arklet.lock().finish(command, &key, Timestamp::now())
    }

    /// Loads the modules of a baseline, one after the other.
    pub(crate) async fn start_with(&self, baseline: Result<Vec<Value>, String>) {
        for module in baseline.iter().flatten() {
            self.change(BaseCommand::InstallBiz, module).await;
        }
        self.baselines.lock().push(baseline);
    }
}
