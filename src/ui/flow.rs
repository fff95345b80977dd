//! The flow of a queue: arrivals, finished tasks and failed attempts by minute, now against usual.

use super::block::OLD;
use super::fmt;
use super::glyphs::LEVELS;
use super::text::{Align, dim, ink, pad, spread, text};
use super::theme::Ink;
use crate::panes;
use crate::probe::flow::Flow;
use crate::probe::queues::Queue;
use crate::probe::{Snapshot, State};
use ratatui::text::{Line, Span};

/// Minutes of history without which nothing is called usual.
const USUAL_MINUTES: usize = 20;

/// A row of the block: what came by minute, now and usually.
struct Series {
    minutes: Vec<f64>,
    now: Option<f64>,
    usual: Option<f64>,
}

/// Four lines: the time axis, in, done, failed attempts. One column a minute, at most an hour. Without any colour that
/// asks for attention where the queue is not read any more.
pub fn lines(snapshot: &Snapshot, queue: &Queue, width: u16) -> Vec<Line<'static>> {
    let old = old(snapshot, queue);
    let mut lines = inked(snapshot, queue, width, old);
    if old.is_some() {
        for span in lines.iter_mut().flat_map(|l| &mut l.spans) {
            span.style = Ink::Dim.into();
        }
    }
    lines
}

/// Seconds since the history of a queue that is not read any more was read last.
fn old(snapshot: &Snapshot, queue: &Queue) -> Option<f64> {
    if let Some(half) = snapshot.half_of(&queue.system, &queue.schema) {
        return half.age_s;
    }
    let mut probes = snapshot.probes.iter();
    let finished = probes.find(|p| p.name == "finished" && p.error.is_some())?;
    finished.age_s.filter(|age| *age > OLD)
}

fn inked(snapshot: &Snapshot, queue: &Queue, width: u16, old: Option<f64>) -> Vec<Line<'static>> {
    let width = usize::from(width);
    let label = if width >= 96 { 17 } else { 9 };
    let columns = width.saturating_sub(3 + label + 2 + 16).min(60);
    let flow = panes::flow(snapshot, queue);
    let series = |values: Option<&Vec<u32>>| Some(read(snapshot, flow?, values?, columns));
    let arrived = series(flow.and_then(|f| f.arrived.as_ref()));
    let finished = series(flow.and_then(|f| f.finished.as_ref()));
    let failed = series(flow.and_then(|f| f.failed_attempts.as_ref()));
    let top = |s: &Option<Series>| {
        s.as_ref()
            .map_or(0.0, |s| s.minutes.iter().copied().fold(0.0, f64::max))
    };
    // Arrivals and finished tasks share a scale, so that the eye can compare them.
    let scale = top(&arrived).max(top(&finished)).max(4.0);
    let ready = queue.n(State::Ready) > 0;
    let stopped = ready
        && finished
            .as_ref()
            .is_some_and(|s| s.now.is_some_and(|n| n < 0.5));
    let storm = failed.as_ref().is_some_and(|s| {
        let now = s.now.unwrap_or(0.0);
        now >= 5.0 && s.usual.is_some_and(|u| now >= 3.0 * u)
    });
    let names = if label == 17 {
        ["in", "done", "failed attempts"]
    } else {
        ["in/min", "done/min", "failed"]
    };
    let why = flow
        .and_then(|f| f.unknown.as_deref())
        .unwrap_or("not recorded by this system");
    let row = |name: &str, s: Option<Series>, scale: f64, grave: Option<Ink>, hot: f64| {
        let mut spans = vec![dim(format!("   {}", pad(name, label, Align::Left)))];
        let Some(s) = s else {
            let why = super::clean::clean(&format!("n/a: {why}")).into_owned();
            spans.push(dim(pad(&why, columns + 2 + 16, Align::Left)));
            return Line::from(spans);
        };
        spans.push(Span::raw(" ".repeat(columns - s.minutes.len())));
        // Only the minutes out of the ordinary get a colour.
        for part in s.minutes.chunk_by(|a, b| (*a >= hot) == (*b >= hot)) {
            let chart: String = part.iter().map(|v| level(*v, scale)).collect();
            let calm = part[0] < hot;
            spans.push(ink(chart, if calm { Ink::Flow } else { Ink::Warn }));
        }
        spans.push(ink(
            pad(&fmt::rate(s.now), 10, Align::Right),
            grave.unwrap_or(Ink::Strong),
        ));
        spans.push(dim(pad(&fmt::rate(s.usual), 8, Align::Right)));
        Line::from(spans)
    };
    let hot = failed
        .as_ref()
        .and_then(|s| s.usual)
        .map_or(f64::MAX, |u| (3.0 * u).max(5.0));
    let own = top(&failed).max(8.0);
    vec![
        axis(snapshot, queue, label, columns, old),
        row(names[0], arrived, scale, None, f64::MAX),
        row(
            names[1],
            finished,
            scale,
            stopped.then_some(Ink::Bad),
            f64::MAX,
        ),
        row(names[2], failed, own, storm.then_some(Ink::Warn), hot),
    ]
}

/// The block's heading: the queue, and the time at the start, in the middle and at the end of the charts. A long
/// name takes the place of the first.
fn axis(
    snapshot: &Snapshot,
    queue: &Queue,
    label: usize,
    columns: usize,
    old: Option<f64>,
) -> Line<'static> {
    let last = old.map_or("now".into(), |age| format!("{} ago", fmt::duration(age)));
    let now = snapshot.taken_at;
    let at = |back: usize| fmt::minute(now.map(|n| n.plus(-60.0 * back as f64)));
    let name = format!("FLOW {}", super::clean::clean(&queue.queue));
    let start = label + 2;
    let middle = start + columns / 2 - columns.min(5) / 2;
    let fits = super::clean::width(&name) < start;
    let mut line = pad(&name, if fits { start } else { middle - 2 }, Align::Left);
    let named = line.clone();
    let place = |line: &mut String, at: usize, time: String| {
        let used = super::clean::width(line);
        if used <= at {
            line.push_str(&" ".repeat(at - used));
            line.push_str(&time);
        }
    };
    if fits {
        place(&mut line, start, at(columns));
    }
    if columns >= 24 {
        place(&mut line, middle, at(columns - columns / 2));
    }
    place(&mut line, start + columns - 5.min(columns), at(0));
    Line::from(vec![
        Span::raw(" "),
        ink(&named, Ink::Title),
        dim(&line[named.len()..]),
        dim(format!("{last:>10}{:>8}", "usual")),
    ])
}

/// The last `columns` minutes. The running minute is stretched to a whole one once it is old enough to tell.
fn read(snapshot: &Snapshot, flow: &Flow, values: &[u32], columns: usize) -> Series {
    let elapsed = snapshot
        .taken_at
        .zip(flow.from)
        .and_then(|(now, from)| now.since(from))
        .map(|s| s - 60.0 * (values.len() as f64 - 1.0))
        .filter(|s| (20.0..=75.0).contains(s));
    let mut minutes: Vec<f64> = values.iter().map(|v| f64::from(*v)).collect();
    match (elapsed, minutes.last_mut()) {
        (Some(seconds), Some(last)) => *last *= 60.0 / seconds.min(60.0),
        _ => {
            minutes.pop();
        }
    }
    let past = minutes.len().saturating_sub(10);
    let usual = median(&minutes[..past]);
    Series {
        now: minutes.last().copied(),
        usual,
        minutes: minutes.split_off(minutes.len().saturating_sub(columns)),
    }
}

fn median(values: &[f64]) -> Option<f64> {
    if values.len() < USUAL_MINUTES {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(sorted[sorted.len() / 2])
}

/// A minute as a column: nothing for nothing, at least the lowest for something.
fn level(value: f64, scale: f64) -> &'static str {
    // The highest of the eight would touch the line above.
    const STEPS: usize = LEVELS.len() - 1;
    if value.is_nan() || value <= 0.0 {
        return " ";
    }
    let step = (value / scale * STEPS as f64).ceil() as usize;
    LEVELS[step.clamp(1, STEPS) - 1]
}

/// The block beside it where the screen is wide: totals by state and median response times.
pub fn totals(app: &crate::app::state::App, width: u16) -> Vec<Line<'static>> {
    let Some((snapshot, _)) = app.shown() else {
        return Vec::new();
    };
    let width = usize::from(width);
    let cell = |state: State| {
        let count = panes::total(snapshot, state);
        let quiet = count.is_none_or(|c| c.count == 0);
        let gap = 10usize.saturating_sub(state.name().len());
        vec![
            dim(format!("{}{}", state.name(), " ".repeat(gap))),
            ink(
                pad(&fmt::count(count), 9, Align::Right),
                if quiet { Ink::Dim } else { Ink::Text },
            ),
            Span::raw("   "),
        ]
    };
    let live = panes::live(snapshot);
    let mut first = vec![
        ink("TOTALS ", Ink::Title),
        ink(fmt::count(live), Ink::Strong),
        dim(" live"),
    ];
    for state in [State::Cancelled, State::Other] {
        let count = panes::total(snapshot, state);
        if count.is_some_and(|c| c.count > 0) {
            first.push(dim(format!("   {state} ")));
            first.push(text(fmt::count(count)));
        }
    }
    let medians: Vec<Span<'static>> = panes::medians(app, 1).into_iter().flatten().collect();
    let pairs = [
        (State::Ready, State::Scheduled),
        (State::Running, State::Retryable),
        (State::Succeeded, State::Failed),
    ];
    let mut lines = vec![spread(first, &[medians], width)];
    for (a, b) in pairs {
        lines.push(Line::from([cell(a), cell(b)].concat()));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn something_is_never_drawn_as_nothing() {
        assert_eq!(level(0.0, 100.0), " ");
        assert_eq!(level(0.1, 100.0), "▁");
        assert_eq!(level(100.0, 100.0), "▇");
        assert_eq!(level(500.0, 100.0), "▇");
    }

    #[test]
    fn usual_needs_history() {
        assert_eq!(median(&[1.0; 19]), None);
        assert_eq!(median(&[1.0; 20]), Some(1.0));
    }
}
