//! The overview: which blocks there are at a given size, and where. Blocks drop out whole; the focused pane, or the
//! tasks, get every line that is left.

use super::block::{self, Shape};
use super::brief;
use super::flow;
use super::order::Tables;
use crate::app::state::{App, PaneId};
use crate::panes;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

/// Widths from which blocks stand side by side.
const WIDE: u16 = 132;

/// Something that has a place on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// The flow of one queue.
    Flow,
    /// Totals by state.
    Totals,
    /// Connections and cost in a line each.
    Brief,
    /// A pane.
    Pane(PaneId, Shape),
}

/// Every block and its place in the body of the screen.
pub fn place(tables: &Tables, body: Rect) -> Vec<(Block, Rect)> {
    if body.width >= WIDE && body.height >= 28 {
        wide(tables, body)
    } else {
        stacked(tables, body)
    }
}

/// The pane that gets the rest of the screen.
fn main_pane(app: &App, wide: bool) -> PaneId {
    match app.focus {
        PaneId::Findings | PaneId::Failures => app.focus,
        focus if !wide => focus,
        _ => PaneId::Tasks,
    }
}

/// From top to bottom: flow beside totals, stages, connections beside waits, leases beside cost, tasks.
fn wide(tables: &Tables, body: Rect) -> Vec<(Block, Rect)> {
    use PaneId as P;
    let app = tables.app;
    let lines = |p: P, shape| block::lines(tables, p, shape);
    let pair = |a: P, b: P| lines(a, Shape::Headed).max(lines(b, Shape::Headed));
    let mut heights = [
        4u16,
        lines(P::Stages, Shape::Inline).clamp(3, 9),
        pair(P::Connections, P::Waits).clamp(4, 9),
        pair(P::Leases, P::Cost).clamp(4, 6),
    ];
    if !matches!(app.focus, P::Findings | P::Failures | P::Tasks) {
        // A block with the cursor gets room to move in.
        let at = match app.focus {
            P::Stages => 1,
            P::Connections | P::Waits => 2,
            _ => 3,
        };
        heights[at] = heights[at].max(10);
    }
    let least = [4, 3, 4, 4];
    let used = |h: &[u16; 4]| h.iter().map(|h| h + 1).sum::<u16>();
    // The tasks keep a heading and three rows, and a third of the screen while others want more than they need.
    let keep = (body.height / 4).max(6);
    while used(&heights) + keep > body.height {
        let tallest = (1..4)
            .filter(|n| heights[*n] > least[*n])
            .max_by_key(|n| heights[*n]);
        match tallest {
            Some(n) => heights[n] -= 1,
            None => break,
        }
    }
    let half = body.width / 2 - 1;
    let headed = |p| Some(Block::Pane(p, Shape::Headed));
    let rest = body.height.saturating_sub(used(&heights));
    let rows = [
        (
            heights[0],
            Block::Flow,
            Some(Block::Totals),
            100.min(body.width - 48),
        ),
        (
            heights[1],
            Block::Pane(P::Stages, Shape::Inline),
            None,
            body.width,
        ),
        (
            heights[2],
            Block::Pane(P::Connections, Shape::Headed),
            headed(P::Waits),
            half,
        ),
        (
            heights[3],
            Block::Pane(P::Leases, Shape::Headed),
            headed(P::Cost),
            half,
        ),
        (
            rest,
            Block::Pane(main_pane(app, true), Shape::Headed),
            None,
            body.width,
        ),
    ];
    let mut out = Vec::new();
    let mut y = body.y;
    for (height, left, right, split) in rows {
        out.push((left, Rect::new(body.x, y, split, height)));
        if let Some(right) = right {
            let x = body.x + split + 2;
            out.push((right, Rect::new(x, y, body.right() - x, height)));
        }
        y += height + 1;
    }
    out
}

/// From top to bottom: flow, stages, a line for connections and one for cost (or, where there is height, whole
/// blocks), and the focused pane.
fn stacked(tables: &Tables, body: Rect) -> Vec<(Block, Rect)> {
    use PaneId as P;
    let app = tables.app;
    let main = main_pane(app, false);
    let mut left = body.height.saturating_sub(5);
    // All findings, a heading and the columns' names come before pictures of anything else.
    let keep = match app.shown() {
        Some((_, report)) if main == P::Findings => {
            (report.findings.len().min(100) as u16).saturating_sub(3)
        }
        _ => 0,
    };
    let mut take = |height: u16, keep: u16| {
        let fits = left > height.saturating_add(keep);
        if fits {
            left -= height + 1;
        }
        fits
    };
    let brief = take(2, 0);
    let stages_want = block::lines(tables, P::Stages, Shape::Inline);
    let mut stages = 0;
    if main != P::Stages {
        let least = stages_want.min(3);
        if take(least, 0) {
            stages = least;
        }
    }
    let flow = take(4, keep);
    // The stages may grow to all their rows, then whole blocks follow, as long as the focused pane keeps its share.
    if stages > 0 {
        let spare = left.saturating_sub(keep);
        let more = (stages_want - stages).min(spare / 2 + spare % 2).min(9);
        stages += more;
        left -= more;
    }
    let mut brief = brief;
    let mut blocks: Vec<(PaneId, u16)> = Vec::new();
    for pane in [P::Waits, P::Connections, P::Cost, P::Leases] {
        let height = block::lines(tables, pane, Shape::Headed).clamp(3, 7);
        if pane != main && left >= height + 1 + 5 + keep {
            left -= height + 1;
            blocks.push((pane, height));
        }
        // The two lines say nothing more once both have their blocks.
        let told = |p: PaneId| p == main || blocks.iter().any(|(b, _)| *b == p);
        if brief && told(P::Connections) && told(P::Cost) {
            brief = false;
            left += 3;
        }
    }
    let mut out = Vec::new();
    let mut y = body.y;
    let mut push = |block: Block, height: u16, out: &mut Vec<(Block, Rect)>| {
        out.push((block, Rect::new(body.x, y, body.width, height)));
        y += height + 1;
    };
    if flow {
        let beside = body.width >= WIDE;
        push(Block::Flow, 4, &mut out);
        if beside && let Some((_, area)) = out.last_mut() {
            let split = 100.min(body.width - 48);
            let right = Rect::new(area.x + split + 2, area.y, area.width - split - 2, 4);
            area.width = split;
            out.push((Block::Totals, right));
        }
    }
    if stages > 0 {
        push(Block::Pane(P::Stages, Shape::Inline), stages, &mut out);
    }
    if brief {
        push(Block::Brief, 2, &mut out);
    }
    for (pane, height) in blocks {
        push(Block::Pane(pane, Shape::Headed), height, &mut out);
    }
    let rest = body.bottom().saturating_sub(y);
    out.push((
        Block::Pane(main, Shape::Headed),
        Rect::new(body.x, y.min(body.bottom()), body.width, rest),
    ));
    out
}

/// Draws all blocks.
pub fn draw(buffer: &mut Buffer, tables: &Tables, body: Rect) {
    let app = tables.app;
    let Some((snapshot, _)) = app.shown() else {
        return;
    };
    for (block, area) in place(tables, body) {
        let lines: Vec<Line<'static>> = match block {
            Block::Flow => match panes::busiest(app) {
                Some(queue) => flow::lines(snapshot, queue, area.width),
                None => Vec::new(),
            },
            Block::Totals => flow::totals(app, area.width),
            Block::Brief => brief::lines(app, area.width),
            Block::Pane(pane, shape) => {
                block::draw(buffer, area, tables, pane, shape);
                continue;
            }
        };
        for (line, y) in lines.iter().zip(area.top()..area.bottom()) {
            buffer.set_line(area.x, y, line, area.width);
        }
    }
}
