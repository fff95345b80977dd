//! Pictures of all screens, to look at.

use super::overlays;
use crate::app::state::{App, PaneId};
use crate::panes::fixture;
use crate::ui::theme::{Depth, Theme};
use crate::ui::{render, svg};

/// `JOBTOP_PICTURES=dir cargo test --lib pictures -- --ignored`.
#[test]
#[ignore = "writes files to look at"]
fn pictures() {
    let dir = std::env::var("JOBTOP_PICTURES").unwrap_or_else(|_| "/tmp/jobtop-pictures".into());
    std::fs::create_dir_all(&dir).expect("directory");
    let theme = Theme::of(Depth::Sixteen, false);
    let save = |name: &str, app: &App, theme: &Theme, w: u16, h: u16| {
        let buffer = render(app, theme, w, h);
        std::fs::write(format!("{dir}/{name}.svg"), svg::svg(&buffer)).expect("file");
    };
    let incident = fixture::cursor(fixture::incident(), PaneId::Tasks, 0);
    for (w, h) in [
        (160, 45),
        (80, 24),
        (100, 30),
        (120, 50),
        (80, 60),
        (200, 60),
        (132, 36),
        (60, 16),
    ] {
        save(&format!("incident-{w}x{h}"), &incident, &theme, w, h);
    }
    let calm = fixture::cursor(fixture::calm(), PaneId::Tasks, 0);
    for (w, h) in [(160, 45), (80, 24)] {
        save(&format!("calm-{w}x{h}"), &calm, &theme, w, h);
        save(&format!("lost-{w}x{h}"), &fixture::lost(), &theme, w, h);
        save(&format!("empty-{w}x{h}"), &fixture::empty(), &theme, w, h);
        save(
            &format!("hostile-{w}x{h}"),
            &fixture::hostile(),
            &theme,
            w,
            h,
        );
        save(
            &format!("connecting-{w}x{h}"),
            &fixture::connecting(),
            &theme,
            w,
            h,
        );
        for pane in PaneId::ALL {
            let mut app = fixture::cursor(fixture::incident(), pane, 1);
            save(&format!("focus-{pane:?}-{w}x{h}"), &app, &theme, w, h);
            app.zoom = Some(pane);
            save(&format!("pane-{pane:?}-{w}x{h}"), &app, &theme, w, h);
        }
        for (name, app) in overlays() {
            save(&format!("over-{name}-{w}x{h}"), &app, &theme, w, h);
        }
        save(
            &format!("true-{w}x{h}"),
            &incident,
            &Theme::of(Depth::True, false),
            w,
            h,
        );
        save(
            &format!("none-{w}x{h}"),
            &incident,
            &Theme::of(Depth::None, false),
            w,
            h,
        );
        save(
            &format!("ascii-{w}x{h}"),
            &incident,
            &Theme::of(Depth::Sixteen, true),
            w,
            h,
        );
    }
}
