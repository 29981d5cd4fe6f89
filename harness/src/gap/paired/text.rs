//! The same for people.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};

use super::{CauseSum, Report, Sample};

/// A text of a report with its worst samples, at most `worst` of them.
pub fn text(report: &Report, worst: usize) -> String {
    let mut text = format!("{}\n", report.source);
    for line in &report.about {
        let _ = writeln!(text, "{line}");
    }
    let _ = writeln!(text, "{}", head(report));
    if let Some(difference) = &report.difference {
        let _ = writeln!(
            text,
            "server − client: mean {:+.3}, std {:.3}, min {}, p50 {}, p90 {}, p99 {}, max {} over {} samples",
            difference.mean,
            difference.std,
            difference.min,
            difference.p50,
            difference.p90,
            difference.p99,
            difference.max,
            difference.count
        );
    }
    let _ = writeln!(text, "{}", causes(report));
    if report
        .samples
        .iter()
        .any(|sample| sample.attribution.difference != 0)
        && worst > 0
    {
        let _ = writeln!(text, "{}", samples(report, worst));
    }
    for line in &report.unseen {
        let _ = writeln!(text, "not seen: {line}");
    }
    text
}

fn head(report: &Report) -> String {
    let bases = &report.bases;
    let grounds = [
        (bases.token_ids, "token ids"),
        (bases.logprobs, "logprobs"),
        (bases.inferred, "text alone"),
        (bases.counts, "counts alone"),
    ];
    let grounds: Vec<String> = grounds
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, ground)| format!("{count} by {ground}"))
        .collect();
    let mut head = format!("{} samples", report.n_samples);
    if !grounds.is_empty() {
        let _ = write!(head, " ({})", grounds.join(", "));
    }
    if report.n_missing_usage > 0 {
        let _ = write!(head, ", {} without usable usage", report.n_missing_usage);
    }
    if report.n_failed > 0 {
        let _ = write!(head, ", {} more failed", report.n_failed);
    }
    head
}

fn causes(report: &Report) -> Table {
    let mut table = table(&["cause", "tokens", "share", "samples"]);
    let row = |name: &str, tokens: i64, share: Option<f64>, samples: u64| {
        let share = share.map_or_else(
            || "–".into(),
            |share| format!("{:.1}%", share * 100.0 + 0.0),
        );
        [
            name.to_owned(),
            tokens.to_string(),
            share,
            samples.to_string(),
        ]
    };
    for CauseSum {
        cause,
        tokens,
        share,
        samples,
    } in &report.explained
    {
        table.add_row(row(cause.as_str(), *tokens, *share, *samples));
    }
    let rest = &report.unexplained;
    table.add_row(row("unexplained", rest.tokens, rest.share, rest.samples));
    let all = (report.total != 0).then_some(1.0);
    table.add_row(row("difference", report.total, all, report.n_samples));
    align(&mut table, 1);
    table
}

fn samples(report: &Report, worst: usize) -> Table {
    let mut sorted: Vec<&Sample> = report.samples.iter().collect();
    sorted.sort_by_key(|sample| {
        let found = &sample.attribution;
        std::cmp::Reverse((
            found.unexplained.unsigned_abs(),
            found.difference.unsigned_abs(),
        ))
    });
    let mut table = table(&[
        "worst samples",
        "server",
        "client",
        "difference",
        "unexplained",
        "explained by",
    ]);
    for sample in sorted.into_iter().take(worst) {
        let found = &sample.attribution;
        let causes = found.explained.iter();
        let causes: Vec<String> = causes
            .map(|(cause, tokens)| format!("{} {tokens:+}", cause.as_str()))
            .collect();
        table.add_row([
            sample.id.clone(),
            found
                .server
                .map_or_else(|| "–".into(), |count| count.to_string()),
            found.client.to_string(),
            format!("{:+}", found.difference),
            format!("{:+}", found.unexplained),
            causes.join(", "),
        ]);
    }
    align(&mut table, 1);
    if let Some(last) = table.column_mut(5) {
        last.set_cell_alignment(CellAlignment::Left);
    }
    table
}

fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(head);
    table
}

fn align(table: &mut Table, from: usize) {
    for column in table.column_iter_mut().skip(from) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn the_text_has_every_part() {
        let samples = vec![
            sample(Some(3), 2, 0),
            sample(Some(9), 2, 4),
            sample(None, 1, 0),
        ];
        let mut report = Report::new("http://h:1".into(), samples);
        report.unseen.push("ids".into());
        report.n_failed = 1;
        let text = text(&report, 1);
        for part in [
            "http://h:1\n3 samples (3 by token ids), 1 without usable usage, 1 more failed\n",
            "server − client: mean +4.000, std 3.000, min 1, p50 1, p90 7, p99 7, max 7 over 2 samples",
            "end_token",
            "57.1%",
            "+7",
            "not seen: ids",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
