//! Who works on what in the fixture data and in the simulated life: queues, kinds of task, agents, tenants,
//! applications, models with their prices, and what goes wrong.

use super::dice::Dice;

/// A model and its price in dollars per million tokens.
#[derive(Debug, PartialEq)]
pub struct Model {
    /// Its name, as its bills carry it.
    pub name: &'static str,
    /// Input and output price; `None`: nobody has told us one, which is not 0.
    pub price: Option<(f64, f64)>,
}

impl Model {
    /// What a call costs, in dollars.
    pub fn cost(&self, input: i64, output: i64) -> Option<f64> {
        let (a, b) = self.price?;
        Some((input as f64 * a + output as f64 * b) / 1e6)
    }
}

const LARGE: Model = model("claude-opus-4.5", 5.0, 25.0);
const MIDDLE: Model = model("claude-sonnet-4.5", 3.0, 15.0);
const SMALL: Model = model("claude-haiku-4.5", 1.0, 5.0);
const MINI: Model = model("gpt-5-mini", 0.25, 2.0);
const FLASH: Model = model("gemini-2.5-flash", 0.3, 2.5);
const EMBEDDING: Model = model("text-embedding-3-small", 0.02, 0.0);
/// Runs on machines of one's own: its tokens have no price.
const LOCAL: Model = Model {
    name: "qwen3-vl-local",
    price: None,
};

const fn model(name: &'static str, input: f64, output: f64) -> Model {
    Model {
        name,
        price: Some((input, output)),
    }
}

/// A kind of task: how often it comes, how long it takes, what it spends.
#[derive(Debug)]
pub struct Kind {
    /// Its queue.
    pub queue: &'static str,
    /// Its name.
    pub name: &'static str,
    /// The agent that it is for.
    pub agent: &'static str,
    /// The application that asks for it.
    pub application: &'static str,
    /// Arrivals a minute on an ordinary day.
    pub per_minute: f64,
    /// Median time from start to finish, in seconds.
    pub run_s: f64,
    /// Model calls a try.
    pub calls: u32,
    /// The model called.
    pub model: Model,
    /// Median input and output tokens a call.
    pub tokens: (f64, f64),
    /// Share of tries that fail on an ordinary day.
    pub fails: f64,
    /// Higher goes first.
    pub priority: i32,
}

/// All kinds. Their sum is about 90 tasks a minute.
pub const KINDS: &[Kind] = &[
    Kind {
        queue: "parser",
        name: "parse_contract",
        agent: "extractor",
        application: "contracts",
        per_minute: 16.0,
        run_s: 3.6,
        calls: 1,
        model: MIDDLE,
        tokens: (3800.0, 420.0),
        fails: 0.03,
        priority: 5,
    },
    Kind {
        queue: "parser",
        name: "parse_invoice",
        agent: "extractor",
        application: "contracts",
        per_minute: 12.0,
        run_s: 2.2,
        calls: 1,
        model: SMALL,
        tokens: (2600.0, 260.0),
        fails: 0.02,
        priority: 0,
    },
    Kind {
        queue: "parser",
        name: "parse_scan",
        agent: "reviewer",
        application: "contracts",
        per_minute: 1.6,
        run_s: 2.8,
        calls: 2,
        model: MINI,
        tokens: (5200.0, 640.0),
        fails: 0.03,
        priority: 0,
    },
    Kind {
        queue: "crawler",
        name: "fetch_page",
        agent: "scout",
        application: "research",
        per_minute: 28.0,
        run_s: 1.5,
        calls: 1,
        model: FLASH,
        tokens: (1900.0, 140.0),
        fails: 0.04,
        priority: 0,
    },
    Kind {
        queue: "crawler",
        name: "fetch_sitemap",
        agent: "scout",
        application: "research",
        per_minute: 1.6,
        run_s: 1.1,
        calls: 1,
        model: FLASH,
        tokens: (3200.0, 220.0),
        fails: 0.03,
        priority: 3,
    },
    Kind {
        queue: "mail",
        name: "summarise_thread",
        agent: "scribe",
        application: "helpdesk",
        per_minute: 8.0,
        run_s: 2.6,
        calls: 1,
        model: SMALL,
        tokens: (3400.0, 300.0),
        fails: 0.02,
        priority: 0,
    },
    Kind {
        queue: "mail",
        name: "draft_reply",
        agent: "postman",
        application: "helpdesk",
        per_minute: 5.0,
        run_s: 3.2,
        calls: 1,
        model: MIDDLE,
        tokens: (2900.0, 500.0),
        fails: 0.02,
        priority: 10,
    },
    Kind {
        queue: "embed",
        name: "embed_chunk",
        agent: "indexer",
        application: "research",
        per_minute: 13.0,
        run_s: 0.7,
        calls: 1,
        model: EMBEDDING,
        tokens: (6500.0, 0.0),
        fails: 0.01,
        priority: 0,
    },
    Kind {
        queue: "embed",
        name: "embed_image",
        agent: "indexer",
        application: "research",
        per_minute: 1.6,
        run_s: 1.4,
        calls: 1,
        model: LOCAL,
        tokens: (1300.0, 60.0),
        fails: 0.02,
        priority: 0,
    },
    Kind {
        queue: "nightly",
        name: "audit_tenant",
        agent: "auditor",
        application: "helpdesk",
        per_minute: 1.5,
        run_s: 4.8,
        calls: 2,
        model: MIDDLE,
        tokens: (2400.0, 350.0),
        fails: 0.02,
        priority: 0,
    },
    Kind {
        queue: "nightly",
        name: "research_topic",
        agent: "planner",
        application: "research",
        per_minute: 1.2,
        run_s: 4.4,
        calls: 3,
        model: LARGE,
        tokens: (1500.0, 260.0),
        fails: 0.02,
        priority: 2,
    },
];

/// Queues with a limit: most that may run, tokens a minute, what one try is expected to spend.
pub const LIMITS: &[(&str, Option<i64>, Option<i64>, i64)] = &[
    ("parser", Some(24), None, 1000),
    ("crawler", Some(20), None, 1000),
    ("embed", Some(8), Some(4_000_000), 8000),
    ("nightly", Some(4), None, 1000),
];

/// Who pays, and their shares of the work.
pub const TENANTS: &[(&str, f64)] = &[
    ("acme", 0.34),
    ("globex", 0.22),
    ("initech", 0.16),
    ("soylent", 0.12),
    ("vandelay", 0.10),
    ("hooli", 0.06),
];

/// The release that most workers run, and the one before.
pub const VERSIONS: [&str; 2] = ["2c1f9ab", "2b8d04e"];

/// Simulated workers of the reference queue, and the queues that each serves.
pub const WORKERS: &[&[&str]] = &[
    &["parser"],
    &["parser"],
    &["parser"],
    &["parser"],
    &["parser", "nightly"],
    &["crawler"],
    &["crawler", "embed"],
    &["mail"],
    &["mail", "parser"],
    &["embed"],
    &["embed", "crawler"],
    &["nightly", "mail"],
];

/// Everything that may be claimed.
pub const QUEUES: &[&str] = &["parser", "crawler", "mail", "embed", "nightly"];

/// People whose names stand in the journal.
pub const PEOPLE: &[&str] = &["maria", "jonas", "li"];

/// The kind of that name; an unknown one is worked on like the first.
pub fn kind(name: &str) -> &'static Kind {
    KINDS.iter().find(|k| k.name == name).unwrap_or(&KINDS[0])
}

/// A tenant, by its share of the work.
pub fn tenant(dice: &mut Dice) -> &'static str {
    let mut at = dice.unit();
    for (name, share) in TENANTS {
        if at < *share {
            return name;
        }
        at -= share;
    }
    TENANTS[0].0
}

impl Kind {
    /// How long one try works, in seconds.
    pub fn run_time(&self, dice: &mut Dice) -> f64 {
        dice.about(self.run_s, 0.4).clamp(0.15, self.run_s * 6.0)
    }

    /// Input and output tokens of one call.
    pub fn spend(&self, dice: &mut Dice) -> (i64, i64) {
        let input = dice.about(self.tokens.0, 0.5).round() as i64;
        let output = dice.about(self.tokens.1, 0.5).round() as i64;
        (input, output)
    }

    /// What a worker is asked to do, as JSON. Some of it is nobody's business.
    pub fn payload(&self, dice: &mut Dice) -> String {
        let n = dice.whole(1000, 9999);
        match self.queue {
            "parser" => format!(
                r#"{{"document":"s3://inbox/{}/{n}.pdf","pages":{}}}"#,
                self.name,
                dice.whole(1, 40)
            ),
            "crawler" => format!(
                r#"{{"url":"https://example.org/{}/{n}","headers":{{"authorization":"Bearer {:016x}"}}}}"#,
                self.name,
                dice.bits()
            ),
            "mail" => format!(
                r#"{{"thread":{n},"language":"{}"}}"#,
                dice.pick(&["en", "de", "fr", "ja"])
            ),
            "embed" => format!(r#"{{"chunk":"doc-{n}#{}"}}"#, dice.whole(1, 90)),
            _ => format!(r#"{{"topic":{n},"depth":{}}}"#, dice.whole(1, 4)),
        }
    }

    /// What a worker brings back, as JSON, and how sure it is.
    pub fn result(&self, dice: &mut Dice) -> (String, f64) {
        let confidence = 1.0 - dice.about(0.08, 0.7).min(0.6);
        let text = match self.queue {
            "parser" => format!(
                r#"{{"fields":{},"warnings":{}}}"#,
                dice.whole(4, 38),
                dice.whole(0, 2)
            ),
            "crawler" => format!(r#"{{"status":200,"bytes":{}}}"#, dice.whole(2_000, 400_000)),
            "mail" => format!(r#"{{"words":{}}}"#, dice.whole(40, 260)),
            "embed" => r#"{"dimensions":1536}"#.to_owned(),
            _ => format!(
                r#"{{"findings":{},"sources":{}}}"#,
                dice.whole(0, 9),
                dice.whole(3, 30)
            ),
        };
        (text, (confidence * 100.0).round() / 100.0)
    }

    /// Why a try fails, and whether trying again is of no use.
    pub fn error(&self, dice: &mut Dice) -> (String, bool) {
        let hopeless = dice.chance(0.08);
        let text = match (self.queue, hopeless) {
            ("parser", true) => "InvalidDocument: no text layer and no image".to_owned(),
            ("parser", false) => "TimeoutError: read timed out after 30 s".to_owned(),
            ("crawler", true) => "HTTPError: 404 Not Found".to_owned(),
            ("crawler", false) => format!(
                "HTTPError: {} from origin",
                dice.pick(&["502", "503", "429"])
            ),
            (_, true) => "ContextLengthExceeded: 214883 tokens > 200000".to_owned(),
            (_, false) => format!(
                "{}: try again in {} s",
                dice.pick(&["RateLimitError", "OverloadedError"]),
                dice.whole(2, 20)
            ),
        };
        (text, hopeless)
    }
}

/// Seconds of a worker's machine, in dollars.
pub fn compute_cost(seconds: f64) -> f64 {
    seconds * 0.000_045
}
