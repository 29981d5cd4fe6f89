//! Findings as a table, as JSON and as `JUnit` XML.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::{Finding, Outcome};

/// How many passed, failed and were not applicable.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub(super) struct Counts {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) not_applicable: usize,
}

impl Counts {
    pub(super) fn of(findings: &[Finding]) -> Self {
        let mut counts = Self::default();
        for finding in findings {
            *match finding.outcome {
                Outcome::Fail(_) => &mut counts.failed,
                Outcome::NotApplicable(_) => &mut counts.not_applicable,
                Outcome::Pass => &mut counts.passed,
            } += 1;
        }
        counts
    }
}

/// What is printed for people: a line a case, reasons gathered where there are many.
pub(super) fn table(findings: &[Finding], title: &str) -> String {
    let mut out = format!("{title}\n\n");
    let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for finding in findings {
        let line = match &finding.outcome {
            Outcome::Pass => writeln!(out, "pass  {}", finding.path()),
            Outcome::Fail(told) => {
                let told = told.replace('\n', "\n      ");
                writeln!(out, "FAIL  {}\n      {told}", finding.path())
            }
            Outcome::NotApplicable(reason) => {
                reasons.entry(reason).or_default().push(finding.path());
                Ok(())
            }
        };
        line.expect("a String takes all");
    }
    if !reasons.is_empty() {
        out.push_str("\nnot applicable:\n");
    }
    for (reason, paths) in reasons {
        let count = paths.len();
        let shown: Vec<&str> = paths.iter().take(6).map(|path| &**path).collect();
        let more = if count > shown.len() { ", …" } else { "" };
        writeln!(out, "{count:5}  {reason}: {}{more}", shown.join(", "))
            .expect("a String takes all");
    }
    let counts = Counts::of(findings);
    writeln!(
        out,
        "\n{} passed, {} failed, {} not applicable",
        counts.passed, counts.failed, counts.not_applicable
    )
    .expect("a String takes all");
    out
}

impl Finding {
    pub(super) fn path(&self) -> String {
        if self.configuration.is_empty() {
            return self.name.clone();
        }
        format!("{}/{}", self.configuration, self.name)
    }
}

#[derive(Serialize)]
struct Document<'a> {
    against: &'a str,
    counts: Counts,
    cases: Vec<Line<'a>>,
}

#[derive(Serialize)]
struct Line<'a> {
    config: &'a str,
    case: &'a str,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

/// One JSON document.
pub(super) fn json(findings: &[Finding], against: &str) -> String {
    let line = |finding: &'_ Finding| -> (&'static str, Option<String>) {
        match &finding.outcome {
            Outcome::Pass => ("pass", None),
            Outcome::Fail(told) => ("fail", Some(told.clone())),
            Outcome::NotApplicable(reason) => ("not_applicable", Some(reason.clone())),
        }
    };
    let told: Vec<_> = findings.iter().map(line).collect();
    let document = Document {
        against,
        counts: Counts::of(findings),
        cases: findings
            .iter()
            .zip(&told)
            .map(|(finding, (outcome, reason))| Line {
                config: &finding.configuration,
                case: &finding.name,
                outcome,
                reason: reason.as_deref(),
            })
            .collect(),
    };
    let mut json = serde_json::to_string_pretty(&document).expect("strings and numbers encode");
    json.push('\n');
    json
}

/// What CI servers read: a test case a case, a suite for all.
pub(super) fn junit(findings: &[Finding], title: &str) -> String {
    let counts = Counts::of(findings);
    let time: f64 = findings.iter().map(|finding| finding.seconds).sum();
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let tests = findings.len();
    writeln!(
        out,
        "<testsuite name=\"{}\" tests=\"{tests}\" failures=\"{}\" skipped=\"{}\" time=\"{time:.3}\">",
        escaped(title),
        counts.failed,
        counts.not_applicable
    )
    .expect("a String takes all");
    for finding in findings {
        let (class, name) = (escaped(&finding.configuration), escaped(&finding.name));
        let head = format!(
            "  <testcase classname=\"{class}\" name=\"{name}\" time=\"{:.3}\"",
            finding.seconds
        );
        let line = match &finding.outcome {
            Outcome::Pass => writeln!(out, "{head}/>"),
            Outcome::Fail(told) => {
                let first = escaped(told.lines().next().unwrap_or_default());
                let all = escaped(told);
                writeln!(
                    out,
                    "{head}><failure message=\"{first}\">{all}</failure></testcase>"
                )
            }
            Outcome::NotApplicable(reason) => {
                writeln!(
                    out,
                    "{head}><skipped message=\"{}\"/></testcase>",
                    escaped(reason)
                )
            }
        };
        line.expect("a String takes all");
    }
    out.push_str("</testsuite>\n");
    out
}

/// A text as XML 1.0 takes it; control characters that it has no way to write become `?`.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(character),
            '\0'..='\x1f' | '\u{fffe}' | '\u{ffff}' => out.push('?'),
            _ => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> Vec<Finding> {
        let finding = |name: &str, outcome| Finding {
            configuration: "default".into(),
            name: name.into(),
            outcome,
            seconds: 0.25,
        };
        vec![
            finding("a", Outcome::Pass),
            finding(
                "b",
                Outcome::Fail("`x` is <null> & \"so\"\nmore\u{1}".into()),
            ),
            finding("c", Outcome::NotApplicable("needs flags".into())),
        ]
    }

    #[test]
    fn the_table_says_all_failures_and_gathers_reasons() {
        assert_eq!(
            table(&findings(), "title"),
            "title\n\npass  default/a\nFAIL  default/b\n      `x` is <null> & \"so\"\n      more\u{1}\n\nnot applicable:\n    1  needs flags: default/c\n\n1 passed, 1 failed, 1 not applicable\n"
        );
    }

    #[test]
    fn junit_is_well_formed_whatever_was_said() {
        let expected = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<testsuite name=\"t &amp; u\" tests=\"3\" failures=\"1\" skipped=\"1\" time=\"0.750\">
  <testcase classname=\"default\" name=\"a\" time=\"0.250\"/>
  <testcase classname=\"default\" name=\"b\" time=\"0.250\"><failure message=\"`x` is &lt;null&gt; &amp; &quot;so&quot;\">`x` is &lt;null&gt; &amp; &quot;so&quot;\nmore?</failure></testcase>
  <testcase classname=\"default\" name=\"c\" time=\"0.250\"><skipped message=\"needs flags\"/></testcase>
</testsuite>
";
        assert_eq!(junit(&findings(), "t & u"), expected);
    }

    #[test]
    fn json_has_counts_and_reasons() {
        let json: serde_json::Value = serde_json::from_str(&json(&findings(), "x")).unwrap();
        assert_eq!(json["counts"]["failed"], 1);
        assert_eq!(json["cases"][2]["outcome"], "not_applicable");
        assert_eq!(json["cases"][2]["reason"], "needs flags");
    }
}
