//! `stubline gap --url`: from arguments to a report.

use std::sync::Arc;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use serde_json::{Map, Value};
use wire::request::Endpoint;

use super::{ask, measure};
use crate::arrival::Arrival;
use crate::bench::{Config, Dialect, Limit};
use crate::cli::{self, Format};
use crate::error::UsageError;
use crate::gap::attribution::Flavour;

/// How a live server is asked.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "A live server")]
pub struct Args {
    /// Server whose counts to explain
    #[arg(long, value_name = "http://HOST:PORT")]
    pub(in crate::gap) url: Option<String>,
    /// The model's tokenizer.json or its folder; char, byte or word for stubs
    #[arg(long, value_name = "NAME|PATH")]
    pub(in crate::gap) tokenizer: Option<String>,
    #[arg(
        long,
        requires = "url",
        conflicts_with = "from_run",
        value_name = "FILE|random:ISL,OSL",
        default_value = "random:128,128",
        help = "JSON lines of {prompt|messages|input_ids, max_tokens?, id?}, or random prompts"
    )]
    dataset: String,
    /// Number of requests [default: one for each sample, 100 for random ones]
    #[arg(long, requires = "url", conflicts_with = "from_run", value_name = "N")]
    requests: Option<u64>,
    /// vllm, sglang, executorch or openai
    #[arg(
        long,
        requires = "url",
        conflicts_with = "from_run",
        default_value = "vllm"
    )]
    dialect: Dialect,
    /// Route to ask at: chat, completions, or generate, which is SGLang's own
    #[arg(long, requires = "url", conflicts_with = "from_run", default_value = "chat", value_parser = cli::endpoint)]
    endpoint: Endpoint,
    /// Model to ask for [default: the first of /v1/models]
    #[arg(
        long,
        requires = "url",
        conflicts_with = "from_run",
        value_name = "NAME"
    )]
    model: Option<String>,
    /// Bearer token to send
    #[arg(
        long,
        requires = "url",
        conflicts_with = "from_run",
        value_name = "KEY"
    )]
    api_key: Option<String>,
    /// Ask for streamed answers
    #[arg(
        long,
        requires = "url", conflicts_with = "from_run",
        value_name = "on|off",
        default_value = "on",
        value_parser = BoolishValueParser::new(),
        hide_possible_values = true,
        action = clap::ArgAction::Set
    )]
    stream: bool,
    /// Output tokens to ask for where the data set does not say
    #[arg(long, requires = "url", conflicts_with = "from_run", value_name = "N")]
    max_tokens: Option<u32>,
    /// Members to add to each request: stop strings, tools, sampling
    #[arg(long, requires = "url", conflicts_with = "from_run", value_name = "JSON", value_parser = crate::cli::object)]
    extra_body: Option<Map<String, Value>>,
    /// Requests in flight
    #[arg(
        long,
        requires = "url",
        conflicts_with = "from_run",
        value_name = "N",
        default_value_t = 8
    )]
    concurrency: usize,
    /// How long a request may take
    #[arg(long, requires = "url", conflicts_with = "from_run", value_name = "TIME", default_value = "60s", value_parser = cli::duration)]
    timeout: Duration,
    /// Seed of random prompts
    #[arg(
        long,
        requires = "url",
        conflicts_with = "from_run",
        value_name = "N",
        default_value_t = 0
    )]
    seed: u64,
    /// Tokens that may stay unexplained
    #[arg(long, value_name = "N", default_value_t = 0)]
    tolerance: u64,
    /// Worst samples to list; all are in the JSON
    #[arg(long, value_name = "N", default_value_t = 10)]
    worst: usize,
}

/// Runs the command and gives its exit code: 1 if a sample failed or more than the tolerance stays
/// unexplained.
///
/// # Errors
/// [`UsageError`] is for exit code 2, all others for 1.
pub fn run(args: &Args, format: Format, out: &mut impl std::io::Write) -> anyhow::Result<u8> {
    let config = args.config()?;
    let asked = ask(&config)?;
    let report = measure(&config, &asked, &Flavour::default())?;
    report.print(format, args.limits(), out)
}

const RANDOM_REQUESTS: u64 = 100;

impl Args {
    /// Tokens that may stay unexplained, and how many of the worst samples are listed.
    pub(in crate::gap) fn limits(&self) -> (u64, usize) {
        (self.tolerance, self.worst)
    }

    fn config(&self) -> Result<Config, UsageError> {
        let missing = || UsageError("--url needs --tokenizer, the server's own".into());
        let tokenizer = cli::tokenizer(self.tokenizer.as_deref().ok_or_else(missing)?)?;
        if self.requests == Some(0) || self.concurrency == 0 {
            return Err(UsageError(
                "--requests and --concurrency must be at least 1".into(),
            ));
        }
        let wanted = Limit::Requests(self.requests.unwrap_or(RANDOM_REQUESTS));
        let samples = cli::samples(&self.dataset, &tokenizer, self.endpoint, wanted, self.seed)?;
        let requests = self.requests.unwrap_or(samples.len() as u64);
        let url = self.url.clone().unwrap_or_default();
        let defaults = Config::new(url, Arc::new(samples), Arc::new(tokenizer));
        let config = Config {
            model: self.model.clone(),
            dialect: self.dialect,
            endpoint: self.endpoint,
            load: Arrival::Concurrency(self.concurrency),
            limit: Limit::Requests(requests),
            stream: self.stream,
            timeout: self.timeout,
            max_tokens: self.max_tokens,
            extra_body: self.extra_body.clone().unwrap_or_default(),
            api_key: self.api_key.clone(),
            seed: self.seed,
            progress: true,
            ..defaults
        };
        config.check()?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: crate::gap::cli::Args,
    }

    fn config(line: &str) -> Result<Config, String> {
        let words = std::iter::once("gap").chain(line.split_whitespace());
        let command = Command::try_parse_from(words).map_err(|error| error.to_string())?;
        command
            .args
            .live
            .config()
            .map_err(|error| error.to_string())
    }

    #[test]
    fn arguments_reach_the_configuration() {
        let config = config(
            "--url http://h:1 --tokenizer char --requests 7 --dialect sglang --endpoint completions \
             --model m --api-key k --stream off --max-tokens 5 --extra-body {\"stop\":\"E\"} \
             --concurrency 3",
        )
        .unwrap();
        assert_eq!(
            (config.limit, config.samples.len()),
            (Limit::Requests(7), 7)
        );
        assert_eq!(config.extra_body["stop"], "E");
        assert_eq!((config.stream, config.max_tokens), (false, Some(5)));
        assert_eq!(config.load, Arrival::Concurrency(3));
    }

    #[test]
    fn wrong_arguments_are_refused() {
        for line in [
            "--url http://h:1",
            "--url http://h:1 --tokenizer /nowhere",
            "--url http://h:1 --tokenizer char --requests 0",
            "--url http://h:1 --tokenizer char --concurrency 0",
            "--url http://h:1 --tokenizer char --extra-body []",
            "--url http://h:1 --tokenizer char --endpoint generate",
            "--url http://h:1 --tokenizer char --dataset random:x",
        ] {
            assert!(config(line).is_err(), "{line}");
        }
    }
}
