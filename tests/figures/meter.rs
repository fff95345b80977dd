//! What the server itself says about jobtop's statements: time of parsing, planning and running from its log, buffers
//! from auto_explain, CPU time from the kernel.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Settings of the role that watches, so that the server logs what its statements cost.
pub fn log_everything(role: &str) -> String {
    format!(
        "ALTER ROLE {role} SET log_min_duration_statement = 0; ALTER ROLE {role} SET log_error_verbosity = terse;"
    )
}

/// Settings of the role that watches, so that the server logs what its statements read.
pub fn log_buffers(role: &str) -> String {
    format!(
        "ALTER ROLE {role} SET session_preload_libraries = 'auto_explain'; ALTER ROLE {role} SET auto_explain.log_min_duration = 0;
         ALTER ROLE {role} SET auto_explain.log_analyze = on; ALTER ROLE {role} SET auto_explain.log_buffers = on;
         ALTER ROLE {role} SET auto_explain.log_timing = off; ALTER ROLE {role} SET auto_explain.log_format = 'json';
         ALTER ROLE {role} RESET log_min_duration_statement;"
    )
}

/// Which probe sends a statement, by what only its statements contain.
const PROBES: &[(&str, &str)] = &[
    ("AS settings)", "connect"),
    ("'server_version'", "server"),
    ("pg_notification_queue_usage", "maintenance"),
    ("pg_stat_user_tables", "tables"),
    ("AS grouped", "activity"),
    ("NOT l.granted", "locks"),
    ("AS hidden FROM pg_stat_activity", "writers"),
    ("pg_attribute", "detect"),
    ("most_common_vals", "estimate"),
    ("'try'::text AS part", "finished"),
    ("'in'::text AS part", "finished"),
    ("AS class", "tasks"),
    ("AS part", "?"),
    ("y.model_usd", "cost: spend"),
    ("jt_w.usd", "cost: top"),
    ("nullif((x.cost)::numeric", "cost: running"),
    ("count(DISTINCT x.task)", "failing"),
    ("0::int8 AS i", "invariants"),
    ("LISTEN", "listen"),
    ("SET statement_timeout", "deadline"),
    ("AS n24", "failures"),
];

/// Name of the probe and of the queue system behind a statement.
pub fn name(sql: &str) -> (String, String) {
    let mut probe = PROBES
        .iter()
        .find(|(part, _)| sql.contains(part))
        .map_or("lost tries", |(_, probe)| probe);
    if probe == "?" {
        probe = if sql.contains("'stuck'::text AS part")
            || sql.contains("'worker'::text AS part")
            || sql.contains("'over'::text AS part")
        {
            "leases"
        } else {
            "queues"
        };
    }
    let system = ["agent_queue", "agent_jobs", "workflow_jobs"]
        .into_iter()
        .find(|s| sql.contains(s));
    let of = match probe {
        "tables" | "detect" | "estimate" => "",
        _ => system.unwrap_or_default(),
    };
    (probe.to_string(), of.to_string())
}

/// What one kind of statement cost, summed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    pub n: u32,
    pub parse: f64,
    pub plan: f64,
    pub run: f64,
    pub buffers: f64,
    pub rows: f64,
}

impl Cost {
    pub fn ms(&self) -> f64 {
        self.parse + self.plan + self.run
    }

    pub fn add(&mut self, other: &Cost) {
        self.n += other.n;
        self.parse += other.parse;
        self.plan += other.plan;
        self.run += other.run;
        self.buffers += other.buffers;
        self.rows += other.rows;
    }
}

/// Costs by probe and system.
pub type Costs = BTreeMap<(String, String), Cost>;

/// The server's log from a point on.
pub struct Log {
    path: PathBuf,
    from: u64,
}

impl Log {
    /// From now on.
    pub fn of(root: &Path) -> Self {
        let path = root.join("log");
        let from = std::fs::metadata(&path).map_or(0, |m| m.len());
        Self { path, from }
    }

    fn entries(&self) -> Vec<String> {
        let bytes = std::fs::read(&self.path).expect("the server's log");
        let text = String::from_utf8_lossy(&bytes[self.from as usize..]).into_owned();
        let mut entries: Vec<String> = Vec::new();
        for line in text.lines() {
            match line.strip_prefix('\t') {
                Some(more) if !entries.is_empty() => {
                    let last = entries.last_mut().expect("one");
                    last.push('\n');
                    last.push_str(more);
                }
                _ => entries.push(line.to_string()),
            }
        }
        entries
    }

    /// Times, by probe and system.
    pub fn times(&self) -> Costs {
        let mut costs = Costs::new();
        for entry in self.entries() {
            let Some(rest) = entry.split_once("LOG:  duration: ").map(|e| e.1) else {
                continue;
            };
            let Some((ms, rest)) = rest.split_once(" ms  ") else {
                continue;
            };
            let ms: f64 = ms.parse().expect("milliseconds");
            let Some((phase, sql)) = rest.split_once(": ") else {
                continue;
            };
            let cost = costs.entry(name(sql)).or_default();
            match phase.split(' ').next() {
                Some("parse") => cost.parse += ms,
                Some("bind") => cost.plan += ms,
                _ => {
                    cost.run += ms;
                    cost.n += 1;
                }
            }
        }
        costs
    }

    /// Buffers and rows of the statements as they ran, by probe and system.
    pub fn buffers(&self) -> Costs {
        let mut costs = Costs::new();
        for entry in self.entries() {
            let Some(at) = entry.find("plan:\n").map(|at| at + 6) else {
                continue;
            };
            let plan: serde_json::Value = match serde_json::from_str(&entry[at..]) {
                Ok(plan) => plan,
                Err(_) => continue,
            };
            let sql = plan["Query Text"].as_str().unwrap_or_default();
            let cost = costs.entry(name(sql)).or_default();
            let of = |what: &str| plan["Plan"][what].as_f64().unwrap_or(0.0);
            cost.n += 1;
            cost.buffers += of("Shared Hit Blocks") + of("Shared Read Blocks");
            cost.rows += of("Actual Rows");
        }
        costs
    }
}

/// CPU time of a process of one thread, in milliseconds: unlike time on the clock it does not tell of others.
pub fn cpu_ms(pid: i32) -> f64 {
    cpu_ms_of(Path::new(&format!("/proc/{pid}")))
}

/// The same of a thread, by its directory.
pub fn cpu_ms_of(directory: &Path) -> f64 {
    let text = std::fs::read_to_string(directory.join("schedstat")).expect("schedstat");
    let ns: f64 = text
        .split(' ')
        .next()
        .and_then(|n| n.parse().ok())
        .expect("nanoseconds");
    ns / 1e6
}

/// The table of costs a refresh; the sum.
pub fn print(
    costs: &Costs,
    buffers: Option<&Costs>,
    refreshes: f64,
    buffer_refreshes: f64,
) -> Cost {
    println!(
        "  {:<14} {:<14} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6}",
        "probe", "system", "n", "parse", "plan", "run", "ms", "buffers", "rows"
    );
    let mut sum = Cost::default();
    let mut rows: Vec<_> = costs.iter().collect();
    rows.sort_by(|a, b| b.1.ms().total_cmp(&a.1.ms()));
    let line = |probe: &str, system: &str, c: &Cost, b: &Cost| {
        println!(
            "  {probe:<14} {system:<14} {:6.2} {:8.3} {:8.3} {:8.3} {:8.3} {:8.1} {:6.1}",
            f64::from(c.n) / refreshes,
            c.parse / refreshes,
            c.plan / refreshes,
            c.run / refreshes,
            c.ms() / refreshes,
            b.buffers / buffer_refreshes,
            b.rows / buffer_refreshes,
        );
    };
    let mut read = Cost::default();
    for (key, cost) in rows {
        let b = buffers
            .and_then(|b| b.get(key))
            .copied()
            .unwrap_or_default();
        line(&key.0, &key.1, cost, &b);
        sum.add(cost);
        read.add(&b);
    }
    line("all", "", &sum, &read);
    Cost {
        buffers: read.buffers / buffer_refreshes,
        n: sum.n,
        parse: sum.parse / refreshes,
        plan: sum.plan / refreshes,
        run: sum.run / refreshes,
        rows: read.rows / buffer_refreshes,
    }
}

impl Log {
    /// Every planning time of one probe, in order.
    pub fn plans(&self, probe: &str, system: &str) -> Vec<f64> {
        let mut out = Vec::new();
        for entry in self.entries() {
            let Some(rest) = entry.split_once("LOG:  duration: ").map(|e| e.1) else {
                continue;
            };
            let Some((ms, rest)) = rest.split_once(" ms  bind ") else {
                continue;
            };
            let Some((_, sql)) = rest.split_once(": ") else {
                continue;
            };
            if name(sql) == (probe.into(), system.into()) {
                out.push(ms.parse().expect("ms"));
            }
        }
        out
    }
}
