//! `stubline install`: clients and real servers, each into a cache folder of its own.

use super::client::Client;
use crate::error::UsageError;
use crate::real::{self, Recipe};

/// Arguments of `stubline install`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "What is there already is not installed again; a step that failed is taken up where it was.\n\nExample:\n  stubline install guidellm"
)]
pub struct Args {
    /// Clients of clients.toml and servers of servers.toml
    #[arg(value_name = "CLIENT|SERVER", required = true)]
    names: Vec<String>,
}

/// Installs what is named and gives the exit code.
///
/// # Errors
/// [`UsageError`] if there is no such thing, else what Python or pip said last.
pub fn run(args: &Args) -> anyhow::Result<u8> {
    let clients = Client::all()?;
    let servers = Recipe::all()?;
    let is_known = |name: &&String| clients.contains_key(*name) || servers.contains_key(*name);
    if let Some(name) = args.names.iter().find(|name| !is_known(name)) {
        return Err(
            UsageError(format!("{name}: no client or server; see `compare --list`")).into(),
        );
    }
    for name in &args.names {
        tracing::info!("installing {name}");
        let python = match clients.get(name) {
            Some(client) => client.install()?,
            None => servers[name].install(&real::cache()?.join(name))?,
        };
        tracing::info!("{name} is installed: {}", python.display());
    }
    Ok(0)
}
