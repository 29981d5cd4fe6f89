//! The main job in one screen: stubs in this process, a benchmark of each, the token gap, a short roofline.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use comfy_table::{CellAlignment, Table, presets};
use harness::arrival::Arrival;
use harness::bench::{self, Config, Limit, Run};
use harness::dataset::{self, Prompt, Sample};
use harness::report::Summary;
use plan::ReasoningParser;
use plan::source::{Fixed, ScriptFile};
use plan::stub::Stub;
use serve::server::{self, Server};
use vocab::Tokenizer;

const PROMPTS: &str = include_str!("../fixtures/prompts/mixed-1000.jsonl");
const SCRIPTS: &str = include_str!("../fixtures/wire/vllm-0.33.0/scripts.json");

/// How long the roofline takes.
const ROOFLINE: Duration = Duration::from_secs(10);

/// A stub to be measured, and what is known about its gap.
struct Scenario {
    name: &'static str,
    stub: Stub,
    samples: Arc<Vec<Sample>>,
    tokenizer: Arc<Tokenizer>,
}

/// One line of the gap table.
struct Gap {
    name: &'static str,
    summary: Summary,
    /// End tokens that the server counts and no text shows, a sample.
    end: f64,
    /// Tags that a reasoning parser ate, a sample.
    tags: f64,
}

/// Runs the demo and prints it.
pub(crate) fn run(out: &mut impl Write) -> anyhow::Result<u8> {
    writeln!(
        out,
        "stubline demo: stub servers in this process, measured by its own client\n"
    )?;
    let mut gaps = Vec::new();
    for scenario in scenarios()? {
        gaps.push(measure(scenario)?);
    }
    writeln!(out, "{}", table(&gaps))?;
    writeln!(out, "{NOTES}\n")?;
    writeln!(
        out,
        "roofline of `serve max` (160 characters, 10 a chunk), {} s:\n",
        ROOFLINE.as_secs()
    )?;
    out.flush()?;
    let server = start(max())?;
    let report = perf::short::measure(&url(&server), workers(), ROOFLINE)?;
    server.stop(Duration::from_secs(1))?;
    writeln!(out, "{}", perf::report::brief(&report))?;
    let echo_agrees = gaps[0].summary.osl_paired.is_some_and(|paired| {
        paired.mean_diff == 0.0 && paired.n == gaps[0].summary.n_samples_issued
    });
    let unexplained = gaps.iter().any(|gap| gap.unexplained().abs() > 1e-9);
    Ok(u8::from(!echo_agrees || unexplained))
}

const NOTES: &str = "\
client       tokens of the text that arrived, by the client's own tokenizer, per sample
server       completion_tokens of the usage chunk, per sample
difference   client − server, paired by sample; ratio: all client tokens / all server tokens
explained    end token: counted by the server, no text; tags: <think> and </think>, eaten by the parser
             `stubline gap` plays and explains every known cause";

fn scenarios() -> anyhow::Result<[Scenario; 3]> {
    let char = Arc::new(Tokenizer::named("char").expect("a built-in vocabulary"));
    let bpe = Arc::new(harness::gap::tokenizer("bpe")?);
    let prompts = dataset::parse(PROMPTS).context("the embedded prompts")?;
    let thoughts = (0..200).map(|number| Sample {
        id: format!("think-{number}"),
        prompt: Prompt::Text(format!("Greet me, number {number}. [[think]]")),
        max_tokens: None,
    });
    let thoughts = Arc::new(thoughts.collect::<Vec<_>>());
    let thinking = |parser| -> anyhow::Result<Stub> {
        let source = ScriptFile::from_json(SCRIPTS, &bpe).context("the embedded scripts")?;
        let mut stub = Stub::echo(Arc::clone(&bpe));
        stub.engine.source = Box::new(source);
        stub.parsers.reasoning = parser;
        Ok(stub)
    };
    Ok([
        Scenario {
            name: "echo",
            stub: Stub::echo(Arc::clone(&char)),
            samples: Arc::new(prompts),
            tokenizer: char,
        },
        Scenario {
            name: "vllm, inline <think>",
            stub: thinking(None)?,
            samples: Arc::clone(&thoughts),
            tokenizer: Arc::clone(&bpe),
        },
        Scenario {
            name: "vllm, reasoning parser",
            stub: thinking(Some(ReasoningParser::Qwen3))?,
            samples: thoughts,
            tokenizer: bpe,
        },
    ])
}

fn max() -> Stub {
    let tokenizer = Arc::new(Tokenizer::named("char").expect("a built-in vocabulary"));
    let text = "The quick brown fox jumps over the lazy dog. ".repeat(4);
    let source = Box::new(Fixed::new(&text[..160], &tokenizer));
    let mut stub = Stub::echo(tokenizer);
    stub.engine.source = source;
    stub.front.serves_metrics = true;
    stub.streaming.renders_once = true;
    stub.streaming.tokens_per_chunk = 10;
    stub
}

fn start(stub: Stub) -> anyhow::Result<Server> {
    let config = server::Config {
        workers: workers(),
        ..server::Config::default()
    };
    Ok(Server::start(&config, Arc::new(stub))?)
}

/// Half of the cores; the client has the other half.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2))
}

fn url(server: &Server) -> String {
    format!("http://{}", server.address())
}

fn measure(scenario: Scenario) -> anyhow::Result<Gap> {
    let server = start(scenario.stub)?;
    let config = Config {
        load: Arrival::Concurrency(16),
        limit: Limit::Requests(scenario.samples.len() as u64),
        ..Config::new(
            url(&server),
            scenario.samples,
            Arc::clone(&scenario.tokenizer),
        )
    };
    let run = bench::run(&config).with_context(|| format!("benchmark of {}", scenario.name))?;
    server.stop(Duration::from_secs(1))?;
    let summary = Summary::new(&run, &config);
    Ok(Gap {
        name: scenario.name,
        end: if scenario.tokenizer.eos_token_ids.is_empty() {
            0.0
        } else {
            1.0
        },
        tags: tags(&run),
        summary,
    })
}

/// Tags a sample: two where reasoning came in a field of its own, none where it stands in the text.
fn tags(run: &Run) -> f64 {
    let split = run
        .records
        .iter()
        .filter(|record| !record.reasoning.is_empty());
    #[expect(clippy::cast_precision_loss, reason = "some hundred samples")]
    let share = split.count() as f64 / run.records.len() as f64;
    2.0 * share
}

impl Gap {
    fn difference(&self) -> f64 {
        let paired = self.summary.osl_paired;
        paired.map_or(f64::NAN, |paired| paired.mean_diff)
    }

    /// What is left of the difference when the known causes are taken out.
    fn unexplained(&self) -> f64 {
        self.difference() + self.end + self.tags
    }

    fn explained_by(&self) -> String {
        let mut causes = Vec::new();
        for (name, tokens) in [("end token", self.end), ("tags", self.tags)] {
            if tokens > 0.0 {
                causes.push(format!("{name} {tokens:.0}"));
            }
        }
        if self.unexplained().abs() > 1e-9 {
            causes.push(format!("unexplained {:+.2}", self.unexplained()));
        }
        if causes.is_empty() {
            "no gap".to_owned()
        } else {
            causes.join(", ")
        }
    }
}

fn table(gaps: &[Gap]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header([
        "stub",
        "samples",
        "client",
        "server",
        "difference",
        "ratio",
        "explained",
    ]);
    for gap in gaps {
        let summary = &gap.summary;
        let client = summary.output_sequence_lengths.as_ref();
        let server = match &summary.other {
            harness::report::OtherBasis::Client { output, .. }
            | harness::report::OtherBasis::Server { output, .. } => output.as_ref(),
        };
        let ratio = summary.osl_paired.and_then(|paired| paired.ratio);
        table.add_row([
            gap.name.to_owned(),
            summary.n_samples_completed.to_string(),
            format!("{:.2}", client.map_or(f64::NAN, |lengths| lengths.mean)),
            format!("{:.2}", server.map_or(f64::NAN, |lengths| lengths.mean)),
            format!("{:.2}", gap.difference()),
            format!("{:.4}", ratio.unwrap_or(f64::NAN)),
            gap.explained_by(),
        ]);
    }
    for column in table.column_iter_mut().skip(1).take(5) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}
