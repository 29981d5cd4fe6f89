//! Plots as inline SVG, coloured by the page's style.

use std::fmt::Write as _;

use super::html::escaped;
use super::text::{duration, thousands};
use super::{Line, Median, Parts};
use crate::measure::Role;

/// Width of every plot.
const WIDTH: f64 = 960.0;
/// Where bars begin, behind their labels.
const LEFT: f64 = 330.0;
const RIGHT: f64 = WIDTH - 110.0;
const BAR: f64 = 18.0;
const STEP: f64 = 30.0;
/// Colours, and then dashes, tell lines apart.
const COLOURS: usize = 8;

/// Requests a second, with their intervals.
pub(super) fn rates(lines: &[&Line]) -> String {
    let most = lines
        .iter()
        .filter_map(|line| top(line.qps))
        .fold(0.0, f64::max);
    let at = scale(most);
    let mut plot = String::new();
    axis(&mut plot, most, lines.len(), thousands);
    for (index, line) in lines.iter().enumerate() {
        let y = place(index) + 6.0;
        label(&mut plot, &line.name, y);
        let Some(qps) = line.qps else { continue };
        let is_bare = line.role == Role::Bare;
        let class = if is_bare { "bare" } else { "c0" };
        rectangle(
            &mut plot,
            class,
            [LEFT, y, at(qps.estimate) - LEFT, BAR],
            None,
        );
        let mut end = at(qps.estimate);
        if let Some((low, high)) = qps.low.zip(qps.high) {
            let middle = y + BAR / 2.0;
            let (low, high) = (at(low), at(high));
            push(
                &mut plot,
                &format!(
                    r#"<path class="whisker" d="M{low:.1} {middle:.1}H{high:.1}M{low:.1} {0:.1}v8M{high:.1} {0:.1}v8"/>"#,
                    middle - 4.0
                ),
            );
            end = high;
        }
        value(&mut plot, end, y, &thousands(qps.estimate));
    }
    wrapped(
        &plot,
        place(lines.len()) + 30.0,
        "Requests per second with 95% intervals",
    )
}

/// What each side spent per request.
pub(super) fn spent(lines: &[&Line]) -> String {
    let whole =
        |parts: &Option<Parts>| parts.map_or(0.0, |parts| parts.user + parts.kernel + parts.wait);
    let most = lines
        .iter()
        .map(|line| whole(&line.spent.server).max(whole(&line.spent.client)))
        .fold(0.0, f64::max);
    let at = scale(most);
    let mut plot = String::new();
    axis(&mut plot, most, lines.len(), |us| format!("{us:.0} µs"));
    for (index, line) in lines.iter().enumerate() {
        let y = place(index) + 2.0;
        label(&mut plot, &line.name, y + 4.0);
        let sides = [("server", line.spent.server), ("client", line.spent.client)];
        for (row, (side, parts)) in (0_u8..).zip(sides) {
            let Some(parts) = parts else { continue };
            let y = y + f64::from(row) * 13.0;
            let mut x = LEFT;
            let pieces = [
                ("user", parts.user),
                ("kernel", parts.kernel),
                ("wait", parts.wait),
            ];
            for (part, us) in pieces {
                let width = at(us) - LEFT;
                let title = format!("{side} {part}: {us:.1} µs");
                rectangle(
                    &mut plot,
                    &format!("{side}-{part}"),
                    [x, y, width, 11.0],
                    Some(&title),
                );
                x += width;
            }
            let text = format!("{side} {:.1}", parts.user + parts.kernel);
            push(
                &mut plot,
                &format!(
                    r#"<text class="small" x="{:.1}" y="{:.1}">{text}</text>"#,
                    x + 6.0,
                    y + 9.5
                ),
            );
        }
    }
    wrapped(
        &plot,
        place(lines.len()) + 30.0,
        "CPU time per request by side",
    )
}

/// Latency by the share of requests that were faster.
pub(super) fn latencies(lines: &[&Line]) -> String {
    let lines: Vec<&&Line> = lines
        .iter()
        .filter(|line| !line.latency_ns.is_empty())
        .collect();
    let values = lines
        .iter()
        .flat_map(|line| &line.latency_ns)
        .map(|(_, ns)| *ns);
    let frame = Frame::new(values);
    let mut plot = String::new();
    frame.grid(&mut plot);
    let mut legend = Frame::BOTTOM + 44.0;
    for (index, line) in lines.iter().enumerate() {
        let point =
            |(quantile, ns): &(f64, f64)| format!("{:.1} {:.1}", Frame::x(*quantile), frame.y(*ns));
        let points: Vec<String> = line.latency_ns.iter().map(point).collect();
        let class = format!("line s{} d{}", index % COLOURS, index / COLOURS);
        push(
            &mut plot,
            &format!(
                r#"<path class="{class}" d="M{}"><title>{name}</title></path><path class="{class}" d="M{} {legend:.1}h30"/><text x="{:.1}" y="{:.1}">{name}</text>"#,
                points.join("L"),
                Frame::LEFT,
                Frame::LEFT + 38.0,
                legend + 4.0,
                name = escaped(&line.name),
            ),
        );
        legend += 20.0;
    }
    wrapped(&plot, legend, "Latency by percentile")
}

/// The plane of percentiles and latencies, whole powers of ten from bottom to top.
struct Frame {
    least: f64,
    most: f64,
}

impl Frame {
    const LEFT: f64 = 80.0;
    const RIGHT: f64 = WIDTH - 30.0;
    const TOP: f64 = 14.0;
    const BOTTOM: f64 = 330.0;
    /// The last percentile has so many nines.
    const NINES: f64 = 4.0;

    fn new(values: impl Iterator<Item = f64> + Clone) -> Self {
        let least = values.clone().fold(f64::INFINITY, f64::min).max(1.0);
        let least = if least.is_finite() {
            least.log10().floor()
        } else {
            0.0
        };
        let most = values.fold(1.0, f64::max).log10().ceil();
        Self {
            least,
            most: most.max(least + 1.0),
        }
    }

    fn x(quantile: f64) -> f64 {
        let nines = -(1.0 - quantile).log10();
        Self::LEFT + (Self::RIGHT - Self::LEFT) * (nines / Self::NINES).min(1.0)
    }

    fn y(&self, ns: f64) -> f64 {
        let share = (ns.max(1.0).log10() - self.least) / (self.most - self.least);
        Self::BOTTOM - (Self::BOTTOM - Self::TOP) * share
    }

    fn grid(&self, plot: &mut String) {
        let (left, right, top, bottom) = (Self::LEFT, Self::RIGHT, Self::TOP, Self::BOTTOM);
        let quantiles = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999];
        let names = ["0%", "50%", "90%", "99%", "99.9%", "99.99%"];
        for (quantile, name) in quantiles.into_iter().zip(names) {
            let x = Self::x(quantile);
            push(
                plot,
                &format!(
                    r#"<path class="grid" d="M{x:.1} {top}V{bottom}"/><text class="small" text-anchor="middle" x="{x:.1}" y="{:.1}">{name}</text>"#,
                    bottom + 18.0
                ),
            );
        }
        let mut power = self.least;
        while power <= self.most {
            let ns = 10_f64.powf(power);
            let (y, text) = (
                self.y(ns),
                duration(ns).replace(".00", "").replace(".0 ", " "),
            );
            push(
                plot,
                &format!(
                    r#"<path class="grid" d="M{left} {y:.1}H{right}"/><text class="small" text-anchor="end" x="{:.1}" y="{:.1}">{text}</text>"#,
                    left - 8.0,
                    y + 4.0
                ),
            );
            power += 1.0;
        }
    }
}

fn top(estimate: Option<Median>) -> Option<f64> {
    estimate.map(|estimate| estimate.high.unwrap_or(estimate.estimate))
}

/// Where a value's bar ends.
fn scale(most: f64) -> impl Fn(f64) -> f64 {
    move |value| LEFT + (RIGHT - LEFT) * value / most.max(f64::MIN_POSITIVE)
}

#[expect(clippy::cast_precision_loss, reason = "rows of a plot")]
fn place(index: usize) -> f64 {
    24.0 + index as f64 * STEP
}

/// A round number of which few make `most`.
fn tick(most: f64) -> f64 {
    let rough = most / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|factor| factor * power >= rough);
    factor.unwrap_or(10.0) * power
}

fn axis(plot: &mut String, most: f64, rows: usize, name: impl Fn(f64) -> String) {
    if most <= 0.0 {
        return;
    }
    let (at, step, bottom) = (scale(most), tick(most), place(rows) + 4.0);
    let mut value = 0.0;
    while value <= most * 1.0001 {
        let x = at(value);
        push(
            plot,
            &format!(
                r#"<path class="grid" d="M{x:.1} 20V{bottom:.1}"/><text class="small" text-anchor="middle" x="{x:.1}" y="{:.1}">{}</text>"#,
                bottom + 16.0,
                name(value)
            ),
        );
        value += step;
    }
}

fn label(plot: &mut String, text: &str, y: f64) {
    push(
        plot,
        &format!(
            r#"<text text-anchor="end" x="{:.1}" y="{:.1}">{}</text>"#,
            LEFT - 10.0,
            y + 13.0,
            escaped(text)
        ),
    );
}

fn value(plot: &mut String, x: f64, y: f64, text: &str) {
    push(
        plot,
        &format!(
            r#"<text class="small" x="{:.1}" y="{:.1}">{text}</text>"#,
            x + 8.0,
            y + 13.0
        ),
    );
}

fn rectangle(plot: &mut String, class: &str, [x, y, width, height]: [f64; 4], title: Option<&str>) {
    let title = title.map_or_else(String::new, |title| format!("<title>{title}</title>"));
    push(
        plot,
        &format!(
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{:.1}" height="{height}">{title}</rect>"#,
            width.max(0.0)
        ),
    );
}

fn push(plot: &mut String, text: &str) {
    writeln!(plot, "{text}").expect("a String takes all");
}

fn wrapped(plot: &str, height: f64, title: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{title}\">\n{plot}</svg>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        for (most, step) in [(51_234.0, 20_000.0), (9.8, 2.0), (100.0, 20.0), (21.0, 5.0)] {
            assert!((tick(most) - step).abs() < 1e-9, "{most}");
        }
    }
}
