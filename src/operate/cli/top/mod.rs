//! `staffetta top`: a view of a running controller that is refreshed in the terminal.

mod screen;
mod view;

use std::io::Write;
use std::time::Duration;

use futures_util::stream;
use tokio::time::sleep;

use super::CommandError;
use super::line::TerminalStyle;
use super::request::{AdminClient, RequestError};
use crate::base::config::TimeSpan;
use crate::observe::state::{Query, StateSnapshot};
use screen::Screen;
use view::View;

/// The minimum interval between two requests to the admin server.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// The arguments of `top`.
#[derive(Debug, clap::Args)]
pub(super) struct TopArguments {
    /// The time between two requests, at least 100ms.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = interval)]
    interval: TimeSpan,
    /// Print one frame as text and exit. It takes one interval, because rates are computed from two requests.
    #[arg(long)]
    once: bool,
}

/// Parses the value of `--interval`; fails if it is less than [`MIN_INTERVAL`].
fn interval(text: &str) -> Result<TimeSpan, String> {
    let span: TimeSpan = text.parse().map_err(|error| format!("{error}"))?;
    if Duration::from(span) < MIN_INTERVAL { Err("less than 100ms".to_owned()) } else { Ok(span) }
}

/// Shows the state of the controller until the user quits. With `--once`, writes one frame to `output` instead.
pub(super) async fn top(
    arguments: TopArguments,
    client: &AdminClient,
    output: &mut impl Write,
) -> Result<(), CommandError> {
    let TopArguments { interval, once } = arguments;
    if !once {
        Screen::check()?;
    }
    let query = Query::default();
    // The first error is reported before the terminal is changed; later ones are shown in the view.
    let mut view = View::new(interval, client.state(&query).await?);
    if once {
        sleep(interval.into()).await;
        view.update(client.state(&query).await?);
        write!(output, "{}", TerminalStyle::of_stdout().show(view.lines()))?;
        return Ok(());
    }
    let answers = stream::unfold((), |()| async {
        sleep(interval.into()).await;
        Some((client.state(&query).await, ()))
    });
    Screen::open()?.run(&mut view, answers).await
}

/// The state of the controller at one moment, or the error of the request for it.
type Answer = Result<StateSnapshot, RequestError>;
