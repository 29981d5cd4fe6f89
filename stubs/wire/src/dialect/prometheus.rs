//! Metrics pages as Python's Prometheus client writes them.

use std::fmt::Write as _;

use crate::metrics::Distribution;
use crate::python;

/// Appends what is said of a family before its lines.
pub fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("a String takes all");
}

/// Appends one line; of the labels the empty ones are left out.
pub(super) fn line(out: &mut String, name: &str, labels: &[&str], value: f64) {
    out.push_str(name);
    let mut separator = '{';
    for label in labels.iter().filter(|label| !label.is_empty()) {
        out.push(separator);
        out.push_str(label);
        separator = ',';
    }
    if separator == ',' {
        out.push('}');
    }
    writeln!(out, " {}", number(value)).expect("a String takes all");
}

/// Bounds as labels, with what was observed up to each; the last has no bound.
pub(super) fn buckets(
    bounds: &[u64],
    unit: u64,
    distribution: &Distribution,
) -> Vec<(String, f64)> {
    let mut total = 0;
    let counts = distribution.buckets.iter();
    let mut lines: Vec<(String, f64)> = bounds
        .iter()
        .zip(counts)
        .map(|(bound, count)| {
            total += count;
            let bound = number(real(*bound) / real(unit));
            (format!("le=\"{bound}\""), real(total))
        })
        .collect();
    let all = real(distribution.buckets.iter().sum());
    lines.push(("le=\"+Inf\"".into(), all));
    lines
}

/// A count as the page has it.
#[expect(clippy::cast_precision_loss, reason = "the page has doubles")]
pub(super) fn real(count: u64) -> f64 {
    count as f64
}

/// A label's value, in which quotes would end it.
pub(super) fn escaped(word: &str) -> String {
    let word = word.replace('\\', "\\\\").replace('"', "\\\"");
    word.replace('\n', "\\n")
}

/// A double as Python's Prometheus client writes it: Python's digits, but exponents sooner.
fn number(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    let text = python::float(value);
    match text.find('.') {
        Some(dot) if value > 0.0 && dot > 6 => {
            let (first, rest) = text.split_at(1);
            let mantissa = format!("{first}.{}", rest.replacen('.', "", 1));
            let mantissa = mantissa.trim_end_matches(['0', '.']);
            format!("{mantissa}e+0{}", dot - 1)
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_recorded() {
        for (value, expected) in [
            (0.0, "0.0"),
            (5.99, "5.99"),
            (54121.0, "54121.0"),
            (4_622_028_800.0, "4.6220288e+09"),
            (1_796_028_507.52, "1.79602850752e+09"),
            (1_796_028_648.238_463, "1.796028648238463e+09"),
            (1_796_028_648.239_343_6, "1.7960286482393436e+09"),
            (10_000_000.0, "1e+07"),
            (1_234_567.5, "1.2345675e+06"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(number(value), expected);
        }
    }

    #[test]
    fn buckets_add_up_and_end_without_a_bound() {
        let distribution = Distribution {
            buckets: vec![1, 0, 2, 4],
            sum: 9,
        };
        let lines = buckets(&[1, 2], 1, &distribution);
        let lines: Vec<(&str, f64)> = lines.iter().map(|(le, count)| (&**le, *count)).collect();
        assert_eq!(
            lines,
            [
                ("le=\"1.0\"", 1.0),
                ("le=\"2.0\"", 1.0),
                ("le=\"+Inf\"", 7.0)
            ]
        );
    }
}
