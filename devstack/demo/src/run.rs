//! Runs the demo, and returns the exit code.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use staffetta_handler::causes;
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::arguments::Arguments;
use crate::follow::follow;
use crate::kubeconfig::KubeconfigFile;
use crate::news::{Ending, News};
use crate::scenario::{Failed, Scenario};
use crate::screen;
use crate::stack::{Stack, StackError};

/// Errors of the demo.
#[derive(Debug, thiserror::Error)]
enum DemoError {
    #[error("the program cannot be started")]
    Start(#[source] io::Error),
    #[error("no temporary folder can be made")]
    Folder(#[source] io::Error),
    #[error("the kubeconfig {} cannot be written (`--kubeconfig`)", path.display())]
    Kubeconfig { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Stack(#[from] StackError),
}

/// The result of the demo.
enum Outcome {
    Converged,
    Failed,
    Interrupted,
}

/// Plays the demo and says how it ended.
pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    let played = tokio::runtime::Runtime::new().map_err(DemoError::Start).and_then(|runtime| {
        runtime.block_on(async {
            let folder = tempfile::Builder::new().prefix("staffetta-devstack-").tempdir();
            let folder = folder.map_err(DemoError::Folder)?;
            let outcome = run(arguments, folder.path()).await;
            keep_unless_converged(folder, &outcome);
            outcome
        })
    });
    match played {
        Ok(Outcome::Converged) => ExitCode::SUCCESS,
        Ok(Outcome::Interrupted) if !arguments.once => ExitCode::SUCCESS,
        Ok(Outcome::Interrupted | Outcome::Failed) => ExitCode::FAILURE,
        Err(error) => {
            // Nobody is left to hear of it when standard error is closed too.
            let _ = writeln!(io::stderr(), "error: {}", causes(&error));
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments, folder: &Path) -> Result<Outcome, DemoError> {
    let began = Instant::now();
    let stack = Stack::start(arguments.listen, folder).await?;
    let path = arguments.kubeconfig.clone().unwrap_or_else(|| folder.join("kubeconfig"));
    let kubeconfig = KubeconfigFile::write(&path, &stack.kubeconfig())
        .map_err(|source| DemoError::Kubeconfig { path, source })?;

    let (news, receiver) = mpsc::unbounded_channel();
    let shown = tokio::spawn(screen::show(receiver));
    say(&news, format!("kubeconfig: {}", kubeconfig.path().display()));
    say(&news, format!("log and configuration: {}", folder.display()));
    say(&news, "AFTER is the time since the object was made.".into());
    let followed = follow(&stack.client, began, &news);
    let deadline = began + arguments.timeout();
    let mut scenario =
        Scenario { stack: &stack, followed, news: news.clone(), deadline, endings: Vec::new() };
    let outcome = tokio::select! {
        played = scenario.play() => match played {
            Ok(()) => Outcome::Converged,
            Err(Failed) => Outcome::Failed,
        },
        () = asked_to_end() => Outcome::Interrupted,
    };
    let goes_on = !arguments.once && !matches!(outcome, Outcome::Interrupted);
    let last = last_words(&outcome, &scenario.endings, goes_on.then(|| kubeconfig.path()));
    // Nobody listens any more when standard output is closed.
    let _ = news.send(News::Stays(last));
    if goes_on {
        asked_to_end().await;
    }
    drop((scenario, news));
    // It ends with the news. That standard output is closed is nothing to be told there.
    let _ = shown.await;
    stack.stop().await?;
    Ok(outcome)
}

/// The final message: the result and, if the demo continues, how to use it with this kubeconfig.
fn last_words(outcome: &Outcome, endings: &[Ending], goes_on_with: Option<&Path>) -> String {
    let verdict = match outcome {
        Outcome::Converged => "Everything converged.",
        Outcome::Failed => "Not everything converged; the reasons are above.",
        Outcome::Interrupted => "Interrupted.",
    };
    let summary = screen::summary(endings);
    match goes_on_with {
        None => format!("\n{summary}\n\n{verdict}"),
        Some(path) => format!(
            "\n{summary}\n\n{verdict} It goes on until Ctrl-C; elsewhere:\nkubectl --kubeconfig {} get pods -A",
            path.display()
        ),
    }
}

/// Ends with Ctrl-C, SIGTERM or the terminal; at once where signals cannot be heard.
async fn asked_to_end() {
    let heard = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
    let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = heard else { return };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
}

fn say(news: &mpsc::UnboundedSender<News>, line: String) {
    // Nobody listens any more when standard output is closed.
    let _ = news.send(News::Said(line));
}

/// The log of what failed is worth a look.
fn keep_unless_converged(folder: TempDir, outcome: &Result<Outcome, DemoError>) {
    if matches!(outcome, Ok(Outcome::Failed)) {
        let _ = folder.keep();
    }
}
