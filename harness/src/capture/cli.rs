//! `stubline record`: from arguments to a fixture folder.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::cases;
use super::proxy;
use super::store::Store;
use crate::error::UsageError;
use crate::http::Target;
use crate::raw::{self, End};

const CASES_HELP: &str = "\
A cases file is a JSON list, an object with a list `cases`, or JSON lines, each case
  {\"name\": \"hello\", \"method\": \"POST\", \"path\": \"/v1/chat/completions\", \"headers\": {\"X-Request-Id\": \"1\"}, \"body\": {…}}
name becomes the file name; method is POST unless given; headers are sent in order, behind Host, Accept,
Content-Type and Content-Length, which are set unless given; a body that is a string is sent as its text,
any other JSON as it is written. A folder of *.request.http is sent byte for byte.

Examples:
  stubline record --url http://127.0.0.1:8000 --cases cases.jsonl --out recorded
  stubline record --listen 9000 --upstream http://127.0.0.1:8000 --out recorded";

/// Arguments of `stubline record`.
#[derive(clap::Args, Debug)]
#[command(after_help = CASES_HELP)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["cases", "listen"])))]
pub struct Args {
    /// Server to send the cases to
    #[arg(
        long,
        value_name = "URL",
        requires = "cases",
        conflicts_with = "listen"
    )]
    url: Option<String>,
    /// Cases to send: a file, or a folder of *.request.http
    #[arg(long, value_name = "FILE|DIR", requires = "url")]
    cases: Option<PathBuf>,
    /// Port to listen on, 0 for any free one: what clients send is passed to --upstream and recorded
    #[arg(long, value_name = "PORT", requires = "upstream")]
    listen: Option<u16>,
    /// Server to pass connections on to
    #[arg(long, value_name = "URL", requires = "listen")]
    upstream: Option<String>,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1", requires = "listen")]
    host: std::net::IpAddr,
    /// Folder to write: `<case>.request.http`, `<case>.response.http`, `<case>.times.json`, cases.json
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// How long to wait for an answer
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = crate::cli::duration)]
    timeout: Duration,
}

/// Runs the command and gives its exit code.
///
/// # Errors
/// [`UsageError`] is for exit code 2, all others for 1.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<u8> {
    if let (Some(url), Some(path)) = (&args.url, &args.cases) {
        let target = Target::parse(url)?;
        let cases = cases::read(path, &target.authority, &target.prefix)?;
        let mut store = args.store(url)?;
        let failed = send(&target, &cases, &mut store, args.timeout)?;
        let all = cases.len();
        writeln!(out, "{all} cases recorded, {failed} without a whole answer")?;
        return Ok(u8::from(failed > 0));
    }
    let (Some(port), Some(upstream)) = (args.listen, &args.upstream) else {
        return Err(
            UsageError("give --url with --cases, or --listen with --upstream".into()).into(),
        );
    };
    let target = Target::parse(upstream)?;
    let store = args.store(upstream)?;
    let store = listen((args.host, port).into(), &target, store, out)?;
    store.finish().context("failed to write cases.json")?;
    tracing::info!("{} exchanges in {}", store.len(), args.out.display());
    Ok(0)
}

impl Args {
    fn store(&self, url: &str) -> Result<Store, UsageError> {
        let wrong = |error| UsageError(format!("--out {}: {error}", self.out.display()));
        Store::open(&self.out, format!("from {url} by stubline record")).map_err(wrong)
    }
}

fn send(
    target: &Target,
    cases: &[cases::Sent],
    store: &mut Store,
    timeout: Duration,
) -> anyhow::Result<usize> {
    let mut failed = 0;
    for case in cases {
        let received = raw::exchange(target.address, &case.bytes, timeout).with_context(|| {
            format!("failed to send case {} to {}", case.name, target.authority)
        })?;
        let notes = match received.end {
            End::Closed => Some("the server closed the connection"),
            End::Complete => None,
            End::TimedOut => {
                failed += 1;
                Some("the answer was not complete in time")
            }
        };
        let bytes = received.bytes.len();
        tracing::info!(
            "{}: {bytes} bytes{}",
            case.name,
            notes.map(|note| format!(", {note}")).unwrap_or_default()
        );
        let response = (&*received.bytes, &received.times);
        store
            .put(&case.name, &case.bytes, response, notes)
            .with_context(|| format!("failed to write case {}", case.name))?;
    }
    store.finish().context("failed to write cases.json")?;
    Ok(failed)
}

fn listen(
    address: std::net::SocketAddr,
    target: &Target,
    store: Store,
    out: &mut impl Write,
) -> anyhow::Result<Store> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    runtime.block_on(async {
        let wrong = |error| UsageError(format!("--listen: cannot listen on {address}: {error}"));
        let listener = TcpListener::bind(address).await.map_err(wrong)?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let stop = async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        };
        writeln!(out, "listening on http://{}", listener.local_addr()?)?;
        out.flush()?;
        Ok(proxy::run(listener, target.address, store, stop).await)
    })
}
