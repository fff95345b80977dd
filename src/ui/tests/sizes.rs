//! Nothing panics at any size, nothing that could hurt is drawn, and a frame is quick.

use super::overlays;
use crate::app::state::{App, Layer, PaneId};
use crate::panes::{self, fixture};
use crate::probe::Snapshot;
use crate::text::forbidden;
use crate::ui::clean::width;
use crate::ui::table::{self, Key, Part};
use crate::ui::theme::{Depth, Theme};
use crate::ui::{max_scroll, page_height, page_rows, render};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// Every state, with every layer over it.
static APPS: LazyLock<Vec<App>> = LazyLock::new(|| {
    let mut apps = vec![
        fixture::incident(),
        fixture::calm(),
        fixture::empty(),
        fixture::lost(),
        fixture::connecting(),
        fixture::hostile(),
    ];
    let layers: Vec<Vec<Layer>> = overlays().into_iter().map(|(_, app)| app.layers).collect();
    let hostile_rows: Vec<Layer> = PaneId::ALL
        .iter()
        .flat_map(|p| {
            crate::ui::table::visible(&apps[5], *p)
                .into_iter()
                .step_by(7)
        })
        .map(|row| Layer::Detail { row, scroll: 3 })
        .collect();
    for app in apps.clone() {
        for layers in layers.iter().filter(|l| !l.is_empty()) {
            apps.push(App {
                layers: layers.clone(),
                ..app.clone()
            });
        }
    }
    for layer in hostile_rows {
        apps.push(App {
            layers: vec![layer],
            ..fixture::hostile()
        });
    }
    apps.extend(overlays().into_iter().map(|(_, app)| app));
    apps
});

fn check(app: &App, width: u16, height: u16, ascii: bool) -> Result<(), TestCaseError> {
    let theme = Theme::of(Depth::Sixteen, ascii);
    let buffer = render(app, &theme, width, height);
    for cell in &buffer.content {
        prop_assert!(!cell.symbol().chars().any(forbidden), "{:?}", cell.symbol());
        prop_assert!(!ascii || cell.symbol().is_ascii(), "{:?}", cell.symbol());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_size_panics_and_nothing_hurtful_is_drawn(
        n in 0usize..10_000,
        width in 0u16..=220,
        height in 0u16..=70,
        focus in 0usize..8,
        whole: bool,
        ascii: bool,
        cursor in 0usize..80,
        filter in "[ -~]{0,6}",
    ) {
        let mut app = APPS[n % APPS.len()].clone();
        app.size = (width, height);
        let pane = PaneId::ALL[focus];
        app = fixture::cursor(app, pane, cursor);
        app.zoom = whole.then_some(pane);
        let view = app.views.entry(pane).or_default();
        view.sort = (cursor % 3 == 0).then_some(cursor);
        view.reverse = cursor % 2 == 0;
        if cursor % 5 == 0 {
            view.filter = filter.as_str().into();
            app.editing_filter = whole;
        }
        check(&app, width, height, ascii)?;
        prop_assert!(page_rows(&app) >= 1 && page_height(&app) >= 1);
        let _ = max_scroll(&app);
    }
}

#[test]
fn every_size_of_the_incident_is_drawn() {
    let app = fixture::cursor(fixture::incident(), PaneId::Tasks, 3);
    for width in (0..=220).step_by(11) {
        for height in (0..=70).step_by(3) {
            check(&app, width, height, false).expect("drawn");
        }
    }
}

#[test]
fn the_cursor_is_always_on_screen_and_a_page_is_what_fits() {
    let base = fixture::incident();
    for pane in PaneId::ALL {
        let ids = crate::ui::table::visible(&base, pane);
        for (w, h) in [(60, 16), (80, 24), (120, 30), (160, 45)] {
            for (n, zoom) in (0..ids.len())
                .step_by(5)
                .flat_map(|n| [(n, None), (n, Some(pane))])
            {
                let mut app = fixture::cursor(base.clone(), pane, n);
                (app.size, app.zoom) = ((w, h), zoom);
                let buffer = render(&app, &Theme::of(Depth::None, false), w, h);
                let marks = (0..h).filter(|y| buffer[(0, *y)].symbol() == "▸").count();
                let more = (0..h)
                    .filter(|y| (0..w).any(|x| buffer[(x, *y)].symbol() == "▸"))
                    .count();
                assert!(marks == 1 || more == 1, "{pane:?} row {n} at {w}x{h}");
                assert!(page_rows(&app) < usize::from(h));
            }
        }
    }
}

/// `cargo test --release --lib frame_time -- --ignored --nocapture`
#[test]
#[ignore = "prints a figure"]
fn frame_time() {
    let app = fixture::cursor(fixture::incident(), PaneId::Tasks, 0);
    let theme = Theme::of(Depth::Sixteen, false);
    let rounds = 200;
    for (w, h) in [(80, 24), (160, 45), (200, 60)] {
        let start = std::time::Instant::now();
        for _ in 0..rounds {
            std::hint::black_box(render(&app, &theme, w, h));
        }
        let each = start.elapsed().as_secs_f64() * 1e3 / f64::from(rounds);
        println!("frame {w}x{h}: {each:.2} ms");
    }
}

/// The incident, with every length of time in it as long as this.
fn lasting(seconds: f64) -> App {
    fn set(value: &mut serde_json::Value, seconds: f64) {
        match value {
            serde_json::Value::Object(fields) => {
                for (name, value) in fields {
                    match value.is_number() && name.ends_with("_s") {
                        true => *value = seconds.into(),
                        false => set(value, seconds),
                    }
                }
            }
            serde_json::Value::Array(all) => all.iter_mut().for_each(|v| set(v, seconds)),
            _ => {}
        }
    }
    let mut app = fixture::incident();
    let seen = app.snapshot.take().expect("data");
    let mut json = serde_json::to_value(&*seen).expect("JSON");
    set(&mut json, seconds);
    let mut snapshot: Snapshot = serde_json::from_value(json).expect("a snapshot");
    for task in &mut snapshot.tasks.rows {
        task.lease_until = snapshot.taken_at.map(|t| t.plus(-seconds));
        task.created_at = task.lease_until;
    }
    app.snapshot = Some(snapshot.into());
    app
}

#[test]
fn a_figure_that_is_shown_is_whole() {
    let mut cut = BTreeSet::new();
    for seconds in [
        0.4, 65.0, 492.0, 3_540.0, 86_340.0, 172_700.0, 9e8, 1e12, -492.0,
    ] {
        let app = lasting(seconds);
        for pane in panes::PANES {
            for section in (pane.table)(&app, Part::Whole).sections {
                for total in [57, 77, 97, 117, 157, 197] {
                    for (at, room) in table::fit(&section, &section.title, total) {
                        let cells = section.rows.iter().map(|row| &row.cells[at]);
                        let figures = cells.filter(|c| matches!(c.key, Key::Number(_)));
                        cut.extend(figures.filter(|c| width(&c.text) > usize::from(room)).map(
                            |c| {
                                format!(
                                    "{:?} {}: {} in {room}",
                                    pane.id, section.columns[at].name, c.text
                                )
                            },
                        ));
                    }
                }
            }
        }
    }
    assert!(cut.is_empty(), "{cut:#?}");
}
