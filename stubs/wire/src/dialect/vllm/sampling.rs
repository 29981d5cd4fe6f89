//! The checks of vLLM's `SamplingParams`.

use crate::failure::Failure;
use crate::json::Json;
use crate::python;
use crate::request::Sampling;
use crate::schema as pydantic;

use super::refusal::refuse;

/// `VLLM_MAX_N_SEQUENCES`
const MAX_N: i128 = 16384;

/// The checks of vLLM's `SamplingParams`, in their order; `max_tokens` is what is left of the
/// context after clamping.
pub(super) fn check(sampling: &Sampling<'_>, max_tokens: i128) -> Result<(), Failure> {
    logit_bias(sampling)?;
    let plain = |message: String| Err(refuse(&message, None, None));
    let n = sampling.n;
    if n < 1 {
        return plain(format!("n must be at least 1, got {n}."));
    }
    if n > MAX_N {
        return plain(format!(
            "n must be at most {MAX_N}, got {n}. To increase this limit, set the VLLM_MAX_N_SEQUENCES environment variable."
        ));
    }
    for (name, penalty) in [
        ("presence_penalty", sampling.presence_penalty),
        ("frequency_penalty", sampling.frequency_penalty),
    ] {
        if !(-2.0..=2.0).contains(&penalty) {
            let shown = python::float(penalty);
            return plain(format!("{name} must be in [-2, 2], got {shown}."));
        }
    }
    let repetition = sampling.repetition_penalty;
    if !repetition.is_finite() || repetition <= 0.0 {
        let bound = if repetition.is_finite() {
            "greater than zero"
        } else {
            "a finite number"
        };
        let shown = python::float(repetition);
        return plain(format!("repetition_penalty must be {bound}, got {shown}."));
    }
    check_distribution(sampling)?;
    check_lengths(sampling, max_tokens)?;
    if sampling.stop.iter().any(|stop| stop.is_empty()) {
        return plain("stop cannot contain an empty string.".into());
    }
    if sampling.temperature < 1e-5 && n > 1 {
        return plain(format!("n must be 1 when using greedy sampling, got {n}."));
    }
    Ok(())
}

fn logit_bias(sampling: &Sampling<'_>) -> Result<(), Failure> {
    let is_int = |key: &str| {
        let number = Json::String(key.into());
        !key.contains('.') && pydantic::int(&number).is_ok()
    };
    let bad: Vec<String> = sampling
        .logit_bias
        .iter()
        .filter(|key| !is_int(key))
        .map(|key| python::repr(key))
        .collect();
    if bad.is_empty() {
        return Ok(());
    }
    let keys = format!("[{}]", bad.join(", "));
    let message =
        format!("logit_bias contains key(s) that cannot be converted to integer token IDs: {keys}");
    Err(refuse(&message, Some("logit_bias"), Some(&keys)))
}

fn check_distribution(sampling: &Sampling<'_>) -> Result<(), Failure> {
    let named = |name: &str, bound: &str, value: f64| {
        let value = python::float(value);
        let message = format!("{name} must be {bound}, got {value}.");
        Err(refuse(&message, Some(name), Some(&value)))
    };
    let temperature = sampling.temperature;
    if !temperature.is_finite() {
        return named("temperature", "a finite number", temperature);
    }
    if temperature < 0.0 {
        return named("temperature", "non-negative", temperature);
    }
    if temperature > 2.0 {
        return named("temperature", "in [0, 2]", temperature);
    }
    if !(sampling.top_p > 0.0 && sampling.top_p <= 1.0) {
        return named("top_p", "in (0, 1]", sampling.top_p);
    }
    if sampling.top_k < -1 {
        let message = format!(
            "top_k must be 0 (disable), or at least 1, got {}.",
            sampling.top_k
        );
        return Err(refuse(&message, None, None));
    }
    if !(0.0..=1.0).contains(&sampling.min_p) {
        let shown = python::float(sampling.min_p);
        let message = format!("min_p must be in [0, 1], got {shown}.");
        return Err(refuse(&message, None, None));
    }
    Ok(())
}

fn check_lengths(sampling: &Sampling<'_>, max_tokens: i128) -> Result<(), Failure> {
    if max_tokens < 1 {
        let value = max_tokens.to_string();
        let message = format!("max_tokens must be at least 1, got {value}.");
        return Err(refuse(&message, Some("max_tokens"), Some(&value)));
    }
    let min_tokens = sampling.min_tokens;
    let bound = if min_tokens < 0 {
        "greater than or equal to 0".into()
    } else if min_tokens > max_tokens {
        format!("less than or equal to max_tokens={max_tokens}")
    } else {
        return Ok(());
    };
    let message = format!("min_tokens must be {bound}, got {min_tokens}.");
    Err(refuse(&message, None, None))
}
