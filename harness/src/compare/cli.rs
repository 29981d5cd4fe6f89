//! `stubline compare`: from arguments to a report.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context as _;

use super::client::Client;
use super::known::Known;
use super::ledger::Verdict;
use super::play::{Audit, Plan, Runner};
use super::stage::Upstream;
use super::{print, replies, scenario};
use crate::cli::Format;
use crate::error::UsageError;
use crate::files;
use crate::http::Target;
use crate::real::{Recipe, START_LIMIT};

/// Arguments of `stubline compare`.
#[derive(clap::Args, Debug)]
#[command(
    about = "Run benchmark clients against servers and audit what they report",
    after_help = "A client is a table of clients.toml, a server one of servers.toml or a URL. NAME=PATH names the program or the\nvirtual environment to use; without it, `stubline install NAME` comes first. What a stub wrote into its truth file\nis held against the client's report, quantity by quantity.\n\nExit code: 0 all agree or differ in a known way, 1 something differs, 2 wrong usage or input.\n\nExamples:\n  stubline compare --client native --server stub:vllm,stub:sglang,stub:echo\n  stubline compare --client guidellm --server stub:vllm --scenario 'error-*' --junit compare.xml\n  stubline compare --client mlperf=VENV --server stub:vllm --time-limit 3m\n  stubline compare --server executorch --against stub:vllm\n  stubline compare --list"
)]
pub struct Args {
    /// Clients to run
    #[arg(
        long,
        value_name = "NAME[=PATH],…",
        value_delimiter = ',',
        required_unless_present_any = ["list", "against"]
    )]
    client: Vec<String>,
    /// Servers to run them against
    #[arg(
        long,
        value_name = "NAME[=PATH]|URL,…",
        value_delimiter = ',',
        required_unless_present = "list"
    )]
    server: Vec<String>,
    /// In place of clients, a server that plays the same scripts: are the replies the same?
    #[arg(long, value_name = "NAME[=PATH]", conflicts_with = "client")]
    against: Option<String>,
    /// Scenarios to play, by name; `*` and `?` stand for anything
    #[arg(long, value_name = "GLOB")]
    scenario: Option<String>,
    /// Name the clients, servers and scenarios, and run nothing
    #[arg(long)]
    list: bool,
    /// What real servers load: a folder, a file or a name; what a server of a URL is asked for
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// How long a client may take for a scenario before it is ended
    #[arg(
        long,
        value_name = "TIME",
        default_value = "2m",
        conflicts_with = "against",
        value_parser = crate::cli::duration
    )]
    time_limit: Duration,
    /// How long a server may take to get ready
    #[arg(long, value_name = "TIME", default_value = START_LIMIT, value_parser = crate::cli::duration)]
    start_limit: Duration,
    /// Keep the files of each run here: logs, data sets, reports, truth
    #[arg(long, value_name = "DIR", conflicts_with = "against")]
    keep: Option<PathBuf>,
    /// Write the verdicts here for CI
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// Runs the command and gives its exit code: 1 if something differs.
///
/// # Errors
/// [`UsageError`] is for exit code 2, all others for 1.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<u8> {
    if args.list {
        out.write_all(names()?.as_bytes())
            .context("failed to print the names")?;
        return Ok(0);
    }
    let known = Known::embedded()?;
    let interrupt = Arc::new(AtomicBool::new(false));
    files::raise_limit();
    let mut audits = Vec::new();
    let played = if let Some(against) = &args.against {
        args.hold_against(against, &interrupt, &mut audits)
    } else {
        args.play(&known, &interrupt, &mut audits)
    };
    // What was found before a failure is told first.
    if !audits.is_empty() {
        let differs = args.report(&known, audits, out);
        played?;
        return differs.map(u8::from);
    }
    played?;
    Ok(0)
}

impl Args {
    fn play(
        &self,
        known: &Known,
        interrupt: &Arc<AtomicBool>,
        audits: &mut Vec<Audit>,
    ) -> anyhow::Result<()> {
        let plan = self.plan()?;
        crate::cli::end_at_signal(interrupt, || {})?;
        plan.play(known, interrupt, audits)
    }

    fn plan(&self) -> anyhow::Result<Plan> {
        let runners = self.client.iter().map(|spec| runner(spec));
        let upstreams = self.server.iter().map(|spec| self.upstream(spec));
        let keep = self.keep.as_deref().map(std::path::absolute).transpose()?;
        for specs in [&self.client, &self.server] {
            let different: BTreeSet<&str> = specs.iter().map(|spec| named(spec).0).collect();
            if different.len() < specs.len() {
                let specs = specs.join(",");
                return Err(UsageError(format!("{specs}: name each one once")).into());
            }
        }
        Ok(Plan {
            scenarios: scenario::find(self.scenario.as_deref())?,
            upstreams: upstreams.collect::<anyhow::Result<_>>()?,
            runners: runners.collect::<anyhow::Result<_>>()?,
            time_limit: self.time_limit,
            model: self.model.clone(),
            keep,
        })
    }

    /// The servers' replies, held against those of another.
    fn hold_against(
        &self,
        against: &str,
        interrupt: &Arc<AtomicBool>,
        audits: &mut Vec<Audit>,
    ) -> anyhow::Result<()> {
        let against = self.upstream(against)?;
        let upstreams = self.server.iter().map(|spec| self.upstream(spec));
        let upstreams = upstreams.collect::<anyhow::Result<Vec<_>>>()?;
        let scenarios = scenario::find(self.scenario.as_deref())?;
        crate::cli::end_at_signal(interrupt, || {})?;
        for upstream in &upstreams {
            replies::hold(upstream, &against, &scenarios, interrupt, audits)?;
        }
        Ok(())
    }

    /// Prints what was found and says whether something differs.
    fn report(
        &self,
        known: &Known,
        mut audits: Vec<Audit>,
        out: &mut impl Write,
    ) -> anyhow::Result<bool> {
        let skips: Option<Vec<&str>> = audits
            .iter()
            .map(|audit| audit.skipped.as_deref())
            .collect();
        if let Some(reason) = skips.and_then(|reasons| reasons.first().copied()) {
            return Err(UsageError(format!("no scenario can be played: {reason}")).into());
        }
        let scenarios = scenario::find(None)?;
        let scenarios: Vec<&str> = scenarios.iter().map(|known| &*known.name).collect();
        known.apply(&mut audits, &scenarios);
        if let Some(path) = &self.junit {
            std::fs::write(path, print::junit(&audits))
                .with_context(|| format!("failed to write {}", path.display()))?;
        }
        let printed = match self.format {
            Format::Json => print::json(&audits),
            Format::Table => print::text(&audits),
        };
        out.write_all(printed.as_bytes())
            .context("failed to print the report")?;
        let mut rows = audits.iter().flat_map(|audit| &audit.rows);
        Ok(rows.any(|row| row.verdict == Verdict::Differ))
    }

    fn upstream(&self, spec: &str) -> anyhow::Result<Upstream> {
        if spec.contains("://") {
            Target::parse(spec)?;
            return Ok(Upstream::Url(spec.to_owned()));
        }
        let (name, path) = named(spec);
        let mut recipe = Recipe::named(name)?;
        recipe.start_limit = self.start_limit;
        let mut values = recipe.programs(path)?;
        match &self.model {
            Some(model) => _ = values.insert("model", model.clone()),
            None if recipe.wants_model() => {
                return Err(UsageError(format!("say what {name} loads with --model")).into());
            }
            None => {}
        }
        Ok(Upstream::Recipe {
            name: name.to_owned(),
            recipe: Box::new(recipe),
            values,
        })
    }
}

/// A name and the path that is given with it.
fn named(spec: &str) -> (&str, Option<&Path>) {
    match spec.split_once('=') {
        Some((name, path)) => (name, Some(Path::new(path))),
        None => (spec, None),
    }
}

fn runner(spec: &str) -> anyhow::Result<Runner> {
    let (name, path) = named(spec);
    let client = Client::named(name)?;
    let programs = client.programs(path)?;
    let version = client.version(&programs)?;
    Ok(Runner {
        client,
        programs,
        version,
    })
}

/// What can be named.
fn names() -> anyhow::Result<String> {
    let listed = |names: Vec<String>| names.join(" ");
    let clients = listed(Client::all()?.into_keys().collect());
    let servers = listed(Recipe::all()?.into_keys().collect());
    let scenarios = scenario::find(None)?;
    let scenarios = scenarios.iter();
    let scenarios = scenarios.map(|known| format!("{:18} {}\n", known.name, known.title));
    let scenarios: String = scenarios.collect();
    Ok(format!(
        "clients: {clients}\nservers: {servers}\n{scenarios}"
    ))
}
