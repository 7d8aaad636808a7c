//! The arguments that several commands share.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use serde::Serialize;

#[derive(Debug, Args)]
pub(super) struct ConfigFile {
    /// The configuration file. If not set: /etc/staffetta/staffetta.toml if it exists, else the defaults.
    #[arg(long, value_name = "FILE", env = "STAFFETTA_CONFIG", hide_env_values = true)]
    pub(super) config: Option<PathBuf>,
}

/// The configuration of a command that connects to the cluster.
#[derive(Debug, Args)]
pub(super) struct ClusterArguments {
    #[command(flatten)]
    pub(super) file: ConfigFile,
    /// The kubeconfig file. Overrides `kubernetes.kubeconfig`.
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
}

/// The admin server to which the request is sent.
#[derive(Debug, Args)]
pub(super) struct AdminServer {
    /// The URL of the controller's admin server, such as `http://127.0.0.1:8082`. If not set: the address of `admin.listen`.
    #[arg(long, value_name = "URL", env = "STAFFETTA_ADMIN", hide_env_values = true)]
    pub(super) admin: Option<String>,
    #[command(flatten)]
    pub(super) file: ConfigFile,
}

/// The arguments of a command that sends requests to an admin server.
#[derive(Debug, Args)]
pub(super) struct WithServer<A: Args> {
    #[command(flatten)]
    pub(super) arguments: A,
    #[command(flatten)]
    pub(super) server: AdminServer,
}

/// The option of a command that writes a document.
#[derive(Debug, Args)]
pub(super) struct OutputArguments {
    /// The output format.
    #[arg(short = 'o', long = "output", value_name = "FORMAT", value_parser = OutputFormat::without_wide(), default_value = "table")]
    pub(super) format: OutputFormat,
}

/// The output format of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputFormat {
    /// Text or tables for people.
    Table,
    /// Tables with all columns, each as wide as its text.
    Wide,
    /// JSON for programs.
    Json,
    /// YAML for programs.
    Yaml,
}

impl OutputFormat {
    /// Returns a parser of output formats that refuses `wide`, for commands that have no more columns to show.
    pub(super) fn without_wide() -> impl TypedValueParser<Value = Self> {
        let formats = Self::value_variants().iter().filter(|format| **format != Self::Wide);
        PossibleValuesParser::new(formats.filter_map(Self::to_possible_value))
            .map(|word| Self::from_str(&word, false).expect("it is one of the possible values"))
    }

    /// Writes `document` to `output`: as the text that `text` returns (`Table`, `Wide`), or serialized (`Json`, `Yaml`).
    pub(super) fn write(
        self,
        document: &impl Serialize,
        text: impl FnOnce() -> String,
        output: &mut impl Write,
    ) -> io::Result<()> {
        match self {
            Self::Table | Self::Wide => write!(output, "{}", text()),
            Self::Json => writeln!(output, "{}", serde_json::to_string_pretty(document)?),
            Self::Yaml => {
                write!(output, "{}", serde_saphyr::to_string(document).map_err(io::Error::other)?)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        output: OutputArguments,
    }

    fn format(words: &[&str]) -> Result<OutputFormat, String> {
        let words = [&["command"][..], words].concat();
        let parsed = Command::try_parse_from(words).map(|command| command.output.format);
        parsed.map_err(|error| error.to_string())
    }

    #[test]
    fn a_command_without_more_columns_refuses_the_wide_format_and_lists_the_others() {
        assert_eq!(format(&[]), Ok(OutputFormat::Table));
        assert_eq!(format(&["-o", "yaml"]), Ok(OutputFormat::Yaml));
        let error = format(&["-o", "wide"]).unwrap_err();
        assert!(
            error.contains("invalid value 'wide'") && error.contains("[possible values: table, json, yaml]"),
            "{error}"
        );
    }

    #[test]
    fn a_document_is_the_same_in_both_formats_for_programs() {
        let document = json!({ "a": [1, "no"], "b": null });
        let written = |format: OutputFormat| {
            let mut output = Vec::new();
            format.write(&document, || "text\n".to_owned(), &mut output).unwrap();
            String::from_utf8(output).unwrap()
        };
        assert_eq!([OutputFormat::Table, OutputFormat::Wide].map(written), ["text\n", "text\n"]);
        assert_eq!(serde_json::from_str::<Value>(&written(OutputFormat::Json)).unwrap(), document);
        let yaml = written(OutputFormat::Yaml);
        assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), document, "{yaml}");
        assert!(yaml.starts_with("a:") && yaml.ends_with('\n'), "{yaml}");
    }
}
