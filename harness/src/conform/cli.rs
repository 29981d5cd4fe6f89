//! `stubline conform`: from arguments to a report.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;

use super::corpus::{self, Recorded};
use super::live::Server;
use super::{Mode, report, run as hold};
use crate::cli::Format;
use crate::error::UsageError;
use crate::http::Target;

/// Arguments of `stubline conform`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Texts, token counts, ids, times and hashes are free; heads, framing, events, keys, nulls, types and\nerrors are not. Most cases apply to a server that was started with --max-model-len 512.\n\nExamples:\n  stubline conform --url http://127.0.0.1:8000 --profile vllm-0.33.0 --junit conform.xml\n  stubline conform --url http://127.0.0.1:8000 --against-fixtures fixtures/wire/vllm-0.33.0/default"
)]
pub struct Args {
    /// Server to check
    #[arg(long, value_name = "URL")]
    url: String,
    /// Whose recordings to hold it against [default: the newest]
    #[arg(long, value_name = "NAME", conflicts_with = "against_fixtures")]
    profile: Option<String>,
    /// The recorded configuration whose flags the server has [default: the one without any]
    #[arg(long, value_name = "NAME", conflicts_with = "against_fixtures")]
    config: Option<String>,
    /// Cases to send, by name or CONFIG/NAME; `*` and `?` stand for anything
    #[arg(long, value_name = "GLOB")]
    case: Option<String>,
    /// Compare byte for byte with this folder's cases; for servers that play its scripts
    #[arg(long, value_name = "DIR")]
    against_fixtures: Option<PathBuf>,
    /// The model to ask for [default: the first of /v1/models]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Bearer token to send where a case has none
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// How long to wait for an answer
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = crate::cli::duration)]
    timeout: Duration,
    /// Write the findings here for CI
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// Runs the command and gives its exit code: 1 if a case failed.
///
/// # Errors
/// [`UsageError`] is for exit code 2, all others for 1.
pub fn run(args: &Args, out: &mut impl std::io::Write) -> anyhow::Result<u8> {
    let target = Target::parse(&args.url)?;
    let server = Server {
        target: &target,
        api_key: args.api_key.as_deref(),
        timeout: args.timeout,
    };
    let (against, corpus, mode) = args.held_against(&server)?;
    let fits = |recorded: &Recorded| {
        args.case.as_deref().is_none_or(|glob| {
            matches(glob, &recorded.case.name) || matches(glob, &recorded.path())
        })
    };
    let findings = hold(&server, &corpus, &mode, fits)?;
    if findings.is_empty() {
        let glob = args.case.as_deref().unwrap_or("*");
        return Err(UsageError(format!("--case {glob}: no recorded case has such a name")).into());
    }
    let title = format!("{} against {against}", args.url);
    if let Some(path) = &args.junit {
        std::fs::write(path, report::junit(&findings, &title))
            .with_context(|| format!("failed to write {}", path.display()))?;
    }
    let printed = match args.format {
        Format::Json => report::json(&findings, &against),
        Format::Table => report::table(&findings, &title),
    };
    out.write_all(printed.as_bytes())
        .context("failed to print the report")?;
    let counts = report::Counts::of(&findings);
    Ok(u8::from(counts.failed > 0))
}

impl Args {
    fn held_against(&self, server: &Server<'_>) -> anyhow::Result<(String, corpus::Corpus, Mode)> {
        if let Some(dir) = &self.against_fixtures {
            let corpus = corpus::folder(dir)?;
            return Ok((dir.display().to_string(), corpus, Mode::Exact));
        }
        let newest = corpus::profiles().into_iter().next().unwrap_or_default();
        let profile = self.profile.as_deref().unwrap_or(&newest);
        let corpus = corpus::embedded(profile)?;
        let config = self.config.as_deref();
        let config = config.unwrap_or(corpus.manner.configuration);
        if !corpus.flags.contains_key(config) {
            let mut known: Vec<&str> = corpus.flags.keys().map(String::as_str).collect();
            known.sort_unstable();
            let known = known.join(", ");
            return Err(
                UsageError(format!("--config {config}: not recorded; known: {known}")).into(),
            );
        }
        let facts = server.facts(self.model.as_deref(), &corpus)?;
        let configuration = config.to_owned();
        Ok((
            format!("{profile} ({configuration})"),
            corpus,
            Mode::Live {
                configuration,
                facts,
            },
        ))
    }
}

/// Whether a name fits a pattern in which `*` stands for any text and `?` for any character.
pub(crate) fn matches(glob: &str, name: &str) -> bool {
    let mut parts = glob.chars();
    match parts.next() {
        None => name.is_empty(),
        Some('*') => {
            let rest = parts.as_str();
            let starts = name.char_indices().map(|(at, _)| at).chain([name.len()]);
            starts.into_iter().any(|at| matches(rest, &name[at..]))
        }
        Some(wanted) => {
            let mut characters = name.chars();
            let first = characters.next();
            first.is_some_and(|first| wanted == '?' || wanted == first)
                && matches(parts.as_str(), characters.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_fit_whole_names() {
        for (glob, name, fits) in [
            ("chat*", "chat-stream", true),
            ("*stream", "chat-stream", true),
            ("chat-?", "chat-n", true),
            ("chat", "chat-stream", false),
            ("*/chat*usage", "default/chat-stream-usage", true),
            ("?", "", false),
            ("**", "é", true),
        ] {
            assert_eq!(matches(glob, name), fits, "{glob} {name}");
        }
    }
}
