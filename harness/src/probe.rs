//! Single requests outside of a load.

use anyhow::ensure;
use wire::http1::WholeResponse;

use crate::bench::{self, Config};
use crate::http::Target;
use crate::load;
use crate::raw;

/// A request of a load, and what it was answered, byte for byte.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Probe {
    /// The shortest request that the load sends.
    pub request: Vec<u8>,
    /// The whole response.
    pub response: Vec<u8>,
}

/// Sends one request of a load.
///
/// # Errors
/// [`crate::UsageError`] if the configuration does not make sense, others if there is no good answer.
pub fn exchange(config: &Config) -> anyhow::Result<Probe> {
    let target = Target::parse(&config.url)?;
    let model = bench::model(config, &target)?;
    let request = load::first_request(config, &target, &model, "bench-0123456789abcdef-")?;
    let received = raw::exchange(target.address, &request, config.timeout)?;
    let response = received.bytes;
    let whole = WholeResponse::parse(&response, false, true)?;
    let status = whole.as_ref().map(|whole| whole.status);
    let said = || {
        let body = whole.as_ref().map(|whole| &whole.body[..]);
        let body = String::from_utf8_lossy(body.unwrap_or_default());
        body.chars().take(200).collect::<String>()
    };
    ensure!(
        status == Some(200),
        "{} answered {}: {}",
        config.url,
        status.map_or_else(|| "nothing whole".into(), |status| status.to_string()),
        said()
    );
    Ok(Probe { request, response })
}

/// Status and body of a path.
///
/// # Errors
/// [`crate::UsageError`] if the URL is none, others if there is no answer.
pub fn get(url: &str, path: &str) -> anyhow::Result<(u16, String)> {
    let (status, body) = Target::parse(url)?.get(path, None)?;
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}
