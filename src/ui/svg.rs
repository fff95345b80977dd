//! A finished frame as an SVG picture. Every cell has its place by the grid, not by the font, and block elements are
//! drawn as rectangles, so that charts and rules meet whatever font the viewer has.

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use std::fmt::Write;
use unicode_width::UnicodeWidthStr;

const FONT: f64 = 14.0;
/// Advance of DejaVu Sans Mono, and within one percent that of most monospace fonts.
const W: f64 = FONT * 0.602;
const H: f64 = 18.0;
const PAD: f64 = 12.0;
const BACK: u32 = 0x16_18_1d;
const FORE: u32 = 0xd4_d7_dd;

/// The picture of a painted buffer.
pub fn svg(buffer: &Buffer) -> String {
    let mut out = String::new();
    // Writing into a String cannot fail.
    let _ = draw(buffer, &mut out);
    out
}

fn draw(buffer: &Buffer, out: &mut String) -> std::fmt::Result {
    let area = buffer.area;
    let (w, h) = (
        f64::from(area.width) * W + 2.0 * PAD,
        f64::from(area.height) * H + 2.0 * PAD,
    );
    writeln!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{w:.0}" height="{h:.0}" viewBox="0 0 {w:.2} {h:.2}" font-family="'DejaVu Sans Mono',Menlo,Consolas,'Liberation Mono',monospace" font-size="{FONT}" xml:space="preserve">"##
    )?;
    writeln!(
        out,
        r##"<rect width="100%" height="100%" rx="6" fill="#{BACK:06x}"/>"##
    )?;
    for y in 0..area.height {
        let row: Vec<&Cell> = (0..area.width)
            .map(|x| &buffer[(area.x + x, area.y + y)])
            .collect();
        line(&row, PAD + f64::from(y) * H, out)?;
    }
    writeln!(out, "</svg>")
}

fn line(row: &[&Cell], top: f64, out: &mut String) -> std::fmt::Result {
    let mut x = 0;
    while x < row.len() {
        let look = Look::of(row[x]);
        let mut end = x;
        while end < row.len() && Look::of(row[end]) == look {
            end += 1;
        }
        if look.back != BACK {
            rect(x as f64, 0.0, (end - x) as f64, 1.0, top, look.back, out)?;
        }
        let mut at = x;
        while at < end {
            at += glyphs(&row[at..end], at, top, &look, out)?;
        }
        x = end;
    }
    Ok(())
}

/// Draws what can be drawn at once from the left; returns how many cells that was.
fn glyphs(
    cells: &[&Cell],
    at: usize,
    top: f64,
    look: &Look,
    out: &mut String,
) -> Result<usize, std::fmt::Error> {
    let symbol = cells[0].symbol();
    let x = at as f64;
    if let Some(parts) = shape(symbol) {
        for (left, up, w, h) in parts {
            rect(x + left, up, w, h, top, look.fore, out)?;
        }
        return Ok(1);
    }
    if symbol.trim().is_empty() {
        return Ok(1);
    }
    let mut text = String::new();
    let mut used = 0;
    while used < cells.len() {
        let s = cells[used].symbol();
        // Only plain characters share a run: others may come from another font, with another advance.
        let plain = s.len() == 1 && s != " ";
        if used > 0 && (!plain || !cells[0].symbol().is_ascii()) {
            break;
        }
        text.push_str(s);
        used += s.width().max(1);
    }
    let weight = if look.bold {
        " font-weight=\"bold\""
    } else {
        ""
    };
    let line = if look.underlined {
        " text-decoration=\"underline\""
    } else {
        ""
    };
    writeln!(
        out,
        r##"<text x="{:.2}" y="{:.2}" textLength="{:.2}" fill="#{:06x}"{weight}{line}>{}</text>"##,
        PAD + x * W,
        top + 13.5,
        used as f64 * W,
        look.fore,
        escape(&text)
    )?;
    Ok(used)
}

/// A rectangle in units of cells, from the top left of cell 0 of a line.
fn rect(x: f64, y: f64, w: f64, h: f64, top: f64, fill: u32, out: &mut String) -> std::fmt::Result {
    writeln!(
        out,
        r##"<rect x="{:.2}" y="{:.2}" width="{:.2}" height="{:.2}" fill="#{fill:06x}"/>"##,
        PAD + x * W,
        top + y * H,
        w * W,
        h * H
    )
}

/// Block elements and lines as rectangles (left, top, width, height) in units of a cell.
fn shape(symbol: &str) -> Option<Vec<(f64, f64, f64, f64)>> {
    const LINE: f64 = 1.1 / H;
    const BEAM: f64 = 1.1 / W;
    let c = symbol.chars().next()?;
    let across = |from: f64, to: f64| (from, 0.5 - LINE / 2.0, to - from, LINE);
    let down = |from: f64, to: f64| (0.5 - BEAM / 2.0, from, BEAM, to - from);
    Some(match c {
        '▁'..='█' => {
            let h = f64::from(c as u32 - 0x2580) / 8.0;
            vec![(0.0, 1.0 - h, 1.0, h)]
        }
        '▉'..='▏' => vec![(0.0, 0.0, f64::from(0x2590 - c as u32) / 8.0, 1.0)],
        '─' => vec![across(0.0, 1.0)],
        '│' => vec![down(0.0, 1.0)],
        '├' => vec![down(0.0, 1.0), across(0.5, 1.0)],
        '└' => vec![down(0.0, 0.5), across(0.5, 1.0)],
        '┌' => vec![down(0.5, 1.0), across(0.5, 1.0)],
        '┐' => vec![down(0.5, 1.0), across(0.0, 0.5)],
        '┘' => vec![down(0.0, 0.5), across(0.0, 0.5)],
        _ => return None,
    })
}

/// Colours and weight of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Look {
    fore: u32,
    back: u32,
    bold: bool,
    underlined: bool,
}

impl Look {
    fn of(cell: &Cell) -> Self {
        let mut fore = rgb(cell.fg, FORE);
        let mut back = rgb(cell.bg, BACK);
        if cell.modifier.contains(Modifier::DIM) {
            fore = mix(fore, back, 0.45);
        }
        if cell.modifier.contains(Modifier::REVERSED) {
            std::mem::swap(&mut fore, &mut back);
        }
        Self {
            fore,
            back,
            bold: cell.modifier.contains(Modifier::BOLD),
            underlined: cell.modifier.contains(Modifier::UNDERLINED),
        }
    }
}

fn mix(a: u32, b: u32, part: f64) -> u32 {
    [16, 8, 0].into_iter().fold(0, |out, shift| {
        let (x, y) = (f64::from(a >> shift & 255), f64::from(b >> shift & 255));
        out | ((x + (y - x) * part) as u32) << shift
    })
}

fn rgb(color: Color, default: u32) -> u32 {
    const SIXTEEN: [u32; 16] = [
        0x1d1f21, 0xe0605e, 0x8fb573, 0xe5b567, 0x6c99bb, 0xb294bb, 0x7fc1ca, 0xc5c8c6, 0x666b73,
        0xff7b72, 0xb5d68a, 0xf0c674, 0x81a2be, 0xc8a5d0, 0x9ad5dd, 0xffffff,
    ];
    const CUBE: [u32; 6] = [0, 95, 135, 175, 215, 255];
    let indexed = |i: u8| match i {
        0..16 => SIXTEEN[usize::from(i)],
        16..232 => {
            let i = usize::from(i) - 16;
            CUBE[i / 36] << 16 | CUBE[i / 6 % 6] << 8 | CUBE[i % 6]
        }
        _ => (8 + 10 * (u32::from(i) - 232)) * 0x01_01_01,
    };
    match color {
        Color::Reset => default,
        Color::Rgb(r, g, b) => u32::from(r) << 16 | u32::from(g) << 8 | u32::from(b),
        Color::Indexed(i) => indexed(i),
        Color::Black => indexed(0),
        Color::Red => indexed(1),
        Color::Green => indexed(2),
        Color::Yellow => indexed(3),
        Color::Blue => indexed(4),
        Color::Magenta => indexed(5),
        Color::Cyan => indexed(6),
        Color::Gray => indexed(7),
        Color::DarkGray => indexed(8),
        Color::LightRed => indexed(9),
        Color::LightGreen => indexed(10),
        Color::LightYellow => indexed(11),
        Color::LightBlue => indexed(12),
        Color::LightMagenta => indexed(13),
        Color::LightCyan => indexed(14),
        Color::White => indexed(15),
    }
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}
