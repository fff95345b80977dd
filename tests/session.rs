//! What a session of ours promises the server.

mod common;

use jobtop::connect::session::Purpose;
use jobtop::connect::{Cells, Session, Target};
use std::time::Duration;

async fn timeout_of(session: &Session) -> String {
    let sql = "SELECT current_setting('statement_timeout')::text AS t";
    let rows = session.query(sql, &[]).await.expect("a setting");
    rows[0].word("t").expect("a text")
}

#[tokio::test]
async fn every_probe_has_a_deadline_that_the_server_keeps() {
    let (_, config) = common::database("deadline");
    let target = Target::new(config).expect("a target");
    let session = Session::open(&target, Purpose::Poll, "jobtop")
        .await
        .expect("a session");
    session.take_cost();
    assert_eq!(timeout_of(&session).await, "3s");
    session.within(Duration::from_millis(200));
    let slow = session.query("SELECT pg_sleep(20)", &[]).await;
    let fault = slow.expect_err("the server ends it");
    assert!(fault.is("57014") && !fault.closed, "{fault}");
    assert_eq!(timeout_of(&session).await, "200ms");
    session.within(Duration::from_secs(2));
    for _ in 0..4 {
        // also once it is prepared
        assert_eq!(timeout_of(&session).await, "2s");
    }
    let (statements, _) = session.take_cost();
    assert_eq!(statements, 7 + 2, "a change of deadline is sent once");
    session.close().await;
}
