//! `token_accounting.json`: every basis of every completed sample, and how it was reached.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use serde::Serialize;
use wire::request::Endpoint;

use crate::bench::{Config, Dialect, Run, TokenCountSource};
use crate::count::{InputRule, OutputRule};
use crate::stats::Distribution;

#[derive(Serialize)]
struct Accounting<'a> {
    token_count_source: TokenCountSource,
    model: &'a str,
    dialect: Dialect,
    endpoint: &'static str,
    /// Messages were rendered with the tokenizer's chat template, else joined by line feeds.
    chat_template: bool,
    /// Tokens added for what no text shows.
    constants: Constants,
    /// Samples by rule.
    rules: BTreeMap<&'static str, u64>,
    /// Answers by whether their ids decode to the text; null if no ids were returned.
    token_ids_gate: Option<Gate>,
    aggregate: Aggregate,
    samples: Vec<Sample<'a>>,
}

/// What rules O-2 to O-4 add for an end token, delimiters of reasoning and a call's structure: nothing,
/// since no answer shows whether its server counts them. `stubline gap --url` finds out.
#[derive(Default, Serialize)]
struct Constants {
    end_token: u64,
    delimiters: u64,
    tool_structure: u64,
}

/// How many answers pass rule O-1.
#[derive(Default, Serialize)]
struct Gate {
    passed: u64,
    failed: u64,
    /// Without ids, of several samples, or with a tokenizer that cannot decode.
    unchecked: u64,
}

/// Distributions of each basis, in tokens.
#[derive(Serialize)]
struct Aggregate {
    input: Option<Distribution>,
    input_usage: Option<Distribution>,
    input_token_ids: Option<Distribution>,
    output_by_rule: Option<Distribution>,
    output_usage: Option<Distribution>,
    output_usage_reasoning: Option<Distribution>,
    output_retokenized: Option<Distribution>,
    output_retokenized_content: Option<Distribution>,
    output_retokenized_reasoning: Option<Distribution>,
    output_retokenized_tools: Option<Distribution>,
    output_per_chunk: Option<Distribution>,
    output_chunks: Option<Distribution>,
    output_token_ids: Option<Distribution>,
}

#[derive(Serialize)]
struct Sample<'a> {
    id: &'a str,
    request_id: String,
    input: Input,
    output: Output,
}

#[derive(Serialize)]
struct Input {
    rule: &'static str,
    client: Option<u64>,
    usage: Option<u64>,
    token_ids: Option<u64>,
}

#[derive(Serialize)]
struct Output {
    /// The best one for this answer.
    rule: &'static str,
    /// The count by it.
    by_rule: u64,
    usage: Option<u64>,
    usage_reasoning: Option<u64>,
    /// Content, reasoning and tool calls, each whole.
    retokenized: u64,
    content: u64,
    reasoning: u64,
    tools: u64,
    per_chunk: u64,
    chunks: u64,
    token_ids: Option<u64>,
    /// O-1: the ids decode to the text.
    token_ids_decode: Option<bool>,
    tool_calls: bool,
}

pub(super) fn write(path: &Path, run: &Run, config: &Config) -> anyhow::Result<()> {
    let samples = samples(run, config);
    let accounting = Accounting {
        token_count_source: config.token_count_source,
        model: &run.model,
        dialect: config.dialect,
        endpoint: match config.endpoint {
            Endpoint::Chat => "chat",
            Endpoint::Completions => "completions",
            Endpoint::Generate => "generate",
        },
        chat_template: config.tokenizer.template.is_some(),
        constants: Constants::default(),
        rules: rules(&samples),
        token_ids_gate: gate(&samples),
        aggregate: aggregate(&samples),
        samples,
    };
    let mut file = BufWriter::new(File::create(path)?);
    serde_json::to_writer(&mut file, &accounting)?;
    file.write_all(b"\n")?;
    Ok(file.flush()?)
}

fn samples<'a>(run: &Run, config: &'a Config) -> Vec<Sample<'a>> {
    let records = run.records.iter().zip(&run.counts);
    let completed = records.filter(|(record, _)| record.is_completed());
    let sample = |(record, counts): (&crate::record::Record, &crate::count::Counts)| {
        let asked = &config.samples[record.sample];
        let usage = record.usage.unwrap_or_default();
        let (rule, by_rule) = OutputRule::apply(record, counts);
        Sample {
            id: &asked.id,
            request_id: run.request_id(record),
            input: Input {
                rule: InputRule::new(asked, config.endpoint).as_str(),
                client: counts.input,
                usage: usage.prompt_tokens,
                token_ids: counts.input_ids,
            },
            output: Output {
                rule: rule.as_str(),
                by_rule,
                usage: usage.completion_tokens,
                usage_reasoning: usage.reasoning_tokens,
                retokenized: counts.output(),
                content: counts.content,
                reasoning: counts.reasoning,
                tools: counts.tools,
                per_chunk: counts.per_chunk,
                chunks: counts.chunks,
                token_ids: counts.output_ids,
                token_ids_decode: counts.ids_decode,
                tool_calls: record.tool_calls,
            },
        }
    };
    completed.map(sample).collect()
}

fn rules(samples: &[Sample<'_>]) -> BTreeMap<&'static str, u64> {
    let mut rules = BTreeMap::new();
    for sample in samples {
        for rule in [sample.input.rule, sample.output.rule] {
            *rules.entry(rule).or_default() += 1;
        }
    }
    rules
}

fn gate(samples: &[Sample<'_>]) -> Option<Gate> {
    let outputs = || samples.iter().map(|sample| &sample.output);
    let is_any = outputs().any(|output| output.token_ids.is_some());
    let mut gate = Gate::default();
    for output in outputs() {
        *match output.token_ids_decode {
            Some(true) => &mut gate.passed,
            Some(false) => &mut gate.failed,
            None => &mut gate.unchecked,
        } += 1;
    }
    is_any.then_some(gate)
}

fn aggregate(samples: &[Sample<'_>]) -> Aggregate {
    let of = |count: fn(&Sample<'_>) -> Option<u64>| {
        let values: Vec<u64> = samples.iter().filter_map(count).collect();
        let partial = values.len() < samples.len();
        Some(Distribution::new(values)?.with_partial(partial))
    };
    Aggregate {
        input: of(|sample| sample.input.client),
        input_usage: of(|sample| sample.input.usage),
        input_token_ids: of(|sample| sample.input.token_ids),
        output_by_rule: of(|sample| Some(sample.output.by_rule)),
        output_usage: of(|sample| sample.output.usage),
        output_usage_reasoning: of(|sample| sample.output.usage_reasoning),
        output_retokenized: of(|sample| Some(sample.output.retokenized)),
        output_retokenized_content: of(|sample| Some(sample.output.content)),
        output_retokenized_reasoning: of(|sample| Some(sample.output.reasoning)),
        output_retokenized_tools: of(|sample| Some(sample.output.tools)),
        output_per_chunk: of(|sample| Some(sample.output.per_chunk)),
        output_chunks: of(|sample| Some(sample.output.chunks)),
        output_token_ids: of(|sample| sample.output.token_ids),
    }
}
