//! The ledger of what was spent.

use super::*;

#[tokio::test]
async fn a_call_is_recorded_once_and_never_rewritten() {
    let (client, _) = queue("usage").await;
    run(&client, "SELECT enqueue('q', 'k')").await;
    let (id, token) = claim_one(&client, "q").await;
    let report = |call: &str, rest: &str| format!("SELECT report_usage('{call}', {id}, 1, {rest})");
    assert_eq!(
        one(&client, &report("c1", "'m', 100, 20")).await,
        "recorded"
    );
    assert_eq!(
        one(&client, &report("c1", "'m', 100, 20")).await,
        "duplicate"
    );
    assert_eq!(
        one(&client, &report("c1", "'m', 100, 20, 0.0123")).await,
        "recorded",
        "the price became known"
    );
    assert_eq!(
        one(&client, &report("c1", "'other', 7, 7, 9.99")).await,
        "duplicate"
    );
    assert_eq!(
        one(&client, &report("c1", "NULL, NULL, NULL, NULL, 0.5")).await,
        "recorded"
    );
    assert_eq!(
        one(&client, &report("c1", "'m', 100, 20, NULL, 0.6")).await,
        "duplicate"
    );
    assert_eq!(
        one(&client, "SELECT attempt, queue, model, input_tokens, output_tokens, llm_cost, compute_cost FROM usage").await,
        "1|q|m|100|20|0.0123|0.5"
    );
    // Late, from an old try, for a task that is over, and for one that nobody knows: money all the same.
    run(
        &client,
        &format!("SELECT fail({id}, {token}, 'x', retry_after => '0')"),
    )
    .await;
    let (_, newer) = claim_one(&client, "q").await;
    run(&client, &format!("SELECT complete({id}, {newer})")).await;
    assert_eq!(
        one(&client, &report("c2", "'m', 1, 1, 0.1")).await,
        "recorded"
    );
    assert_eq!(
        one(&client, "SELECT report_usage('c3', 999, 1, NULL, 5, NULL)").await,
        "recorded"
    );
    assert_eq!(
        one(
            &client,
            "SELECT queue, model, output_tokens, llm_cost FROM usage WHERE call_id = 'c3'"
        )
        .await,
        "-|-|-|-"
    );
    for wrong in [
        "-1, 0",
        "0, -1",
        "0, 0, -0.1",
        "0, 0, 'NaN'",
        "0, 0, 0, 'NaN'",
    ] {
        assert_eq!(
            refusal(&client, &report("c4", &format!("'m', {wrong}"))).await,
            "23514",
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn a_call_reported_by_many_at_once_counts_once() {
    let (client, config) = queue("usage_race").await;
    run(&client, "SELECT enqueue('q', 'k')").await;
    let mut reporters = Vec::new();
    for n in 0..8 {
        let client = session(&config).await;
        reporters.push(tokio::spawn(async move {
            let mut recorded = 0;
            for call in 0..25 {
                let sql = format!("SELECT report_usage('call-{call}', 1, 1, 'm', {n}, 1, 0.01)");
                recorded += usize::from(one(&client, &sql).await == "recorded");
            }
            recorded
        }));
    }
    let mut recorded = 0;
    for reporter in reporters {
        recorded += reporter.await.unwrap();
    }
    assert_eq!(recorded, 25);
    assert_eq!(
        one(&client, "SELECT count(*), sum(llm_cost) FROM usage").await,
        "25|0.25"
    );
}
