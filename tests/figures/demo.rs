//! The demo's three queues: which statements a refresh sends, and what each costs.

use crate::common::{self, pty::Pty};
use crate::meter::{self, Log};
use jobtop::demo::{Demo, DemoOptions, roles};
use std::time::Duration;

const SECONDS: u64 = 40;

fn watch(demo: &Demo, seconds: u64) -> Pty {
    let url = format!(
        "host={} user={} dbname=demo",
        demo.cluster.socket_dir().display(),
        roles::ONCALL
    );
    let pty = Pty::jobtop(&[&url], 160, 45);
    pty.wait_text("LIVE");
    std::thread::sleep(Duration::from_secs(seconds));
    pty
}

#[test]
#[ignore = "prints figures"]
fn every_statement_of_the_demo() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let demo = runtime
        .block_on(Demo::start(
            DemoOptions {
                scenario: "calm".parse().expect("a scenario"),
                supervisor: common::options().supervisor,
                ..DemoOptions::default()
            },
            Box::new(|_| {}),
        ))
        .expect("a demo");
    println!("started in {:?}", demo.times);
    let run = |sql: String| {
        runtime.block_on(async {
            let client = common::connect(&demo.target.config).await;
            client.batch_execute(&sql).await.expect("settings");
        });
    };
    run(meter::log_everything(roles::ONCALL));
    // the first minute reads history: the steady state is what comes after
    let pty = watch(&demo, 20);
    let log = Log::of(demo.cluster.root());
    std::thread::sleep(Duration::from_secs(SECONDS));
    let costs = log.times();
    println!("{}", pty.screen().lines().next().unwrap_or_default());
    for (p, q) in [
        ("finished", "agent_queue"),
        ("tasks", "agent_queue"),
        ("queues", "agent_queue"),
        ("leases", "agent_jobs"),
    ] {
        println!("{p} {q} {:?}", log.plans(p, q));
    }
    drop(pty);
    run(meter::log_buffers(roles::ONCALL));
    let pty = watch(&demo, 20);
    let log = Log::of(demo.cluster.root());
    std::thread::sleep(Duration::from_secs(SECONDS));
    let buffers = log.buffers();
    drop(pty);
    let refreshes = |costs: &meter::Costs| {
        costs
            .iter()
            .filter(|(k, _)| k.0 == "activity")
            .map(|(_, c)| f64::from(c.n))
            .sum::<f64>()
    };
    println!(
        "{} and {} refreshes",
        refreshes(&costs),
        refreshes(&buffers)
    );
    meter::print(
        &costs,
        Some(&buffers),
        refreshes(&costs),
        refreshes(&buffers),
    );
    runtime.block_on(demo.stop());
}
