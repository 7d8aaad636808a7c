//! The topics of bases: `koupleless_ENVIRONMENT/BASE/...`.

use staffetta_driver::tunnel::NodeId;
use staffetta_driver::{DriverError, Reason};

use crate::operations::ArkletCommand;

/// The MQTT topics of the bases of one environment.
#[derive(Clone, Debug)]
pub(super) struct Topics {
    /// The first part of all topics: `koupleless_ENVIRONMENT`.
    prefix: String,
}

/// The kind of a report, by the last part of its topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportKind {
    /// `heart`: the base introduces itself.
    Heart,
    /// `queryBaseline`: the base asks for the modules that it is to start with.
    QueryBaseline,
    /// `health`: the health of the base.
    Health,
    /// `simpleBiz`: all modules of the base.
    SimpleBiz,
    /// `biz`: all modules of the base, as older versions of Arklet report them.
    Biz,
    /// `bizOperation`: the answer to a command that loads or unloads a module.
    BizOperation,
}

impl ReportKind {
    /// The kinds of reports that the tunnel subscribes for all bases, also those without a node.
    const OF_ALL: [Self; 2] = [Self::Heart, Self::QueryBaseline];

    /// The kinds of reports that the tunnel subscribes only for bases with a node.
    const OF_ONE: [Self; 4] = [Self::Health, Self::SimpleBiz, Self::Biz, Self::BizOperation];

    /// Returns the last part of the topic of reports of this kind.
    fn name(self) -> &'static str {
        match self {
            Self::Heart => "heart",
            Self::QueryBaseline => "queryBaseline",
            Self::Health => "health",
            Self::SimpleBiz => "simpleBiz",
            Self::Biz => "biz",
            Self::BizOperation => "bizOperation",
        }
    }
}

impl Topics {
    /// Returns the topics of an environment, which is used in lower case, as Arklet does. Fails unless the environment consists of 1 to 64
    /// letters, digits, hyphens, underscores and dots.
    pub(super) fn new(environment: &str) -> Result<Self, DriverError> {
        let environment = environment.to_ascii_lowercase();
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if environment.is_empty() || environment.len() > 64 || !environment.bytes().all(allowed) {
            let error = DriverError::new(Reason::Refused, "name the topics of an environment");
            return Err(error.detail("use letters, digits, hyphens, underscores and dots, at most 64"));
        }
        Ok(Self { prefix: format!("koupleless_{environment}") })
    }

    /// Returns the topic filters of the reports of all bases, also those without a node.
    pub(super) fn of_all_bases(&self) -> Vec<String> {
        ReportKind::OF_ALL.iter().map(|kind| format!("{}/+/base/{}", self.prefix, kind.name())).collect()
    }

    /// Returns the topic filters, for one base, of the reports that are subscribed only for bases with a node.
    pub(super) fn of_base(&self, base: &NodeId) -> Vec<String> {
        ReportKind::OF_ONE.iter().map(|kind| format!("{}/{base}/base/{}", self.prefix, kind.name())).collect()
    }

    /// Returns the topic of a command to a base.
    pub(super) fn command(&self, base: &NodeId, command: ArkletCommand) -> String {
        format!("{}/{base}/{}", self.prefix, command.name())
    }

    /// Returns the topic on which a base receives its baseline, the modules with which it starts.
    pub(super) fn baseline(&self, base: &NodeId) -> String {
        format!("{}/{base}/base/baseline", self.prefix)
    }

    /// Returns the base and the kind in the topic of a report; `None` if `topic` is not one of a report.
    pub(super) fn parse(&self, topic: &[u8]) -> Option<(NodeId, ReportKind)> {
        let topic = std::str::from_utf8(topic).ok()?.strip_prefix(&self.prefix)?.strip_prefix('/')?;
        let (base, rest) = topic.split_once('/')?;
        let name = rest.strip_prefix("base/")?;
        let mut kinds = ReportKind::OF_ALL.into_iter().chain(ReportKind::OF_ONE);
        Some((base.parse().ok()?, kinds.find(|kind| kind.name() == name)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_known_by_its_topic_and_everything_else_is_none() {
        let topics = Topics::new("PROD").unwrap();
        let parse = |topic: &str| topics.parse(topic.as_bytes()).map(|(base, kind)| (base.to_string(), kind));
        assert_eq!(parse("koupleless_prod/b-1/base/heart"), Some(("b-1".to_owned(), ReportKind::Heart)));
        assert_eq!(
            parse("koupleless_prod/b-1/base/bizOperation"),
            Some(("b-1".to_owned(), ReportKind::BizOperation))
        );
        for topic in [
            "koupleless_prod/b-1/heart",
            "koupleless_prod/b-1/base/baseline",
            "koupleless_prod/b-1/base/heart/x",
            "koupleless_prod/B/base/heart",
            "koupleless_prod//base/heart",
            "koupleless_prod2/b-1/base/heart",
            "koupleless_test/b-1/base/heart",
            "",
        ] {
            assert_eq!(parse(topic), None, "{topic}");
        }
        assert_eq!(topics.parse(b"koupleless_prod/\xff/base/heart"), None);
    }

    #[test]
    fn each_filter_and_command_has_the_topic_of_arklet() {
        let (topics, base) = (Topics::new("prod").unwrap(), "b-1".parse().unwrap());
        assert_eq!(topics.of_all_bases()[0], "koupleless_prod/+/base/heart");
        for filter in topics.of_base(&base) {
            assert!(topics.parse(filter.as_bytes()).is_some(), "{filter}");
        }
        assert_eq!(topics.command(&base, ArkletCommand::InstallBiz), "koupleless_prod/b-1/installBiz");
        assert_eq!(topics.baseline(&base), "koupleless_prod/b-1/base/baseline");
    }

    #[test]
    fn an_environment_that_would_change_the_topics_is_refused() {
        for environment in ["", "a/b", "+", "#", "a b", &"x".repeat(65)] {
            assert!(Topics::new(environment).is_err(), "{environment}");
        }
    }
}
